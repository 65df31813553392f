"""Observes datasets and state for planning: the one builder of every plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime

from lancestat.errors import DatasetMissing, LakeError, LancestatError
from lancestat.formats import instant
from lancestat.joins.action import JoinFigures
from lancestat.joins.observe import (
    JoinObserver,
    in_order,
    join_dependencies,
    lance_uris,
    with_shared_layouts,
)
from lancestat.joins.record import JoinRecord, join_records
from lancestat.joins.scratch.layouts import LayoutStore
from lancestat.lake.fingerprint import ColumnGroup, column_groups, field_key, table_digest
from lancestat.lake.history import History, commits_since
from lancestat.lake.observe import observe_snapshots, snapshot_at
from lancestat.lake.open import REPLACED, pinned_history
from lancestat.lake.snapshot import Field, Fragment, Snapshot
from lancestat.redact import Audience
from lancestat.runs.actions import (
    Action,
    Blocked,
    Deferred,
    Plan,
    Reason,
    Verb,
    is_pending,
    needs_spark,
)
from lancestat.runs.discover import source_findings
from lancestat.runs.locate import located, require_sole_writer, shared_outputs
from lancestat.spec.model import KnnJoin, Node, ProjectSpec, Table, joins_of
from lancestat.spec.source import is_source
from lancestat.state.identity import quantile_key, table_identity
from lancestat.state.values import StateReader
from lancestat.tables.assessment import TableAssessment, TableChanges, assess
from lancestat.tables.coverage import Rewritten
from lancestat.tables.judgement import no_history
from lancestat.tables.planner import NOTHING_STORED, decide, skip_if_current
from lancestat.tables.stored import TableRecord, table_records

# How often a table is observed at most that is replaced while it is planned.
_MOST_OBSERVATIONS = 3


@dataclass(frozen=True, slots=True)
class ObservedPlan:
    """A plan, and what it was made from: datasets by URI, records by dataset and by join.

    `spec` and `nodes` name datasets by their URIs, also where the YAML names tables of catalogs.
    `records` and `joins` are empty where the plan has no node of that kind.
    """

    plan: Plan
    spec: ProjectSpec
    nodes: tuple[Node, ...]
    snapshots: Mapping[str, Snapshot | LakeError]
    records: Mapping[str, TableRecord]
    joins: Mapping[str, JoinRecord]


@dataclass(frozen=True, slots=True)
class Observer:
    """Observes datasets and state for the planner, which is given values only.

    Less than `in_process_bytes` of a table is read in this process, and the rest on Spark, of which
    `has_nearest_by_join` says whether it can join vectors. `layouts` are those that earlier runs
    of joins have kept in scratch, None where that cannot be known. `spark_start_seconds` is how
    long Spark takes to start where a plan needs it, 0 where it runs, None where that is not known.
    """

    spec: ProjectSpec
    state: StateReader
    clock: Callable[[], datetime]
    threads: int = 8
    in_process_bytes: int = 0
    has_nearest_by_join: bool = True
    layouts: LayoutStore | None = None
    spark_start_seconds: float | None = 0.0

    def plan(self, nodes: Sequence[Node], *, full_refresh: bool = False) -> Plan:
        """Plan nodes in their order; one that cannot be observed is blocked, alone.

        A node that reads what a join of the plan is about to write depends on that join.
        """
        return self.observe(nodes, full_refresh=full_refresh).plan

    def observe(self, nodes: Sequence[Node], *, full_refresh: bool = False) -> ObservedPlan:
        """Plan nodes as `plan` does, and return the plan with what was observed for it."""
        spec, nodes = located(self.spec, nodes)
        return replace(self, spec=spec)._observe(nodes, full_refresh)

    def _observe(self, nodes: tuple[Node, ...], full_refresh: bool) -> ObservedPlan:
        joins = joins_of(nodes)
        uris = {uri: uri for node in nodes for uri in lance_uris(self.spec, node)}
        snapshots = observe_snapshots(uris.items(), self.spec.options, self.threads)
        records = table_records(self.state) if nodes or self.spec.sources else {}
        made = join_records(self.state) if joins else {}
        dependencies = join_dependencies(self.spec, nodes) if joins else {}
        nearest_by, layouts = self.has_nearest_by_join, self.layouts
        snapshots = {uri: _remembered(seen, uri, records) for uri, seen in snapshots.items()}
        observer = JoinObserver(self.spec, snapshots, made, nearest_by, layouts)
        planned = self._plan_joins(joins, dependencies, observer, full_refresh)
        busy = {name for name, action in planned.items() if is_pending(action)}
        shared = shared_outputs(self.spec, nodes)

        def plan_node(node: Node) -> Action:
            if node.name in shared:
                return Blocked(node.name, node.kind.value, shared[node.name], _no_figures(node))
            if isinstance(node, KnnJoin):
                return planned[node.name]
            pending = tuple(name for name in dependencies.get(node.name, ()) if name in busy)
            if pending:
                is_known = table_identity(node.uri) in records
                return _deferred(node, pending, is_known=is_known, full_refresh=full_refresh)
            return self._plan_table(node, snapshots[node.uri], records, full_refresh)

        with ThreadPoolExecutor(max_workers=self.threads) as pool:
            actions = tuple(pool.map(plan_node, nodes))
        redacted = tuple(map(self._without_secrets, actions))
        sources = source_findings(self.spec, nodes, records, self.state)
        plan = Plan(
            self.spec.name,
            self.spec.target.name,
            redacted,
            full_refresh,
            sources,
            self.spec.redactor,
            self.spark_start_seconds if any(map(needs_spark, redacted)) else 0.0,
        )
        return ObservedPlan(plan, self.spec, nodes, snapshots, records, made)

    def _without_secrets(self, action: Action) -> Action:
        if not isinstance(action, Blocked):
            return action
        return replace(action, error=self.spec.redactor.error(action.error, Audience.PERSON))

    def _plan_joins(
        self,
        joins: Sequence[KnnJoin],
        dependencies: Mapping[str, tuple[str, ...]],
        observer: JoinObserver,
        full_refresh: bool,
    ) -> dict[str, Action]:
        with ThreadPoolExecutor(max_workers=self.threads) as pool:
            alone = pool.map(lambda join: observer.plan(join, full_refresh=full_refresh), joins)
            planned = {action.node: action for action in alone}
        for join in in_order(joins, dependencies):
            pending = tuple(name for name in dependencies[join.name] if is_pending(planned[name]))
            if pending:
                is_known = join.name in observer.records
                planned[join.name] = _deferred(
                    join, pending, is_known=is_known, full_refresh=full_refresh
                )
        return with_shared_layouts(planned)

    def plan_again(self, table: Table, *, use_partials: bool = True) -> Action:
        """Plan one table as it is now; without partials, as if the state had none."""
        observer, table = self._located(table)
        snapshot, records = observer._observe_table(table), table_records(self.state)
        return observer._plan_table(
            table, snapshot, records, full_refresh=False, use_partials=use_partials
        )

    def _located(self, table: Table) -> tuple[Observer, Table]:
        spec, [node] = located(self.spec, (table,))
        assert isinstance(node, Table)
        return replace(self, spec=spec), node

    def assess(self, table: Table) -> tuple[TableAssessment, TableChanges]:
        """Assess one table and gather its changes, whether or not a plan needs them.

        Raises:
            LancestatError: the dataset cannot be opened or lacks a declared column.
        """
        observer, table = self._located(table)
        snapshot = observer._observe_table(table)
        if isinstance(snapshot, LakeError):
            raise snapshot.placed(table.location)
        assessment = observer.assess_snapshot(table, snapshot, table_records(self.state))
        return assessment, observer._table_changes(assessment, use_partials=True)

    def assess_snapshot(
        self, table: Table, snapshot: Snapshot, records: Mapping[str, TableRecord]
    ) -> TableAssessment:
        """Assess one table by a snapshot of it.

        Raises:
            SpecError: the dataset lacks a declared column, or the column cannot be analyzed.
        """
        identity = table_identity(table.uri)
        options = self.spec.options.of(snapshot.uri)
        return assess(table, identity, snapshot, records.get(identity), self.look_back, options)

    def _plan_table(
        self,
        table: Table,
        snapshot: Snapshot | LakeError,
        records: Mapping[str, TableRecord],
        full_refresh: bool,
        use_partials: bool = True,
    ) -> Action:
        for _ in range(_MOST_OBSERVATIONS - 1):
            action = self._planned(table, snapshot, records, full_refresh, use_partials)
            if not isinstance(action.error, REPLACED):
                return action
            snapshot = self._observe_table(table)
        return self._planned(table, snapshot, records, full_refresh, use_partials)

    def _planned(
        self,
        table: Table,
        snapshot: Snapshot | LakeError,
        records: Mapping[str, TableRecord],
        full_refresh: bool,
        use_partials: bool,
    ) -> Action:
        if isinstance(snapshot, LakeError):
            kind = "source" if is_source(table) else table.kind.value
            return Blocked(table.name, kind, snapshot.placed(table.location))
        try:
            assessment = self.assess_snapshot(table, snapshot, records)
            skip = None if full_refresh else skip_if_current(assessment)
            if skip is not None:
                return skip
            changes = self._table_changes(assessment, use_partials=use_partials)
        except LancestatError as error:
            return Blocked(table.name, table.kind.value, error)
        action = decide(
            assessment,
            changes,
            full_refresh=full_refresh,
            in_process_bytes=self.in_process_bytes,
        )
        if is_pending(action):
            try:
                require_sole_writer(self.spec, table)
            except LancestatError as error:
                return Blocked(table.name, table.kind.value, error.placed(table.location))
        return action

    def _observe_table(self, table: Table) -> Snapshot | LakeError:
        [observed] = observe_snapshots([(table.name, table.uri)], self.spec.options).values()
        is_missing = isinstance(observed, DatasetMissing)
        return (
            _remembered(observed, table.uri, table_records(self.state)) if is_missing else observed
        )

    def _table_changes(self, assessment: TableAssessment, *, use_partials: bool) -> TableChanges:
        """Gather the changes of a table since its last statistics.

        Raises:
            LancestatError: the dataset or the state cannot be read.
        """
        now, fields = assessment.snapshot, assessment.columns
        version = _described_version(assessment)
        base, history = no_history(now, 0) if version is None else self.look_back(now, version)
        # The judgement looks back at the version that was just opened.
        statistics = replace(assessment.statistics, look_back=lambda *_: (base, history))
        groups = tuple(column_groups(now, fields))
        mark = _marks(assessment)
        return TableChanges(
            groups=mark(groups),
            digest=table_digest(groups, fields),
            base_digest=None if base is None else _digest_of_names(base, fields),
            history=history,
            rewrites=_rewrites(now, fields, history, mark),
            verdict=statistics.verdict(self.clock()),
            index=self.state.partial_index(assessment.identity) if use_partials else NOTHING_STORED,
        )

    def look_back(self, now: Snapshot, version: int) -> tuple[Snapshot | None, History]:
        """As `look_back`, with the target's options."""
        return look_back(now, version, self.spec.options.of(now.uri))


