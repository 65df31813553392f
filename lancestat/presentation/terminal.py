"""Colours, shown on terminals only.

Painted text holds marks (`redact.PAINT`) in place of escape sequences until it is printed, so that
an escape sequence in a text is always somebody else's.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from itertools import zip_longest
from typing import TYPE_CHECKING

import click

from lancestat.formats import (
    PAINT,
    escape_commands,
    escape_json_commands,
    escape_non_ascii,
    format_instant,
    visible,
)
from lancestat.redact import EMPTY_REDACTOR, Audience, Redactor, secret_environment

if TYPE_CHECKING:
    from lancestat.presentation.views import Page

_TONES: dict[str, dict[str, object]] = {
    "analyze": {"fg": "green"},
    "refresh": {"fg": "yellow"},
    "restamp": {"fg": "cyan"},
    "skip": {"dim": True},
    "defer": {"fg": "cyan"},
    "blocked": {"fg": "red"},
    "error": {"fg": "red"},
    "success": {"fg": "green"},
    "note": {"dim": True},
    "title": {"bold": True},
    "code": {"fg": "red", "bold": True},
}
_RESET = PAINT[0]
_GAP = "  "
_LEAST_LIMIT = 40
_NARROWEST = 8
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
    """Text in the colours of a tone, which are dropped where they would not be seen."""
    return f"{_BEGIN[tone]}{text}{_RESET}"


def unpainted(text: str) -> str:
    return text.translate(_NOTHING)


def colored(text: str) -> str:
    return text.translate(_SEQUENCES)


def wants_color() -> bool | None:
    """False under NO_COLOR (https://no-color.org), else None: as the stream suggests."""
    return False if os.environ.get("NO_COLOR") else None


def width() -> int:
    """Columns of the terminal, or 100 where there is none."""
    return min(shutil.get_terminal_size((100, 24)).columns, 120)


def limit() -> int | None:
    """Columns that rows keep to: those of a terminal or of COLUMNS, None where neither is there."""
    given = os.environ.get("COLUMNS", "")
    if not sys.stdout.isatty() and not (given.isdecimal() and int(given)):
        return None
    return max(shutil.get_terminal_size((100, 24)).columns, _LEAST_LIMIT)


def fitting_columns(limit: int) -> int:
    """Return how many columns of a table fit into a limit, however wide their cells are."""
    return (limit + len(_GAP)) // (_NARROWEST + len(_GAP))


# Markdown gets it between characters that would mean something side by side.
ZERO_WIDTH_SPACE = "\u200b"


@dataclass(slots=True)
class Console:
    """The output of a command: its audience, and the redaction for that audience.

    `has_document` is set once the command has printed its result in JSON. Where `logs_json` is set,
    what goes to stderr is JSON, an object on each line.
    """

    audience: Audience = Audience.PERSON
    redactor: Redactor = field(default=EMPTY_REDACTOR)
    has_document: bool = False
    logs_json: bool = False

    def begin(self, audience: Audience, *, logs_json: bool = False) -> None:
        """Print for an audience from now on, with the redactor of this process alone."""
        self.audience, self.logs_json = audience, logs_json
        self.redactor = Redactor(secret_environment(os.environ))
        self.has_document = False

    def redact_with(self, redactor: Redactor) -> None:
        """Also redact what a project's redactor finds."""
        self.redactor = redactor.merged(self.redactor)

    def redacted(self, text: str) -> str:
        return self.redactor.text(text, self.audience)

    def out(self, *lines: str) -> None:
        for line in lines:
            click.echo(self._line(line, PAINT), color=wants_color())

    def markdown(self, text: str) -> None:
        """Print a result in Markdown, with the line breaks that it has."""
        for line in text.split("\n"):
            click.echo(self._line(line, ZERO_WIDTH_SPACE))

    def json(self, text: str) -> None:
        """Print a result in JSON, the one document of the command, the same in every encoding."""
        self.has_document = True
        escaped = escape_json_commands(text)
        click.echo(escaped if _can_encode(escaped) else escape_non_ascii(escaped))

    def document(self, payload: object) -> None:
        """Print a result in JSON, without what the audience must not see."""
        redacted = self.redactor.json(payload, self.audience)
        self.json(json.dumps(redacted, indent=2, ensure_ascii=False, allow_nan=False))

    def csv(self, text: str) -> None:
        """Print lines of CSV: as they are for programs, and so that nothing controls a terminal."""
        # Without colours, click would take escape sequences out of values.
        click.echo(visible(text, keep="\n\t") if sys.stdout.isatty() else text, color=True)

    def err(self, *lines: str, level: str = "info", **members: object) -> None:
        """Print lines to stderr, or log them as one message with members of its own."""
        if self.logs_json:
            message = unpainted("\n".join(lines))
            self.log(datetime.now(timezone.utc), level, {"message": message, **members})
            return
        for line in lines:
            click.echo(self._line(line, PAINT), err=True, color=wants_color())

    def log(self, at: datetime, level: str, members: Mapping[str, object]) -> None:
        """Print an object with these members to stderr, on a line of its own."""
        entry = {"time": format_instant(at), "level": level, **members}
        redacted = self.redactor.json(entry, self.audience)
        click.echo(json.dumps(redacted, default=str), err=True)

    def _line(self, line: str, keep: str) -> str:
        return colored(visible(escape_commands(self.redacted(line)), keep=keep))


CONSOLE = Console()


def replace_what_has_no_code() -> None:
    """Let stdout and stderr spell out characters that their encoding does not have.

    Such an encoding is Latin-1, and no encoding has the letters by which Python writes bytes of a
    file's name that are no text. Where the encoding is ASCII, click prints UTF-8.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _can_encode(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def table(
    rows: Iterable[Sequence[str]],
    *,
    head: Sequence[str] | None = None,
    right: Collection[int] = (),
    widest: Mapping[int, int] | None = None,
    indent: str = "",
    page: Page | None = None,
) -> list[str]:
    """Lay out cells, which may hold colours, in columns by their width on a terminal.

    The last cell of a row that is shorter than others spans what is left. Columns in `right` are
    flush right, those in `widest` are no wider, however long their cells are. The `limit` of a page
    is kept by cells of several lines.

    Own code, since a table of rich costs more start-up time than `lancestat list` as a whole, wraps
    or crops what does not fit, and would have to be taught about marks that are not printed.
    """
    body = [*([[paint(cell, "note") for cell in head]] if head else []), *rows]
    redacted = CONSOLE.redacted if page is None else page.redacted
    body = [_without_commands(row, redacted) for row in body]
    columns = max(map(len, body), default=0)
    widths = [0] * columns
    for row in body:
        for index, cell in enumerate(row if len(row) == columns else row[:-1]):
            widths[index] = max(widths[index], cell_width(cell))
    for index, most in (widest or {}).items():
        if index < columns:
            widths[index] = min(widths[index], most)
    if page is not None and page.limit is not None:
        room = page.limit - len(indent)
        widths = _shrunk(widths, room - len(_GAP) * (columns - 1))
        body = [part for row in body for part in _folded(row, widths, room, page)]
    lines = []
    for row in body:
        cells = (_padded(cell, widths[index], index in right) for index, cell in enumerate(row))
        lines.append(f"{indent}{_GAP.join(cells)}".rstrip())
    return lines


def _without_commands(row: Sequence[str], redacted: Callable[[str], str]) -> list[str]:
    """Return a row as it is printed, so that cells are as wide as they will be."""
    cells: list[str] = []
    for cell in row:
        is_start = not any(cells)
        if escape_commands(cell, is_start=is_start) != cell:
            # No secret is found any more in what has been spelled out.
            cell = escape_commands(redacted(cell), is_start=is_start)
        cells.append(cell)
    return cells


def _shrunk(widths: Sequence[int], room: int) -> list[int]:
    """Return widths that fit into a room, as far as the widest may still be narrowed."""
    shrunk = list(widths)
    while sum(shrunk) > room and max(shrunk) > _NARROWEST:
        shrunk[shrunk.index(max(shrunk))] -= 1
    return shrunk


def _folded(
    row: Sequence[str], widths: Sequence[int], room: int, page: Page
) -> Iterator[list[str]]:
    """Yield a row as the rows that its cells need; a last cell that spans columns has the rest."""
    least = list(widths[: len(row)])
    if len(row) < len(widths):
        least[-1] = max(_NARROWEST, room - sum(least[:-1]) - len(_GAP) * (len(row) - 1))
    parts = [_parts(cell, width, page) for cell, width in zip(row, least, strict=True)]
    yield from map(list, zip_longest(*parts, fillvalue=""))


def _parts(cell: str, width: int, page: Page) -> list[str]:
    """Return a cell's text in lines of a width; redacted before, as a secret is cut by no line."""
    if cell_width(cell) <= width:
        return [cell]
    text = page.redacted(unpainted(cell))
    tone = cell[0] if cell[0] in PAINT else ""
    columns = width if text.isascii() else max(width // 2, 1)
    parts = textwrap.wrap(text, columns, break_on_hyphens=False)
    return [f"{tone}{part}{_RESET}" if tone else part for part in parts]


def _padded(cell: str, width: int, is_right: bool) -> str:
    space = " " * (width - cell_width(cell))
    return space + cell if is_right else cell + space


def cell_width(text: str) -> int:
    bare = unpainted(text)
    if bare.isascii():
        return len(bare)
    from rich.cells import cell_len

    return cell_len(bare)


def wrapped(text: str, width: int, *, indent: str, hanging: str = "") -> list[str]:
    """Wrap a text between words into indented lines, those after the first with `hanging` too."""
    return textwrap.wrap(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=indent + hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )
