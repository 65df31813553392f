"""KNN joins as a kind of node: how they are observed, planned, run and cleaned up."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, ClassVar

from lancestat.errors import (
    DatasetMissing,
    KeysDiffer,
    LancestatError,
    OverlappingOutputs,
    ScratchUnusable,
    SidesDiffer,
    VectorLengthMismatch,
)
from lancestat.formats import count
from lancestat.joins.action import SIDES, BuildIndex, ExtendIndex, JoinAction, JoinFigures
from lancestat.joins.output.lance_output import LanceOutput
from lancestat.joins.output.result import output_at
from lancestat.joins.planner import JoinAssessment, decide_join
from lancestat.joins.record import JoinRecord, OutputFormat, OutputState, decode_record
from lancestat.joins.scratch.folder import known_roots
from lancestat.joins.scratch.garbage import ScratchGarbage
from lancestat.joins.scratch.kept_indexes import IndexStore, owner_prefix
from lancestat.joins.scratch.kept_neighbours import (
    NeighboursManifest,
    NeighbourStore,
    neighbours_key,
    neighbours_prefix,
)
from lancestat.joins.search.cost_model import KeptIndex
from lancestat.joins.search.work import RightContent, output_names
from lancestat.joins.sides import (
    JoinInput,
    JoinSide,
    datasets_of,
    keeps_index,
    lance_uris,
    observe_side,
    side_index_key,
)
from lancestat.lake.files import store_of
from lancestat.lake.open import observe_snapshots, probe
from lancestat.runs.actions import Action, Blocked, is_pending
from lancestat.runs.discover import located, require_sole_writer
from lancestat.runs.node import NodeType, Observed, named_uris
from lancestat.spark.session import joins_by_nearest_by
from lancestat.spec.catalog import table_name_of
from lancestat.spec.model import (
    KnnJoin,
    NodeKind,
    ProjectSpec,
    Target,
    joins_of,
    local_cores,
    node_digest,
)
from lancestat.state.garbage import GarbageReport, Owner, recorded_by_others
from lancestat.state.store import StateReader
from lancestat.state.values import canonical_uri, result_identity

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lancestat.joins.review import JoinChange
    from lancestat.joins.run import JoinRunner
    from lancestat.review.values import PropertyChange
    from lancestat.runs.execute import RunContext


_plan_log = logging.getLogger("lancestat.plan")


def check_output(spec: ProjectSpec, join: KnnJoin) -> None:
    """Check that a join does not write to what it reads.

    Raises:
        OverlappingOutputs: the result would lie in, on or around an input.
    """
    output = canonical_uri(join.output_uri)
    for name in SIDES:
        side = JoinSide(join, name)
        uris = () if side.declared.uri is None else (side.declared.uri,)
        for uri in named_uris(spec, side.declared.refs, uris):
            read = canonical_uri(uri)
            nested = f"{output}/".startswith(f"{read}/") or f"{read}/".startswith(f"{output}/")
            if nested or fnmatchcase(join.output_uri, uri):
                raise OverlappingOutputs(
                    f"the result of {join.title} would be written to what {side} reads",
                    location=join.location,
                    hint="give the output a place of its own",
                )


@dataclass(frozen=True, slots=True)
class JoinObserver:
    """Plans joins by what was observed of the datasets that they read.

    `indexes` are those that earlier runs have kept in scratch, None where that is not known.
    """

    observed: Observed
    has_nearest_by_join: bool = True
    indexes: IndexStore | None = None

    def plan(self, join: KnnJoin) -> Action:
        """Plan one join; one that cannot run is blocked."""
        try:
            action = decide_join(self._assess(join), full_refresh=self.observed.full_refresh)
            if is_pending(action) and join.output_format == OutputFormat.LANCE.value:
                require_sole_writer(self.observed.spec, join)
            return action
        except LancestatError as error:
            placed = error.placed(join.location)
            return Blocked(join.name, join.kind.value, placed, JoinFigures())

    def _assess(self, join: KnnJoin) -> JoinAssessment:
        spec, snapshots = self.observed.spec, self.observed.snapshots
        check_output(spec, join)
        left, right = (observe_side(JoinSide(join, name), spec, snapshots) for name in SIDES)
        _check_together(join, left, right)
        record: JoinRecord | None = self.observed.record_of(join)
        return JoinAssessment(
            spec=join,
            digest=node_digest(join),
            left=left,
            right=right,
            record=record,
            output=None if _is_new(join) else seen_result(spec, join),
            cores=planned_cores(spec.target),
            has_nearest_by_join=self.has_nearest_by_join,
            kept=self._kept(join, right),
            neighbours_key=self._neighbours_key(join, left, right),
            neighbours=self._neighbours(record),
        )

    def _neighbours_key(self, join: KnnJoin, left: JoinInput, right: JoinInput) -> str | None:
        """Return the key under which neighbours are kept: of tables, whose rows have addresses."""
        for side in (left, right):
            ids = [fragment.id for fragment in side.fragments or ()]
            # The order of addresses is row order.
            if not side.is_table or ids != sorted(ids):
                return None
        owner = owner_prefix(canonical_uri(self.observed.spec.target.state))
        kind = JOINED if join.stands_for is None else PAIRED
        return neighbours_key(owner, kind, result_identity(join.kind.value, join.output_uri))

    def _neighbours(self, record: JoinRecord | None) -> NeighboursManifest | None:
        """Return what is kept of the last result; a run looks again."""
        if record is None or not record.neighbours or self.indexes is None:
            return None
        store = NeighbourStore(self.indexes.root, self.indexes.options)
        try:
            kept = store.find(record.neighbours)
        except ScratchUnusable as error:
            name, text = record.node, "'%s' is planned without the neighbours of its result: %s"
            _plan_log.warning(text, name, error.message)
            return None
        return kept[-1].manifest if kept else None

    def _kept(self, join: KnnJoin, right: JoinInput) -> KeptIndex | None:
        """Return the index of the right side that is kept; a run looks again."""
        content = right.work.content
        if content is None or self.indexes is None:
            return None
        try:
            kept = self.indexes.find(content.key)
        except ScratchUnusable as error:
            _plan_log.warning("'%s' is planned without a kept index: %s", join.name, error.message)
            return None
        if kept is None:
            return None
        record = kept.manifest.record
        return record.kept(record.cover(content))

    def noted(self, planned: Mapping[str, Action]) -> Mapping[str, Action]:
        """Return actions with notes on joins that use an index which another of them writes."""
        writers: dict[str, str] = {}
        noted = dict(planned)
        for name, action in planned.items():
            if not isinstance(action, JoinAction) or action.work.right.content is None:
                continue
            if any(isinstance(stage, BuildIndex | ExtendIndex) for stage in action.stages):
                writer = writers.setdefault(action.work.right.content.key, name)
                if writer != name:
                    note = f"'{writer}' has the same right side, whose index is written once"
                    noted[name] = replace(action, notes=(*action.notes, note))
        return noted


# The neighbours of declared joins, and of those that find the pairs of near-duplicates.
JOINED, PAIRED = "join", "pairs"
# The nodes that keep indexes.
_KEEPING = {NodeKind.KNN_JOIN.value, NodeKind.DUPLICATES.value}


def _is_new(join: KnnJoin) -> bool:
    """Whether a join would write to a table that its catalog does not have yet."""
    return table_name_of(join.output_uri) is not None


def seen_result(spec: ProjectSpec, join: KnnJoin) -> OutputState | None:
    options, store = spec.options.of(join.output_uri), store_of(join.output_uri)
    format = OutputFormat(join.output_format)
    if store is not None and format is OutputFormat.LANCE:
        probe(store, options)
    return output_at(format, join.output_uri, options).current()


def declared_indexes(spec: ProjectSpec) -> Mapping[str, RightContent | None]:
    """Return the content of the declared right sides whose indexes may be used, by key.

    None stands for content that cannot be known; a table that is gone has no entry.
    """
    usable: dict[str, RightContent | None] = {}
    for join in (*spec.joins, *(node.pairs_join() for node in spec.duplicates)):
        datasets = datasets_of(spec, join.right)
        if join.right.sql is not None or not datasets or not keeps_index(join):
            continue
        [uri] = datasets.values()
        key = side_index_key(spec, join, uri)
        observed = observe_snapshots([(uri, uri)], spec.options)
        if isinstance(observed[uri], DatasetMissing):
            continue
        try:
            side = observe_side(JoinSide(join, "right"), spec, observed)
        except LancestatError as error:
            _plan_log.warning("indexes for '%s' are left alone: %s", join.name, error.message)
            usable[key] = None
        else:
            usable[key] = side.work.content
    return usable


def _check_together(join: KnnJoin, left: JoinInput, right: JoinInput) -> None:
    """Check that the sides fit each other, as far as is known before they are read.

    Raises:
        UsageError: names of columns clash, vectors differ in length, keys cannot be compared, or
            the sides are different rows though each row is to be told from itself.
    """
    output_names(left.columns or (), right.columns or (), with_rank=join.rank)
    tables = (left.work.table, right.work.table)
    is_same = tables[0] is not None and tables[1] is not None and tables[0].pin == tables[1].pin
    if join.self_location is not None and not is_same:
        key = "exclude_self" if join.exclude_self else "pairs: unordered"
        raise JoinSide(join, "left").error(
            SidesDiffer,
            f"'{key}' of {join.title} needs one Lance table on both sides",
            "declare the same 'table' or 'lance' dataset for both",
            join.self_location,
        )
    if left.key_types is not None and right.key_types is not None:
        from lancestat.joins.search.groups import compared_key_types

        try:
            keys = JoinSide(join, "left").keys, JoinSide(join, "right").keys
            compared_key_types(*keys, left.key_types, right.key_types)
        except KeysDiffer as error:
            raise error.placed(join.on_location) from None
    lengths = (left.dimension, right.dimension)
    if None not in lengths and lengths[0] != lengths[1]:
        raise JoinSide(join, "left").error(
            VectorLengthMismatch,
            f"the vectors of {join.title} have {lengths[0]} elements on the left "
            f"and {lengths[1]} on the right",
        )


def planned_cores(target: Target) -> int:
    """Return how many tasks run concurrently on a local target, 0 where only the cluster knows."""
    cores = local_cores(target.master or "")
    if cores is None:
        return 0
    per_task = target.spark_conf.get("spark.task.cpus", "1")
    return max(1, cores // int(per_task)) if per_task.isdecimal() and int(per_task) else cores


def scratch_store(target: Target) -> IndexStore | None:
    """Return the store of the scratch root of a target's runs, None where it is not known."""
    roots = known_roots(target.scratch, target.spark_conf)
    return IndexStore(roots[0], target.storage_options) if roots else None


