"""Gather what planning looks at, from datasets and state: the one builder of every plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime

from lancestat.errors import LakeError, LancestatError
from lancestat.lake.fingerprint import ColumnGroup, column_groups, field_key, table_digest
from lancestat.lake.history import History, commits_since
from lancestat.lake.observe import observe_snapshots, snapshot_at
from lancestat.lake.open import REPLACED, pinned_history
from lancestat.lake.snapshot import Field, Fragment, Snapshot
from lancestat.plan.actions import Action, Blocked, Deferred, JoinAction, Plan, deferred
from lancestat.plan.assessment import Appraisal, Background, appraise
from lancestat.plan.coverage import Rewritten
from lancestat.plan.join_observe import JoinObserver, awaited_joins, in_order, lance_uris
from lancestat.plan.judgement import digest_of_names, no_past
from lancestat.plan.planner import NOTHING_STORED, decide, settle
from lancestat.redact import Audience
from lancestat.spec.model import KnnJoin, Node, ProjectSpec, Table
from lancestat.state.identity import quantile_key, table_identity
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
        busy = {
            name for name, action in planned.items() if isinstance(action, JoinAction | Deferred)
        }

        def look(node: Node) -> Action:
            if isinstance(node, KnnJoin):
                return planned[node.name]
            pending = tuple(name for name in awaited.get(node.name, ()) if name in busy)
            if pending:
                is_known = table_identity(node.uri) in records
                return deferred(node, pending, is_known=is_known, full_refresh=full_refresh)
            return self._plan_table(node, snapshots[node.uri], records, full_refresh)

        with ThreadPoolExecutor(max_workers=self.threads) as pool:
            actions = tuple(pool.map(look, nodes))
        shown = tuple(map(self._without_secrets, actions))
        plan = Plan(self.spec.name, self.spec.target.name, shown, full_refresh)
        return Survey(plan, snapshots, records, made)

    def _without_secrets(self, action: Action) -> Action:
        if not isinstance(action, Blocked):
            return action
        return replace(action, error=self.spec.redactor.error(action.error, Audience.PERSON))

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
                name
                for name in awaited[join.name]
                if isinstance(planned[name], JoinAction | Deferred)
            )
            if pending:
                is_known = join.name in observer.records
                planned[join.name] = deferred(
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
        now = self.clock()
        appraisal = self.appraisal(table, found, self.state.records(), now)
        return appraisal, self._background(appraisal, now, use_partials=True)

    def appraisal(
        self,
        table: Table,
        found: Snapshot,
        records: Mapping[str, TableRecord],
        now: datetime,
    ) -> Appraisal:
        """One table as it was found, next to what was last made of it.

        Raises:
            SpecError: the dataset lacks a declared column, or the column cannot be analyzed.
        """
        identity = table_identity(table.uri)
        return appraise(table, identity, found, records.get(identity), now, self.look_back)

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
            if not (isinstance(action, Blocked) and isinstance(action.error, REPLACED)):
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
        now = self.clock()
        try:
            appraisal = self.appraisal(table, found, records, now)
            settled = None if full_refresh else settle(appraisal)
            if settled is not None:
                return settled
            background = self._background(appraisal, now, use_partials=use_partials)
        except LancestatError as error:
            return Blocked(table.name, table.kind.value, error)
        return decide(appraisal, background, full_refresh=full_refresh)

    def _look(self, table: Table) -> dict[str, Snapshot | LakeError]:
        return observe_snapshots([(table.name, table.uri)], self.spec.target.storage_options)

    def _background(
        self, appraisal: Appraisal, instant: datetime, *, use_partials: bool
    ) -> Background:
        """What happened to a table since its last statistics.

        Raises:
            LancestatError: the dataset or the state cannot be read.
        """
        now, fields = appraisal.snapshot, appraisal.wanted
        version = _described_version(appraisal)
        base, history = no_past(now, 0) if version is None else self.look_back(now, version)
        # What was just opened is what the judgement looks back at.
        statistics = replace(appraisal.statistics, look_back=lambda *_: (base, history))
        groups = tuple(column_groups(now, fields))
        mark = _marks(appraisal)
        return Background(
            groups=mark(groups),
            digest=table_digest(groups, fields),
            base_digest=(
                digest_of_names(base, frozenset(field.name for field in fields)) if base else None
            ),
            history=history,
            rewrites=_rewrites(now, fields, history, mark),
            verdict=statistics.judge(instant),
            index=self.state.partial_index(appraisal.identity) if use_partials else NOTHING_STORED,
        )

    def look_back(self, now: Snapshot, version: int) -> tuple[Snapshot | None, History]:
        """A table at an earlier version, None when that is gone, and the commits since.

        Raises:
            LakeError: the dataset cannot be opened.
        """
        if not 1 <= version <= now.version:
            return no_past(now, version)
        if version == now.version:
            return now, no_past(now, version)[1]
        options = self.spec.target.storage_options
        with pinned_history(now.pin, options) as newest:
            base = snapshot_at(newest, version, now.uri, options)
            # Without a base it was cleaned up: what the state remembers has to do.
            return base, commits_since(newest, version)


def _writes(action: Action) -> bool:
    """Whether a join is about to write its result."""
    return isinstance(action, JoinAction | Deferred)


def _described_version(appraisal: Appraisal) -> int | None:
    """The version whose rows the last statistics read, None where there are none."""
    version = appraisal.statistics.described_version
    if version is None and appraisal.record is not None:
        return appraisal.record.version
    return version


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
    def groups(fragments: tuple[Fragment, ...], moved: Sequence[Field]) -> tuple[ColumnGroup, ...]:
        return mark(tuple(column_groups(replace(now, fragments=fragments), moved)))

    return tuple(
        Rewritten(groups(rewrite.old, moved), groups(rewrite.new, moved))
        for rewrite in history.rewrites
        if (moved := [field for field in fields if field.id in rewrite.field_ids])
    )
