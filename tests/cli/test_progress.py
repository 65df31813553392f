from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from queue import SimpleQueue

import pytest
from rich.console import Console
from rich.progress import Progress as Bars
from rich.progress import TextColumn

from lancestat.cli.progress import JsonProgress, LineProgress, TerminalProgress, progress_display
from lancestat.errors import DatasetMissing
from lancestat.joins.action import MergeNeighbours, PrepareSides, Probe
from lancestat.joins.search.cost_model import Strategy
from lancestat.joins.search.work import Scope
from lancestat.presentation.terminal import CONSOLE
from lancestat.runs.actions import StageProgress
from lancestat.runs.events import (
    Cancelling,
    Event,
    FragmentsRead,
    NodeFinished,
    NodeStarted,
    RunStarted,
    StageReached,
    TableToRead,
    Warned,
)
from lancestat.runs.result import NodeResult, Status, failed, interrupted
from lancestat.spec.model import Publish
from lancestat.tables.action import MergePartials, PublishStatistics, ReadFragments, TableStage


@pytest.fixture(autouse=True)
def logs_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands of other tests may have logged in JSON."""
    monkeypatch.setattr(CONSOLE, "logs_json", False)


class Terminal:
    """A display whose lines can be read at any time."""

    def __init__(self) -> None:
        self.printed = io.StringIO()
        console = Console(file=self.printed, width=100)
        columns = (
            TextColumn("{task.description}", markup=False),
            TextColumn("{task.fields[counts]}"),
        )
        self.display = Bars(*columns, console=console, auto_refresh=False)
        self.progress = TerminalProgress(self.display)

    @property
    def lines(self) -> list[str]:
        console = Console(file=io.StringIO(), width=100)
        with console.capture() as capture:
            console.print(self.display.get_renderable())
        lines = (re.sub(r"\s+", " ", line).strip() for line in capture.get().splitlines())
        return [line for line in lines if line]


def ended(name: str, status: Status = Status.SUCCESS) -> NodeResult:
    return NodeResult(name, "table", "analyze", ("new",), status)


def started(tables: Sequence[TableToRead], *joins: str) -> RunStarted:
    return RunStarted("r", "run", "shop", "dev", (), tuple(tables), joins)


TABLES = [TableToRead("a", 4, 4_000), TableToRead("b", 6, 6_000), TableToRead("[red]", 1, 1)]


def test_tables_appear_as_they_are_read_below_a_line_for_all() -> None:
    terminal = Terminal()
    terminal.progress(started(TABLES))
    assert terminal.lines == ["starting Spark"]
    terminal.progress(FragmentsRead("b", 3, 3_000))
    assert terminal.lines == [
        "3 tables 3 of 11 fragments, 3.0 kB of 10 kB",
        "b 3 of 6 fragments, 3.0 kB of 6.0 kB",
    ]
    terminal.progress(FragmentsRead("[red]", 0, 0))
    assert terminal.lines[-1] == "[red] 0 of 1 fragment, 0 B of 1 B"
    # A finished table counts in full and frees its bar.
    for name in ("a", "b", "[red]"):
        terminal.progress(NodeFinished(ended(name)))
        terminal.progress(FragmentsRead(name, 2, 2_000))
    assert terminal.lines == ["3 tables 11 of 11 fragments, 10 kB of 10 kB"]


def test_a_failure_is_printed_at_once() -> None:
    terminal = Terminal()
    terminal.progress(started(TABLES))
    terminal.progress(NodeFinished(ended("gone", Status.ERROR)))
    assert terminal.printed.getvalue().strip() == "! gone failed, the others go on"


def test_no_more_than_ten_bars_are_shown_at_once() -> None:
    terminal = Terminal()
    tables = [TableToRead(f"t{i:02}", 1, 100) for i in range(12)]
    terminal.progress(started(tables))
    for table in tables:
        terminal.progress(FragmentsRead(table.node, 0, 50))
    assert len(terminal.lines) == 11
    terminal.progress(NodeFinished(ended("t00")))
    assert terminal.lines[-1].startswith("t10 ")


def test_without_a_terminal_there_are_lines() -> None:
    with progress_display(quiet=False) as progress:
        assert isinstance(progress, LineProgress)


class Lines(LineProgress):
    """Lines that can be read, at one moment."""

    def __init__(self) -> None:
        self.printed: list[str] = []
        super().__init__(self.printed.append)

    def new(self) -> list[str]:
        """Return the lines since the last call."""
        lines, self.printed[:] = [*self.printed], []
        return lines


def test_a_node_has_a_line_with_time_and_level_when_it_ends() -> None:
    lines, at = Lines(), datetime(2026, 3, 1, 4, 5, 6, tzinfo=timezone.utc)
    lines(started(TABLES, "near"))
    read = {"fragments_total": 17, "fragments_scanned": 1, "rows_scanned": 250_000}
    for result in (
        replace(ended("a"), elapsed_seconds=1.25, **read),  # type: ignore[arg-type]
        failed(ended("b"), DatasetMissing("it is not there", hint="is it moved?")),
        replace(ended("same"), action="skip"),
        interrupted(ended("c"), "the run was interrupted"),
        ended("a\nINFO b\x1b[31m"),
    ):
        lines(NodeFinished(result, at=at))
    lines(Cancelling(at=at))
    assert lines.new() == [
        "2026-03-01 04:05:06 UTC INFO    a: analyze, 1 of 17 fragments, 250,000 rows, 1.2 s",
        "2026-03-01 04:05:06 UTC ERROR   b: failed, LS201  it is not there",
        "2026-03-01 04:05:06 UTC WARNING c: stopped, the run was interrupted",
        "2026-03-01 04:05:06 UTC INFO    a\\nINFO b\\x1b[31m: analyze",
        "2026-03-01 04:05:06 UTC WARNING cancelling; interrupt again to exit immediately",
    ]


def test_a_node_has_a_line_for_each_stage_that_it_reaches() -> None:
    lines = Lines()
    lines(started(TABLES))
    for done in (1, 2):
        lines(StageReached("near", StageProgress(MergeNeighbours(), done, 2)))
    lines(StageReached("a", StageProgress(MergePartials(2))))
    lines(StageReached("near", StageProgress(PublishStatistics(Publish.MANIFEST))))
    assert [line.split(maxsplit=4)[-1] for line in lines.new()] == [
        "near: merge, 1 of 2 rows",
        "a: merge",
        "near: publish",
    ]


def test_nodes_that_go_on_have_a_line_a_minute() -> None:
    lines = Lines()
    lines(started(TABLES, "near"))
    lines.print_working()
    assert lines.new() == []
    lines(StageReached("b", StageProgress(ReadFragments(()))))
    lines(FragmentsRead("b", 3, 3_000))
    lines(StageReached("near", StageProgress(MergeNeighbours(), 1, 2)))
    lines.new()
    lines.print_working()
    assert [line.split(maxsplit=4)[-1] for line in lines.new()] == [
        "b: read, 3 of 6 fragments, 3.0 kB of 6.0 kB",
        "near: merge, 1 of 2 rows",
    ]
    lines(NodeFinished(ended("b")))
    lines.new()
    lines.print_working()
    assert [line.split(maxsplit=4)[-1] for line in lines.new()] == ["near: merge, 1 of 2 rows"]


def test_the_lines_of_nodes_that_go_on_are_printed_in_a_thread() -> None:
    printed: SimpleQueue[str] = SimpleQueue()
    with LineProgress(printed.put).shown(every_seconds=0.001) as lines:
        lines(StageReached("near", StageProgress(MergeNeighbours())))
        assert printed.get(timeout=60).endswith(" INFO    near: merge")
        assert printed.get(timeout=60).endswith(" INFO    near: merge")


def test_a_join_shows_its_stage_rows_and_rate() -> None:
    terminal = Terminal()
    terminal.progress(started([], "near", "other"))
    assert terminal.lines == ["starting Spark"]
    prepare, probe = PrepareSides(("right",)), Probe(Strategy.EXACT, Scope.FULL, None)
    terminal.progress(StageReached("near", StageProgress(prepare, note="writing the right side")))
    assert terminal.lines == ["near prepare, writing the right side"]
    terminal.progress(StageReached("near", StageProgress(probe, 2_000, 10_000, 1.24e9)))
    terminal.progress(StageReached("other", StageProgress(prepare, 7)))
    assert terminal.lines == [
        "near probe, exact, 2,000 of 10,000 rows, 1.2 billion pairs/s",
        "other prepare, 7 rows",
    ]
    terminal.progress(NodeFinished(ended("near")))
    assert terminal.lines == ["other prepare, 7 rows"]


def test_a_table_that_has_been_read_shows_the_stages_that_follow() -> None:
    stages: list[TableStage] = [
        ReadFragments(()), MergePartials(2), PublishStatistics(Publish.MANIFEST)
    ]  # fmt: skip
    terminal = Terminal()
    terminal.progress(started(TABLES))
    terminal.progress(StageReached("a", StageProgress(stages[0])))
    terminal.progress(StageReached("gone", StageProgress(stages[1])))
    assert terminal.lines == ["starting Spark"]
    terminal.progress(FragmentsRead("a", 4, 4_000))
    for stage in stages:
        terminal.progress(StageReached("a", StageProgress(stage)))
        assert terminal.lines[1:] == [f"a {stage.name}"]


def test_in_json_there_is_an_object_for_each_event_and_little_progress() -> None:
    told: list[tuple[str, str, object]] = []
    start = datetime(2026, 3, 1, tzinfo=timezone.utc)

    def log(at: datetime, level: str, members: Mapping[str, object]) -> None:
        told.append((f"{at - start}", level, members["event"]))

    progress, merge = JsonProgress(log), StageProgress(MergeNeighbours(), 1, 2)

    def tell(seconds: int, kind: type[Event], *values: object) -> None:
        progress(kind(*values, at=start + timedelta(seconds=seconds)))

    tell(0, NodeStarted, "near", "knn_join")
    tell(1, StageReached, "near", StageProgress(PublishStatistics(Publish.MANIFEST)))
    for second in (2, 3, 61, 62, 63):
        tell(second, StageReached, "near", merge)
    tell(3, FragmentsRead, "a", 1, 10)
    tell(4, FragmentsRead, "a", 2, 20)
    tell(64, Warned, "the log has it")
    tell(65, NodeFinished, ended("near", Status.ERROR))
    tell(66, Cancelling)
    assert told == [
        ("0:00:00", "info", "node_started"),
        ("0:00:01", "info", "stage"),
        ("0:00:02", "info", "stage"),
        ("0:01:02", "info", "stage"),
        ("0:01:05", "error", "node_finished"),
        ("0:01:06", "warning", "cancelling"),
    ]