_log = logging.getLogger("lancestat.run")


@dataclass(frozen=True, slots=True)
class JoinNodes(NodeType[KnnJoin]):
    """KNN joins, whose results are kept up to date; the fields are as `JoinObserver` has them."""

    computes: ClassVar[bool] = True
    has_nearest_by_join: bool = True
    indexes: IndexStore | None = None

    def under(self, target: Target, session: SparkSession | None) -> JoinNodes:
        return JoinNodes(joins_by_nearest_by(target, session), scratch_store(target))

    def lance_uris(self, spec: ProjectSpec, node: KnnJoin) -> tuple[str, ...]:
        return lance_uris(spec, node)

    def decode_record(self, stored: str) -> JoinRecord:
        return decode_record(stored)

    def planner(self, observed: Observed) -> JoinObserver:
        return JoinObserver(observed, self.has_nearest_by_join, self.indexes)

    @contextmanager
    def runner(self, context: RunContext) -> Iterator[JoinRunner]:
        # Only runs need what joins on Spark.
        from lancestat.joins.run import JoinOpener, JoinRunner

        opener = JoinOpener(context.spark, context.spec.target, context.options)
        yield JoinRunner(context, opener.open)

    def figures_of(self, stored: Mapping[str, object]) -> JoinFigures:
        return JoinFigures.from_json(stored)

    def result_seen(self, observed: Observed, node: KnnJoin) -> object:
        result = None if _is_new(node) else seen_result(observed.spec, node)
        return None if result is None else (result.rows, result.digest, result.generation)

    def remove_past(self, spec: ProjectSpec, nodes: Sequence[KnnJoin], now: datetime) -> None:
        """Remove the results that are past now that joins have written others."""
        keeping = [join for join in nodes if join.keep is not None]
        if keeping:
            spec, moved = located(spec, keeping)
            remove_past_results(spec, joins_of(moved), now)

    def change(
        self, old: KnnJoin | None, new: KnnJoin | None, changed: tuple[PropertyChange, ...]
    ) -> JoinChange:
        from lancestat.joins.review import JoinChange

        return JoinChange(old, new, changed)

    def collect_garbage(
        self, spec: ProjectSpec, state: StateReader, report: GarbageReport, now: datetime
    ) -> GarbageReport:
        """Drop leftovers in outputs, scratch of the target and of this user's sessions, indexes."""
        if not report.is_dry_run:
            collect_outputs(spec, spec.joins, now)
        report = _with_scratch(report, spec, state, now)

        def named() -> set[str]:
            records = state.records(NodeKind.KNN_JOIN.value, decode_record).values()
            return {folder for record in records for folder in record.neighbours}

        return collect_neighbours(report, spec, state, JOINED, named, now)


