"""What is shown while a run goes on: bars on a terminal, lines elsewhere."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from lancestat.formats import count, instant, large, size, visible
from lancestat.presentation.terminal import CONSOLE
from lancestat.runs.actions import StageProgress
from lancestat.runs.result import NodeResult, Progress, Status, TableProgress

if TYPE_CHECKING:
    import rich.progress as bars

# More bars than these would scroll; the total counts all tables.
_BARS_SHOWN = 10


@contextmanager
def progress_display(*, quiet: bool) -> Iterator[Progress]:
    """Yield bars if stderr is a terminal, else lines with the time; nothing if `quiet`."""
    if quiet:
        yield Progress()
        return
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        with LineProgress().shown() as lines:
            yield lines
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


_BETWEEN_LINES_SECONDS = 60.0
_LEVELS = {Status.ERROR: "ERROR", Status.SKIPPED: "WARNING", Status.INTERRUPTED: "WARNING"}


class LineProgress(Progress):
    """A line with time and level for each node that ends, and one a minute for each that goes on.

    Nodes that are left as they were have no lines.
    """

    def __init__(
        self,
        write: Callable[[str], None] = CONSOLE.err,
        clock: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    ) -> None:
        self._write = write
        self._clock = clock
        self._lock = threading.Lock()
        self._tables: dict[str, TableProgress] = {}
        self._working: dict[str, str] = {}
        self._ended = threading.Event()

    @contextmanager
    def shown(self, every_seconds: float = _BETWEEN_LINES_SECONDS) -> Iterator[LineProgress]:
        """Print the lines of nodes that go on in a thread of its own while the block runs."""
        thread = threading.Thread(target=self._repeat, args=[every_seconds], daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._ended.set()
            thread.join()

    def _repeat(self, every_seconds: float) -> None:
        while not self._ended.wait(every_seconds):
            self.print_working()

    def print_working(self) -> None:
        with self._lock:
            for node, text in self._working.items():
                self._print("INFO", f"{node}: {text}")

    def started(self, tables: Sequence[TableProgress], joins: Sequence[str]) -> None:
        self._tables = {table.node: table for table in tables}

    def advanced(self, node: str, fragments_done: int, bytes_done: int) -> None:
        table = self._tables.get(node)
        with self._lock:
            if table is not None and node in self._working:
                self._working[node] = f"read, {_counts(table, fragments_done, bytes_done)}"

    def at_stage(self, node: str, progress: StageProgress) -> None:
        with self._lock:
            self._working[node] = stage_text(progress)

    def finished(self, result: NodeResult) -> None:
        with self._lock:
            self._working.pop(result.name, None)
            if result.end != "skip":
                text = ", ".join(_done(result))
                self._print(_LEVELS.get(result.status, "INFO"), f"{result.name}: {text}")

    def cancelling(self) -> None:
        with self._lock:
            self._print("WARNING", CANCELLING)

    def _print(self, level: str, text: str) -> None:
        self._write(f"{instant(self._clock(), with_seconds=True)} {level:<7} {visible(text)}")


CANCELLING = "cancelling; interrupt again to exit immediately"


def _done(result: NodeResult) -> Iterator[str]:
    yield result.end
    if result.is_done:
        compared = result.figures.compared if result.figures else ""
        yield from filter(None, (result.read, compared, result.took))
    elif result.text:
        yield result.text.splitlines()[0]


class TerminalProgress(Progress):
    """A line for all tables, then one for each node that is being worked on.

    Those of tables show fragments and bytes while these are read, and then the stage; those of
    joins the stage, rows and pairs per second.
    """

    def __init__(self, display: bars.Progress) -> None:
        self._display = display
        self._lock = threading.Lock()
        self._tables: dict[str, TableProgress] = {}
        self._open: set[str] = set()
        self._read: dict[str, tuple[int, int]] = {}
        self._all: bars.TaskID | None = None
        self._bars: dict[str, bars.TaskID] = {}

    def started(self, tables: Sequence[TableProgress], joins: Sequence[str]) -> None:
        """Show that Spark is being started, if it has anything to do."""
        self._tables = {table.node: table for table in tables}
        self._open = {*self._tables, *joins}
        if self._open:
            self._all = self._display.add_task("starting Spark", total=None, counts="")

    def advanced(self, node: str, fragments_done: int, bytes_done: int) -> None:
        table = self._tables.get(node)
        with self._lock:
            if table is not None and node in self._open:
                self._read[node] = (fragments_done, bytes_done)
                counts = _counts(table, fragments_done, bytes_done)
                self._show(node, counts, bytes_done, table.size_bytes)
                self._show_sum()

    def at_stage(self, node: str, progress: StageProgress) -> None:
        """Show the stage of a join, or of a table that has been read, and how far it is."""
        text = stage_text(progress)
        with self._lock:
            if node in self._bars and node in self._tables:
                self._display.update(self._bars[node], counts=text)
            elif node in self._open and node not in self._tables:
                if not self._tables and self._all is not None:
                    self._display.update(self._all, visible=False)
                self._show(node, text, progress.rows_done, progress.rows_total)

    def finished(self, result: NodeResult) -> None:
        """Take a node's bar away and let the next one be seen."""
        table = self._tables.get(result.name)
        with self._lock:
            self._open.discard(result.name)
            bar = self._bars.pop(result.name, None)
            if bar is not None:
                self._display.remove_task(bar)
            for next_bar in [*self._bars.values()][:_BARS_SHOWN]:
                self._display.update(next_bar, visible=True)
            if table is not None:
                self._read[result.name] = (table.fragments, table.size_bytes)
                self._show_sum()
        if result.status is Status.ERROR:
            text = f"! {visible(result.name)} failed, the others go on"
            self._display.console.print(text, style="red", markup=False, highlight=False)

    def cancelling(self) -> None:
        self._display.console.print(CANCELLING, style="yellow", markup=False, highlight=False)

    def _show(self, node: str, counts: str, done: int, total: int | None) -> None:
        if node not in self._bars:
            is_shown = len(self._bars) < _BARS_SHOWN
            bar = self._display.add_task(visible(node), total=None, visible=is_shown, counts="")
            self._bars[node] = bar
        self._display.update(self._bars[node], completed=done, total=total or None, counts=counts)

    def _show_sum(self) -> None:
        """Show what has been read of all tables."""
        if self._all is not None:
            tables = self._tables.values()
            fragments = sum(table.fragments for table in tables)
            size_bytes = sum(table.size_bytes for table in tables)
            everything = TableProgress(count(len(tables), "table"), fragments, size_bytes)
            fragments_read, bytes_read = map(sum, zip(*self._read.values(), strict=True))
            self._display.update(
                self._all,
                description=everything.node,
                total=size_bytes or None,
                completed=bytes_read,
                counts=_counts(everything, fragments_read, bytes_read),
            )


def stage_text(progress: StageProgress) -> str:
    """A stage in words: `probe, exact, 2,000 of 10,000 rows, 1.2 billion pairs/s`."""
    parts = [part for part in (progress.stage.name, progress.stage.detail) if part]
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
