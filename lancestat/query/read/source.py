"""Lance tables through Spark's own `spark.read.format("lancestat")`, without statistics."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from lancestat.errors.base import did_you_mean
from lancestat.errors.codes import InvalidReadOption, PathMissing, ReadSchemaMismatch
from lancestat.lake.open import observe_at, open_pinned, parse_version, snapshot
from lancestat.lake.snapshot import Pin, Snapshot, split_fragments
from lancestat.query.read.arrow_columns import QueryScan, read_part
from lancestat.spark.versions import prepare_worker, spark_schema, to_arrow_schema
from lancestat.tables.statistics.column_type import decoded_size

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


_STORAGE = "storage."
_OPTIONS = ("path", "version", "tag")


class LanceDataSource(DataSource):  # type: ignore[misc]
    """A Lance table at one version, which is chosen when it is loaded.

    Options: `path`, which `load` sets; `version` or `tag`; and `storage.<key>` for each storage
    option. Spark cannot prune its columns, push filters into it, nor ask it for statistics:
    `lancestat.read_table` can.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        given = _checked(options)
        self._storage_options = {
            key.removeprefix(_STORAGE): text
            for key, text in given.items()
            if key.startswith(_STORAGE)
        }
        version = given.get("version")
        self._uri, self._tag = given["path"], given.get("tag")
        self._version = None if version is None else parse_version(version)
        # Once the dataset was observed.
        self._pin: Pin | None = None

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
        return LanceReader(observed, schema, self._storage_options)

    def _pinned(self) -> Snapshot:
        options = self._storage_options
        if self._pin is not None:
            return snapshot(open_pinned(self._pin, storage_options=options), self._uri, options)
        opened = observe_at(self._uri, self._version, self._tag, options)
        observed = snapshot(opened, self._uri, options)
        # Spark pickles this source on its way from process to process.
        self._pin = observed.pin
        return observed


def _checked(options: Mapping[str, str]) -> dict[str, str]:
    given = {key.lower(): value for key, value in options.items()}
    unknown = [key for key in given if key not in _OPTIONS and not key.startswith(_STORAGE)]
    if unknown:
        raise InvalidReadOption(
            f"the format lancestat has no option '{unknown[0]}'",
            hint=did_you_mean(unknown[0], _OPTIONS)
            or "options: path, version, tag, and storage.<key> for storage options",
        )
    if not given.get("path"):
        hint = 'name it: spark.read.format("lancestat").load("warehouse/orders.lance")'
        raise PathMissing("no path of a Lance table is given", hint=hint)
    return given


class LanceReader(DataSourceReader):  # type: ignore[misc]
    """Plans and reads one scan."""

    def __init__(
        self, table: Snapshot, schema: StructType, storage_options: Mapping[str, str]
    ) -> None:
        self._pin = table.pin
        self._schema = schema
        self._storage_options = dict(storage_options)

    def partitions(self) -> Sequence[InputPartition]:
        """Split the scan: small fragments together, large ones in row ranges."""
        table = self._table()
        width = decoded_size(
            1, [field for field in table.fields if field.name in self._names()], {}
        )
        parts = split_fragments(table.fragments, row_bytes=width, cores=os.cpu_count() or 1)
        return [InputPartition(part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition, in Spark's Arrow types.

        Raises:
            LancestatError: what cannot be read, and why.
        """
        import pyarrow as pa

        # For a table without partitions, Spark before 4.2 asks for one, which is None.
        part = getattr(partition, "value", None)
        if part is None:
            return
        prepare_worker(1)
        target = to_arrow_schema(self._schema, "UTC")
        scan = QueryScan(self._pin, self._names())
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