def collect_outputs(spec: ProjectSpec, joins: Sequence[KnnJoin], now: datetime) -> None:
    """Remove what killed runs of joins left in outputs, and past results; log what cannot be."""
    for join in joins:
        if _is_new(join):
            continue
        try:
            options = spec.options.of(join.output_uri)
            output_at(OutputFormat(join.output_format), join.output_uri, options).collect_garbage()
        except LancestatError as error:
            # The node reports the error when it runs.
            _log.warning("the output of '%s' was left as it is: %s", join.name, error.message)
    remove_past_results(spec, joins, now)


def remove_past_results(spec: ProjectSpec, joins: Iterable[KnnJoin], now: datetime) -> None:
    """Remove the results of joins that their `keep` takes for past; log what cannot be removed.

    Tables of catalogs are located in `spec`; ages count from `now`.
    """
    for join in joins:
        if join.keep is None or _is_new(join):
            continue
        options = spec.options.of(join.output_uri)
        try:
            # Only results in Lance have a 'keep'.
            removed = LanceOutput(join.output_uri, options).remove_past(join.keep, now)
        except LancestatError as error:
            _log.warning("older results of '%s' were left: %s", join.name, error.message)
        else:
            if removed:
                _log.info("'%s': %s of older results removed", join.name, count(removed, "version"))


