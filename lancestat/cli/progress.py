"""Bars on a terminal while a run goes on; nothing elsewhere."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lancestat.execution.result import Progress, SilentProgress, TableProgress
from lancestat.formats import count, large, size, visible
from lancestat.plan.node_result import NodeResult, Status
from lancestat.plan.stages import ExtendLayout, LayOut, Probe, ReuseLayout, StageProgress

if TYPE_CHECKING:
    import rich.progress as bars

# More bars than these would scroll; the total counts all tables.
_BARS_SHOWN = 10


@contextmanager
def progress_display(*, quiet: bool) -> Iterator[Progress]:
    """Yield bars if stderr is a terminal, else a progress that is not shown."""
    if quiet or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield SilentProgress()
        return
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[counts]}", style="dim"),
        TimeElapsedColumn(),
    )
    with Bars(*columns, console=Console(stderr=True), transient=True) as display:
        yield TerminalProgress(display)


class TerminalProgress:
    """A line for all tables, then one for each that is being read, then one for each join.

    Those of tables show fragments and bytes while these are read, and then the stage; those of
    joins the stage, rows and pairs per second.
    """

    def __init__(self, display: bars.Progress) -> None:
        self._display = display
        self._lock = threading.Lock()
        self._tables: dict[str, TableProgress] = {}
        self._tasks: dict[str, bars.TaskID] = {}
        self._read: dict[str, tuple[int, int]] = {}
        self._all: bars.TaskID | None = None
        self._joins: dict[str, bars.TaskID | None] = {}

    def started(self, tables: Sequence[TableProgress], joins: Sequence[str]) -> None:
        """Show that Spark is being started, if it has anything to do."""
        if not tables and not joins:
            return
        self._tables = {table.node: table for table in tables}
        self._joins = dict.fromkeys(joins)
        self._all = self._display.add_task("starting Spark", total=None, counts="")
        for table in tables:
            self._tasks[table.node] = self._display.add_task(
                visible(table.node),
                total=table.size_bytes or None,
                visible=False,
                start=False,
                counts="",
            )

    def advanced(self, node: str, fragments_done: int, bytes_done: int) -> None:
        """Move a table's bar."""
        table = self._tables.get(node)
        with self._lock:
            if table is None or node not in self._tasks:
                return
            task = self._tasks[node]
            if node not in self._read:
                self._display.start_task(task)
            self._read[node] = (fragments_done, bytes_done)
            counts = _counts(table, fragments_done, bytes_done)
            self._display.update(task, completed=bytes_done, counts=counts)
            self._show()

    def at_stage(self, node: str, progress: StageProgress) -> None:
        """Show the stage of a join, or of a table that has been read, and how far it is."""
        with self._lock:
            if node in self._joins:
                self._show_join(node, progress)
            elif node in self._tasks and node in self._read:
                self._display.update(self._tasks[node], counts=stage_text(progress))

    def _show_join(self, node: str, progress: StageProgress) -> None:
        if not self._tables and self._all is not None:
            self._display.update(self._all, visible=False)
        task = self._joins[node]
        if task is None:
            task = self._joins[node] = self._display.add_task(visible(node), total=None, counts="")
        self._display.update(
            task,
            total=progress.rows_total,
            completed=progress.rows_done,
            counts=stage_text(progress),
        )

    def finished(self, result: NodeResult) -> None:
        """Take a node's bar away and let the next one be seen."""
        table = self._tables.get(result.name)
        with self._lock:
            join = self._joins.pop(result.name, None)
            if join is not None:
                self._display.update(join, visible=False)
            task = self._tasks.pop(result.name, None)
            if table is not None and task is not None:
                self._display.update(task, visible=False)
                self._read[result.name] = (table.fragments, table.size_bytes)
                self._show()
        if result.status is Status.ERROR:
            text = f"! {visible(result.name)} failed, the others go on"
            self._display.console.print(text, style="red", markup=False, highlight=False)

    def _show(self) -> None:
        """Move the line for all tables; show bars of the tables that are being read."""
        busy = [node for node in self._tasks if node in self._read]
        for index, node in enumerate(busy):
            self._display.update(self._tasks[node], visible=index < _BARS_SHOWN)
        if self._all is None:
            return
        everything = TableProgress(
            count(len(self._tables), "table"),
            sum(table.fragments for table in self._tables.values()),
            sum(table.size_bytes for table in self._tables.values()),
        )
        fragments, size_bytes = (sum(done) for done in zip(*self._read.values(), strict=True))
        self._display.update(
            self._all,
            description=everything.node,
            total=everything.size_bytes or None,
            completed=size_bytes,
            counts=_counts(everything, fragments, size_bytes),
        )


def stage_text(progress: StageProgress) -> str:
    """A stage in words: `probe, exact, 2,000 of 10,000 rows, 1.2 billion pairs/s`."""
    stage = progress.stage
    parts = [stage.name]
    if isinstance(stage, Probe):
        parts.append(stage.strategy.value)
    elif isinstance(stage, LayOut | ReuseLayout | ExtendLayout):
        parts.append(count(stage.lists, "list"))
    if progress.rows_total is not None:
        parts.append(f"{count(progress.rows_done)} of {count(progress.rows_total, 'row')}")
    elif progress.rows_done:
        parts.append(count(progress.rows_done, "row"))
    if progress.pairs_per_second:
        parts.append(f"{large(progress.pairs_per_second)} pairs/s")
    if progress.note:
        parts.append(progress.note)
    return ", ".join(parts)


def _counts(table: TableProgress, fragments_done: int, bytes_done: int) -> str:
    fragments = f"{count(fragments_done)} of {count(table.fragments, 'fragment')}"
    return f"{fragments}, {size(bytes_done)} of {size(table.size_bytes)}"
