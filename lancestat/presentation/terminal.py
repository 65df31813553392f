"""Colours, shown on terminals only.

Painted text holds marks (`redact.PAINT`) in place of escape sequences until it is printed, so that
an escape sequence in a text is always somebody else's.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field

import click

from lancestat.redact import (
    NOTHING_KNOWN,
    PAINT,
    Audience,
    Redactor,
    inert,
    inert_json,
    secret_environment,
    visible,
)

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


# Markdown has it where characters that mean something stand side by side.
_UNSEEN = "\u200b"


@dataclass(slots=True)
class Console:
    """The output of a command: who sees it, and what they must not see."""

    audience: Audience = Audience.PERSON
    redactor: Redactor = field(default=NOTHING_KNOWN)

    def begin(self, audience: Audience) -> None:
        """Print for an audience from now on, and forget what other commands knew."""
        self.audience = audience
        self.redactor = Redactor(secret_environment(os.environ))

    def know(self, redactor: Redactor) -> None:
        """Never show what a project's redactor finds."""
        self.redactor = redactor.merged(self.redactor)

    def text(self, text: str) -> str:
        """A text without what the audience must not see."""
        return self.redactor.text(text, self.audience)

    def out(self, *lines: str) -> None:
        """Lines of a result."""
        for line in lines:
            click.echo(self._line(line, PAINT), color=wants_color())

    def markdown(self, text: str) -> None:
        """A result in Markdown, whose line breaks are its own."""
        for line in text.split("\n"):
            click.echo(self._line(line, _UNSEEN))

    def json(self, text: str) -> None:
        """A result in JSON."""
        click.echo(inert_json(text))

    def err(self, *lines: str) -> None:
        """Lines of talk."""
        for line in lines:
            click.echo(self._line(line, PAINT), err=True, color=wants_color())

    def _line(self, line: str, keep: str) -> str:
        return colored(visible(inert(self.text(line)), keep=keep))


CONSOLE = Console()


Row = Sequence[str]


def grid(head: Row, rows: Sequence[Row], *, right: frozenset[int] = frozenset()) -> list[str]:
    """Lines with a dim head; columns in `right` are flush right. Cells may hold colours."""
    table = [[paint(cell, "note") for cell in head], *rows]
    widths = [max(_width(row[i]) for row in table) for i in range(len(head))]
    return [
        "  ".join(_pad(row[i], widths[i], i in right) for i in range(len(head))).rstrip()
        for row in table
    ]


def _width(cell: str) -> int:
    return len(unpainted(cell))


def _pad(cell: str, width: int, right: bool) -> str:
    space = " " * (width - _width(cell))
    return space + cell if right else cell + space
