"""The scratch stage: a side that is no Lance table is written once, as one."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING

import lance
import numpy as np
import pyarrow as pa

from lancestat.errors import (
    LancestatError,
    ScratchUnusable,
    SideColumnMissing,
    SideNotWritten,
    VectorLeftToSpark,
    VectorLengthMismatch,
    did_you_mean,
)
from lancestat.joins.scratch.folder import require_visible
from lancestat.joins.search.metrics import Metric
from lancestat.joins.search.vectors import Vectors, check_type, enlarged, require_plain, vectors
from lancestat.joins.search.work import VectorSide, fragment_rows
from lancestat.joins.spark.job import worker_task
from lancestat.joins.spark.reader import ParquetScan
from lancestat.joins.spark.sides import OpenedSide
from lancestat.lake.error_mapping import Cause, cause_of, is_error_or_panic, is_of_store
from lancestat.lake.files import store_options
from lancestat.lake.open import readable
from lancestat.lake.snapshot import pin_of
from lancestat.redact import redact_line, secret_values
from lancestat.spark.failure import job_error
from lancestat.spark.jobs import jobs_of
from lancestat.spark.versions import map_in_arrow, to_arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

VECTOR = "vector"
ROWS_PER_FILE = 1 << 20
# The driver reads files itself that take less time than starting a job.
SMALLEST_JOB = 4 << 20


@dataclass(frozen=True, slots=True)
class SideWriteOptions:
    """The target and options of writing a side; pickled for Spark's workers.

    `side` is `left` or `right`, for errors. `keeps_all` keeps rows whose vector cannot match, with
    null for it. `has_bits` is as for a `VectorSide`; what is written are the bits. `dimension` is
    the length of vectors, None to take that of the first. `as_spark` is that of the request.
    """

    uri: str
    side: str
    metric: Metric
    keeps_all: bool
    storage_options: Mapping[str, str] = field(repr=False)
    dimension: int | None = None
    as_spark: bool = False
    has_bits: bool = False


def write_side(rows: DataFrame, scan: ParquetScan | None, writing: SideWriteOptions) -> OpenedSide:
    """Run a DataFrame once and write it in its row order, vectors as fixed-size lists of float32.

    Args:
        rows: The columns of the output, then the vectors, as `with_numbered_columns` has them.
        scan: The same rows as a plain scan, if they are one.
        writing: The target and options.
    """
    reports = _run(rows, scan, writing)
    refused = next((report.refused for report in reports if report.refused), None)
    if refused is not None:
        raise VectorLeftToSpark(refused)
    dimension = _dimension(reports, writing.side)
    if dimension is not None and any(report.dimension is None for report in reports if report.rows):
        # A partition without any vector has no type for its column.
        writing = replace(writing, dimension=dimension)
        reports = _run(rows, scan, writing)
    return OpenedSide(
        _committed(reports, writing, rows),
        dimension,
        sum(report.excluded for report in reports),
    )


@dataclass(frozen=True, slots=True)
class _PartitionReport:
    """The result of writing a partition; `dimension` is None where no row had a vector.

    `refused` says why nothing was written, as `VectorLeftToSpark` has it: for Spark the task has
    not failed then, and is not tried again.
    """

    fragments: Sequence[str]
    rows: int
    seen: int
    excluded: int
    dimension: int | None
    schema: str | None
    refused: str | None = None


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
    """Check the type of the vectors, before a job reads them.

    Args:
        rows: As `with_numbered_columns` has them.
        scan: The same rows as a plain scan, if they are one.
        side: `left` or `right`, for errors.
        has_bits: The vectors have to be bytes.
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
    hint = did_you_mean(column, columns) or f"it has: {', '.join(columns)}"
    raise SideColumnMissing(f"the {side} side has no column '{column}'", hint=hint)


def _run(
    rows: DataFrame, scan: ParquetScan | None, writing: SideWriteOptions
) -> list[_PartitionReport]:
    options = writing.storage_options
    doing = f"computing the {writing.side} side"

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with worker_task(1, options, doing):
            require_visible(writing.uri)
            report = _Writer(writing, _partition()).write(batches)
            yield pa.RecordBatch.from_pydict({"report": [json.dumps(asdict(report))]})

    try:
        if scan is not None:
            return _run_files(rows, scan, writing, doing)
        results = map_in_arrow(rows, write, "report string").collect()
        return [_PartitionReport(**json.loads(row.report)) for row in results]
    except Exception as error:
        raise job_error(error, doing, secret_values(options)) from None


def _run_files(
    rows: DataFrame, scan: ParquetScan, writing: SideWriteOptions, doing: str
) -> list[_PartitionReport]:
    def write(partitions: Iterable[int]) -> Iterator[tuple[_PartitionReport, tuple[()]]]:
        with worker_task(1, writing.storage_options, doing):
            require_visible(writing.uri)
            for partition in partitions:
                yield _Writer(writing, partition).write(scan.read(partition)), ()

    count = len(scan.partitions)
    if sum(scan.column_bytes) <= SMALLEST_JOB:
        return [_Writer(writing, number).write(scan.read(number)) for number in range(count)]
    return jobs_of(rows.sparkSession).run(write, range(count))


def _partition() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else int(context.partitionId())


