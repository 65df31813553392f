"""The lines of checks, and of what runs have found over time, as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lancestat.formats import count, cut, duration, instant, size, visible
from lancestat.presentation import views, words
from lancestat.presentation.terminal import paint, table

if TYPE_CHECKING:
    from lancestat.tables.expectations import CheckResult

_MARGIN = "  "
_LONGEST_BOUND = 28


def check_lines(view: views.CheckView, page: views.Page) -> list[str]:
    """Return a line per check, what is wrong first, and a summary."""
    checked, checks = view.checked, view.checked.checks
    if not checks and not checked.errors:
        return [checked.summary]
    is_folded = checked.counts["proved"] > words.WELL_LISTED and not page.verbose
    rows = [
        [paint("error", "error"), visible(node), "", f"{error.code}: {error.message}"]
        for node, error in checked.errors.items()
    ]
    rows += [
        [_verdict(check), visible(node), visible(check.check), check.detail]
        for node, check in sorted(checks, key=lambda one: _VERDICTS.index(one[1].verdict))
        if not (is_folded and check.verdict == "proved")
    ]
    lines = [paint(f"Checks of {checked.report.name}, target {checked.report.target}", "title"), ""]
    shown = [[*row[:3], visible(page.redacted(row[3]))] for row in rows]
    lines += table(shown, indent=_MARGIN, page=page)
    if is_folded:
        more = f"{count(checked.counts['proved'])} proved (--verbose lists them)"
        lines.append(paint(f"{_MARGIN}{more}", "skip"))
    lines += ["", checked.summary]
    if any(check.verdict == "unknown" and check.is_provable for _, check in checks):
        lines.append(paint("--prove reads what decides the unknown expectations.", "note"))
    return lines


_VERDICTS = ("refuted", "unknown", "proved")


def _verdict(check: CheckResult) -> str:
    if check.verdict == "refuted":
        return paint(check.verdict.value, "error" if check.is_failed else "refresh")
    return paint(check.verdict.value, "success" if check.verdict == "proved" else "note")


_POINTS_LISTED = 20


def history_lines(view: views.HistoryView, page: views.Page) -> list[str]:
    """Return a line per run, the newest first, and what became of each column."""
    if not view.points:
        return [f"No run of {view.table} is recorded, and its dataset has no earlier version."]
    listed = view.points[::-1] if page.verbose else view.points[: -_POINTS_LISTED - 1 : -1]
    rows = [
        [
            instant(point.at, with_seconds=True),
            *(_figure(figures.get(name), text) for name, text in _OVER_TIME.items()),
        ]
        for point in listed
        for figures in [point.decoded()[0]]
    ]
    head = ["at", *(name.replace("_bytes", "").replace("_", " ") for name in _OVER_TIME)]
    lines = [paint(f"History of {view.table}", "title"), ""]
    lines += table(rows, head=head, right=range(1, len(head)), indent="  ", page=page)
    if len(listed) < len(view.points):
        more = f"{count(len(view.points) - len(listed))} more (--verbose lists them)"
        lines.append(paint(f"  {more}", "note"))
    return [*lines, *_changes(view, page)]


_OVER_TIME: Mapping[str, Callable[[Any], str]] = {
    "version": count,
    "rows": count,
    "fragments": count,
    "size_bytes": size,
    "bytes_read": size,
    "seconds": duration,
}


def _figure(value: object, text: Callable[[Any], str]) -> str:
    return "" if value is None else text(value)


def _changes(view: views.HistoryView, page: views.Page) -> list[str]:
    """Return what became of columns from the first to the last run that has them."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for point in view.points:
        for name, figures in point.decoded()[1].by_name().items():
            found.setdefault(name, []).append(figures)
    rows = [
        [
            visible(name),
            *(_from_to(some, key) for key in ("null_count", "distinct_count")),
            *(_from_to(some, key) for key in ("min", "max")),
        ]
        for name, some in found.items()
    ]
    if not rows:
        return []
    head = ["column", "nulls", "distinct ~", "min", "max"]
    return ["", *table(rows, head=head, indent="  ", page=page)]


def _from_to(figures: Sequence[Mapping[str, Any]], key: str) -> str:
    """Return a figure in the first and in the last run: `12 to 15`, `12` where it is the same."""
    first, last = (_bound_or_count(one.get(key)) for one in (figures[0], figures[-1]))
    return first if first == last else f"{first or 'none'} to {last or 'none'}"


def _bound_or_count(value: Any) -> str:
    if value is None:
        return ""
    return count(value) if isinstance(value, int) else visible(shortened(value))


def shortened(text: str) -> str:
    """Return a bound on one line, cut where it is long."""
    return cut(visible(" ".join(text.split())), _LONGEST_BOUND)
