"""Bars on a terminal while a run goes on; nothing elsewhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lancestat.plan.format import count, size
from lancestat.run.progress import Progress, Silent, TableProgress
from lancestat.run.result import NodeResult, Status

if TYPE_CHECKING:
    import rich.progress as bars

# Bars beyond these would scroll; the total goes on counting all tables.
_BARS_SHOWN = 10


@contextmanager
def progress_display(*, quiet: bool) -> Iterator[Progress]:
    """Bars if a person is watching stderr, else silence."""
    if quiet or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield Silent()
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[counts]}", style="dim"),
        TimeElapsedColumn(),
    )
    with Bars(*columns, console=Console(stderr=True), transient=True) as display:
        yield TerminalProgress(display)


class TerminalProgress:
    """Fragments and bytes read, per table and in all."""

    def __init__(self, display: bars.Progress) -> None:
        self._display = display
        self._tables: dict[str, TableProgress] = {}
        self._tasks: dict[str, bars.TaskID] = {}
        self._bytes_done: dict[str, int] = {}
        self._total: bars.TaskID | None = None

    def started(self, tables: Sequence[TableProgress]) -> None:
        """Show a bar per table that is read."""
        self._tables = {table.node: table for table in tables}
        if len(tables) > 1:
            name = f"{count(len(tables), 'table')}"
            everything = sum(table.size_bytes for table in tables)
            self._total = self._display.add_task(name, total=everything or None, counts="")
        for index, table in enumerate(tables):
            self._tasks[table.node] = self._display.add_task(
                table.node,
                total=table.size_bytes or None,
                visible=index < _BARS_SHOWN,
                counts=_counts(table, 0, 0),
            )

    def advanced(self, node: str, fragments_done: int, bytes_done: int) -> None:
        """Move a table's bar."""
        table = self._tables.get(node)
        if table is None:
            return
        counts = _counts(table, fragments_done, bytes_done)
        self._display.update(self._tasks[node], completed=bytes_done, counts=counts)
        self._bytes_done[node] = bytes_done
        self._advance_total()

    def finished(self, result: NodeResult) -> None:
        """Take a table's bar away and let the next one be seen."""
        table = self._tables.get(result.name)
        if table is None:
            return
        self._display.update(self._tasks.pop(result.name), visible=False)
        self._bytes_done[result.name] = table.size_bytes
        self._advance_total()
        for task in list(self._tasks.values())[:_BARS_SHOWN]:
            self._display.update(task, visible=True)
        if result.status is Status.ERROR:
            self._display.console.print(f"! {result.name} failed", style="red", markup=False)

    def _advance_total(self) -> None:
        if self._total is None:
            return
        done = sum(self._bytes_done.values())
        everything = sum(table.size_bytes for table in self._tables.values())
        counts = f"{size(done)} of {size(everything)}"
        self._display.update(self._total, completed=done, counts=counts)


def _counts(table: TableProgress, fragments_done: int, bytes_done: int) -> str:
    fragments = f"{count(fragments_done)} of {count(table.fragments, 'fragment')}"
    return f"{fragments}, {size(bytes_done)} of {size(table.size_bytes)}"
