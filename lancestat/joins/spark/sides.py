"""Opens the sides of a join: tables and light Parquet in place, others once they are in scratch."""

from __future__ import annotations

import base64
import json
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING

import lance
import numpy as np
import pyarrow as pa

from lancestat.errors import (
    LancestatError,
    NotPlainQuery,
    ScratchUnusable,
    SideColumnMissing,
    SideNotWritten,
    SideUnreadable,
    SparkConnectSession,
    UnknownTable,
    UsageError,
    VectorLeftToSpark,
    VectorLengthMismatch,
    did_you_mean,
)
from lancestat.joins.scratch.folder import require_visible
from lancestat.joins.search.metrics import L2, Metric
from lancestat.joins.search.vectors import Vectors, check_type, enlarged, require_plain, vectors
from lancestat.joins.search.work import (
    ROW_ADDRESS,
    JoinRequest,
    PinnedTable,
    SideSource,
    VectorSide,
    fragment_rows,
)
from lancestat.joins.spark.cells import grid
from lancestat.joins.spark.job import run_each, worker_task
from lancestat.joins.spark.reader import ParquetScan, ParquetSide, Side, read_columns, select_rows
from lancestat.lake.error_mapping import Cause, cause_of, is_error_or_panic, is_of_store
from lancestat.lake.files import store_options
from lancestat.lake.open import pinned_reads, readable
from lancestat.lake.snapshot import pin_of
from lancestat.query.read.relation import Relation, relate
from lancestat.query.sql.proof import ParsedQuery, hidden_objection, parse_query, unproven
from lancestat.query.sql.statement import QueryContext, QueryText, explain_failure
from lancestat.query.table import open_pinned_table
from lancestat.redact import redact_line, secret_values
from lancestat.spark.failure import job_error
from lancestat.spark.fragment_reader import pinned_dataset
from lancestat.spark.jobs import jobs_of
from lancestat.spark.versions import is_connect, map_in_arrow, to_arrow_schema
from lancestat.spec.catalog import UriOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def plain_query(
    spark: SparkSession, source: SideSource, options: UriOptions, name: str
) -> ParsedQuery:
    """Read a side's query in a session of its own; nothing is resolved, and nothing runs.

    `name` is `left` or `right`, for errors.
    """
    assert source.sql is not None
    if is_connect(spark):
        raise SparkConnectSession(
            f"the {name} side is a query, whose check needs the driver's JVM, which a session of "
            "Spark Connect lacks",
            location=source.location,
            hint="declare a table or files for the side, or join DataFrames with knn_join",
        )
    try:
        parsed = parse_query(spark.newSession(), source.sql)
    except Exception as error:
        raise unreadable(error, source, options.default, name) from None
    if parsed.objection is not None:
        raise _not_plain(source, name, parsed.objection)
    return parsed


def query_rows(
    parsed: ParsedQuery, source: SideSource, options: UriOptions, name: str
) -> tuple[DataFrame, tuple[str, ...]]:
    """Return a query's rows, nothing of which is computed yet, and `proof.unproven` about them."""
    try:
        opened = [
            Relation(open_pinned_table(view.pin, options.of(view.pin.uri)), view=view.name)
            for view in source.views
        ]
        relate(parsed.session, opened)
        rows = parsed.rows()
        analyzed = parsed.analyzed(rows)
    except LancestatError:
        raise
    except Exception as error:
        raise unreadable(error, source, options.default, name) from None
    objection = hidden_objection(analyzed)
    if objection is not None:
        raise _not_plain(source, name, objection)
    names = [view.name for view in source.views]
    return rows, unproven(source.sql or "", parsed.facts, analyzed, names)


def source_rows(
    spark: SparkSession, source: SideSource, storage_options: Mapping[str, str], name: str
) -> DataFrame:
    """Return the DataFrame of a side that is files of some format; nothing is computed yet."""
    assert source.format is not None
    try:
        reader = spark.read.format(source.format).options(**source.options)
        return reader.load(source.uri) if source.uri is not None else reader.load()
    except LancestatError:
        raise
    except Exception as error:
        raise unreadable(error, source, storage_options, name) from None


def unreadable(
    error: Exception, source: SideSource, storage_options: Mapping[str, str], name: str
) -> LancestatError:
    secrets = secret_values(storage_options) | secret_values(source.options)
    context = QueryContext({view.name: None for view in source.views}, secrets)
    failure = explain_failure(
        error, QueryText(source.sql or "", f"the {name} side's query"), context
    )
    hint = failure.hint
    if source.sql is not None and isinstance(failure, UnknownTable):
        hint = "a query names declared tables as {{ ref('name') }}"
    message = f"the {name} side cannot be read: {failure.message}"
    return SideUnreadable(message, location=source.location, hint=hint)


def _not_plain(source: SideSource, name: str, objection: str) -> UsageError:
    return NotPlainQuery(
        f"the query of the {name} side is not one plain query: it holds {objection}",
        location=source.location,
        hint="a side is one SELECT, which writes nothing and runs no program",
    )


# Compressed bytes of columns that are small enough to be read as a whole.
LIGHT_BYTES = 4 << 20


def opened_table(
    table: PinnedTable,
    vector: str,
    select: Sequence[str],
    storage_options: Mapping[str, str],
    name: str,
    filter: str | None = None,
    keys: Sequence[str] = (),
    *,
    has_bits: bool = False,
) -> VectorSide:
    """Open a Lance table in place, and count the rows that pass a filter in Lance's SQL.

    `name` is `left` or `right`, for errors.
    """
    dataset = pinned_dataset(table.pin, storage_options)
    schema = dataset.schema
    for column in (vector, *select):
        if column not in (*schema.names, ROW_ADDRESS):
            hint = did_you_mean(column, schema.names)
            raise SideColumnMissing(f"the {name} side has no column '{column}'", hint=hint)
    empty = pa.Table.from_batches([], schema).column(vector)
    source = f"the {name} side"
    known = vectors(empty, None, L2, has_bits=has_bits, source=source).values.shape[1]
    fragments, selection = table.fragments, None
    if filter is not None:
        with pinned_reads(table.pin, storage_options):
            fragments, selection = select_rows(dataset, table.fragments, filter)
    side = VectorSide(
        pin=table.pin,
        vector=vector,
        columns=tuple(select),
        fragments=fragments,
        storage_options=storage_options,
        selection=selection,
        keys=tuple(keys),
        has_bits=has_bits,
    )
    return replace(side, dimension=known or first_dimension(side, name))


def with_last_columns_as_keys(side: VectorSide, count: int) -> VectorSide:
    """Return a side whose last columns are keys, which the output does not show."""
    shown = len(side.columns) - count
    return replace(side, columns=side.columns[:shown], keys=side.columns[shown:])


def first_dimension(side: Side, name: str) -> int | None:
    """Return the length of the first vector, where the type does not give it."""
    row = 0
    for batch in read_columns(side, side.all_rows, (side.vector,)):
        column, source = batch.column(0), f"the {name} side"
        read = vectors(column, None, L2, has_bits=side.has_bits, first_row=row, source=source)
        dimension = read.values.shape[1]
        if dimension:
            return int(dimension)
        row += len(column)
    return None


def read_in_place(
    scan: ParquetScan, request: JoinRequest, left: Side, cores: int
) -> ParquetSide | None:
    """Return Parquet files as a right side that is read in place, not by way of scratch.

    None where they would be read more than once: an approximate join, left rows that take several
    tasks, and selected columns that are heavier than the vectors, which only neighbours need.
    """
    columns = tuple(scan.schema.names[:-1])
    *selected, needed = scan.column_bytes
    if request.is_approximate or sum(selected) > max(needed, LIGHT_BYTES):
        return None
    side = ParquetSide(scan, scan.schema.names[-1], columns, has_bits=request.metric.has_bits)
    rows, dimension = left.all_rows, first_dimension(side, "right")
    shares = grid(rows, len(side.all_rows), dimension=dimension or 1, k=request.k, cores=cores)
    return replace(side, dimension=dimension) if len(shares.chunks) == 1 else None


VECTOR = "vector"
ROWS_PER_FILE = 1 << 20
# The driver reads files itself that take less time than starting a job.
SMALLEST_JOB = 4 << 20


def with_numbered_columns(
    rows: DataFrame, vector: str, select: Sequence[str], side: str
) -> DataFrame:
    """Return the selected columns as `c0`, `c1` and so on, and the vectors as `vector`.

    Spark computes nothing else. Of columns with one name the first is taken.
    """
    renamed = rows.toDF(*(f"p{index}" for index in range(len(rows.columns))))
    named = [(f"c{number}", column) for number, column in enumerate(select)]
    return renamed.select(
        *(
            renamed[f"p{column_index(rows.columns, column, side)}"].alias(name)
            for name, column in [*named, (VECTOR, vector)]
        )
    )


def check_vectors(rows: DataFrame, scan: ParquetScan | None, side: str, *, has_bits: bool) -> None:
    """Check the type of the vectors, before a job reads them; `scan` is of the same rows, if
    any.
    """
    schema = to_arrow_schema(rows.select(VECTOR).schema, "UTC") if scan is None else scan.schema
    check_type(schema.field(VECTOR).type, has_bits=has_bits, source=f"the {side} side")


