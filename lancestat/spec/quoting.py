"""Texts of a user inside messages."""

from __future__ import annotations

_LONGEST = 60


def quoted(text: str) -> str:
    """A text in quotes, on one line, not too long, and with what cannot be seen spelled out."""
    start = text[: _LONGEST + 1]
    line = "".join(char if char.isprintable() else repr(char)[1:-1] for char in start)
    return f"'{line}'" if len(line) <= _LONGEST else f"'{line[: _LONGEST - 3]}...'"