def _with_scratch(
    report: GarbageReport, spec: ProjectSpec, state: StateReader, now: datetime
) -> GarbageReport:
    target = spec.target
    kinds = recorded_by_others(state, Owner(spec.name, target.name), "kind")
    has_others = not kinds.isdisjoint(_KEEPING)
    owner, usable = owner_prefix(canonical_uri(target.state)), declared_indexes(spec)
    for root in known_roots(target.scratch, target.spark_conf):
        store = IndexStore(root, target.storage_options)
        garbage = ScratchGarbage(store, now, report.is_dry_run).collect(
            owner, usable, has_others=has_others
        )
        report = _with_garbage(report, garbage)
    return report


def _with_garbage(report: GarbageReport, garbage: ScratchGarbage) -> GarbageReport:
    for uri, reason in garbage.left:
        _log.warning("scratch %s was left: %s", uri, reason)
    return replace(
        report,
        indexes_dropped=report.indexes_dropped + garbage.indexes,
        scratch_dropped=report.scratch_dropped + len(garbage.folders),
        scratch_left=report.scratch_left + len(garbage.left),
        bytes=report.bytes + garbage.size_bytes,
    )


def collect_neighbours(
    report: GarbageReport,
    spec: ProjectSpec,
    state: StateReader,
    kind: str,
    named: Callable[[], Container[str]],
    now: datetime,
) -> GarbageReport:
    """Drop the neighbours of a kind, `JOINED` or `PAIRED`, that no record names or may name yet."""
    target, begun = spec.target, [run.started_at for run in state.running()]
    for root in known_roots(target.scratch, target.spark_conf):
        garbage = ScratchGarbage(IndexStore(root, target.storage_options), now, report.is_dry_run)
        prefix = neighbours_prefix(owner_prefix(canonical_uri(target.state)), kind)
        garbage.collect_neighbours(prefix, named, begun)
        report = _with_garbage(report, garbage)
    return report
