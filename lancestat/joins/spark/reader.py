"""Reads vectors and columns of sides in workers: of Lance datasets, and of Parquet files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lancestat.joins.search.metrics import Metric
from lancestat.joins.search.vectors import Vectors, vectors
from lancestat.joins.search.work import (
    ROW_ADDRESS,
    FragmentRows,
    Rows,
    Selection,
    VectorSide,
    fragment_rows,
)
from lancestat.lake.open import pinned_reads
from lancestat.lake.snapshot import Pin, RowRange, is_blob, take_rows
from lancestat.spark.fragment_reader import (
    ROW_BITS,
    ROW_OF_ADDRESS,
    count_matches,
    decoded,
    decoded_field,
    physical_offsets,
    pinned_dataset,
    read_ranges,
)

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


# A path, a start and a length in bytes: Spark reads the row groups whose middle is there.
_Split = tuple[str, int, int]


def parquet_scan(rows: DataFrame) -> ParquetScan | None:
    """Return the scan that a DataFrame is; None for others, or if Spark may read it otherwise.

    Filters, partition columns, remote files, columns of other types than numbers, strings, bytes,
    booleans and lists of floats, and files of other types than Spark gives them are left to Spark.
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
            splits.append((uri.getPath(), file.start(), file.length()))
        partition_splits.append(tuple(splits))
    return tuple(partition_splits)


def _footers(splits: Sequence[Sequence[_Split]]) -> dict[str, pq.FileMetaData] | None:
    """Read the metadata of all files by path; None where there are many or one has none."""
    paths = sorted({path for partition in splits for path, _, _ in partition})
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
    for path, start, length in splits:
        for number in range(files[path].num_row_groups):
            group = files[path].row_group(number)
            if start <= _middle(group) < start + length:
                row_groups.append(RowGroup(path, number, group.num_rows))
    return tuple(row_groups)


