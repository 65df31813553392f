"""Tables as a kind of node, and what planning observes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from lancestat.errors import (
    DatasetMissing,
    LakeError,
    LancestatError,
    UnknownReference,
    did_you_mean,
)
from lancestat.formats import instant, quoted
from lancestat.lake.fingerprint import ColumnGroup, column_groups, table_digest
from lancestat.lake.history import History, commits_since
from lancestat.lake.open import pinned_history, snapshot_at
from lancestat.lake.snapshot import Field, Fragment, Snapshot
from lancestat.runs.actions import Action, Blocked, Skip, is_pending
from lancestat.runs.discover import require_sole_writer
from lancestat.runs.node import Observed
from lancestat.runs.observe import Observer
from lancestat.spark.session import in_process_bytes
from lancestat.spec.model import (
    ColumnSelection,
    NodeKind,
    ProjectSpec,
    Refresh,
    Table,
    Target,
    is_source,
    kind_word,
    tables_of,
)
from lancestat.state.garbage import GarbageReport
from lancestat.state.store import StateReader
from lancestat.state.values import table_identity
from lancestat.tables.coverage import Rewritten
from lancestat.tables.folding import fold_to_fit
from lancestat.tables.judgement import (
    TableAssessment,
    TableChanges,
    assess,
    check_reference,
    named_columns,
    no_history,
)
from lancestat.tables.planner import (
    NOTHING_STORED,
    Marks,
    decide,
    is_unrecorded,
    marks,
    record_again,
    skip_if_current,
)
from lancestat.tables.stored import TableRecord, decode_record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lancestat.review.values import PropertyChange
    from lancestat.runs.execute import RunContext
    from lancestat.tables.review import TableChange
    from lancestat.tables.run import TableRunner


@dataclass(frozen=True, slots=True)
class TableObserver:
    """Plans tables by what was observed of them.

    Less than `in_process_bytes` of a table is read in this process, and the rest on Spark.
    """

    observed: Observed
    in_process_bytes: int = 0

    def plan(self, table: Table) -> Action:
        """Plan one table; one that cannot be planned is blocked."""
        kind = kind_word(table)
        try:
            return self._decided(table)
        except LakeError as error:
            return Blocked(table.name, kind, error.placed(table.location))
        except LancestatError as error:
            return Blocked(table.name, kind, error)

    def noted(self, planned: Mapping[str, Action]) -> Mapping[str, Action]:
        spec, nodes = self.observed.spec, tables_of(self.observed.nodes)
        if spec.target.state_budget is None or not nodes:
            return planned
        names = {table_identity(one.uri): one.name for one in nodes}
        others = {table.name for table in spec.tables} - planned.keys()
        records = {
            names.get(identity, record.node): record
            for identity, record in self.observed.records[NodeKind.TABLE.value].items()
            if isinstance(record, TableRecord) and (identity in names or record.node in others)
        }
        budget, location = spec.target.state_budget, spec.target.state_budget_location
        tables = {one.name: planned[one.name] for one in nodes}
        return {**planned, **fold_to_fit(tables, budget, location, records)}

    def _decided(self, table: Table) -> Action:
        full_refresh = self.observed.full_refresh
        assessment = self.assess(table)
        self._check_references(assessment)
        skip = None if full_refresh else skip_if_current(assessment)
        if skip is not None:
            if is_unrecorded(assessment):
                return record_again(skip, assessment, self.changes(assessment))
            return skip
        changes = self.changes(assessment)
        action = decide(
            assessment,
            changes,
            full_refresh=full_refresh,
            in_process_bytes=self.in_process_bytes,
        )
        if isinstance(action, Skip) and is_unrecorded(assessment):
            return record_again(action, assessment, changes)
        if is_pending(action):
            try:
                require_sole_writer(self.observed.spec, table)
            except LancestatError as error:
                raise error.placed(table.location) from None
        return action

    def assess(self, table: Table) -> TableAssessment:
        """Assess one table.

        Raises:
            LakeError: the dataset cannot be opened.
            SpecError: the dataset lacks a declared column, or the column cannot be analyzed.
        """
        identity = table_identity(table.uri)
        record = self.observed.records[NodeKind.TABLE.value].get(identity)
        assert record is None or isinstance(record, TableRecord)
        snapshot = _remembered(self.observed.snapshots[table.uri], record)
        if isinstance(snapshot, LakeError):
            raise snapshot
        options = self.observed.spec.options.of(snapshot.uri)
        return assess(table, identity, snapshot, record, self.look_back, options)

    def _check_references(self, assessment: TableAssessment) -> None:
        """Raise SpecError for a reference that does not fit the table that it names.

        A table that cannot be looked up, opened or assessed has an error of its own.
        """
        spec, table = self.observed.spec, assessment.spec
        for index, reference in enumerate(table.references):
            other = spec.node(reference.table)
            if other is None and not any(map(is_source, spec.nodes)):
                raise UnknownReference(
                    f"unknown table {quoted(reference.table)}",
                    location=table.at(f"references.{index}.table"),
                    hint=did_you_mean(reference.table, [one.name for one in spec.tables]),
                )
            if isinstance(other, Table) and other.uri in self.observed.snapshots:
                try:
                    referred = self.assess(other)
                except LancestatError:
                    continue
                check_reference(table, index, assessment.snapshot, referred)

    def changes(self, assessment: TableAssessment) -> TableChanges:
        """Gather the changes of a table since its last statistics.

        Raises:
            LancestatError: the dataset or the state cannot be read.
        """
        observed, now, fields = self.observed, assessment.snapshot, assessment.columns
        version = assessment.described_version
        if version is None and assessment.record is not None:
            version = assessment.record.version
        base, history = no_history(now, 0) if version is None else self.look_back(now, version)
        # The judgement looks back at the version that was just opened.
        statistics = replace(assessment, look_back=lambda *_: (base, history))
        groups = tuple(column_groups(now, fields))
        mark = marks(assessment)
        return TableChanges(
            groups=mark(groups),
            digest=table_digest(groups, fields),
            base_digest=None if base is None else _digest_of_names(base, fields),
            history=history,
            rewrites=_rewrites(now, fields, history, mark),
            verdict=statistics.verdict(observed.clock()),
            index=(
                observed.state.partial_index(assessment.identity)
                if observed.uses_stored
                else NOTHING_STORED
            ),
        )

    def look_back(self, now: Snapshot, version: int) -> tuple[Snapshot | None, History]:
        """As `look_back`, with the target's options."""
        return look_back(now, version, self.observed.spec.options.of(now.uri))