class _Writer:
    """Writes the rows of one partition."""

    def __init__(self, writing: SideWriteOptions, partition: int) -> None:
        self._writing = writing
        self._partition = partition
        self._dimension = writing.dimension
        self._rows = self._seen = self._excluded = 0
        self._refused: str | None = None

    def write(self, batches: Iterable[pa.RecordBatch]) -> _PartitionReport:
        try:
            return self._written(batches)
        except BaseException:
            # Lance wraps what its input raises.
            if self._refused is None:
                raise
            return _PartitionReport([], 0, 0, 0, None, None, self._refused)

    def _written(self, batches: Iterable[pa.RecordBatch]) -> _PartitionReport:
        nonempty = (batch for batch in self._batches(batches) if batch.num_rows)
        first = next(nonempty, None)
        fragments, schema = [], None
        if first is not None:
            fragments = self._write(first.schema, chain([first], nonempty))
            schema = _encoded(first.schema)
        return _PartitionReport(
            fragments, self._rows, self._seen, self._excluded, self._dimension, schema
        )

    def _write(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> list[str]:
        uri, options = self._writing.uri, self._writing.storage_options
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
            message = f"the {self._writing.side} side cannot be written: {reason}"
            if is_of_store(error) or cause_of(error) is Cause.NOT_FOUND:
                hint = "check the target's 'scratch', its storage_options and the permissions there"
                raise ScratchUnusable(message, hint=hint) from error
            hint = "leave out columns of types that Lance does not support"
            raise SideNotWritten(message, hint=hint) from error
        return [json.dumps(fragment.to_json()) for fragment in fragments]

    def _batches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        batches = map(_aligned, batches)
        # The first vector gives the length of all, and so the type of the column.
        waiting: list[pa.RecordBatch] = []
        for batch in batches:
            batch_vectors = self._vectors(batch)
            if self._dimension is None:
                waiting.append(batch)
                continue
            for early in waiting:
                yield self._excluding_unmatched(early, _none(early.num_rows, self._dimension))
            waiting = []
            yield self._excluding_unmatched(batch, batch_vectors)
        for early in waiting:
            yield self._excluding_unmatched(early, _none(early.num_rows, 1))

    def _vectors(self, batch: pa.RecordBatch) -> Vectors:
        try:
            return self._read(batch)
        except (VectorLeftToSpark, VectorLengthMismatch) as error:
            if self._writing.as_spark:
                self._refused = error.message
            raise

    def _read(self, batch: pa.RecordBatch) -> Vectors:
        source = f"partition {self._partition} of the {self._writing.side} side"
        if self._writing.as_spark:
            require_plain(batch.column(batch.num_columns - 1), source)
        batch_vectors = vectors(
            batch.column(batch.num_columns - 1),
            self._dimension,
            self._writing.metric,
            has_bits=self._writing.has_bits,
            first_row=self._seen,
            source=source,
        )
        self._seen += batch.num_rows
        if batch_vectors.values.shape[1]:
            self._dimension = batch_vectors.values.shape[1]
        return batch_vectors

    def _excluding_unmatched(self, batch: pa.RecordBatch, batch_vectors: Vectors) -> pa.RecordBatch:
        values, valid = batch_vectors.values, batch_vectors.valid
        excluded = len(valid) - int(np.count_nonzero(valid))
        self._excluded += excluded
        if excluded and not self._writing.keeps_all:
            batch = batch.filter(pa.array(valid))
            values, valid = values[valid], valid[valid]
        if (
            self._writing.as_spark
            and self._writing.metric.grows_with_query
            and self._writing.keeps_all
        ):
            values = enlarged(values)
        self._rows += len(values)
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


def _dimension(reports: Sequence[_PartitionReport], side: str) -> int | None:
    """Return the one length of all vectors."""
    known = [
        (index, report) for index, report in enumerate(reports) if report.dimension is not None
    ]
    if not known:
        return None
    first = known[0][1].dimension
    for index, report in known:
        if report.dimension != first:
            row = sum(before.seen for before in reports[:index])
            raise VectorLengthMismatch(
                f"vectors of the {side} side have {first} elements, "
                f"but those from row {row} on have {report.dimension}",
            )
    return first


def _committed(
    reports: Sequence[_PartitionReport], writing: SideWriteOptions, rows: DataFrame
) -> VectorSide:
    made = [
        lance.FragmentMetadata.from_json(text) for report in reports for text in report.fragments
    ]
    known = next((report.schema for report in reports if report.schema), None)
    schema = _empty_schema(rows) if known is None else _decoded(known)
    options = store_options(writing.uri, writing.storage_options)
    operation = lance.LanceOperation.Overwrite(schema, made)
    with readable(writing.uri, storage_options=writing.storage_options):
        dataset = lance.LanceDataset.commit(writing.uri, operation, storage_options=options)
        counts = [fragment.metadata.physical_rows for fragment in dataset.get_fragments()]
        pin = pin_of(dataset, writing.uri)
    return VectorSide(
        pin=pin,
        vector=VECTOR,
        columns=tuple(schema.names[:-1]),
        fragments=fragment_rows(enumerate(counts)),
        storage_options=writing.storage_options,
    )


def _empty_schema(rows: DataFrame) -> pa.Schema:
    """Return the schema of the dataset when no partition has written anything."""
    zone = rows.sparkSession.conf.get("spark.sql.session.timeZone")
    fields = list(to_arrow_schema(rows.schema, zone))[:-1]
    return pa.schema([*fields, pa.field(VECTOR, pa.list_(pa.float32(), 1))])


def _encoded(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def _decoded(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
