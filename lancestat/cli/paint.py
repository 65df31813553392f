"""Colours, shown on terminals only."""

from __future__ import annotations

import os
import shutil

import click

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
}


def paint(text: str, tone: str) -> str:
    """Text in the colours of a tone; `click.echo` drops them where nobody would see them."""
    return click.style(text, **_TONES[tone])  # type: ignore[arg-type]


def wants_color() -> bool | None:
    """False under NO_COLOR (https://no-color.org), else None: as the stream suggests."""
    return False if os.environ.get("NO_COLOR") else None


def width() -> int:
    """Columns of the terminal, or 100 where there is none."""
    return min(shutil.get_terminal_size((100, 24)).columns, 120)
