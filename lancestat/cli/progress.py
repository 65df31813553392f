"""What is shown while a run goes on: bars on a terminal, lines elsewhere."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from lancestat.formats import count, instant, large, size, visible
from lancestat.presentation.terminal import CONSOLE
from lancestat.runs.actions import StageProgress
from lancestat.runs.events import (
    Cancelling,
    Event,
    Found,
    FragmentsRead,
    Listener,
    NodeFinished,
    RunStarted,
    StageReached,
    TableToRead,
    Warned,
    ignore,
)
from lancestat.runs.result import NodeResult, Status

if TYPE_CHECKING:
    import rich.progress as bars

# More bars than these would scroll; the total counts all tables.
_BARS_SHOWN = 10


@contextmanager
def progress_display(*, quiet: bool) -> Iterator[Listener]:
    """Yield what shows the events of a run: nothing if `quiet`, and JSON where that is logged.

    Else there are bars on a terminal, and lines with the time elsewhere.
    """
    if quiet:
        yield ignore
        return
    if CONSOLE.logs_json:
        yield JsonProgress()
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


class LineProgress:
    """A line with time and level for each stage that nodes reach and for their ends.

    Nodes that go on have one a minute, too, and those that are left as they were none.
    """

    def __init__(self, write: Callable[[str], None] = CONSOLE.err) -> None:
        self._write = write
        self._lock = threading.Lock()
        self._tables: dict[str, TableToRead] = {}
        self._working: dict[str, str] = {}
        self._stages: dict[str, str] = {}
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
        now = datetime.now(timezone.utc)
        with self._lock:
            for node, text in self._working.items():
                self._print(now, "INFO", f"{node}: {text}")

    def __call__(self, event: Event) -> None:
        with self._lock:
            match event:
                case RunStarted(tables=tables):
                    self._tables = {table.node: table for table in tables}
                case FragmentsRead(node=node) if node in self._working and node in self._tables:
                    self._working[node] = f"read, {_counts(self._tables[node], event)}"
                case StageReached(node=node, progress=progress):
                    self._working[node] = stage_text(progress)
                    if self._stages.get(node) != progress.stage.name:
                        self._stages[node] = progress.stage.name
                        self._print(event.at, "INFO", f"{node}: {self._working[node]}")
                case NodeFinished(result=result):
                    self._working.pop(result.name, None)
                    if result.end != "skip":
                        text = f"{result.name}: {', '.join(_done(result))}"
                        self._print(event.at, _LEVELS.get(result.status, "INFO"), text)
                case Found(finding=found):
                    text = f"{found.node}: check {found.check}: {found.detail}"
                    self._print(event.at, _level(event).upper(), text)
                case Cancelling():
                    self._print(event.at, "WARNING", CANCELLING)

    def _print(self, at: datetime, level: str, text: str) -> None:
        self._write(f"{instant(at, with_seconds=True)} {level:<7} {visible(text)}")


class JsonProgress:
    """An object on a line for each event; of progress within a stage one a minute for each node."""

    def __init__(self, log: Callable[[datetime, str, Mapping[str, object]], None] | None = None):
        self._log = log or CONSOLE.log
        self._lock = threading.Lock()
        self._last: dict[str, tuple[str, datetime]] = {}

    def __call__(self, event: Event) -> None:
        with self._lock:
            if not self._is_progress(event):
                self._log(event.at, _level(event), event.to_json())

    def _is_progress(self, event: Event) -> bool:
        """Whether an event tells only how far a stage is, and it was told a short time ago."""
        match event:
            case Warned():
                # It is in the log.
                return True
            case StageReached(node=node, progress=progress):
                stage = progress.stage.name
            case FragmentsRead(node=node):
                stage = self._last.get(node, ("", event.at))[0]
            case _:
                return False
        known, at = self._last.get(node, ("", event.at))
        if known == stage and (event.at - at).total_seconds() < _BETWEEN_LINES_SECONDS:
            return True
        self._last[node] = stage, event.at
        return False


def _level(event: Event) -> str:
    match event:
        case Cancelling():
            return "warning"
        case NodeFinished(result=result):
            return _LEVELS.get(result.status, "INFO").lower()
        case Found(finding=finding):
            return "error" if finding.severity == "error" else "warning"
    return "info"


CANCELLING = "cancelling; interrupt again to exit immediately"


def _done(result: NodeResult) -> Iterator[str]:
    yield result.end
    if result.is_done:
        compared = result.figures.compared if result.figures else ""
        yield from filter(None, (result.read, compared, result.took))
    elif result.text:
        yield result.text.splitlines()[0]


class TerminalProgress:
    """A line for all tables, then one for each node that is being worked on.

    Those of tables show fragments and bytes while these are read, and then the stage; those of
    joins the stage, rows and pairs per second.
    """

    def __init__(self, display: bars.Progress) -> None:
        self._display = display
        self._lock = threading.Lock()
        self._tables: dict[str, TableToRead] = {}
        self._open: set[str] = set()
        self._read: dict[str, FragmentsRead] = {}
        self._all: bars.TaskID | None = None
        self._bars: dict[str, bars.TaskID] = {}

    def __call__(self, event: Event) -> None:
        match event:
            case RunStarted():
                self._started(event)
            case FragmentsRead():
                self._advanced(event)
            case StageReached():
                self._at_stage(event.node, event.progress)
            case NodeFinished():
                self._finished(event.result)
            case Cancelling():
                self._display.console.print(
                    CANCELLING, style="yellow", markup=False, highlight=False
                )

    def _started(self, event: RunStarted) -> None:
        """Show that Spark is being started, if it has anything to do."""
        self._tables = {table.node: table for table in event.tables}
        self._open = {*self._tables, *event.joins}
        if self._open:
            self._all = self._display.add_task("starting Spark", total=None, counts="")

    def _advanced(self, read: FragmentsRead) -> None:
        table = self._tables.get(read.node)
        with self._lock:
            if table is not None and read.node in self._open:
                self._read[read.node] = read
                self._show(read.node, _counts(table, read), read.size_bytes, table.size_bytes)
                self._show_sum()

    def _at_stage(self, node: str, progress: StageProgress) -> None:
        """Show the stage of a join, or of a table that has been read, and how far it is."""
        text = stage_text(progress)
        with self._lock:
            if node in self._bars and node in self._tables:
                self._display.update(self._bars[node], counts=text)
            elif node in self._open and node not in self._tables:
                if not self._tables and self._all is not None:
                    self._display.update(self._all, visible=False)
                self._show(node, text, progress.rows_done, progress.rows_total)

    def _finished(self, result: NodeResult) -> None:
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
                self._read[table.node] = FragmentsRead(
                    node=table.node, fragments=table.fragments, size_bytes=table.size_bytes
                )
                self._show_sum()
        if result.status is Status.ERROR:
            text = f"! {visible(result.name)} failed, the others go on"
            self._display.console.print(text, style="red", markup=False, highlight=False)

    def _show(self, node: str, counts: str, done: int, total: int | None) -> None:
        if node not in self._bars:
            is_shown = len(self._bars) < _BARS_SHOWN
            bar = self._display.add_task(visible(node), total=None, visible=is_shown, counts="")
            self._bars[node] = bar
        self._display.update(self._bars[node], completed=done, total=total or None, counts=counts)

    def _show_sum(self) -> None:
        """Show what has been read of all tables."""
        if self._all is not None:
            tables, reads = self._tables.values(), self._read.values()
            everything = TableToRead(
                count(len(tables), "table"),
                sum(table.fragments for table in tables),
                sum(table.size_bytes for table in tables),
            )
            read = FragmentsRead(
                node=everything.node,
                fragments=sum(each.fragments for each in reads),
                size_bytes=sum(each.size_bytes for each in reads),
            )
            self._display.update(
                self._all,
                description=everything.node,
                total=everything.size_bytes or None,
                completed=read.size_bytes,
                counts=_counts(everything, read),
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


def _counts(table: TableToRead, read: FragmentsRead) -> str:
    fragments = f"{count(read.fragments)} of {count(table.fragments, 'fragment')}"
    return f"{fragments}, {size(read.size_bytes)} of {size(table.size_bytes)}"
