"""Tables as the planner would have them scanned, and their statistics after a scan."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import lance
import pyarrow as pa

from lancestat.lake.fingerprint import (
    ByteEstimator,
    column_groups,
    content_digest,
    field_key,
    schema_hash,
)
from lancestat.lake.open import snapshot
from lancestat.spark.session import RunSession
from lancestat.spec.catalog import UriOptions
from lancestat.spec.model import Target
from lancestat.tables.action import Scan, TableVersion
from lancestat.tables.analyze import Scanned, SparkScanner
from lancestat.tables.statistics.column_type import column_type
from lancestat.tables.statistics.partial import (
    EMPTY_PARTIAL,
    ColumnPartial,
    decode,
    encode,
    merge,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TARGET = Target(name="test", state="state")


class TableScan(NamedTuple):
    """The scans of one table."""

    table: TableVersion
    scans: tuple[Scan, ...]


def whole_table(
    uri: str, version: int | None = None, columns: Collection[str] | None = None
) -> TableScan:
    """Return a scan of all columns of a table at one version that can be analyzed."""
    seen = snapshot(lance.dataset(uri, version=version), uri)
    fields = tuple(
        field
        for field in seen.fields
        if column_type(field.type) and (columns is None or field.name in columns)
    )
    bytes_read = ByteEstimator(seen.fields)
    fragments = {fragment.id: fragment for fragment in seen.fragments}
    groups = column_groups(seen, fields)
    scans = tuple(
        Scan(
            group.fragment_id,
            group.fingerprint,
            group.fields,
            fragments[group.fragment_id].rows,
            bytes_read.estimate(fragments[group.fragment_id], group.fields),
        )
        for group in groups
    )
    version_read = TableVersion(
        pin=seen.pin,
        identity=uri,
        config=seen.config,
        fields=fields,
        schema_hash=schema_hash(seen.fields),
        content_digest=content_digest(groups),
        rows=seen.rows,
        fragments=len(seen.fragments),
        live=frozenset(group.fingerprint for group in groups),
    )
    return TableScan(version_read, scans)


def spark_scanner(
    target: Target,
    on_progress: Callable[[str, int, int], None] = lambda *_: None,
    session: SparkSession | None = None,
) -> SparkScanner:
    """Return what reads fragments on a target's Spark, or in a session."""
    options = UriOptions(target.storage_options)
    return SparkScanner(RunSession(target, session=session), options, on_progress)


def scanned(
    work: TableScan, scanner: SparkScanner | None = None
) -> list[tuple[Scan, dict[str, ColumnPartial]]]:
    """Return the results of one scan of a table."""
    scanner = scanner or spark_scanner(TARGET)
    return decoded(scanner.scan("orders", work.table, work.scans))


def scans_of(results: Iterable[Scanned]) -> list[tuple[Scan, Mapping[str, bytes]]]:
    """Return the scans of results, each with its encoded partials; none are folded."""
    return [(scan, partials) for scanned in results for (scan,), partials in scanned.stored]


def decoded(results: Iterable[Scanned]) -> list[tuple[Scan, dict[str, ColumnPartial]]]:
    """Return the scans of results, each with its partials; what is merged is that of its scans."""
    results = list(results)
    scans = [
        (scan, {key: decode(partial) for key, partial in partials.items()})
        for scan, partials in scans_of(results)
    ]
    by_scan = dict(scans)
    for scanned in results:
        for group, partials in scanned.merged:
            for key, partial in partials.items():
                assert partial == encode(merge(by_scan[scan][key] for scan in group))
    together = [scan for scanned in results for group, _ in scanned.merged for scan in group]
    assert sorted(map(id, together)) == sorted(map(id, by_scan))
    return scans


def merged(
    work: TableScan, results: Sequence[tuple[Scan, dict[str, ColumnPartial]]]
) -> dict[str, ColumnPartial]:
    """Partials of whole columns by column name."""
    return {
        field.name: merge(
            [
                EMPTY_PARTIAL,
                *(
                    partials[key]
                    for _, partials in results
                    if (key := field_key(field)) in partials
                ),
            ]
        )
        for field in work.table.fields
    }


def as_spark_reads(table: pa.Table) -> pa.Table:
    """The rows with the types that Spark gives their columns."""
    renamed = {
        pa.uint8(): pa.int16(),
        pa.uint16(): pa.int32(),
        pa.uint32(): pa.int64(),
        pa.uint64(): pa.int64(),
        pa.float16(): pa.float32(),
        pa.date64(): pa.date32(),
    }

    def type_of(field: pa.Field) -> pa.DataType:
        type = field.type
        if pa.types.is_dictionary(type):
            type = type.value_type
        if pa.types.is_fixed_size_binary(type):
            return pa.binary()
        if pa.types.is_timestamp(type):
            return pa.timestamp("us", type.tz)
        if pa.types.is_decimal(type):
            return pa.decimal128(type.precision, type.scale)
        return renamed.get(type, type)

    return table.cast(pa.schema([pa.field(f.name, type_of(f), f.nullable) for f in table.schema]))
