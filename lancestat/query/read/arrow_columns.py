"""Reads parts of a scan in Spark's Python workers, as Arrow columns that Spark's JVM reads."""

from __future__ import annotations

import base64
import json
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancestat.errors.base import LancestatError
from lancestat.errors.codes import ValueOutOfRange
from lancestat.lake.open import portable
from lancestat.lake.snapshot import Pin, RowRange, ScanPartition
from lancestat.redact import redact_line, secret_values
from lancestat.spark.failure import WorkerError
from lancestat.spark.session import task_threads
from lancestat.spark.versions import java_class, own_python, prepare_worker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_LARGEST_NARROW = 18
# Of a microsecond. Flooring is what an instant before 1970 needs.
_NANOSECONDS = 1_000
# Of a day. A date in milliseconds need not be midnight, and before 1970 a cast would round it up.
_DAY_MILLISECONDS = 86_400_000
_WIDENED = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.float16(): pa.float32(),
    pa.string_view(): pa.string(),
    pa.binary_view(): pa.binary(),
}


def for_spark(batch: pa.RecordBatch, *, narrow_decimals: bool) -> pa.RecordBatch:
    """Return the columns of a batch in Spark's Arrow types, named by their positions.

    Unsigned integers and half floats are widened; finer times are floored to microseconds; lists of
    any kind become lists, dictionaries and extensions their values. With `narrow_decimals`,
    top-level decimals of up to 18 digits become their unscaled 64-bit integers.

    Raises:
        OverflowError: a value does not fit Spark's type, such as an unsigned integer of 2**63.
    """
    columns = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        is_decimal = pa.types.is_decimal(column.type)
        is_narrow = narrow_decimals and is_decimal and column.type.precision <= _LARGEST_NARROW
        try:
            columns.append(_unscaled(column) if is_narrow else _converted(column))
        except OverflowError as error:
            raise OverflowError(f"column '{name}': {error}") from None
    return pa.RecordBatch.from_arrays(columns, [str(index) for index in range(len(columns))])


