"""Reads plain scans of Parquet files in workers, without going through the JVM."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lancestat.joins.search.work import Rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

# The driver reads the footers of up to so many files; Spark's tasks read those of more.
MOST_FILES = 256

_RELATION = "org.apache.spark.sql.execution.datasources.LogicalRelation"
_FILES = "org.apache.spark.sql.execution.datasources.HadoopFsRelation"
_PARQUET = "org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat"
_PARTITION = "org.apache.spark.sql.execution.datasources.FilePartition"
_PROJECT = "org.apache.spark.sql.catalyst.plans.logical.Project"
_PROJECTING = "org.apache.spark.sql.execution.ProjectExec"
_ALIAS = "org.apache.spark.sql.catalyst.expressions.Alias"
_ATTRIBUTE = "org.apache.spark.sql.catalyst.expressions.AttributeReference"


@dataclass(frozen=True, slots=True)
class _Split:
    """The row groups of a file whose middle is in that range of bytes, as Spark cuts files."""

    path: str
    start: int
    length: int


def parquet_scan(rows: DataFrame) -> ParquetScan | None:
    """Return the scan that a DataFrame is; None for others, or if Spark may read it otherwise.

    Filters, partition columns, files elsewhere than on this machine's file systems, and columns of
    other types than numbers, strings, bytes, booleans and lists of float and double are left to
    Spark, and so are files whose columns are not all of the types that Spark gives them.
    """
    types = [_arrow_type(field.dataType) for field in rows.schema.fields]
    if any(type is None for type in types):
        return None
    execution = rows._jdf.queryExecution()
    columns = _columns(execution.optimizedPlan())
    if columns is None or any("." in name for name in columns):
        return None
    partitions = _partitions(_input(execution.sparkPlan()).partitions())
    schema = pa.schema(zip(rows.columns, types, strict=True))
    files = None if partitions is None else _footers(partitions)
    if files is None or not all(_is_alike(file, columns, schema) for file in files.values()):
        return None
    sizes = (_column_bytes(file, columns) for file in files.values())
    return ParquetScan(
        tuple(_row_groups(splits, files) for splits in partitions or ()),
        columns,
        schema,
        tuple(map(sum, zip(*sizes, strict=True))) or (0,) * len(columns),
    )


def _columns(plan: Any) -> tuple[str, ...] | None:
    """Return the columns of the files that a plan projects, if it does nothing else."""
    projected = None
    if _class(plan) == _PROJECT:
        projected = [_projected(expression) for expression in _items(plan.projectList())]
        plan = plan.child()
    if _class(plan) != _RELATION or not _is_plain(plan):
        return None
    names = {attribute.exprId().toString(): attribute.name() for attribute in _items(plan.output())}
    if projected is None:
        return tuple(names.values())
    columns = [names.get(expression_id or "") for expression_id in projected]
    return None if None in columns else tuple(name for name in columns if name)


def _is_plain(relation: Any) -> bool:
    files = relation.relation()
    return bool(
        _class(files) == _FILES
        and _class(files.fileFormat()) == _PARQUET
        and files.partitionSchema().isEmpty()
        and files.bucketSpec().isEmpty()
        and relation.catalogTable().isEmpty()
    )


def _projected(expression: Any) -> str | None:
    """Return the id of the column that an expression is, under whatever name."""
    inner = expression.child() if _class(expression) == _ALIAS else expression
    return str(inner.exprId().toString()) if _class(inner) == _ATTRIBUTE else None


def _input(plan: Any) -> Any:
    """Return the RDD that a scan reads, without the projection that Spark would compile."""
    return _input(plan.child()) if _class(plan) == _PROJECTING else plan.inputRDD()


def _partitions(partitions: Any) -> tuple[tuple[_Split, ...], ...] | None:
    partition_splits = []
    for partition in partitions:
        if _class(partition) != _PARTITION:
            return None
        splits = []
        for file in partition.files():
            uri = file.toPath().toUri()
            if uri.getScheme() != "file":
                return None
            splits.append(_Split(uri.getPath(), file.start(), file.length()))
        partition_splits.append(tuple(splits))
    return tuple(partition_splits)


def _footers(splits: Sequence[Sequence[_Split]]) -> dict[str, pq.FileMetaData] | None:
    """Read the metadata of all files by path; None where there are many or one has none."""
    paths = sorted({split.path for partition in splits for split in partition})
    if len(paths) > MOST_FILES:
        return None
    try:
        with ThreadPoolExecutor(8) as pool:
            return dict(zip(paths, pool.map(pq.read_metadata, paths), strict=True))
    except (OSError, pa.ArrowException):
        # Spark's own error about a bad file is better.
        return None


def _is_alike(file: pq.FileMetaData, columns: Sequence[str], schema: pa.Schema) -> bool:
    """Whether a file has the columns with the types that Spark gives them."""
    file_schema = file.schema.to_arrow_schema()
    return all(
        len(file_schema.get_all_field_indices(name)) == 1
        and _decoded_type(file_schema.field(name).type) == field.type
        for name, field in zip(columns, schema, strict=True)
    )


def _column_bytes(file: pq.FileMetaData, columns: Sequence[str]) -> list[int]:
    """Return compressed sizes of columns; a list's path also names its elements."""
    sizes: Counter[str] = Counter()
    for number in range(file.num_row_groups):
        group = file.row_group(number)
        for index in range(group.num_columns):
            chunk = group.column(index)
            sizes[chunk.path_in_schema.split(".")[0]] += chunk.total_compressed_size
    return [sizes[name] for name in columns]