def _middle(group: pq.RowGroupMetaData) -> int:
    chunks = [group.column(index) for index in range(group.num_columns)]
    first = chunks[0]
    start = first.data_page_offset
    if first.has_dictionary_page and first.dictionary_page_offset < start:
        start = first.dictionary_page_offset
    return int(start + sum(chunk.total_compressed_size for chunk in chunks) // 2)


_ARROW_TYPES = {
    "BooleanType": pa.bool_(),
    "ByteType": pa.int8(),
    "ShortType": pa.int16(),
    "IntegerType": pa.int32(),
    "LongType": pa.int64(),
    "FloatType": pa.float32(),
    "DoubleType": pa.float64(),
    "BinaryType": pa.binary(),
}


def _arrow_type(type: DataType) -> pa.DataType | None:
    from pyspark.sql.types import ArrayType, DoubleType, FloatType, StringType

    if isinstance(type, ArrayType):
        is_vector = isinstance(type.elementType, FloatType | DoubleType)
        return pa.list_(_ARROW_TYPES[type.elementType.__class__.__name__]) if is_vector else None
    # A string of fixed length or of another collation is another type.
    return pa.string() if type == StringType() else _ARROW_TYPES.get(type.__class__.__name__)


def _decoded_type(type: pa.DataType) -> pa.DataType:
    is_ = pa.types
    if is_.is_dictionary(type):
        return _decoded_type(type.value_type)
    if is_.is_large_string(type) or is_.is_string_view(type):
        return pa.string()
    if is_.is_large_binary(type) or is_.is_binary_view(type):
        return pa.binary()
    if is_.is_list(type) or is_.is_large_list(type) or is_.is_fixed_size_list(type):
        return pa.list_(_decoded_type(type.value_type))
    return type


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
    """Columns of Parquet files, by the files' names for those of `schema`; travels to Spark's
    workers.

    `partitions` are those that Spark would make, so that rows come in the same order.
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

    A row's position is that in the order in which Spark reads the files; other fields are as there.
    """

    scan: ParquetScan
    vector: str
    columns: tuple[str, ...]
    storage_options: Mapping[str, str] = field(repr=False, default_factory=dict)
    keys: tuple[str, ...] = ()
    has_bits: bool = False
    dimension: int | None = None
    excluded: int = 0

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


# Fragments whose matches a worker remembers, four or eight bytes for each of them.
_REMEMBERED = 64
_Key = tuple[Pin, str, int]
_offsets: dict[_Key, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}


def select_rows(
    dataset: lance.LanceDataset, live: tuple[FragmentRows, ...], filter: str
) -> tuple[tuple[FragmentRows, ...], Selection]:
    """Return fragments with only the rows that pass a filter in Lance's SQL, and the selection."""
    counts = count_matches(dataset, [part.id for part in live], filter)
    selected = fragment_rows(counts)
    ids = {part.id for part in selected}
    return selected, Selection(filter, tuple(part for part in live if part.id in ids))


def read_selected(
    side: VectorSide, selection: Selection, rows: Rows, columns: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    dataset = pinned_dataset(side.pin, side.storage_options)
    counts, ranges = {part.id: part.rows for part in side.fragments}, list[RowRange]()
    for part in side.ranges(rows):
        physical = RowRange(part.fragment_id)
        if part.count != counts[part.fragment_id]:
            offsets, _ = matches(side, selection, part.fragment_id)
            first, last = offsets[part.offset], offsets[part.offset + (part.count or 0) - 1]
            physical = RowRange(part.fragment_id, int(first), int(last - first) + 1)
        ranges.append(physical)
    pieces = read_ranges(
        dataset, tuple(ranges), columns, side.storage_options, filter=selection.filter
    )
    yield from (batch for _, batch in pieces)


def live_positions(
    side: VectorSide, selection: Selection, positions: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the positions in a scan of the whole dataset of rows at ascending positions."""
    starts = np.array([part.start for part in side.fragments], np.int64)
    edges = np.append(np.searchsorted(positions, starts), len(positions)).tolist()
    live = np.empty(len(positions), np.int64)
    whole = {part.id: part for part in selection.live}
    for part, (start, stop) in zip(side.fragments, pairwise(edges), strict=True):
        if stop > start:
            _, offsets = matches(side, selection, part.id)
            inside = offsets[positions[start:stop] - part.start]
            live[start:stop] = whole[part.id].start + inside
    return live


def matches(
    side: VectorSide, selection: Selection, fragment_id: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return which rows of a fragment pass, by their places among physical and live rows."""
    key = (side.pin, selection.filter, fragment_id)
    if key not in _offsets:
        with pinned_reads(side.pin, side.storage_options):
            fragment = pinned_dataset(side.pin, side.storage_options).get_fragment(fragment_id)
            physical = live = physical_offsets(fragment, selection.filter)
            if fragment.metadata.deletion_file is not None:
                live = np.searchsorted(physical_offsets(fragment, None), physical)
        _remember(key, physical, live)
    return _offsets[key]


def _remember(key: _Key, physical: NDArray[np.int64], live: NDArray[np.int64]) -> None:
    while len(_offsets) >= _REMEMBERED:
        del _offsets[next(iter(_offsets))]
    _offsets[key] = physical, live


def fragment_offsets(side: VectorSide, fragment_id: int) -> NDArray[np.int64] | None:
    """Return the offsets of a side's rows in a fragment, None where it has all of them."""
    if side.selection is not None:
        return matches(side, side.selection, fragment_id)[0]
    key = (side.pin, "", fragment_id)
    if key not in _offsets:
        fragment = pinned_dataset(side.pin, side.storage_options).get_fragment(fragment_id)
        if fragment.metadata.deletion_file is None:
            return None
        with pinned_reads(side.pin, side.storage_options):
            offsets = physical_offsets(fragment, None)
        _remember(key, offsets, offsets)
    return _offsets[key][0]


def addresses(side: VectorSide, rows: Rows) -> NDArray[np.int64]:
    """Return the addresses of consecutive rows of a side, which ascend with their positions."""
    parts = [np.empty(0, np.int64)]
    for part in side.ranges(rows):
        inside = np.arange(part.offset, part.offset + (part.count or 0))
        offsets = fragment_offsets(side, part.fragment_id)
        inside = inside if offsets is None else offsets[inside]
        parts.append((part.fragment_id << ROW_BITS) + inside)
    return np.concatenate(parts)


def addresses_at(side: VectorSide, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the addresses of rows at positions in any order and shape, -1 for -1."""
    flat, found = positions.ravel(), np.full(positions.size, -1, np.int64)
    starts = np.array([part.start for part in side.fragments], np.int64)
    numbers = np.where(flat < 0, -1, np.searchsorted(starts, flat, side="right") - 1)
    for number, here in by_number(numbers):
        part = side.fragments[number]
        inside, offsets = flat[here] - part.start, fragment_offsets(side, part.id)
        inside = inside if offsets is None else offsets[inside]
        found[here] = (part.id << ROW_BITS) + inside
    return found.reshape(positions.shape)


def positions_at(side: VectorSide, found: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the positions of rows of a side by their addresses, -1 for -1."""
    flat, positions = found.ravel(), np.full(found.size, -1, np.int64)
    starts = {part.id: part.start for part in side.fragments}
    for id, here in by_number(flat >> ROW_BITS):
        inside, offsets = flat[here] & ROW_OF_ADDRESS, fragment_offsets(side, id)
        inside = inside if offsets is None else np.searchsorted(offsets, inside)
        positions[here] = starts[id] + inside
    return positions.reshape(found.shape)


def by_number(numbers: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield each number that is not negative, with the indices (n,) at which it is."""
    order = np.argsort(numbers, kind="stable")
    present, firsts = np.unique(numbers[order], return_index=True)
    stops = np.append(firsts, len(order))[1:]
    for number, start, stop in zip(present.tolist(), firsts, stops, strict=True):
        if number >= 0:
            yield number, order[start:stop]


# The rows of a side: a Lance dataset, or Parquet files that it goes through once.
Side = VectorSide | ParquetSide

# Vectors that a task holds at once.
BLOCK_BYTES = 64 << 20
# Those that are only checked.
_CHECKED_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Block:
    """Rows that can match: (n,) `positions` and (n, dimension) `rows`.

    `excluded_positions` are those of the others among them.
    """

    positions: NDArray[np.int64]
    rows: NDArray[np.float32]
    excluded_positions: NDArray[np.int64]

    @property
    def excluded(self) -> int:
        return len(self.excluded_positions)


@dataclass(frozen=True, slots=True)
class VectorReader:
    """Reads vectors of one length from a side, called `name` in errors."""

    side: Side
    dimension: int
    metric: Metric
    name: str

    def read(self, rows: Rows) -> Vectors:
        held = [batch.column(0) for batch in read_columns(self.side, rows, (self.side.vector,))]
        if not held:
            return Vectors(np.zeros((0, self.dimension), np.float32), np.zeros(0, np.bool_))
        return self._vectors(pa.chunked_array(held), rows.start)

    def batches(self, rows: Rows) -> Iterator[tuple[int, Vectors]]:
        """Yield vectors of consecutive rows as they are read, and the position of the first."""
        start = rows.start
        for batch in read_columns(self.side, rows, (self.side.vector,)):
            yield start, self._vectors(pa.chunked_array([batch.column(0)]), start)
            start += len(batch)

    def blocks(self, rows: Rows, size_bytes: int = BLOCK_BYTES) -> Iterator[Block]:
        """Yield the consecutive rows that can match, so many bytes of vectors at a time."""
        step = max(1, size_bytes // (4 * self.dimension))
        start, filled = rows.start, 0
        block = self._empty(min(step, len(rows)))
        for batch in read_columns(self.side, rows, (self.side.vector,)):
            column = batch.column(0)
            # Copied as they come, batches are not held together with a block of them.
            while len(column):
                piece = column[: step - filled]
                read = self._vectors(pa.chunked_array([piece]), start + filled)
                block.values[filled : filled + len(piece)] = read.values
                block.valid[filled : filled + len(piece)] = read.valid
                column, filled = column[len(piece) :], filled + len(piece)
                if filled == step:
                    yield _usable(block, start)
                    start, filled = start + step, 0
                    block = self._empty(min(step, rows.stop - start))
        if filled:
            yield _usable(Vectors(block.values[:filled], block.valid[:filled]), start)

    def _empty(self, rows: int) -> Vectors:
        return Vectors(np.empty((rows, self.dimension), np.float32), np.empty(rows, np.bool_))

    def _vectors(self, columns: pa.ChunkedArray, first_row: int) -> Vectors:
        source = f"the {self.name} side"
        return vectors(
            columns,
            self.dimension,
            self.metric,
            has_bits=self.side.has_bits,
            first_row=first_row,
            source=source,
        )

    def look_up(self, positions: NDArray[np.int64]) -> Vectors:
        column = take(self.side, positions, (self.side.vector,)).column(0)
        return self._vectors(column, 0)

    def sample(self, count: int, together: int = 1) -> NDArray[np.float32]:
        """Return up to `count` vectors of evenly spread rows that can match, the same in every run.

        So many rows `together` are taken at each position, which reads faster.
        """
        rows = self.side.all_rows
        runs = count // together
        if runs < 2 or runs * together >= len(rows):
            positions = np.arange(rows.start, rows.stop)[:count]
        else:
            firsts = rows.start + np.arange(runs) * (len(rows) - together) // (runs - 1)
            positions = (firsts[:, None] + np.arange(together)).ravel()
        taken = self.look_up(positions)
        return taken.values[taken.valid]

    def valid(self, rows: Rows) -> NDArray[np.bool_]:
        is_valid = np.ones(len(rows), np.bool_)
        for block in self.blocks(rows, _CHECKED_BYTES):
            is_valid[block.excluded_positions - rows.start] = False
        return is_valid


def _usable(block: Vectors, start: int) -> Block:
    positions = np.arange(start, start + len(block.valid))
    if block.valid.all():
        return Block(positions, block.values, positions[:0])
    return Block(positions[block.valid], block.values[block.valid], positions[~block.valid])


def read_columns(side: Side, rows: Rows, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """Yield columns of consecutive rows, with values in place of dictionaries."""
    if isinstance(side, ParquetSide):
        yield from side.read(rows, columns)
        return
    if side.selection is not None:
        yield from map(decoded, read_selected(side, side.selection, rows, columns))
        return
    dataset = pinned_dataset(side.pin, side.storage_options)
    pieces = read_ranges(dataset, tuple(side.ranges(rows)), columns, side.storage_options)
    yield from (decoded(batch) for _, batch in pieces)


def take(side: Side, positions: NDArray[np.int64], columns: tuple[str, ...]) -> pa.Table:
    if isinstance(side, ParquetSide):
        return side.take(positions, columns)
    return take_addressed(side, addresses_at(side, positions), columns)


def take_addressed(
    side: VectorSide, found: NDArray[np.int64], columns: tuple[str, ...]
) -> pa.Table:
    """Return columns of the rows at ascending addresses, with values in place of dictionaries.

    Blobs are their bytes.
    """
    dataset, cuts = pinned_dataset(side.pin, side.storage_options), np.empty(0, np.int64)
    fields = [column for column in dataset.schema if column.name in columns]
    added = {ROW_ADDRESS: pa.array(found.astype(np.uint64))} if ROW_ADDRESS in columns else {}
    for name in [column.name for column in fields if is_blob(column)]:
        with pinned_reads(side.pin, side.storage_options):
            read = dataset.read_blobs(name, addresses=found.tolist(), preserve_order=True)
        added[name] = pa.array([value for _, value in read], pa.large_binary())
    taken = tuple(name for name in columns if name not in added)
    if added and not taken:
        return pa.table(added).select(columns)
    if any(pa.types.is_dictionary(column.type) for column in fields):
        # Each fragment has dictionaries of its own, which Lance unites only up to so many values.
        cuts = np.flatnonzero(np.diff(found >> ROW_BITS)) + 1
    parts = np.split(found, cuts)
    rows = pa.concat_tables(decoded(_take_addressed(side, some, taken)) for some in parts)
    for name, column in added.items():
        rows = rows.append_column(name, column)
    return rows.select(columns)


def _take_addressed(
    side: VectorSide, found: NDArray[np.int64], columns: tuple[str, ...]
) -> pa.Table:
    dataset = pinned_dataset(side.pin, side.storage_options)
    with pinned_reads(side.pin, side.storage_options):
        if not dataset.has_stable_row_ids:
            # By the ids of rows, which are their addresses: nothing has to be looked for.
            return dataset._take_rows(found.tolist(), columns=list(columns))
        positions = positions_at(side, found)
        if side.selection is not None:
            positions = live_positions(side, side.selection, positions)
        return take_rows(dataset, positions, columns)


def row_places(
    left: Side, right: Side, positions: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where left rows are among those of the right side, which is the same dataset.

    Also the position of the first right row after each; rows that its filter does not pass are at
    -1.
    """
    assert isinstance(left, VectorSide) and isinstance(right, VectorSide)
    order = np.argsort(positions, kind="stable")
    live = positions[order]
    if left.selection is not None:
        live = live_positions(left, left.selection, live)
    own, after = np.empty(len(live), np.int64), np.empty(len(live), np.int64)
    own[order], after[order] = (
        (live, live + 1) if right.selection is None else _selected_places(right, live)
    )
    return own, after


def _selected_places(
    side: VectorSide, live: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return `row_places` on a side with a filter, of ascending positions in a scan without it."""
    assert side.selection is not None
    own = np.full(len(live), -1, np.int64)
    # Fragments of which no row passes are not among those of the selection.
    firsts = np.array([part.start for part in side.selection.live], np.int64)
    starts = np.array([*(part.start for part in side.fragments), side.all_rows.stop], np.int64)
    at = np.searchsorted(firsts, live, side="right") - 1
    after = starts[at + 1]
    for number, part in enumerate(side.selection.live):
        here = np.flatnonzero((at == number) & (live < part.start + part.rows))
        if not len(here):
            continue
        _, offsets = matches(side, side.selection, part.id)
        inside = live[here] - part.start
        place = np.searchsorted(offsets, inside)
        passes = offsets[np.minimum(place, len(offsets) - 1)] == inside
        own[here] = np.where(passes, starts[number] + place, -1)
        after[here] = starts[number] + place + passes
    return own, after


def rows_after(rows: Rows, after: NDArray[np.int64]) -> Rows:
    """Return the rows that some query may have as a neighbour, by its least ascending positions."""
    if not len(after):
        return rows
    return Rows(min(max(rows.start, int(after[0])), rows.stop), rows.stop)


def read_schema(side: Side) -> pa.Schema:
    """Return the columns of a side as `read_columns` and `take` have them."""
    if isinstance(side, ParquetSide):
        return side.schema
    schema = pinned_dataset(side.pin, side.storage_options).schema
    address = pa.field(ROW_ADDRESS, pa.uint64(), nullable=False)
    return pa.schema([*map(decoded_field, schema), address], schema.metadata)
