"""A declared join over real datasets, whose engine compares rows in this process.

The engine looks at nothing but the rows that it is told to, so that what it makes of a narrow scope
is right only if the scope is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from pyarrow import parquet

from lancestat.errors import LancestatError
from lancestat.joins.action import BuildIndex, CommitResult, JoinAction, PrepareSides, Probe
from lancestat.joins.node import JoinNodes
from lancestat.joins.output.result import output_at, output_of
from lancestat.joins.record import Accuracy, JoinCounts
from lancestat.joins.run import JoinRunner, OpenJoin
from lancestat.joins.scratch.kept_indexes import IndexStore
from lancestat.joins.search.cost_model import JoinSize, Strategy
from lancestat.joins.search.work import (
    ROW_ADDRESS,
    JoinKind,
    JoinOutcome,
    JoinWork,
    PinnedTable,
    Scope,
    SideSource,
    output_names,
)
from lancestat.joins.spark.engine import SparkJoin
from lancestat.lake.open import open_pinned
from lancestat.nodes import NODE_TYPES
from lancestat.runs.actions import Action, Blocked, OnStage, Plan, Skip, StageProgress
from lancestat.runs.events import Listener
from lancestat.runs.execute import Scheduler
from lancestat.runs.node import NodeRunner
from lancestat.runs.observe import Observer
from lancestat.runs.result import RunResult
from lancestat.spec.model import KnnJoin, KnnSide, Node, ProjectSpec, Table, Target, node_digest
from lancestat.state.store import LanceState
from lancestat.tables.node import assess_table
from lancestat.tables.run import TableRunner
from tests.joins.search.results import NO_LINES
from tests.runs.world import PLACE, Clock, World, run_context
from tests.state.fresh import FreshState

Row = dict[str, Any]
# Does a join and commits its result.
Engine = Callable[[JoinWork, OnStage], JoinOutcome]


@dataclass
class JoinWorld:
    """A join of `l.lance` and `r.lance` below `folder`, and a log of the calls of the engine."""

    folder: Path
    state: LanceState = field(default_factory=FreshState)
    clock: Clock = field(default_factory=Clock)
    listeners: tuple[Listener, ...] = ()
    works: list[JoinWork] = field(default_factory=list)
    others: tuple[Node, ...] = ()
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    # Called before the engine starts.
    before: Any = None
    # The reasons of the engine for which queries are not proven unchanged.
    unproven: tuple[str, ...] = ()
    # The recall and the number of probes that the engine reports.
    measured: tuple[float | None, int | None] = (None, None)

    def __post_init__(self) -> None:
        self.join = KnnJoin(
            name="near",
            left=KnnSide("v", ("id",), table="l", refs=("l",)),
            right=KnnSide("w", ("key", "id"), table="r", refs=("r",)),
            k=2,
            output_format="lance",
            output_uri=self.uri("near"),
            location=PLACE,
        )

    def uri(self, name: str) -> str:
        return str(self.folder / f"{name}.lance")

    def declare(self, **changes: Any) -> None:
        self.join = replace(self.join, **changes)

    @property
    def spec(self) -> ProjectSpec:
        tables = tuple(Table(name, self.uri(name), PLACE) for name in ("l", "r"))
        nodes = (*tables, self.join, *self.others)
        state, master = str(self.folder / "state"), "local[2]"
        target = Target("dev", state=state, spark_master=master, spark_conf=self.spark_conf)
        return ProjectSpec("shop", self.folder, target, nodes, {})

    @property
    def observer(self) -> Observer:
        types = {**NODE_TYPES, "knn_join": JoinNodes(True, IndexStore(self.scratch))}
        return Observer(self.spec, self.state, self.clock, types)

    @property
    def scratch(self) -> str:
        return str(self.folder / "scratch")

    def plan(self, *names: str, full_refresh: bool = False) -> Plan:
        nodes = [node for node in self.spec.nodes if node.name in (names or ("near",))]
        return self.observer.plan(nodes, full_refresh=full_refresh)

    def action(self, *, full_refresh: bool = False) -> Action:
        [action] = self.plan(full_refresh=full_refresh).actions
        return action

    def planned(self) -> JoinAction:
        action = self.action()
        assert isinstance(action, JoinAction), action
        return action

    def refused(self) -> LancestatError:
        action = self.action()
        assert isinstance(action, Blocked), action
        return action.error

    def append(self, side: str, start: int, count: int) -> None:
        rows = vectors(start, count, name={"l": "v", "r": "w"}[side])
        lance.write_dataset(rows, self.uri(side), mode="append")

    def converge(self) -> None:
        """Run once, which leaves nothing to do, and makes the result of a join in full."""
        assert self.run().status == "success"
        assert isinstance(self.action(), Skip)
        assert self.rows() == self.expected()

    def settle(self) -> None:
        self.converge()
        self.works.clear()

    def run(self, *names: str, full_refresh: bool = False) -> RunResult:
        return self.execute(self.plan(*names, full_refresh=full_refresh))

    def execute(self, plan: Plan) -> RunResult:
        digests = {node.name: node_digest(node) for node in self.spec.nodes}
        self.clock.advance(seconds=1)
        context = run_context(self.observer, self.state, digests, self.listeners)
        runners: dict[str, NodeRunner] = {
            "table": TableRunner(
                context,
                World(self.folder).scan,
                partial(assess_table, self.observer),
                lambda: None,
                lambda: None,
            ),
            "knn_join": JoinRunner(context, self.open_join),
        }
        return Scheduler(context, runners).execute(plan)

    def open_join(self, work: JoinWork, on_stage: OnStage) -> AbstractContextManager[SparkJoin]:
        return opened(self.engine)(work, on_stage)

    def engine(self, work: JoinWork, on_stage: OnStage) -> JoinOutcome:
        if self.before is not None:
            self.before(work)
        self.works.append(work)
        probe = Probe(Strategy.EXACT, work.scope, None)
        on_stage(StageProgress(probe, 1, 2, pairs_per_second=1e6))
        sides = {"left": work.left, "right": work.right}
        unproven = {name: self.unproven for name, side in sides.items() if side.sql is not None}
        return replace(joined(work), accuracy=Accuracy(*self.measured), unproven=unproven)

    @property
    def scopes(self) -> list[str]:
        return [work.scope.value for work in self.works]

    def rows(self) -> list[Row]:
        """Return the result as readers see it."""
        if self.join.output_format == "parquet":
            return parquet.read_table(self.join.output_uri).to_pylist()
        return lance.dataset(self.join.output_uri).to_table().to_pylist()

    def expected(self) -> list[Row]:
        """Return the rows of a full join of the current sides."""
        action = self.action(full_refresh=True)
        assert isinstance(action, JoinAction), action
        work = replace(action.work, increment=None)
        return _Joining(work).full().to_pylist()

    def expected_groups(self) -> int | None:
        """Return the number of keys that usable rows of both sides have, None without keys."""
        action = self.action(full_refresh=True)
        assert isinstance(action, JoinAction), action
        _, groups = _Joining(replace(action.work, increment=None)).compared()
        return groups


def in_order(rows: Sequence[Row]) -> list[Row]:
    """Return rows in an order that tells nothing, for results that were brought up to date."""
    return sorted(rows, key=lambda row: [repr(value) for value in row.values()])


def joined(work: JoinWork) -> JoinOutcome:
    """Join the rows of the work, and commit the result."""
    joining = _Joining(work)
    writer = output_at(work.output_format, work.output_uri, {}).begin("test")
    assert not work.scope.is_update, "this engine keeps no neighbours"
    table, counts = joining.full(), joining.counts()
    written = (
        [output_of(writer).write(writer, 0, table.schema, table.to_batches())]
        if table.num_rows
        else []
    )
    if work.scope is Scope.NEW_LEFT:
        assert work.increment is not None
        state = output_of(writer).update(
            writer, table.schema, work.increment.previous, NO_LINES, written
        )
    else:
        written = written or [output_of(writer).write(writer, 0, table.schema, table.to_batches())]
        state = output_of(writer).replace(writer, table.schema, written)
    pairs, groups = joining.compared()
    return JoinOutcome("exact", counts, state, pairs, groups=groups)


def opened(engine: Engine) -> OpenJoin:
    """Sessions that count rows of the sides, and leave the rest to a function."""

    @contextmanager
    def open_join(work: JoinWork, on_stage: OnStage) -> Iterator[SparkJoin]:
        yield _Session(engine, work, on_stage)

    return open_join


@dataclass
class _Session:
    engine: Engine
    work: JoinWork
    on_stage: OnStage

    cores: int = 2
    in_place: tuple[str, ...] = ()
    outcome: JoinOutcome | None = None

    def prepare_sides(self, stage: PrepareSides) -> _Session:
        return self

    @property
    def size(self) -> JoinSize:
        joining = _Joining(self.work)
        return JoinSize(joining.left.num_rows, joining.right.num_rows, 2)

    def build_index(self, stage: BuildIndex) -> bool:
        return True

    def measure_index(self) -> bool:
        return True

    def use_index(self) -> None: ...

    def group_rows(self) -> None: ...

    def probe(self, stage: Probe, commit: CommitResult) -> None:
        self.outcome = self.engine(self.work, self.on_stage)

    def commit(self, stage: CommitResult) -> None:
        assert stage.appends == (self.work.scope is Scope.NEW_LEFT)


class _Joining:
    """Compares the rows that a work names, one pair at a time."""

    def __init__(self, work: JoinWork) -> None:
        self.work = work
        self.left = rows_of(work.left, None if work.increment is None else work.increment.new_left)
        self.right = rows_of(work.right, None)
        self.pairs = self.left.num_rows * self.right.num_rows
        left, right = columns_of(work.left, self.left), columns_of(work.right, self.right)
        self.names = output_names(left, right, with_rank=work.request.with_rank)
        self.sources = dict(zip(self.names.left, left, strict=True))
        self.right_values = dict(zip(self.names.right, right, strict=True))

    def compared(self) -> tuple[int, int | None]:
        """Return the number of pairs, and of groups where there are keys."""
        if not self.work.left.keys:
            return self.pairs, None
        keys = [
            Counter(
                key
                for key, is_valid in zip(self._keys(side, rows), self._valid(side), strict=True)
                if is_valid and None not in key
            )
            for side, rows in ((self.work.left, self.left), (self.work.right, self.right))
        ]
        both = keys[0].keys() & keys[1].keys()
        return sum(keys[0][key] * keys[1][key] for key in both), len(both)

    def _keys(self, side: SideSource, rows: pa.Table) -> list[tuple[Any, ...]]:
        return list(zip(*(rows.column(key).to_pylist() for key in side.keys), strict=True))

    def counts(self) -> JoinCounts[int]:
        work = self.work
        valid_left, valid_right = self._valid(work.left), self._valid(work.right)
        counted = JoinCounts(
            self.left.num_rows,
            self.right.num_rows,
            self.left.num_rows - sum(valid_left),
            self.right.num_rows - sum(valid_right),
        )
        if work.increment is None:
            return self._without_matches(counted)
        known = work.increment.known
        return self._without_matches(
            replace(
                known,
                left_rows=known.left_rows + counted.left_rows,
                unmatched_left_rows=known.unmatched_left_rows + counted.unmatched_left_rows,
            )
        )

    def _without_matches(self, counts: JoinCounts[int]) -> JoinCounts[int]:
        if counts.right_rows > counts.excluded_right_rows:
            return counts
        return replace(counts, unmatched_left_rows=counts.left_rows)

    def full(self) -> pa.Table:
        rows: list[Row] = []
        for number, is_valid in enumerate(self._valid(self.work.left)):
            ranked = self._neighbours(number) if is_valid else []
            rows += self._lines(number, ranked)
        return pa.Table.from_pylist(rows, self._schema())

    def _lines(self, number: int, ranked: Sequence[Row]) -> list[Row]:
        request = self.work.request
        nearest = list(ranked) if request.is_radius else list(ranked)[: request.k]
        if not nearest and self.work.request.kind is JoinKind.LEFT_OUTER:
            return [self._left(number)]
        with_rank = self.work.request.with_rank
        return [
            {**self._left(number), **line, **({"_rank": rank} if with_rank else {})}
            for rank, line in enumerate(nearest, 1)
        ]

    def _neighbours(self, number: int) -> list[Row]:
        query = self.left.column(self.work.left.vector)[number].as_py()
        metric = self.work.request.metric.name
        neighbours = [
            {**self._right(other), "_distance": distance(query, vector, metric)}
            for other, vector in enumerate(self.right.column(self.work.right.vector).to_pylist())
            if is_usable(vector, metric) and self._may_match(number, other)
        ]
        most = self.work.request.max_distance
        if most is not None:
            neighbours = [line for line in neighbours if line["_distance"] <= most]
        return sorted(neighbours, key=lambda line: line["_distance"])

    def _may_match(self, number: int, other: int) -> bool:
        pairs = zip(self.work.left.keys, self.work.right.keys, strict=True)
        values = [
            (self.left.column(left)[number].as_py(), self.right.column(right)[other].as_py())
            for left, right in pairs
        ]
        request = self.work.request
        if request.self_pairs is not None:
            own, theirs = (side.column(ROW_ADDRESS)[at].as_py() for side, at in
                           ((self.left, number), (self.right, other)))  # fmt: skip
            if theirs == own or (request.pairs_once and theirs < own):
                return False
        return all(left is not None and left == right for left, right in values)

    def _left(self, number: int) -> Row:
        return {name: self.left.column(source)[number].as_py()
                for name, source in self.sources.items()}  # fmt: skip

    def _right(self, number: int) -> Row:
        return {name: self.right.column(source)[number].as_py()
                for name, source in self.right_values.items()}  # fmt: skip

    def _valid(self, side: SideSource) -> list[bool]:
        table = self.left if side is self.work.left else self.right
        metric = self.work.request.metric.name
        return [is_usable(vector, metric) for vector in table.column(side.vector).to_pylist()]

    def _schema(self) -> pa.Schema:
        fields = [
            *(
                self.left.schema.field(source).with_name(name)
                for name, source in self.sources.items()
            ),
            *(
                self.right.schema.field(source).with_name(name)
                for name, source in self.right_values.items()
            ),
            pa.field("_distance", pa.float32()),
        ]
        if self.work.request.with_rank:
            fields.append(pa.field("_rank", pa.int32()))
        return pa.schema([column.with_nullable(True) for column in fields])


def columns_of(side: SideSource, table: pa.Table) -> list[str]:
    names = [name for name in table.schema.names if name != ROW_ADDRESS]
    return names if side.select is None else list(side.select)


def rows_of(side: SideSource, only: frozenset[int] | None) -> pa.Table:
    """The rows of a side, or of some of its fragments."""
    if side.table is not None:
        return pinned_rows(side.table, only, side.filter)
    assert only is None, "rows of other sides have no fragments"
    if side.sql is not None:
        return pinned_rows(side.views[0], None)
    assert side.uri is not None
    return parquet.read_table(side.uri)


def for_parquet(table: pa.Table) -> pa.Table:
    """Give lists any size: pyarrow 25 reads no files with nulls among lists of one size."""
    for number, column in enumerate(table.schema):
        if pa.types.is_fixed_size_list(column.type):
            lists = table.column(number).cast(pa.list_(column.type.value_type))
            table = table.set_column(number, column.name, lists)
    return table


def pinned_rows(
    table: PinnedTable, only: frozenset[int] | None, filter: str | None = None
) -> pa.Table:
    dataset = open_pinned(table.pin)
    fragments = [fragment for fragment in table.fragments if only is None or fragment.id in only]
    columns = [*dataset.schema.names, ROW_ADDRESS]
    tables = [
        dataset.get_fragment(fragment.id).to_table(columns, filter=filter) for fragment in fragments
    ]
    if filter is None:
        assert [len(rows) for rows in tables] == [fragment.rows for fragment in fragments]
    return pa.concat_tables(tables) if tables else dataset.to_table(columns, limit=0)


def is_usable(vector: Sequence[float] | None, metric: str) -> bool:
    if vector is None or not np.isfinite(np.array(vector, dtype=float)).all():
        return False
    return metric != "cosine" or any(vector)


def distance(a: Sequence[float], b: Sequence[float], metric: str) -> float:
    """By the book, in float64, and then as the result shows it."""
    left, right = np.array(a, np.float64), np.array(b, np.float64)
    match metric:
        case "l2":
            value = ((left - right) ** 2).sum()
        case "dot":
            value = 1 - (left * right).sum()
        case _:
            lengths = np.sqrt((left**2).sum()) * np.sqrt((right**2).sum())
            value = 1 - (left * right).sum() / lengths
    return float(np.float32(value))


def vectors(start: int, count: int, *, name: str, dimension: int = 2) -> pa.Table:
    """Rows whose vectors are small whole numbers, so that many are equally far; some are none."""
    numbers = range(start, start + count)
    values = [
        None if n % 7 == 3 else [float("nan")] * dimension if n % 11 == 5
        else [float((n * 5 + d * 3) % 4 - 1) for d in range(dimension)]
        for n in numbers
    ]  # fmt: skip
    columns: Mapping[str, pa.Array] = {
        "key": pa.array([f"{name}{n}" for n in numbers], pa.string()),
        "id": pa.array(numbers, pa.int64()),
        name: pa.array(values, pa.list_(pa.float32(), dimension)),
        "other": pa.array([0] * count, pa.int32()),
    }
    return pa.table(dict(columns))