def column_index(columns: Sequence[str], column: str, side: str) -> int:
    """Return the index of the column of that name, ignoring case; of several the first."""
    if column in columns:
        return columns.index(column)
    lowered = [name.lower() for name in columns]
    if column.lower() in lowered:
        return lowered.index(column.lower())
    hint = did_you_mean(column, columns, "it has")
    raise SideColumnMissing(f"the {side} side has no column '{column}'", hint=hint)


def write_side(rows: DataFrame, scan: ParquetScan | None, writer: SideWriter) -> VectorSide:
    """Run a DataFrame once and write it in its row order, vectors as fixed-size lists of float32.

    `rows` are as `with_numbered_columns` has them, and `scan` is a plain scan of the same rows.
    """
    written = _run(rows, scan, writer)
    refused = next((part.refused for part in written if part.refused), None)
    if refused is not None:
        raise VectorLeftToSpark(refused)
    dimension = _dimension(written)
    if dimension is not None and any(part.dimension is None for part in written if part.rows):
        # A partition without any vector has no type for its column.
        writer = replace(writer, dimension=dimension)
        written = _run(rows, scan, writer)
    return replace(
        _committed(written, writer, rows),
        dimension=dimension,
        excluded=sum(part.excluded for part in written),
    )


def _run(rows: DataFrame, scan: ParquetScan | None, writer: SideWriter) -> list[SideWriter]:
    doing = f"computing the {writer.side} side"

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        with worker_task(1, writer.storage_options, doing):
            require_visible(writer.uri)
            context = TaskContext.get()
            done = writer.write(0 if context is None else int(context.partitionId()), batches)
            yield pa.RecordBatch.from_pydict({"done": [pickle.dumps(done)]})

    try:
        if scan is None:
            results = map_in_arrow(rows, write, "done binary").collect()
            return [pickle.loads(bytes(row.done)) for row in results]  # noqa: S301
        partitions = range(len(scan.partitions))
        if sum(scan.column_bytes) <= SMALLEST_JOB:
            return [writer.write(number, scan.read(number)) for number in partitions]

        def write_partition(partition: int) -> SideWriter:
            require_visible(writer.uri)
            return writer.write(partition, scan.read(partition))

        jobs, options = jobs_of(rows.sparkSession), writer.storage_options
        return run_each(jobs, write_partition, partitions, options, doing)
    except Exception as error:
        raise job_error(error, doing, secret_values(writer.storage_options)) from None