def _row_groups(
    splits: Sequence[_Split], files: Mapping[str, pq.FileMetaData]
) -> tuple[RowGroup, ...]:
    """Choose row groups as `ParquetMetadataConverter.filterFileMetaDataByMidpoint` does."""
    row_groups = []
    for split in splits:
        file = files[split.path]
        for number in range(file.num_row_groups):
            group = file.row_group(number)
            if split.start <= _middle(group) < split.start + split.length:
                row_groups.append(RowGroup(split.path, number, group.num_rows))
    return tuple(row_groups)


def _middle(group: pq.RowGroupMetaData) -> int:
    chunks = [group.column(index) for index in range(group.num_columns)]
    first = chunks[0]
    start = first.data_page_offset
    if first.has_dictionary_page and first.dictionary_page_offset < start:
        start = first.dictionary_page_offset
    return int(start + sum(chunk.total_compressed_size for chunk in chunks) // 2)


def _arrow_type(type: DataType) -> pa.DataType | None:
    from pyspark.sql import types

    arrow_types = {
        types.BooleanType: pa.bool_(),
        types.ByteType: pa.int8(),
        types.ShortType: pa.int16(),
        types.IntegerType: pa.int32(),
        types.LongType: pa.int64(),
        types.FloatType: pa.float32(),
        types.DoubleType: pa.float64(),
        types.BinaryType: pa.binary(),
    }
    if isinstance(type, types.ArrayType):
        element = type.elementType
        if isinstance(element, types.FloatType | types.DoubleType):
            return pa.list_(arrow_types[element.__class__])
        return None
    if type == types.StringType():
        return pa.string()
    return arrow_types.get(type.__class__)


def _decoded_type(type: pa.DataType) -> pa.DataType:
    """Return a type without dictionaries, views and large offsets."""
    if pa.types.is_dictionary(type):
        return _decoded_type(type.value_type)
    if pa.types.is_large_string(type) or pa.types.is_string_view(type):
        return pa.string()
    if pa.types.is_large_binary(type) or pa.types.is_binary_view(type):
        return pa.binary()
    if _is_list(type):
        return pa.list_(_decoded_type(type.value_type))
    return type


def _is_list(type: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(type) or pa.types.is_large_list(type) or pa.types.is_fixed_size_list(type)
    )


def _class(java: Any) -> str:
    return str(java.getClass().getName())


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(index) for index in range(sequence.size())]


BATCH_ROWS = 16_384
# Compressed bytes of a column of a row group that are held at once.
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
        for group in self.partitions[partition]:
            yield from self.read_group(group, self.schema.names)

    def read_group(
        self, group: RowGroup, names: Sequence[str], rows: int = BATCH_ROWS
    ) -> Iterator[pa.RecordBatch]:
        """Yield columns of a row group by their names in `schema`, so many rows at a time."""
        indices = [self.schema.get_field_index(name) for name in names]
        columns = [self.columns[index] for index in indices]
        schema = pa.schema([self.schema.field(index) for index in indices])
        with pq.ParquetFile(group.path, buffer_size=_BUFFER_BYTES) as file:
            for batch in file.iter_batches(rows, [group.number], columns=columns):
                stored = [batch.column(name) for name in columns]
                arrays = [
                    _cast(array, field.type) for array, field in zip(stored, schema, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)


@dataclass(frozen=True, slots=True)
class ParquetSide:
    """Rows with vectors that are read where they are: the same to a search as a `VectorSide`.

    A row's position is that in the order in which Spark reads the files. `has_bits` is as there.
    """

    scan: ParquetScan
    vector: str
    columns: tuple[str, ...]
    storage_options: Mapping[str, str] = field(repr=False, default_factory=dict)
    keys: tuple[str, ...] = ()
    has_bits: bool = False

    @property
    def all_rows(self) -> Rows:
        return Rows(0, sum(group.rows for group, _ in self._groups))

    @property
    def schema(self) -> pa.Schema:
        return self.scan.schema

    def read(self, rows: Rows, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
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

    def take(self, positions: NDArray[np.int64], columns: Sequence[str]) -> pa.Table:
        """Return columns of the rows at ascending positions."""
        schema = pa.schema([self.schema.field(name) for name in columns])
        batches = []
        for group, start in self._groups:
            begin, end = np.searchsorted(positions, (start, start + group.rows))
            remaining = positions[begin:end]
            for batch in self.scan.read_group(group, columns) if len(remaining) else ():
                here = remaining[: np.searchsorted(remaining, start + batch.num_rows)]
                remaining = remaining[len(here) :]
                if len(here):
                    batches.append(batch.take(pa.array(here - start)))
                start += batch.num_rows
        return pa.Table.from_batches(batches, schema)

    @property
    def _groups(self) -> list[tuple[RowGroup, int]]:
        groups = [group for partition in self.scan.partitions for group in partition]
        starts = accumulate((group.rows for group in groups), initial=0)
        return list(zip(groups, starts, strict=False))


def _cast(array: pa.Array, type: pa.DataType) -> pa.Array:
    return array if array.type == type else array.cast(type)
