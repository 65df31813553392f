"""A table that runs work on, in this process, and projects whose fragments are read here."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import partial
from itertools import chain
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import lancestat.joins.run
import lancestat.tables.analyze
import lancestat.tables.run
import lancestat.tables.summary
import lancestat.tables.work_items
from lancestat.errors import Location
from lancestat.joins.run import OpenJoin
from lancestat.joins.search.work import JoinWork
from lancestat.joins.spark.engine import SparkJoin
from lancestat.nodes import NODE_TYPES
from lancestat.project import Project
from lancestat.runs.actions import Action, OnStage, Plan
from lancestat.runs.events import EventStream, Listener
from lancestat.runs.execute import RunContext, Scheduler
from lancestat.runs.observe import Observer
from lancestat.runs.result import RunResult
from lancestat.spark.session import RunSession
from lancestat.spec.model import (
    ColumnSelection,
    CommonValues,
    Policy,
    ProjectSpec,
    Publish,
    Table,
    Target,
    node_digest,
)
from lancestat.state.partials import group_width
from lancestat.state.store import LanceState
from lancestat.tables.action import ReadFragments, Scan, TableVersion
from lancestat.tables.analyze import ProcessScanner, Scanned
from lancestat.tables.judgement import TableAssessment, TableChanges
from lancestat.tables.node import assess_table
from lancestat.tables.run import TableRunner
from lancestat.tables.wire import unstamped
from tests.state.fresh import FreshState

PLACE = Location("specs/shop.yml", 1, 1)


@dataclass
class Clock:
    """A clock that tests advance."""

    now: datetime = datetime(2026, 1, 1, tzinfo=timezone.utc)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, **units: float) -> None:
        self.now += timedelta(**units)


@dataclass
class World:
    """One table at `path`, its state, and a log of every (version, fragment id, columns) read."""

    path: Path
    name: str = "orders"
    state: LanceState = field(default_factory=FreshState)
    clock: Clock = field(default_factory=Clock)
    columns: ColumnSelection = field(default_factory=ColumnSelection)
    policy: Policy = field(default_factory=Policy)
    publish: Publish = Publish.MANIFEST
    histogram: bool = False
    groups: tuple[tuple[str, ...], ...] = ()
    keys: tuple[tuple[str, ...], ...] = ()
    common_values: CommonValues | None = None
    reads: list[tuple[int, int, frozenset[str]]] = field(default_factory=list)

    @property
    def table(self) -> Table:
        return Table(
            name=self.name,
            uri=str(self.path),
            location=PLACE,
            columns=self.columns,
            policy=self.policy,
            publish=self.publish,
            histogram=self.histogram,
            groups=self.groups,
            keys=self.keys,
            common_values=self.common_values,
        )

    @property
    def observer(self) -> Observer:
        target = Target("dev", state=str(self.path.parent / "state"))
        spec = ProjectSpec("shop", self.path.parent, target, (self.table,), {})
        return Observer(spec, self.state, self.clock, NODE_TYPES)

    @property
    def dataset(self) -> lance.LanceDataset:
        return lance.dataset(str(self.path))

    def plan(self, *, full_refresh: bool = False) -> Plan:
        return self.observer.plan([self.table], full_refresh=full_refresh)

    def action(self, *, full_refresh: bool = False) -> Action:
        [action] = self.plan(full_refresh=full_refresh).actions
        return action

    def run(self, *, full_refresh: bool = False) -> RunResult:
        return self.execute(self.plan(full_refresh=full_refresh))

    def execute(self, plan: Plan) -> RunResult:
        digests = {self.table.name: node_digest(self.table)}
        context = run_context(self.observer, self.state, digests)
        assess = partial(assess_table, self.observer)
        runners = {"table": TableRunner(context, self.scan, assess, lambda: None, lambda: None)}
        return Scheduler(context, runners).execute(plan)

    def assess(self) -> tuple[TableAssessment, TableChanges]:
        return assess_table(self.observer, self.table)

    def scan(self, node: str, table: TableVersion, stage: ReadFragments) -> Iterator[Scanned]:
        for scan in stage.scans:
            columns = frozenset(chain.from_iterable(table.needs[key] for key in scan.fields))
            self.reads.append((table.version, scan.fragment_id, columns))
        with ProcessScanner(Target("dev", "state", spark_master="local[2]")) as scanner:
            yield from scanner.scan(node, table, stage.scans)

    def published(self) -> dict[str, str]:
        """Return the published entries about the rows, without the stamps."""
        return unstamped(self.dataset.config())


class Killed(BaseException):
    """Stands for SIGKILL: no handler gets to undo anything."""


def run_context(
    observer: Observer,
    state: LanceState,
    digests: Mapping[str, str],
    listeners: Sequence[Listener] = (),
) -> RunContext:
    """Return the context of a run that needs no Spark."""
    spark = RunSession(observer.spec.target)
    return RunContext(observer, state, digests, EventStream(listeners), spark, "7e57")


def no_join(work: JoinWork, on_stage: OnStage) -> AbstractContextManager[SparkJoin]:
    raise AssertionError(f"there is no join here, and so not {work.node}")


def orders(start: int, count: int) -> pa.Table:
    """Return rows whose values all follow from their number."""
    numbers = range(start, start + count)
    return pa.table(
        {
            "o_id": pa.array(numbers, pa.int64()),
            "o_status": pa.array(["open" if n % 3 else None for n in numbers], pa.string()),
            "o_total": pa.array([n / 4 for n in numbers], pa.float64()),
        }
    )


def write_project(
    folder: Path,
    *tables: str | Mapping[str, object],
    min_bytes: str = "16MB",
    target: Mapping[str, object] | None = None,
    **specs: object,
) -> Project:
    """A project of declared tables, by name those beside its YAML, and of other specs."""
    (folder / "specs").mkdir(exist_ok=True)
    local = f'{{state: state, spark: {{master: "local[2]", min_bytes: {min_bytes}}}}}'
    (folder / "lancestat_project.yml").write_text(
        "name: shop\n"
        "default_target: dev\n"
        f"targets: {{dev: {json.dumps(target) if target else local}}}\n"
    )
    lines = [f"{key}: {json.dumps(value)}" for key, value in specs.items()]
    lines += ["tables:"] if tables else []
    for table in tables:
        named = f"{{name: {table}, uri: {table}.lance}}"
        lines.append(f"  - {named if isinstance(table, str) else json.dumps(table)}")
    (folder / "specs" / "shop.yml").write_text("\n".join([*lines, ""]))
    return Project.load(folder)


ScanResults = Iterator[Scanned]
# Called with the node before each of its scans.
Before = Callable[[str], None]


@contextmanager
def few_groups(most: int) -> Iterator[None]:
    """Tables have at most so many groups of fragments, of which any two are read in one batch."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lancestat.tables.summary, "MOST_GROUPS", most)
        patch.setattr(lancestat.tables.analyze, "group_width", partial(group_width, most=most))
        patch.setattr(lancestat.tables.work_items, "_FEW", 2)
        yield


