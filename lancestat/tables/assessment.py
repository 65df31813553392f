"""Assesses one table: its statistics in manifest and state, against its declaration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from lancestat.lake.fingerprint import ColumnGroup
from lancestat.lake.history import History
from lancestat.lake.snapshot import UNREADABLE_NAME, Field, Snapshot, is_readable_name
from lancestat.spec.columns import AvailableColumn, ResolvedColumns, resolve_columns
from lancestat.spec.model import Table
from lancestat.state.values import PartialIndex
from lancestat.tables.carriers.registry import CARRIERS
from lancestat.tables.coverage import Rewritten
from lancestat.tables.judgement import LookBack, TableStatistics, Verdict, no_history
from lancestat.tables.statistics.column_type import ColumnType
from lancestat.tables.statistics.histogram import HISTOGRAM_KINDS
from lancestat.tables.stored import TableRecord


@dataclass(frozen=True, kw_only=True)
class TableAssessment(TableStatistics):
    """The statistics of one table as it is now, next to its declaration.

    `identity` is the state's name for the dataset, `resolved` the declared columns.
    """

    spec: Table
    identity: str
    resolved: ResolvedColumns

    @cached_property
    def columns(self) -> tuple[Field, ...]:
        """The columns to analyze, in schema order."""
        names = set(self.resolved.names)
        return tuple(field for field in self.snapshot.fields if field.name in names)

    @cached_property
    def histograms(self) -> frozenset[str]:
        """The names of the columns that are to have histograms."""
        wanted = self.columns if self.spec.histogram else ()
        return frozenset(f.name for f in wanted if self.types[f.name].kind in HISTOGRAM_KINDS)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings of declared columns that are not there."""
        return self.resolved.warnings

    @property
    def notes(self) -> tuple[str, ...]:
        """All that people should know of the declared columns: also which are skipped, and why."""
        skipped = (f"column '{name}' skipped: {why}" for name, why in self.resolved.skipped)
        return (*self.resolved.warnings, *self.resolved.notes, *skipped)


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
    return TableAssessment(
        snapshot,
        CARRIERS[spec.publish],
        spec.policy.allow_stale,
        record,
        look_back,
        options or {},
        spec=spec,
        identity=identity,
        resolved=resolve(spec, snapshot, analyzable(snapshot)),
    )


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
