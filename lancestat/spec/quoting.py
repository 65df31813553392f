"""Texts of a user inside messages."""

from __future__ import annotations

from lancestat.formats import visible

_LONGEST = 60


def quoted(text: str) -> str:
    """A text in quotes, on one line, not too long, and with what cannot be seen spelled out."""
    line = visible(text[: _LONGEST + 1])
    return f"'{line}'" if len(line) <= _LONGEST else f"'{line[: _LONGEST - 3]}...'"
