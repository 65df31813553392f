"""Colours, shown on terminals only.

Painted text holds marks (`redact.PAINT`) in place of escape sequences until it is printed, so that
an escape sequence in a text is always somebody else's.
"""

from __future__ import annotations

import os
import shutil

import click

from lancestat.redact import PAINT

_TONES: dict[str, dict[str, object]] = {
    "analyze": {"fg": "green"},
    "refresh": {"fg": "yellow"},
    "restamp": {"fg": "cyan"},
    "skip": {"dim": True},
    "blocked": {"fg": "red"},
    "error": {"fg": "red"},
    "success": {"fg": "green"},
    "note": {"dim": True},
    "title": {"bold": True},
    "code": {"fg": "red", "bold": True},
}
_RESET = PAINT[0]
_BEGIN = dict(zip(_TONES, PAINT[1:], strict=False))
_NOTHING = dict.fromkeys(map(ord, PAINT))
_SEQUENCES = {
    ord(_RESET): click.style("", reset=True),
    **{
        ord(_BEGIN[tone]): click.style("", reset=False, **style)  # type: ignore[arg-type]
        for tone, style in _TONES.items()
    },
}


def paint(text: str, tone: str) -> str:
    """Text in the colours of a tone, which are dropped where nobody would see them."""
    return f"{_BEGIN[tone]}{text}{_RESET}"


def unpainted(text: str) -> str:
    """Text as it looks without colours."""
    return text.translate(_NOTHING)


def colored(text: str) -> str:
    """Painted text with a terminal's escape sequences."""
    return text.translate(_SEQUENCES)


def wants_color() -> bool | None:
    """False under NO_COLOR (https://no-color.org), else None: as the stream suggests."""
    return False if os.environ.get("NO_COLOR") else None


def width() -> int:
    """Columns of the terminal, or 100 where there is none."""
    return min(shutil.get_terminal_size((100, 24)).columns, 120)
