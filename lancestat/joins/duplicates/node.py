"""Near-duplicates as a kind of node: how they are observed, planned, run and cleaned up."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

from lancestat.errors import (
    KeysDiffer,
    LancestatError,
    NotSortable,
    ReservedColumnName,
    SideColumnMissing,
    SidesDiffer,
    did_you_mean,
)
from lancestat.joins.action import JoinAction
from lancestat.joins.duplicates.action import DuplicatesFigures, GroupWork
from lancestat.joins.duplicates.planner import DuplicatesAssessment, decide
from lancestat.joins.duplicates.record import DuplicatesRecord, decode_record
from lancestat.joins.node import (
    PAIRED,
    JoinObserver,
    check_output,
    collect_neighbours,
    collect_outputs,
    remove_past_results,
    scratch_store,
    seen_result,
)
from lancestat.joins.scratch.kept_indexes import IndexStore
from lancestat.joins.search.work import ROW_ADDRESS, PinnedTable
from lancestat.joins.sides import datasets_of
from lancestat.lake.fingerprint import fragment_contents, leaves, rows_digest
from lancestat.lake.open import open_pinned, pinned_reads
from lancestat.lake.snapshot import Snapshot
from lancestat.redact import redact_line
from lancestat.runs.actions import Action, Blocked, Skip, is_pending
from lancestat.runs.discover import located, require_sole_writer
from lancestat.runs.node import NodePlanner, NodeType, Observed
from lancestat.spec.duplicates import Order
from lancestat.spec.model import (
    Duplicates,
    KnnJoin,
    NodeKind,
    ProjectSpec,
    Target,
    duplicates_of,
    node_digest,
)
from lancestat.state.garbage import GarbageReport
from lancestat.state.store import StateReader
from lancestat.state.values import result_identity

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lancestat.joins.duplicates.review import DuplicatesChange
    from lancestat.joins.duplicates.run import DuplicatesRunner
    from lancestat.review.values import PropertyChange
    from lancestat.runs.execute import RunContext

_log = logging.getLogger("lancestat.run")


@dataclass(frozen=True, slots=True)
class DuplicatesObserver(NodePlanner[Duplicates]):
    """Plans near-duplicates by what was observed of their tables.

    `indexes` is the store of the scratch root, None where that is not known.
    """

    observed: Observed
    indexes: IndexStore | None = None

    def plan(self, node: Duplicates) -> Action:
        """Plan one node; one that cannot run is blocked."""
        try:
            action = decide(self._assess(node), full_refresh=self.observed.full_refresh)
            if is_pending(action):
                require_sole_writer(self.observed.spec, node)
            return action
        except LancestatError as error:
            placed = error.placed(node.location)
            return Blocked(node.name, node.kind.value, placed, DuplicatesFigures())

    def _assess(self, node: Duplicates) -> DuplicatesAssessment:
        spec = self.observed.spec
        record: DuplicatesRecord | None = self.observed.record_of(node)
        written, pairs = _outputs(node)
        for one in (written, pairs):
            check_output(spec, one)
        snapshot = self._table(node, pairs)
        check_columns(node, snapshot)
        join = node.pairs_join(*_shown(node, snapshot), ROW_ADDRESS)
        action = self._plan_join(join, record)
        return DuplicatesAssessment(
            spec=node,
            digest=node_digest(node),
            work=_work(spec, node, join, snapshot),
            join=action,
            record=record,
            pairs=seen_result(spec, pairs) if isinstance(action, Skip) else None,
            output=seen_result(spec, written),
        )

    def _table(self, node: Duplicates, join: KnnJoin) -> Snapshot:
        uris = datasets_of(self.observed.spec, join.left).values()
        for uri in uris:
            snapshot = self.observed.snapshots[uri]
            if isinstance(snapshot, Snapshot):
                return snapshot
            raise snapshot
        raise SidesDiffer(
            f"{node.title} needs a Lance table, which '{node.table}' is not",
            location=node.at("table"),
            hint="give the node that writes it a Lance output",
        )

    def _plan_join(self, join: KnnJoin, record: DuplicatesRecord | None) -> JoinAction | Skip:
        kind = NodeKind.KNN_JOIN.value
        known = {} if record is None else {result_identity(kind, join.output_uri): record.pairs}
        records = {**self.observed.records, kind: known}
        observed = replace(self.observed, records=records)
        action = JoinObserver(observed, indexes=self.indexes).plan(join)
        if action.error is not None:
            raise action.error
        assert isinstance(action, JoinAction | Skip), "joins are run, or are not"
        return action


def _shown(node: Duplicates, snapshot: Snapshot) -> tuple[str, ...]:
    """Return the columns of both rows that pairs have: selected ones where pairs are declared."""
    if node.pairs_uri is None:
        return ()
    return _selected(node, snapshot)


def _selected(node: Duplicates, snapshot: Snapshot) -> tuple[str, ...]:
    names = tuple(field.name for field in snapshot.fields)
    return names if node.select is None else node.select


def _work(spec: ProjectSpec, node: Duplicates, join: KnnJoin, snapshot: Snapshot) -> GroupWork:
    order_by = tuple(map(Order.parse, node.order_by))
    select = _selected(node, snapshot)
    read = {node.vector, *node.on, *select, *(order.column for order in order_by)}
    options = spec.options.of(snapshot.uri)
    with pinned_reads(snapshot.pin, options):
        dataset = open_pinned(snapshot.pin, storage_options=options)
        content = rows_digest(fragment_contents(snapshot, leaves(dataset, read)))
    return GroupWork(
        PinnedTable.at(snapshot),
        node.vector,
        node.on,
        select,
        order_by,
        node.metric,
        node.output_uri,
        content,
        node_digest(join),
        join.output_uri,
    )


def check_columns(node: Duplicates, snapshot: Snapshot) -> None:
    """Check the columns that near-duplicates name; the join checks the vectors and the filter.

    Raises:
        SideColumnMissing: a column is missing.
        KeysDiffer: a column is of a type that no key has.
        NotSortable: rows cannot be ordered by a column.
        ReservedColumnName: a selected column has the name of one that the result adds.
    """
    from lancestat.joins.duplicates.members import RESULT_COLUMNS, is_sortable
    from lancestat.joins.search.groups import KEY_KINDS, key_type
    from lancestat.joins.search.work import ROW

    types = {field.name: field.type for field in snapshot.fields}
    orders = [Order.parse(text).column for text in node.order_by]
    lists = {"on": node.on, "select": node.select or (), "keep.order_by": orders}
    named = [("vector", node.vector)]
    named += [
        (f"{key}.{at}", name) for key, names in lists.items() for at, name in enumerate(names)
    ]
    for place, name in named:
        if name not in types:
            raise SideColumnMissing(
                f"{node.title} names column '{name}', which {redact_line(snapshot.uri)} does not "
                "have",
                location=node.at(place),
                hint=did_you_mean(name, types, "its columns"),
            )
    for at, name in enumerate(node.on):
        if key_type(types[name], types[name]) is None:
            raise KeysDiffer(
                f"{node.title} compares rows with equal '{name}', which is of type {types[name]}",
                location=node.at(f"on.{at}"),
                hint=KEY_KINDS,
            )
    for at, name in enumerate(orders):
        if not is_sortable(types[name]):
            raise NotSortable(
                f"{node.title} orders rows by '{name}', which is of type {types[name]}",
                location=node.at(f"keep.order_by.{at}"),
                hint="order by numbers, text, bytes, booleans, dates or times",
            )
    own = {*RESULT_COLUMNS, *(() if node.pairs_uri is None else (ROW,))}
    for at, name in enumerate(types if node.select is None else node.select):
        if name.lower() in own:
            raise ReservedColumnName(
                f"{node.title} selects '{name}', which is what the result calls a column of its "
                "own",
                location=node.at(f"select.{at}" if node.select is not None else "name"),
                hint="rename it, or leave it out of 'select'",
            )


@dataclass(frozen=True, slots=True)
class DuplicatesNodes(NodeType[Duplicates]):
    """Near-duplicates, whose groups are kept up to date; `indexes` is as the observer has it."""

    computes: ClassVar[bool] = True
    indexes: IndexStore | None = None

    def under(self, target: Target, session: SparkSession | None) -> DuplicatesNodes:
        return DuplicatesNodes(scratch_store(target))

    def decode_record(self, stored: str) -> DuplicatesRecord:
        return decode_record(stored)

    def planner(self, observed: Observed) -> DuplicatesObserver:
        return DuplicatesObserver(observed, self.indexes)

    @contextmanager
    def runner(self, context: RunContext) -> Iterator[DuplicatesRunner]:
        # Only runs need what joins on Spark.
        from lancestat.joins.duplicates.run import DuplicatesRunner
        from lancestat.joins.run import JoinOpener

        opener = JoinOpener(context.spark, context.spec.target, context.options)
        yield DuplicatesRunner(context, opener.open)

    def figures_of(self, stored: Mapping[str, object]) -> DuplicatesFigures:
        return DuplicatesFigures.from_json(stored)

    def result_seen(self, observed: Observed, node: Duplicates) -> object:
        written, _ = _outputs(node)
        seen = seen_result(observed.spec, written)
        return None if seen is None else (seen.rows, seen.digest)

    def remove_past(self, spec: ProjectSpec, nodes: Sequence[Duplicates], now: datetime) -> None:
        """Remove the results that are past now that others have been written."""
        spec, moved = located(spec, nodes)
        for node in duplicates_of(moved):
            remove_past_results(spec, _outputs(node), now)

    def change(
        self,
        old: Duplicates | None,
        new: Duplicates | None,
        changed: tuple[PropertyChange, ...],
    ) -> DuplicatesChange:
        from lancestat.joins.duplicates.review import DuplicatesChange

        return DuplicatesChange(old, new, changed)

    def collect_garbage(
        self, spec: ProjectSpec, state: StateReader, report: GarbageReport, now: datetime
    ) -> GarbageReport:
        """Remove what killed runs left in outputs."""

        def named() -> set[str]:
            records = state.records(NodeKind.DUPLICATES.value, decode_record).values()
            return {folder for record in records for folder in record.pairs.neighbours}

        for node in () if report.is_dry_run else spec.duplicates:
            collect_outputs(spec, _outputs(node), now)
        return collect_neighbours(report, spec, state, PAIRED, named, now)


def _outputs(node: Duplicates) -> tuple[KnnJoin, KnnJoin]:
    """Return joins that write the groups and the pairs, of which hidden ones are not kept."""
    join = node.pairs_join()
    pairs = replace(join, keep=1 if node.pairs_uri is None else node.keep)
    return replace(join, output_uri=node.output_uri, keep=node.keep), pairs