def _deferred(
    node: Node, dependencies: tuple[str, ...], *, is_known: bool, full_refresh: bool
) -> Deferred:
    """Defer a node to others; `is_known` is set where an earlier run made the node."""
    verb: Verb = "refresh" if is_known else "analyze"
    reason = Reason.INPUT_CHANGED if is_known else Reason.NEW
    kind, figures = node.kind.value, _no_figures(node)
    return Deferred(node.name, kind, verb, (reason,), dependencies, full_refresh, figures)


def _no_figures(node: Node) -> JoinFigures | None:
    return JoinFigures() if isinstance(node, KnnJoin) else None


def look_back(
    now: Snapshot, version: int, options: Mapping[str, str]
) -> tuple[Snapshot | None, History]:
    """Return a table at an earlier version, None when that is gone, and the commits since.

    Raises:
        LakeError: the dataset cannot be opened.
    """
    if not 1 <= version <= now.version:
        return no_history(now, version)
    if version == now.version:
        return now, no_history(now, version)[1]
    with pinned_history(now.pin, options) as newest:
        base = snapshot_at(newest, version, now.uri, options)
        # Without a base the version was cleaned up: only the state's record remains.
        return base, commits_since(newest, version)


def _remembered(
    observed: Snapshot | LakeError, uri: str, records: Mapping[str, TableRecord]
) -> Snapshot | LakeError:
    """Return what was observed; the error of a dataset that is gone says when it was there."""
    record = records.get(table_identity(uri))
    if record is None or not isinstance(observed, DatasetMissing):
        return observed
    hint = f"it was there when its statistics were computed, {instant(record.computed_at)}"
    return DatasetMissing(observed.message, location=observed.location, hint=hint)


