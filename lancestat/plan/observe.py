"""Gather what planning looks at, from datasets and state: the one builder of every plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime

from lancestat.errors import LakeError, LancestatError
from lancestat.lake.changed_rows import rows_changed_between
from lancestat.lake.fingerprint import ColumnGroup, column_groups, field_key
from lancestat.lake.history import History, commits_since
from lancestat.lake.observe import observe_snapshots, snapshot_at
from lancestat.lake.open import REPLACED_CODES, pinned_history
from lancestat.lake.snapshot import Field, Fragment, Snapshot
from lancestat.plan.actions import Action, Blocked, Plan
from lancestat.plan.appraise import appraise, told
from lancestat.plan.coverage import Rewritten
from lancestat.plan.join_actions import Await, Join, await_joins
from lancestat.plan.join_observe import JoinObserver
from lancestat.plan.join_reads import awaited_joins, in_order, lance_uris
from lancestat.plan.observation import Appraisal, Background
from lancestat.plan.planner import NOTHING_STORED, decide, settle, table_digest
from lancestat.spec.model import KnnJoin, Node, ProjectSpec, Publish, StaleBounds, Table
from lancestat.state.identity import table_identity
from lancestat.state.keys import quantile_key
from lancestat.state.values import JoinRecord, StateReader, TableRecord

# A table that is replaced while it is planned is looked at again, so many times at most in all.
_LOOKS = 3


@dataclass(frozen=True, slots=True)
class Survey:
    """A plan, and what it was made from: datasets by URI, records by dataset and by join.

    `records` and `joins` are empty where the plan has no node of that kind.
    """

    plan: Plan
    snapshots: Mapping[str, Snapshot | LakeError]
    records: Mapping[str, TableRecord]
    joins: Mapping[str, JoinRecord]


@dataclass(frozen=True, slots=True)
class Observer:
    """Looks at datasets and state on behalf of the planner, which sees values only."""

    spec: ProjectSpec
    state: StateReader
    clock: Callable[[], datetime]
    threads: int = 8

    def plan(self, nodes: Sequence[Node], *, full_refresh: bool = False) -> Plan:
        """Plan nodes in their order; one that cannot be observed is blocked, alone.

        A node that reads what a join of the plan is about to write awaits that join.
        """
        return self.survey(nodes, full_refresh=full_refresh).plan

    def survey(self, nodes: Sequence[Node], *, full_refresh: bool = False) -> Survey:
        """`plan`, together with what was looked at for it."""
        joins = [node for node in nodes if isinstance(node, KnnJoin)]
        uris = {uri: uri for node in nodes for uri in lance_uris(self.spec, node)}
        options = self.spec.target.storage_options
        snapshots = observe_snapshots(uris.items(), options, self.threads)
        records = self.state.records() if nodes else {}
        made = self.state.joins() if joins else {}
        awaited = awaited_joins(self.spec, nodes) if joins else {}
        planned = self._plan_joins(
            joins, awaited, JoinObserver(self.spec, snapshots, made), full_refresh
        )
        busy = {name for name, action in planned.items() if isinstance(action, Join | Await)}

        def look(node: Node) -> Action:
            if isinstance(node, KnnJoin):
                return planned[node.name]
            pending = tuple(name for name in awaited.get(node.name, ()) if name in busy)
            if pending:
                is_known = table_identity(node.uri) in records
                return await_joins(node, pending, is_known=is_known, full_refresh=full_refresh)
            return self._plan_table(node, snapshots[node.uri], records, full_refresh)

        with ThreadPoolExecutor(max_workers=self.threads) as pool:
            actions = tuple(pool.map(look, nodes))
        plan = Plan(self.spec.name, self.spec.target.name, actions, full_refresh)
        return Survey(plan, snapshots, records, made)

    def _plan_joins(
        self,
        joins: Sequence[KnnJoin],
        awaited: Mapping[str, tuple[str, ...]],
        observer: JoinObserver,
        full_refresh: bool,
    ) -> dict[str, Action]:
        with ThreadPoolExecutor(max_workers=self.threads) as pool:
            alone = pool.map(lambda join: observer.plan(join, full_refresh=full_refresh), joins)
            planned = {action.node: action for action in alone}
        for join in in_order(joins, awaited):
            pending = tuple(
                name for name in awaited[join.name] if isinstance(planned[name], Join | Await)
            )
            if pending:
                is_known = join.name in observer.records
                planned[join.name] = await_joins(
                    join, pending, is_known=is_known, full_refresh=full_refresh
                )
        return planned

    def plan_again(self, table: Table, *, use_partials: bool = True) -> Action:
        """Plan one table as it is now; without partials, as if the state had none."""
        snapshots = self._look(table)
        records = self.state.records()
        return self._plan_table(
            table, snapshots[table.name], records, full_refresh=False, use_partials=use_partials
        )

    def appraise(self, table: Table) -> tuple[Appraisal, Background]:
        """One table and all its background, for those who want to look at it.

        Raises:
            LancestatError: the dataset cannot be opened or lacks a declared column.
        """
        [found] = self._look(table).values()
        if isinstance(found, LakeError):
            raise found
        identity = table_identity(table.uri)
        record = self.state.records().get(identity)
        appraisal = appraise(table, identity, found, record, self.clock())
        return appraisal, self.background(appraisal, use_partials=True)

    def changed_rows(self, appraisal: Appraisal) -> float | None:
        """The share of a table's rows that changed since the version that readers are told of.

        Manifests alone are read, and none where that version is the current one. None where nothing
        is told, or where it cannot be found out.
        """
        now, statistics = appraisal.snapshot, told(appraisal)
        if statistics is None:
            return None
        tag = statistics.version_tag
        if tag == now.version:
            return 0.0
        is_published = appraisal.spec.publish is Publish.MANIFEST
        try:
            base, history = self._base(now, tag - 1 if is_published else tag)
        except LakeError:
            return None
        return rows_changed_between(base, now, history) if base else None

    def _plan_table(
        self,
        table: Table,
        found: Snapshot | LakeError,
        records: Mapping[str, TableRecord],
        full_refresh: bool,
        use_partials: bool = True,
    ) -> Action:
        for _ in range(_LOOKS - 1):
            action = self._planned(table, found, records, full_refresh, use_partials)
            if not (isinstance(action, Blocked) and action.error.code in REPLACED_CODES):
                return action
            [found] = self._look(table).values()
        return self._planned(table, found, records, full_refresh, use_partials)

    def _planned(
        self,
        table: Table,
        found: Snapshot | LakeError,
        records: Mapping[str, TableRecord],
        full_refresh: bool,
        use_partials: bool,
    ) -> Action:
        if isinstance(found, LakeError):
            return Blocked(table.name, table.kind.value, found)
        identity = table_identity(table.uri)
        now = self.clock()
        try:
            appraisal = appraise(table, identity, found, records.get(identity), now)
            settled = None if full_refresh else settle(appraisal)
            if settled is not None:
                return settled
            background = self.background(appraisal, use_partials=use_partials)
        except LancestatError as error:
            return Blocked(table.name, table.kind.value, error)
        return decide(appraisal, background, now=now, full_refresh=full_refresh)

    def _look(self, table: Table) -> dict[str, Snapshot | LakeError]:
        return observe_snapshots([(table.name, table.uri)], self.spec.target.storage_options)

    def background(self, appraisal: Appraisal, *, use_partials: bool) -> Background:
        """What happened to a table since its last statistics.

        Raises:
            LancestatError: the dataset or the state cannot be read.
        """
        now, fields = appraisal.snapshot, appraisal.wanted
        base, history = self._base(now, described_version(appraisal))
        groups = tuple(column_groups(now, fields))
        mark = _marks(appraisal)
        bounds = appraisal.spec.policy.allow_stale
        counts_rows = isinstance(bounds, StaleBounds) and bounds.max_changed_rows is not None
        return Background(
            groups=mark(groups),
            digest=table_digest(groups, fields),
            base_digest=_digest_of_same_names(base, fields) if base else None,
            history=history,
            rewrites=_rewrites(now, fields, history, mark),
            changed_rows=(
                rows_changed_between(base, now, history) if base and counts_rows else None
            ),
            index=self.state.partial_index(appraisal.identity) if use_partials else NOTHING_STORED,
        )

    def _base(self, now: Snapshot, version: int | None) -> tuple[Snapshot | None, History]:
        nothing = History(now.version, now.version, ())
        if version is None or not 1 <= version <= now.version:
            return None, nothing
        if version == now.version:
            return now, nothing
        options = self.spec.target.storage_options
        with pinned_history(now.pin, options) as newest:
            base = snapshot_at(newest, version, now.uri, options)
            # Without a base it was cleaned up: what the state remembers has to do.
            return base, commits_since(newest, version)


def described_version(appraisal: Appraisal) -> int | None:
    """The version whose rows the last statistics read, None where there are none.

    That is the one before their tag: a commit that landed late carries the tag of a version that
    came from someone else.
    """
    if appraisal.published is not None:
        return appraisal.published.version_tag - 1
    return appraisal.record.version if appraisal.record is not None else None


def _digest_of_same_names(base: Snapshot, fields: Sequence[Field]) -> str:
    names = {field.name for field in fields}
    then = tuple(field for field in base.fields if field.name in names)
    return table_digest(column_groups(base, then), then)


def stored_groups(appraisal: Appraisal) -> tuple[ColumnGroup, ...]:
    """The content of the wanted columns now, under the keys of the partials they need."""
    return _marks(appraisal)(tuple(column_groups(appraisal.snapshot, appraisal.wanted)))


def _marks(appraisal: Appraisal) -> _Marks:
    names = appraisal.histograms
    return _Marks(field_key(field) for field in appraisal.wanted if field.name in names)


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
        found = self._sets.get(keys)
        if found is None:
            found = self._sets[keys] = frozenset(self._marked.get(key, key) for key in keys)
        return found


def _rewrites(
    now: Snapshot, fields: Sequence[Field], history: History, mark: _Marks
) -> tuple[Rewritten, ...]:
    def groups(fragments: tuple[Fragment, ...]) -> tuple[ColumnGroup, ...]:
        return mark(tuple(column_groups(replace(now, fragments=fragments), fields)))

    return tuple(Rewritten(groups(each.old), groups(each.new)) for each in history.rewrites)