def _converted(column: pa.Array) -> pa.Array:
    """Return a column in Spark's Arrow type, the column itself where it is of that type."""
    type, types = column.type, pa.types
    if isinstance(type, pa.BaseExtensionType):
        return _converted(column.storage)
    if types.is_dictionary(type):
        return _converted(column.dictionary_decode())
    if types.is_struct(type):
        return _struct(column)
    if hasattr(type, "value_field") or types.is_map(type):
        return _list(column)
    if types.is_timestamp(type) or types.is_duration(type):
        return _microseconds(column)
    if types.is_time(type):
        # Spark keeps nanoseconds of the day, and its time(6) has microseconds of them.
        return column.cast(pa.time64("us"), safe=False).cast(pa.time64("ns"))
    if types.is_date64(type):
        days = _numbers(column, _stored(column, np.int64) // _DAY_MILLISECONDS, pa.int64())
        return _cast(days, pa.int32(), f"a value of {type} does not fit Spark's days").view(
            pa.date32()
        )
    if type == pa.uint64():
        what = f"{pc.max(column)} does not fit Spark's bigint, which ends at 2**63 - 1"
        return _cast(column, pa.int64(), what)
    if types.is_fixed_size_binary(type):
        return column.cast(pa.binary())
    if types.is_decimal(type) and type.bit_width < 128:
        return column.cast(pa.decimal128(type.precision, type.scale))
    target = _WIDENED.get(type)
    return column if target is None else column.cast(target)


def _stored(column: pa.Array, type: Any) -> Any:
    """Return the numbers of a column's buffer, also those before its offset."""
    width = max(1, column.type.bit_width // 8 // np.dtype(type).itemsize)
    return np.frombuffer(column.buffers()[1], type, (column.offset + len(column)) * width)


def _numbers(column: pa.Array, numbers: Any, target: pa.DataType) -> pa.Array:
    """Return other numbers of the same length and nulls, as a column."""
    buffers = [column.buffers()[0], pa.py_buffer(np.ascontiguousarray(numbers))]
    return pa.Array.from_buffers(target, len(column), buffers, offset=column.offset)


def _cast(column: pa.Array, target: pa.DataType, what: str) -> pa.Array:
    try:
        return column.cast(target)
    except pa.ArrowInvalid:
        raise OverflowError(what) from None


def _unscaled(column: pa.Array) -> pa.Array:
    width = column.type.bit_width
    if width == 32:
        unscaled = _stored(column, np.int32).astype(np.int64)
    else:
        unscaled = _stored(column, np.int64)[:: width // 64]
    return _numbers(column, unscaled, pa.int64())


def _microseconds(column: pa.Array) -> pa.Array:
    type = column.type
    is_timestamp = pa.types.is_timestamp(type)
    target = pa.timestamp("us", "UTC" if type.tz else None) if is_timestamp else pa.duration("us")
    if type == target:
        return column
    if type.unit == "ns":
        return _numbers(column, _stored(column, np.int64) // _NANOSECONDS, target)
    return _cast(column, target, f"a value of {type} does not fit Spark's microseconds")


def _list(column: pa.Array) -> pa.Array:
    type, types, values = column.type, pa.types, column.values
    inner, (validity, *rest) = _converted(values), column.buffers()
    end = column.offset + len(column) + 1
    if types.is_fixed_size_list(type):
        offsets = pa.py_buffer(np.arange(end, dtype=np.int32) * np.int32(type.list_size))
    elif types.is_large_list(type):
        offsets = pa.py_buffer(np.frombuffer(rest[0], np.int64, end).astype(np.int32))
    elif inner is values:
        return column
    else:
        offsets = rest[0]
    if types.is_map(type):
        target = pa.map_(inner.type.field(0), inner.type.field(1))
    else:
        target = pa.list_(type.value_field.with_type(inner.type))
    return pa.Array.from_buffers(
        target, len(column), [validity, offsets], offset=column.offset, children=[inner]
    )


def _struct(column: pa.Array) -> pa.Array:
    members = [column.field(index) for index in range(column.type.num_fields)]
    children = [_converted(member) for member in members]
    if all(child is member for child, member in zip(children, members, strict=True)):
        return column
    fields = [column.type.field(n).with_type(child.type) for n, child in enumerate(children)]
    mask = column.is_null() if column.null_count else None
    return pa.StructArray.from_arrays(children, fields=fields, mask=mask)


@dataclass(frozen=True, slots=True)
class QueryScan:
    """The parameters of a scan that all its tasks share, without storage options.

    `columns` are the projected columns in the order of Spark's schema, `filter` is in Lance's SQL,
    `limit` stops each task. With `narrow_decimals`, decimals of up to 18 digits travel as unscaled
    64-bit integers.
    """

    pin: Pin
    columns: tuple[str, ...]
    filter: str | None = None
    limit: int | None = None
    narrow_decimals: bool = False

    def encode(self) -> str:
        """Return the scan as one line of text."""
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, text: str) -> QueryScan:
        """Return the scan of a line of text."""
        fields = json.loads(text)
        return cls(**{**fields, "pin": Pin(**fields["pin"]), "columns": tuple(fields["columns"])})


def encode_sample(rows: pa.Table) -> str:
    """Return rows as Spark takes them, an Arrow stream in base64."""
    batches = [for_spark(batch, narrow_decimals=False) for batch in rows.to_batches()]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as stream:
        for batch in batches:
            stream.write_batch(batch)
    return base64.b64encode(sink.getvalue()).decode()


def encode_part(part: ScanPartition) -> str:
    """Return the part as one line of text."""
    return json.dumps([[rows.fragment_id, rows.offset, rows.count] for rows in part])


def decode_part(text: str) -> ScanPartition:
    """Return the part that `encode_part` was given."""
    return tuple(RowRange(*rows) for rows in json.loads(text))


@dataclass(frozen=True, slots=True)
class ReadTask:
    """Reads parts of any scan with its storage options; pickled into the Spark job."""

    storage_options: Mapping[str, str] = field(repr=False)
    threads: int = 1

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the parts that the binary values in `batches` name.

        Raises:
            WorkerError: anything went wrong; its text carries the `LancestatError` to the driver.
        """
        prepare_worker(self.threads)
        try:
            for batch in batches:
                for request in batch.column(0).to_pylist():
                    scan, part = request.decode().split("\n")
                    yield from read_part(
                        QueryScan.decode(scan), decode_part(part), self.storage_options
                    )
        except LancestatError as error:
            raise WorkerError.carrying(error) from None


def make_reader(spark: SparkSession, storage_options: Mapping[str, str]) -> Any:
    """Return the `ChainedPythonFunctions` by which the relation's tasks read, through py4j.

    Storage options travel inside the pickled function only.
    """
    from pyspark.sql.types import StructType
    from pyspark.sql.udf import _wrap_function

    context = spark.sparkContext
    threads = task_threads(spark)
    # Spark checks nothing against the schema of a function of this kind.
    with own_python(spark):
        function = _wrap_function(
            context, ReadTask(portable(storage_options), threads), StructType()
        )
    package = "org.apache.spark.api.python"
    functions = java_class(spark, f"{package}.PythonUtils").toSeq([function])
    return java_class(spark, f"{package}.ChainedPythonFunctions")(functions)


def read_part(
    scan: QueryScan, part: ScanPartition, storage_options: Mapping[str, str]
) -> Iterator[pa.RecordBatch]:
    """Yield the live rows of a part in Spark's Arrow types, columns named by their positions.

    A scan of no columns yields the number of rows alone, as an int64.

    Raises:
        LakeError: what cannot be read, and why.
        ValueOutOfRange: a value that Spark's type cannot hold.
    """
    from lancestat.spark.fragment_reader import pinned_dataset, read_ranges

    dataset = pinned_dataset(scan.pin, storage_options)
    pieces = read_ranges(
        dataset, part, scan.columns, storage_options, filter=scan.filter, limit=scan.limit
    )
    for ranges, batch in pieces:
        try:
            converted = for_spark(batch, narrow_decimals=scan.narrow_decimals)
        except OverflowError as error:
            if len(ranges) > 1:
                # The fragment is named where it is read by itself.
                for rows in ranges:
                    deque(read_part(scan, (rows,), storage_options), maxlen=0)
            where = (
                f"fragment {ranges[0].fragment_id} of {scan.pin.uri} at version {scan.pin.version}"
            )
            reason = redact_line(str(error), secret_values(storage_options))
            raise ValueOutOfRange(f"{where}: {reason}") from None
        yield converted