@dataclass(slots=True)
class SideWriter:
    """Writes partitions of a side as fragments; it travels to Spark's workers, and what wrote back.

    `side` is `left` or `right`, for errors. `keeps_all` keeps rows whose vector cannot match, with
    null for it; of bytes that are bits, the bits are written. `dimension` is the length of vectors,
    None to take that of the first. `as_spark` is that of the request.

    Once it has written a partition, it has its `fragments` and their `schema`, how many `rows` were
    `seen`, `excluded` and written, and the reason why nothing was written if vectors are `refused`,
    as `VectorLeftToSpark` has it: for Spark the task has not failed then, and is not tried again.
    """

    uri: str
    side: str
    metric: Metric
    keeps_all: bool
    storage_options: Mapping[str, str] = field(repr=False)
    dimension: int | None = None
    as_spark: bool = False
    fragments: tuple[str, ...] = ()
    schema: str | None = None
    rows: int = 0
    seen: int = 0
    excluded: int = 0
    refused: str | None = None

    def write(self, partition: int, batches: Iterable[pa.RecordBatch]) -> SideWriter:
        mine = replace(self)
        try:
            nonempty = (batch for batch in mine._batches(partition, batches) if batch.num_rows)
            first = next(nonempty, None)
            if first is not None:
                mine.fragments = mine._write(first.schema, chain([first], nonempty))
                mine.schema = base64.b64encode(first.schema.serialize().to_pybytes()).decode()
        except BaseException:
            # Lance wraps what its input raises.
            if mine.refused is None:
                raise
            mine = replace(self, refused=mine.refused, dimension=None)
        return replace(mine, storage_options={})

    def _write(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> tuple[str, ...]:
        uri, options = self.uri, self.storage_options
        reader = pa.RecordBatchReader.from_batches(schema, batches)
        try:
            fragments = lance.fragment.write_fragments(
                reader,
                uri,
                mode="create",
                max_rows_per_file=ROWS_PER_FILE,
                storage_options=store_options(uri, options),
            )
        except LancestatError:
            raise
        except BaseException as error:
            if not is_error_or_panic(error):
                raise
            reason = redact_line(f"{type(error).__name__}: {error}", secret_values(options))
            message = f"the {self.side} side cannot be written: {reason}"
            if is_of_store(error) or cause_of(error) is Cause.NOT_FOUND:
                hint = "check the target's 'scratch', its storage_options and the permissions there"
                raise ScratchUnusable(message, hint=hint) from error
            hint = "leave out columns of types that Lance does not support"
            raise SideNotWritten(message, hint=hint) from error
        return tuple(json.dumps(fragment.to_json()) for fragment in fragments)

    def _batches(
        self, partition: int, batches: Iterable[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        # The first vector gives the length of all, and so the type of the column.
        waiting: list[pa.RecordBatch] = []
        for batch in map(_aligned, batches):
            read = self._vectors(partition, batch)
            if self.dimension is None:
                waiting.append(batch)
                continue
            for early in waiting:
                yield self._excluding_unmatched(early, _none(early.num_rows, self.dimension))
            waiting = []
            yield self._excluding_unmatched(batch, read)
        for early in waiting:
            yield self._excluding_unmatched(early, _none(early.num_rows, 1))

    def _vectors(self, partition: int, batch: pa.RecordBatch) -> Vectors:
        source = f"partition {partition} of the {self.side} side"
        column = batch.column(batch.num_columns - 1)
        try:
            if self.as_spark:
                require_plain(column, source)
            read = vectors(
                column,
                self.dimension,
                self.metric,
                has_bits=self.metric.has_bits,
                first_row=self.seen,
                source=source,
            )
        except (VectorLeftToSpark, VectorLengthMismatch) as error:
            if self.as_spark:
                self.refused = error.message
            raise
        self.seen += batch.num_rows
        self.dimension = read.values.shape[1] or self.dimension
        return read

    def _excluding_unmatched(self, batch: pa.RecordBatch, read: Vectors) -> pa.RecordBatch:
        values, valid = read.values, read.valid
        excluded = len(valid) - int(np.count_nonzero(valid))
        self.excluded += excluded
        if excluded and not self.keeps_all:
            batch = batch.filter(pa.array(valid))
            values, valid = values[valid], valid[valid]
        if self.as_spark and self.metric.grows_with_query and self.keeps_all:
            values = enlarged(values)
        self.rows += len(values)
        column = pa.FixedSizeListArray.from_arrays(
            pa.array(values.reshape(-1)),
            values.shape[1],
            mask=None if valid.all() else pa.array(~valid),
        )
        return pa.RecordBatch.from_arrays([*batch.columns[:-1], column], names=batch.schema.names)


def _aligned(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Copy decimals, which Lance needs aligned to 16 bytes and Spark aligns to 8."""
    if not any("decimal" in str(field.type) for field in batch.schema):
        return batch
    return batch.take(pa.array(range(batch.num_rows)))


def _none(rows: int, dimension: int) -> Vectors:
    return Vectors(np.zeros((rows, dimension), np.float32), np.zeros(rows, np.bool_))


def _dimension(written: Sequence[SideWriter]) -> int | None:
    known = [(number, part) for number, part in enumerate(written) if part.dimension is not None]
    for number, part in known:
        first = known[0][1].dimension
        if part.dimension != first:
            row = sum(before.seen for before in written[:number])
            raise VectorLengthMismatch(
                f"vectors of the {part.side} side have {first} elements, "
                f"but those from row {row} on have {part.dimension}",
            )
    return known[0][1].dimension if known else None


def _committed(written: Sequence[SideWriter], writer: SideWriter, rows: DataFrame) -> VectorSide:
    uri, storage_options = writer.uri, writer.storage_options
    made = [lance.FragmentMetadata.from_json(text) for part in written for text in part.fragments]
    known = next((part.schema for part in written if part.schema), None)
    schema = (
        _empty_schema(rows)
        if known is None
        else pa.ipc.read_schema(pa.py_buffer(base64.b64decode(known)))
    )
    operation = lance.LanceOperation.Overwrite(schema, made)
    with readable(uri, storage_options=storage_options):
        dataset = lance.LanceDataset.commit(
            uri, operation, storage_options=store_options(uri, storage_options)
        )
        counts = [fragment.metadata.physical_rows for fragment in dataset.get_fragments()]
        pin = pin_of(dataset, uri)
    return VectorSide(
        pin=pin,
        vector=VECTOR,
        columns=tuple(schema.names[:-1]),
        fragments=fragment_rows(enumerate(counts)),
        storage_options=storage_options,
    )


def _empty_schema(rows: DataFrame) -> pa.Schema:
    """Return the schema of the dataset when no partition has written anything."""
    zone = rows.sparkSession.conf.get("spark.sql.session.timeZone")
    fields = list(to_arrow_schema(rows.schema, zone))[:-1]
    return pa.schema([*fields, pa.field(VECTOR, pa.list_(pa.float32(), 1))])
