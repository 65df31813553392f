"""Columns of text under each other."""

from __future__ import annotations

from collections.abc import Sequence

from lancestat.cli.paint import paint, unpainted

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