def _digest_of_names(snapshot: Snapshot, wanted: Sequence[Field]) -> str:
    """Return the `table_digest` of the columns with the names of the wanted ones."""
    names = {field.name for field in wanted}
    fields = tuple(field for field in snapshot.fields if field.name in names)
    return table_digest(column_groups(snapshot, fields), fields)


def _described_version(assessment: TableAssessment) -> int | None:
    """The version whose rows the last statistics read, None where there are none."""
    version = assessment.statistics.described_version
    if version is None and assessment.record is not None:
        return assessment.record.version
    return version


def stored_groups(assessment: TableAssessment) -> tuple[ColumnGroup, ...]:
    """The content of the wanted columns now, under the keys of the partials they need."""
    return _marks(assessment)(tuple(column_groups(assessment.snapshot, assessment.columns)))


def _marks(assessment: TableAssessment) -> _Marks:
    names = assessment.histograms
    return _Marks(field_key(field) for field in assessment.columns if field.name in names)


class _Marks:
    """Marks the keys of columns that need quantiles; equal sets of keys stay one object."""

    def __init__(self, field_keys: Iterable[str]) -> None:
        self._marked = {key: quantile_key(key) for key in field_keys}
        self._sets: dict[frozenset[str], frozenset[str]] = {}

    def __call__(self, groups: tuple[ColumnGroup, ...]) -> tuple[ColumnGroup, ...]:
        if not self._marked:
            return groups
        return tuple(replace(group, fields=self._of(group.fields)) for group in groups)

    def _of(self, keys: frozenset[str]) -> frozenset[str]:
        marked = self._sets.get(keys)
        if marked is None:
            marked = self._sets[keys] = frozenset(self._marked.get(key, key) for key in keys)
        return marked


def _rewrites(
    now: Snapshot, fields: Sequence[Field], history: History, mark: _Marks
) -> tuple[Rewritten, ...]:
    def groups(fragments: tuple[Fragment, ...], moved: Sequence[Field]) -> tuple[ColumnGroup, ...]:
        return mark(tuple(column_groups(replace(now, fragments=fragments), moved)))

    return tuple(
        Rewritten(groups(rewrite.old, moved), groups(rewrite.new, moved))
        for rewrite in history.rewrites
        if (moved := [field for field in fields if field.id in rewrite.field_ids])
    )
