"""Set one table as it is now next to what was last made of it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from lancestat.lake.snapshot import Field, Snapshot
from lancestat.plan.judgement import LookBack, TableStatistics, no_past
from lancestat.plan.observation import Appraisal
from lancestat.spec.columns import AvailableColumn, ResolvedColumns, resolve_columns
from lancestat.spec.model import Table
from lancestat.state.values import TableRecord
from lancestat.stats.column_type import ColumnType
from lancestat.stats.histogram import HISTOGRAM_KINDS


def appraise(
    spec: Table,
    identity: str,
    snapshot: Snapshot,
    record: TableRecord | None,
    now: datetime,
    look_back: LookBack = no_past,
) -> Appraisal:
    """Resolve the declared columns and apply the reader rules, no staleness allowed.

    `identity` is the state's name for the dataset.

    Raises:
        SpecError: A declared column does not exist or cannot be analyzed.
    """
    statistics = TableStatistics.declared(spec, snapshot, record, look_back)
    types = statistics.types
    resolved = resolve(spec, snapshot, types)
    wanted = _pick(snapshot, resolved.names)
    return Appraisal(
        spec=spec,
        identity=identity,
        statistics=statistics,
        wanted=wanted,
        skipped=tuple(f"column '{name}' skipped: {why}" for name, why in resolved.skipped),
        verdict=statistics.judge(now, allow_stale=False),
        histograms=_histograms(spec, wanted, types),
    )


def _histograms(
    spec: Table, wanted: tuple[Field, ...], types: Mapping[str, ColumnType]
) -> frozenset[str]:
    if not spec.histogram:
        return frozenset()
    return frozenset(f.name for f in wanted if types[f.name].kind in HISTOGRAM_KINDS)


def analyzable(snapshot: Snapshot) -> Mapping[str, ColumnType]:
    """The types of all columns that can be analyzed, by name."""
    return TableStatistics(snapshot).types


def resolve(spec: Table, snapshot: Snapshot, types: Mapping[str, ColumnType]) -> ResolvedColumns:
    """The declared columns of a table against its schema."""
    available = [_available(field, types.get(field.name)) for field in snapshot.fields]
    return resolve_columns(spec.columns, available, spec.name)


def _available(field: Field, type: ColumnType | None) -> AvailableColumn:
    if type is None:
        shown = field.spark_type or str(field.type)
        return AvailableColumn(field.name, None, f"type {shown} has no statistics")
    if "`" in field.name:
        return AvailableColumn(field.name, None, "Lance cannot read a name with a backtick")
    return AvailableColumn(field.name, type.kind.value)


def _pick(snapshot: Snapshot, names: tuple[str, ...]) -> tuple[Field, ...]:
    wanted = set(names)
    return tuple(field for field in snapshot.fields if field.name in wanted)
