"""Rows of plain Parquet files, read by Python workers as Spark would read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lancestat.knn.side import Rows

BATCH_ROWS = 16_384
# Of a column of a row group that is held at once, compressed.
_BUFFER_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group of a file, by its number there."""

    path: str
    number: int
    rows: int


@dataclass(frozen=True, slots=True)
class ParquetScan:
    """Columns of Parquet files; travels to Spark's workers.

    `partitions` are those that Spark would make, so that rows come in the same order; `columns`
    are the files' names for those of `schema`, and `column_bytes` their compressed sizes.
    """

    partitions: tuple[tuple[RowGroup, ...], ...]
    columns: tuple[str, ...]
    schema: pa.Schema
    column_bytes: tuple[int, ...]

    def read(self, partition: int) -> Iterator[pa.RecordBatch]:
        """The rows of a partition."""
        for group in self.partitions[partition]:
            yield from self.read_group(group, self.schema.names)

    def read_group(
        self, group: RowGroup, names: Sequence[str], rows: int = BATCH_ROWS
    ) -> Iterator[pa.RecordBatch]:
        """Columns of a row group by their names in `schema`, so many rows at a time."""
        places = [self.schema.get_field_index(name) for name in names]
        columns = [self.columns[place] for place in places]
        schema = pa.schema([self.schema.field(place) for place in places])
        with pq.ParquetFile(group.path, buffer_size=_BUFFER_BYTES) as file:
            for batch in file.iter_batches(rows, [group.number], columns=columns):
                found = [batch.column(name) for name in columns]
                arrays = [
                    _cast(array, field.type) for array, field in zip(found, schema, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)


@dataclass(frozen=True, slots=True)
class ParquetSide:
    """Rows with vectors that are read where they are: the same to a search as a `VectorSide`.

    A row's place is its position in the order in which Spark reads the files.
    """

    scan: ParquetScan
    vector: str
    columns: tuple[str, ...]
    storage_options: Mapping[str, str] = field(repr=False, default_factory=dict)

    @property
    def all_rows(self) -> Rows:
        """The places of all rows."""
        return Rows(0, sum(group.rows for group, _ in self._groups))

    @property
    def schema(self) -> pa.Schema:
        """Of all columns."""
        return self.scan.schema

    def read(self, rows: Rows, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Columns of consecutive rows, in order."""
        for group, start in self._groups:
            first, last = max(rows.start, start), min(rows.stop, start + group.rows)
            if first >= last:
                continue
            for batch in self.scan.read_group(group, columns, min(BATCH_ROWS, last - start)):
                stop = start + batch.num_rows
                if stop > first:
                    skipped = max(0, first - start)
                    yield batch.slice(skipped, min(stop, last) - start - skipped)
                start = stop
                if start >= last:
                    break

    def take(self, places: NDArray[np.int64], columns: Sequence[str]) -> pa.Table:
        """Columns of the rows at ascending places."""
        schema = pa.schema([self.schema.field(name) for name in columns])
        found = []
        for group, start in self._groups:
            begin, end = np.searchsorted(places, (start, start + group.rows))
            wanted = places[begin:end]
            for batch in self.scan.read_group(group, columns) if len(wanted) else ():
                here = wanted[: np.searchsorted(wanted, start + batch.num_rows)]
                wanted = wanted[len(here) :]
                if len(here):
                    found.append(batch.take(pa.array(here - start)))
                start += batch.num_rows
        return pa.Table.from_batches(found, schema)

    @property
    def _groups(self) -> list[tuple[RowGroup, int]]:
        """All row groups in order, and the places of their first rows."""
        groups = [group for partition in self.scan.partitions for group in partition]
        starts = accumulate((group.rows for group in groups), initial=0)
        return list(zip(groups, starts, strict=False))


def _cast(array: pa.Array, type: pa.DataType) -> pa.Array:
    return array if array.type == type else array.cast(type)
