"""Set one table as it is now next to what was last made of it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from lancestat.lake.schema_hash import schema_hash
from lancestat.lake.snapshot import Field, Snapshot
from lancestat.plan.observation import Appraisal
from lancestat.spec.columns import AvailableColumn, ResolvedColumns, resolve_columns
from lancestat.spec.model import Publish, Table
from lancestat.state.values import TableRecord
from lancestat.stats.column_type import ColumnType, column_type
from lancestat.stats.guard import judge
from lancestat.stats.histogram import HISTOGRAM_KINDS
from lancestat.stats.wire import PublishedStatistics, decode_statistics


def appraise(
    spec: Table, identity: str, snapshot: Snapshot, record: TableRecord | None, now: datetime
) -> Appraisal:
    """Resolve the declared columns and apply the reader rules, no staleness allowed.

    `identity` is the state's name for the dataset.

    Raises:
        SpecError: A declared column does not exist or cannot be analyzed.
    """
    types = analyzable(snapshot)
    resolved = resolve(spec, snapshot, types)
    hashed = schema_hash(snapshot.fields)
    verdict = judge(
        snapshot.config, version=snapshot.version, schema_hash=hashed, now=now, types=types
    )
    published = verdict.statistics or decode_statistics(snapshot.config, types)
    wanted = _pick(snapshot, resolved.names)
    return Appraisal(
        spec=spec,
        identity=identity,
        snapshot=snapshot,
        wanted=wanted,
        types=types,
        skipped=tuple(f"column '{name}' skipped: {why}" for name, why in resolved.skipped),
        schema_hash=hashed,
        verdict=verdict,
        published=published if isinstance(published, PublishedStatistics) else None,
        record=record,
        histograms=_histograms(spec, wanted, types),
    )


def entries_of(spec: Table, snapshot: Snapshot, record: TableRecord | None) -> Mapping[str, str]:
    """The `lance.stats.*` entries to judge: the manifest's, under `publish: none` the state's."""
    if spec.publish is Publish.MANIFEST:
        return snapshot.config
    if record is None or record.version > snapshot.version:
        return {}
    is_other = record.version == snapshot.version and not record.describes(snapshot.pin)
    return {} if is_other else record.values


def told(appraisal: Appraisal) -> PublishedStatistics | None:
    """What readers of the table are told: the manifest's statistics, or those kept in the state."""
    if appraisal.spec.publish is Publish.MANIFEST:
        return appraisal.published
    entries = entries_of(appraisal.spec, appraisal.snapshot, appraisal.record)
    found = decode_statistics(entries, appraisal.types)
    return found if isinstance(found, PublishedStatistics) else None


def _histograms(
    spec: Table, wanted: tuple[Field, ...], types: dict[str, ColumnType]
) -> frozenset[str]:
    if not spec.histogram:
        return frozenset()
    return frozenset(f.name for f in wanted if types[f.name].kind in HISTOGRAM_KINDS)


def analyzable(snapshot: Snapshot) -> dict[str, ColumnType]:
    """The types of all columns that can be analyzed, by name."""
    found = {field.name: column_type(field.type) for field in snapshot.fields}
    return {name: type for name, type in found.items() if type is not None}


def resolve(spec: Table, snapshot: Snapshot, types: dict[str, ColumnType]) -> ResolvedColumns:
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