def scan_locally(
    monkeypatch: pytest.MonkeyPatch, before: Before | None = None, open_join: OpenJoin = no_join
) -> None:
    """Scan in this process: fragments one by one after a call-back of the test, else together."""

    class LocalScanner:
        def __init__(self, *_: object) -> None:
            pass

        def __enter__(self) -> LocalScanner:
            return self

        def __exit__(self, *error: object) -> None:
            pass

        def cancel(self) -> None:
            pass

        def pause(self) -> None:
            pass

        def scan(self, node: str, table: TableVersion, scans: Sequence[Scan]) -> ScanResults:
            world = World(Path(table.uri))
            if before is None:
                yield from world.scan(node, table, ReadFragments(tuple(scans)))
                return
            for scan in scans:
                scanned = list(world.scan(node, table, ReadFragments((scan,))))
                before(node)
                yield from scanned

    class LocalOpener:
        def __init__(self, *_: object) -> None:
            self.open = open_join

    monkeypatch.setattr(lancestat.tables.run, "SparkScanner", LocalScanner)
    monkeypatch.setattr(lancestat.tables.run, "ProcessScanner", LocalScanner)
    monkeypatch.setattr(lancestat.joins.run, "JoinOpener", LocalOpener)


def publish_and_die(world: World, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run until the statistics are published; return the version that has them."""
    commit, path = lance.LanceDataset.commit, str(world.path)

    def last(*args: object, **options: object) -> object:
        landed = commit(*args, **options)
        if args[0] == path:
            raise Killed
        return landed

    with monkeypatch.context() as patched:
        patched.setattr(lance.LanceDataset, "commit", staticmethod(last))
        with pytest.raises(Killed):
            world.run()
    world.reads.clear()
    return world.dataset.version