def assess_table(observer: Observer, table: Table) -> tuple[TableAssessment, TableChanges]:
    """Assess one table and gather its changes, whether or not a plan needs them.

    Raises:
        LancestatError: the dataset cannot be opened or lacks a declared column.
    """
    observed = observer.look([table])
    [located] = observed.nodes
    assert isinstance(located, Table)
    tables = TableObserver(observed)
    try:
        assessment = tables.assess(located)
    except LakeError as error:
        raise error.placed(table.location) from None
    return assessment, tables.changes(assessment)


def table_to_analyze(
    observer: Observer, table: Table, columns: Sequence[str] | None, is_case_sensitive: bool
) -> Table:
    """Return a table with other columns than declared, which is brought up to date at any cost.

    Args:
        observer: Looks at the table.
        table: As declared.
        columns: Those to analyze, besides those that have statistics; None stands for all.
        is_case_sensitive: Whether the names are.

    Raises:
        LancestatError: as `assess_table` and `named_columns`.
    """
    policy = replace(table.policy, refresh=Refresh.ALWAYS)
    everything = replace(table, columns=ColumnSelection(), policy=policy)
    if columns is None:
        return everything
    assessment, _ = assess_table(observer, everything)
    named = named_columns(assessment, columns, is_case_sensitive=is_case_sensitive)
    return everything.of_columns(named)


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


def _remembered(observed: Snapshot | LakeError, record: TableRecord | None) -> Snapshot | LakeError:
    """Return what was observed; the error of a dataset that is gone says when it was there."""
    if record is None or not isinstance(observed, DatasetMissing):
        return observed
    hint = f"it was there when its statistics were computed, {instant(record.computed_at)}"
    return DatasetMissing(observed.message, location=observed.location, hint=hint)


def _digest_of_names(snapshot: Snapshot, wanted: Sequence[Field]) -> str:
    """Return the `table_digest` of the columns with the names of the wanted ones."""
    names = {field.name for field in wanted}
    fields = tuple(field for field in snapshot.fields if field.name in names)
    return table_digest(column_groups(snapshot, fields), fields)


def _rewrites(
    now: Snapshot, fields: Sequence[Field], history: History, mark: Marks
) -> tuple[Rewritten, ...]:
    def groups(fragments: tuple[Fragment, ...], moved: Sequence[Field]) -> tuple[ColumnGroup, ...]:
        return mark(tuple(column_groups(replace(now, fragments=fragments), moved)))

    return tuple(
        (groups(rewrite.old, moved), groups(rewrite.new, moved))
        for rewrite in history.rewrites
        if (moved := [field for field in fields if field.id in rewrite.field_ids])
    )


@dataclass(frozen=True, slots=True)
class TableNodes:
    """Tables, whose statistics are kept up to date; the field is as `TableObserver` has it."""

    computes: ClassVar[bool] = False
    in_process_bytes: int = 0

    def under(self, target: Target, session: SparkSession | None) -> TableNodes:
        return TableNodes(in_process_bytes(target) if session is None else 0)

    def lance_uris(self, spec: ProjectSpec, node: Table) -> tuple[str, ...]:
        return (node.uri,)

    def record_key(self, node: Table) -> str:
        return table_identity(node.uri)

    def decode_record(self, stored: str) -> TableRecord:
        return decode_record(stored)

    def planner(self, observed: Observed) -> TableObserver:
        return TableObserver(observed, self.in_process_bytes)

    def runner(self, context: RunContext) -> AbstractContextManager[TableRunner]:
        # Only runs need what reads fragments.
        from lancestat.tables.run import table_runner

        return table_runner(context, partial(assess_table, context.observer))

    def figures_of(self, stored: Mapping[str, object]) -> None:
        return None

    def result_seen(self, observed: Observed, node: Table) -> object:
        return None

    def remove_past(self, spec: ProjectSpec, nodes: Sequence[Table], now: datetime) -> None:
        """Do nothing: versions of tables are their owners'."""

    def change(
        self, old: Table | None, new: Table | None, changed: tuple[PropertyChange, ...]
    ) -> TableChange:
        from lancestat.tables.review import TableChange

        return TableChange(old, new, changed)

    def collect_garbage(
        self, spec: ProjectSpec, state: StateReader, report: GarbageReport, now: datetime
    ) -> GarbageReport:
        return report
