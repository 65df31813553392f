"""Lance tables through Spark's own `spark.read.format("lancestat")`, without statistics."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from lancestat.errors import (
    InvalidReadOption,
    PathMissing,
    ReadSchemaMismatch,
    did_you_mean,
)
from lancestat.lake.observe import observe_at, parse_version, snapshot
from lancestat.lake.open import open_pinned
from lancestat.lake.row_ranges import ScanPartition, split_fragments
from lancestat.lake.snapshot import Pin, Snapshot
from lancestat.query.read.read_task import read_part
from lancestat.query.read.source_filters import pushed_filters
from lancestat.query.table import QueryScan
from lancestat.spark.arrow_types import spark_schema
from lancestat.spark.versions import to_arrow_schema
from lancestat.spark.worker import prepare_worker
from lancestat.tables.statistics.column_type import decoded_size

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter as SparkFilter
    from pyspark.sql.types import StructType


_STORAGE = "storage."
_OPTIONS = ("path", "version", "tag", "pushdown")


class LanceDataSource(DataSource):  # type: ignore[misc]
    """A Lance table at one version, which is chosen when it is loaded.

    Options: `path`, which `load` sets; `version` or `tag`; `storage.<key>` for each storage option;
    and `pushdown`. Spark cannot prune its columns nor ask it for statistics: `lancestat.read_table`
    can.

    With `pushdown` true, and `spark.sql.python.filterPushdown.enabled`, filters reach Lance, since
    Spark 4.1. That
    is for a DataFrame that is read once: Spark, at least up to 4.3, keeps one plan for all scans of
    a loaded Python source, and with it the filters of one query for those after it. A query that
    compares with a date before the year 1 or after 9999 then fails, since PySpark hands literals
    over as Python's dates.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._source_options = _source_options(options)

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "lancestat"

    def schema(self) -> StructType:
        """Return the columns that Spark can read."""
        return spark_schema(self._pinned().fields)

    def reader(self, schema: StructType) -> LanceReader:
        """Return a reader of the columns of `schema`.

        Raises:
            ReadSchemaMismatch: the table has no such column, or of another type.
        """
        observed = self._pinned()
        own = {field.name: field for field in spark_schema(observed.fields).fields}
        for asked in schema.fields:
            if asked.name not in own:
                what = f"{observed.uri} has no column '{asked.name}' at version {observed.version}"
                raise ReadSchemaMismatch(what, hint=did_you_mean(asked.name, own))
            if asked.dataType != own[asked.name].dataType:
                expected = own[asked.name].dataType.simpleString()
                raise ReadSchemaMismatch(
                    f"column '{asked.name}' of {observed.uri} is {expected}, "
                    f"not {asked.dataType.simpleString()}",
                    hint="leave the schema out, and cast the column",
                )
        kind = PushingReader if self._source_options.pushdown else LanceReader
        return kind(observed, schema, self._source_options.storage_options)

    def _pinned(self) -> Snapshot:
        source = self._source_options
        options = source.storage_options
        if source.pin is not None:
            return snapshot(open_pinned(source.pin, storage_options=options), source.uri, options)
        opened = observe_at(source.uri, source.asked_version, source.tag, options)
        observed = snapshot(opened, source.uri, options)
        # Spark pickles this source on its way from process to process.
        source.pin = observed.pin
        return observed


@dataclass(slots=True)
class _SourceOptions:
    """The options of a source, and the pin once its dataset was observed."""

    uri: str
    asked_version: int | None
    tag: str | None
    pushdown: bool
    storage_options: dict[str, str] = field(repr=False)
    pin: Pin | None = None


def _source_options(options: Mapping[str, str]) -> _SourceOptions:
    given = {key.lower(): value for key, value in options.items()}
    storage = {
        key[len(_STORAGE) :]: value for key, value in given.items() if key.startswith(_STORAGE)
    }
    unknown = [key for key in given if key not in _OPTIONS and not key.startswith(_STORAGE)]
    if unknown:
        raise InvalidReadOption(
            f"the format lancestat has no option '{unknown[0]}'",
            hint=did_you_mean(unknown[0], _OPTIONS)
            or "options: path, version, tag, pushdown, and storage.<key> for storage options",
        )
    if not given.get("path"):
        hint = 'name it: spark.read.format("lancestat").load("warehouse/orders.lance")'
        raise PathMissing("no path of a Lance table is given", hint=hint)
    version, pushdown = given.get("version"), given.get("pushdown", "false").lower()
    if pushdown not in ("true", "false"):
        raise InvalidReadOption(f"option pushdown is '{pushdown}', not true or false")
    return _SourceOptions(
        uri=given["path"],
        asked_version=None if version is None else parse_version(version),
        tag=given.get("tag"),
        pushdown=pushdown == "true",
        storage_options=storage,
    )


class LanceReader(DataSourceReader):  # type: ignore[misc]
    """Plans and reads one scan."""

    def __init__(
        self, table: Snapshot, schema: StructType, storage_options: Mapping[str, str]
    ) -> None:
        self._pin = table.pin
        self._schema = schema
        self._storage_options = dict(storage_options)
        self._filter: str | None = None

    def partitions(self) -> Sequence[InputPartition]:
        """Split the scan: small fragments together, large ones in row ranges."""
        table = self._table()
        width = decoded_size(
            1, [field for field in table.fields if field.name in self._names()], {}
        )
        parts = split_fragments(
            table.fragments,
            row_bytes=width,
            cores=os.cpu_count() or 1,
            is_filtered=self._filter is not None,
        )
        return [InputPartition(part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition, in Spark's Arrow types.

        Raises:
            LancestatError: what cannot be read, and why.
        """
        import pyarrow as pa

        # For a table without partitions, Spark before 4.2 asks for one, which is None.
        part = getattr(partition, "value", None)
        if not isinstance(part, ScanPartition):
            return
        prepare_worker(1)
        target = to_arrow_schema(self._schema, "UTC")
        scan = QueryScan(self._pin, self._names(), self._filter)
        for batch in read_part(scan, part, self._storage_options):
            columns = [
                column if column.type == expected.type else column.cast(expected.type)
                for column, expected in zip(batch.columns, target, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=target)

    def _names(self) -> tuple[str, ...]:
        return tuple(self._schema.fieldNames())

    def _table(self) -> Snapshot:
        opened = open_pinned(self._pin, storage_options=self._storage_options)
        return snapshot(opened, self._pin.uri, self._storage_options)


class PushingReader(LanceReader):
    """Leaves to Spark only the filters that Lance does not apply exactly.

    Spark 4.0 hands over none.
    """

    def pushFilters(  # noqa: N802 - Spark's name
        self, filters: list[SparkFilter]
    ) -> Iterable[SparkFilter]:
        """Push filters down, and return those that stay with Spark."""
        fields = {field.name: field for field in self._table().fields}
        self._filter, left = pushed_filters(filters, fields)
        return left
