"""Formats numbers, times and text from outside for people, in every command and page.

Text from outside, such as a name of a file, cannot control a terminal or a reader of logs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta, timezone
from enum import Enum


class StringEnum(str, Enum):
    """An enum of words that print as they are: `str(Status.ERROR)` is `error`."""

    __str__ = str.__str__


def count(number: int, noun: str | None = None, plural: str | None = None) -> str:
    """`4,250,000`, or `1 row` and `2 rows` with a noun."""
    digits = f"{number:,}"
    if noun is None:
        return digits
    return f"{digits} {noun if number == 1 else plural or noun + 's'}"


def large(number: float) -> str:
    """A number that is only roughly of interest: `950`, `12 thousand`, `1.2 billion`."""
    return _scaled(number, ("", " thousand", " million", " billion", " trillion"))


def size(size_bytes: int) -> str:
    """Bytes in decimal units with two or three digits, as `9.8 MB` or `212 MB`."""
    return _scaled(size_bytes, (" B", " kB", " MB", " GB", " TB", " PB"))


def _scaled(value: float, units: Sequence[str]) -> str:
    unit = 0
    # What would be rounded to four digits belongs to the next unit.
    while value >= 999.5 and unit < len(units) - 1:
        value, unit = value / 1000, unit + 1
    digits = f"{value:.1f}" if unit and value < 9.95 else f"{value:,.0f}"
    return f"{digits}{units[unit]}"


def duration(seconds: float) -> str:
    """`20 ms`, `1.2 s`, `2 min 5 s`, `3 h 4 min`, `2 d 1 h`: the two largest units that matter."""
    if seconds < 0.0995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    left = round(seconds)
    parts: list[tuple[int, str]] = []
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        number, left = divmod(left, length)
        if number or parts:
            parts.append((number, unit))
    return " ".join(f"{number:,} {unit}" for number, unit in parts[:2] if number)


def age(span: timedelta) -> str:
    """Return a span of time in words."""
    return duration(span.total_seconds())


def roughly(span: timedelta) -> str:
    """Return a span of time in its largest unit, `2 d`; a negative one is no time at all."""
    return " ".join(age(max(span, timedelta())).split(" ")[:2])


def instant(moment: datetime, *, with_seconds: bool = False) -> str:
    """Return a moment in UTC, to the minute or to the second: `2026-03-01 06:30 UTC`."""
    form = "%Y-%m-%d %H:%M:%S UTC" if with_seconds else "%Y-%m-%d %H:%M UTC"
    return moment.astimezone(timezone.utc).strftime(form)


def format_instant(moment: datetime) -> str:
    """Return an aware moment for programs: ISO 8601 in UTC with `Z`, to the microsecond."""
    if moment.tzinfo is None:
        raise ValueError("an instant needs a time zone")
    return moment.astimezone(timezone.utc).isoformat(timespec="microseconds")[:-6] + "Z"


def share(part: float) -> str:
    """Return a share as a percentage in which neither a little nor nearly all is rounded away."""
    if 0 < part < 0.001:
        return "<0.1 %"
    if 0.999 < part < 1:
        return ">99.9 %"
    return f"{part * 100:.1f}".removesuffix(".0") + " %"


def spoken(words: Iterable[str]) -> str:
    """Return machine words for people: `rows appended, version moved`."""
    return ", ".join(word.replace("_", " ") for word in words)


# Marks of colours within a line, which the command line translates. Unicode keeps them for uses
# such as this one.
PAINT = "".join(map(chr, range(0xFDD0, 0xFDE0)))
_LAYOUT = re.compile(r"\n(?= {6})")
_HINT = "\n      hint: "


# The most names that a sentence lists.
MOST_NAMED = 10


def named(names: Sequence[str]) -> str:
    """Return the first of some names, and how many more there are."""
    rest = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {count(rest)} more" if rest > 0 else "")


def visible(text: str, *, keep: str = "") -> str:
    """A text on one line, with all that cannot be seen, or controls a terminal, spelled out."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in keep else repr(char)[1:-1] for char in text
    )


def message_line(text: str) -> str:
    """A message on one line, with its hint in parentheses, which is the last of its lines."""
    message, hint, advice = text.partition(_HINT)
    return visible(f"{message} (hint: {advice})" if hint else message)


def message_lines(text: str) -> list[str]:
    """The lines of a message; any line break but one before a hint or an excerpt is spelled out."""
    return [visible(line, keep=PAINT) for line in _LAYOUT.split(text)]


# GitHub's runner runs `::` commands after any white space at the start of a line, `##[` anywhere
# (ActionCommand.cs); Azure's agent runs `##vso[`, TeamCity `##teamcity[`.
_COMMAND_ANYWHERE = re.compile(r"##(?=(?:vso|teamcity)?\[)", re.IGNORECASE)


def escape_commands(line: str, *, is_start: bool = True) -> str:
    """A line, or the rest of one, in which no system that reads logs finds a command."""
    start = line.lstrip(f"\u200b \t{PAINT}")
    if is_start and start.startswith("::"):
        line = line.replace("::", "\\x3a:", 1)
    return _COMMAND_ANYWHERE.sub("#\\\\x23", line)


def escape_json_commands(text: str) -> str:
    """A JSON text that is the same value, in which no terminal and no log finds a command."""
    if text.isprintable() and "##" not in text:
        return text
    spelled = _COMMAND_ANYWHERE.sub("#\\\\u0023", text)
    return "".join(
        char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in spelled
    )


def escape_non_ascii(text: str) -> str:
    """A JSON text that is the same value, in ASCII."""
    return "".join(char if char.isascii() else json.dumps(char)[1:-1] for char in text)


def cut(text: str, longest: int) -> str:
    """Return a text, cut where it is longer than so many characters."""
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


_LONGEST_QUOTED = 60


def quoted(text: str) -> str:
    """Return a text in quotes, on one line, cut, and with what cannot be seen spelled out."""
    return f"'{cut(visible(text[: _LONGEST_QUOTED + 1]), _LONGEST_QUOTED)}'"


def string_literal(text: str) -> str:
    """Return a text as a string literal of SQL."""
    return "'" + text.replace("'", "''") + "'"
