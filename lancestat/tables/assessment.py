"""Assesses one table: its statistics in manifest and state, against its declaration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lancestat.lake.fingerprint import ColumnGroup
from lancestat.lake.history import History
from lancestat.lake.snapshot import UNREADABLE_NAME, Field, Snapshot, is_readable_name
from lancestat.spec.columns import AvailableColumn, ResolvedColumns, resolve_columns
from lancestat.spec.model import Table
from lancestat.state.values import PartialIndex
from lancestat.tables.carriers.carrier import Carrier
from lancestat.tables.coverage import Rewritten
from lancestat.tables.judgement import LookBack, TableStatistics, Verdict, no_history
from lancestat.tables.manifest.wire import Finding, PublishedStatistics
from lancestat.tables.statistics.column_type import ColumnType
from lancestat.tables.statistics.histogram import HISTOGRAM_KINDS
from lancestat.tables.stored import TableRecord


@dataclass(frozen=True, slots=True)
class TableAssessment:
    """One table as it is now, next to what was last made of it.

    `columns` are those to analyze, in schema order, `skipped` has the reasons why others
    are not. `warnings` tell of declared columns that are not there, `notes` have these, other
    remarks about the declaration, and `skipped`. `statistics` are those that readers get.
    `histograms` names the columns that are to have one.
    """

    spec: Table
    identity: str
    statistics: TableStatistics
    columns: tuple[Field, ...]
    skipped: tuple[str, ...]
    histograms: frozenset[str] = frozenset()
    warnings: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """All that people should know of the declared columns."""
        return (*self.warnings, *self.remarks, *self.skipped)

    @property
    def snapshot(self) -> Snapshot:
        """The table at the assessed version."""
        return self.statistics.snapshot

    @property
    def carrier(self) -> Carrier:
        """Where the statistics are kept."""
        return self.statistics.carrier

    @property
    def types(self) -> Mapping[str, ColumnType]:
        """The columns that can have statistics, by name."""
        return self.statistics.types

    @property
    def schema_hash(self) -> str:
        return self.statistics.schema_hash

    @property
    def published(self) -> PublishedStatistics | None:
        """The statistics for readers if the policy allows them, None where they are unreadable."""
        return self.statistics.published

    @property
    def finding(self) -> Finding:
        """What the statistics are for readers, before any policy."""
        return self.statistics.finding

    @property
    def record(self) -> TableRecord | None:
        """The state's record of the last run, None where there is none."""
        return self.statistics.record


@dataclass(frozen=True, slots=True)
class TableChanges:
    """The changes of a table since its last statistics, read where the manifest does not decide.

    `groups` is the content of the wanted columns now under the keys of the partials they need
    (`state.identity`), `digest` the `table_digest` of the columns, `base_digest`
    that of the columns of the same names as the last statistics read them, None when that version
    is gone. `history` holds the commits since, `rewrites` its compactions as content.
    `verdict` is that under the declared policy. `index` is what the state has stored.
    """

    groups: tuple[ColumnGroup, ...]
    digest: str
    base_digest: str | None
    history: History
    rewrites: tuple[Rewritten, ...]
    verdict: Verdict
    index: PartialIndex


def assess(
    spec: Table,
    identity: str,
    snapshot: Snapshot,
    record: TableRecord | None,
    look_back: LookBack = no_history,
    options: Mapping[str, str] | None = None,
) -> TableAssessment:
    """Resolve the declared columns of a table.

    `identity` is the state's name for the dataset, `options` are the storage options for it.

    Raises:
        SpecError: A declared column does not exist or cannot be analyzed.
    """
    statistics = TableStatistics.declared(spec, snapshot, record, look_back, options)
    types = statistics.types
    resolved = resolve(spec, snapshot, types)
    columns = _pick(snapshot, resolved.names)
    return TableAssessment(
        spec=spec,
        identity=identity,
        statistics=statistics,
        columns=columns,
        skipped=tuple(f"column '{name}' skipped: {why}" for name, why in resolved.skipped),
        histograms=_histograms(spec, columns, types),
        warnings=resolved.warnings,
        remarks=resolved.notes,
    )


def _histograms(
    spec: Table, columns: tuple[Field, ...], types: Mapping[str, ColumnType]
) -> frozenset[str]:
    if not spec.histogram:
        return frozenset()
    return frozenset(f.name for f in columns if types[f.name].kind in HISTOGRAM_KINDS)


def analyzable(snapshot: Snapshot) -> Mapping[str, ColumnType]:
    """The types of all columns that can be analyzed, by name."""
    return TableStatistics(snapshot).types


def resolve(spec: Table, snapshot: Snapshot, types: Mapping[str, ColumnType]) -> ResolvedColumns:
    """The declared columns of a table against its schema."""
    available = [_available(field, types.get(field.name)) for field in snapshot.fields]
    is_shared = spec.source is not None
    return resolve_columns(spec.columns, available, spec.name, is_shared=is_shared)


def _available(field: Field, type: ColumnType | None) -> AvailableColumn:
    if type is None:
        type_name = field.spark_type or str(field.type)
        return AvailableColumn(field.name, None, f"type {type_name} has no statistics")
    if not is_readable_name(field.name):
        return AvailableColumn(field.name, None, UNREADABLE_NAME)
    return AvailableColumn(field.name, type.kind.value)


def _pick(snapshot: Snapshot, names: tuple[str, ...]) -> tuple[Field, ...]:
    picked = set(names)
    return tuple(field for field in snapshot.fields if field.name in picked)
