"""How figures are spelled on pages."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta, timezone

from lancestat.plan.format import age
from lancestat.report.values import Health

NOTHING = "\u2013"


def instant(moment: datetime | None) -> str:
    """A moment to the minute, in UTC."""
    if moment is None:
        return NOTHING
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")


def ago(moment: datetime | None, now: datetime) -> str:
    """How long ago a moment was."""
    if moment is None:
        return NOTHING
    span = now - moment
    return "just now" if span < timedelta(seconds=1) else f"{roughly(span)} ago"


def roughly(span: timedelta) -> str:
    """A span of time in its largest unit."""
    return " ".join(age(span).split(" ")[:2])


def sentence(text: str) -> str:
    """A text that begins a sentence."""
    return text[:1].upper() + text[1:]


def share(part: float | None) -> str:
    """A share in per cent, such that neither little nor nearly all is rounded away."""
    if part is None:
        return NOTHING
    if 0 < part < 0.001:
        return "< 0.1 %"
    if 0.999 < part < 1:
        return "> 99.9 %"
    return f"{part:.1%}".replace(".0%", " %").replace("%", " %").replace("  ", " ")


def spoken(words: Iterable[str]) -> str:
    """Machine words for people."""
    return ", ".join(word.replace("_", " ") for word in words)


HEALTH = {
    Health.OK: "within policy",
    Health.WARN: "needs attention",
    Health.ERROR: "outside policy",
}
