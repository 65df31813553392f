"""Reads parts of a scan in Spark's Python workers, as Arrow columns that Spark's JVM reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancestat.errors import LancestatError, ValueOutOfRange
from lancestat.lake.open import portable
from lancestat.lake.snapshot import Pin, RowRange, ScanPartition
from lancestat.query.table import QueryScan
from lancestat.redact import redact_line, secret_values
from lancestat.spark.failure import WorkerError
from lancestat.spark.session import task_threads
from lancestat.spark.versions import own_python, prepare_worker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_LARGEST_NARROW = 18
# Of a microsecond. Flooring is what an instant before 1970 needs.
_NANOSECONDS = 1_000
# Of a day. A date in milliseconds need not be midnight, and before 1970 a cast would round it up.
_DAY_MILLISECONDS = 86_400_000

Convert = Callable[[pa.Array], pa.Array]


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
        try:
            columns.append(_column(column, narrow_decimals))
        except OverflowError as error:
            raise OverflowError(f"column '{name}': {error}") from None
    return pa.RecordBatch.from_arrays(columns, [str(index) for index in range(len(columns))])


def _column(column: pa.Array, narrow_decimals: bool) -> pa.Array:
    if narrow_decimals and _is_narrow(column.type):
        return _unscaled(column)
    convert = _conversion(column.type)
    return column if convert is None else convert(column)


def _is_narrow(type: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(type)) and type.precision <= _LARGEST_NARROW


def _unscaled(column: pa.Array) -> pa.Array:
    width = column.type.bit_width // 8
    validity, values = column.buffers()[:2]
    end = column.offset + len(column)
    if width == 4:
        unscaled = np.frombuffer(values, np.int32, end).astype(np.int64)
    else:
        unscaled = np.frombuffer(values, np.int64, end * (width // 8))
        unscaled = np.ascontiguousarray(unscaled[:: width // 8])
    return pa.Array.from_buffers(
        pa.int64(), len(column), [validity, pa.py_buffer(unscaled)], offset=column.offset
    )


@lru_cache(maxsize=256)
def _conversion(type: pa.DataType) -> Convert | None:
    types = pa.types
    if isinstance(type, pa.BaseExtensionType):
        return _then(lambda column: column.storage, type.storage_type)
    if types.is_dictionary(type):
        return _then(lambda column: column.dictionary_decode(), type.value_type)
    if types.is_struct(type):
        return _struct_conversion(type)
    if types.is_map(type) or types.is_list(type) or types.is_large_list(type):
        return _list_conversion(type)
    if types.is_fixed_size_list(type):
        return _then(_as_list, pa.list_(type.value_field))
    if types.is_timestamp(type):
        return _instants(type, pa.timestamp("us", "UTC" if type.tz else None), _NANOSECONDS)
    if types.is_duration(type):
        return _instants(type, pa.duration("us"), _NANOSECONDS)
    if types.is_time(type):
        return _time
    if types.is_decimal(type) and type.bit_width < 128:
        return _cast(pa.decimal128(type.precision, type.scale))
    return _scalar_conversion(type)


_SCALARS = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.float16(): pa.float32(),
    pa.string_view(): pa.string(),
    pa.binary_view(): pa.binary(),
}


def _scalar_conversion(type: pa.DataType) -> Convert | None:
    if type == pa.uint64():
        return _signed
    if pa.types.is_date64(type):
        return _days
    if pa.types.is_fixed_size_binary(type):
        return _cast(pa.binary())
    target = _SCALARS.get(type)
    return None if target is None else _cast(target)


def _cast(target: pa.DataType) -> Convert:
    return lambda column: column.cast(target, safe=False)


def _days(column: pa.Array) -> pa.Array:
    validity, values = column.buffers()
    end = column.offset + len(column)
    whole = np.frombuffer(values, np.int64, end) // _DAY_MILLISECONDS
    days = pa.Array.from_buffers(
        pa.int64(), len(column), [validity, pa.py_buffer(whole)], offset=column.offset
    )
    try:
        return days.cast(pa.int32()).view(pa.date32())
    except pa.ArrowInvalid:
        raise OverflowError(f"a value of {column.type} does not fit Spark's days") from None


def _then(first: Convert, type: pa.DataType) -> Convert:
    second = _conversion(type)
    return first if second is None else lambda column: second(first(column))


def _signed(column: pa.Array) -> pa.Array:
    try:
        return column.cast(pa.int64())
    except pa.ArrowInvalid:
        largest = pc.max(column).as_py()
        raise OverflowError(
            f"{largest} does not fit Spark's bigint, which ends at 2**63 - 1"
        ) from None


def _instants(type: pa.DataType, target: pa.DataType, divisor: int) -> Convert | None:
    if type == target:
        return None
    if type.unit != "ns":
        return _checked(type, target)

    def floored(column: pa.Array) -> pa.Array:
        validity, values = column.buffers()
        end = column.offset + len(column)
        whole = np.frombuffer(values, np.int64, end) // divisor
        return pa.Array.from_buffers(
            target, len(column), [validity, pa.py_buffer(whole)], offset=column.offset
        )

    return floored


def _checked(type: pa.DataType, target: pa.DataType) -> Convert:
    def convert(column: pa.Array) -> pa.Array:
        try:
            return column.cast(target)
        except pa.ArrowInvalid:
            raise OverflowError(f"a value of {type} does not fit Spark's microseconds") from None

    return convert


def _time(column: pa.Array) -> pa.Array:
    # Spark keeps nanoseconds of the day, and its time(6) has microseconds of them.
    whole = column.cast(pa.time64("us"), safe=False) if column.type.unit == "ns" else column
    return whole.cast(pa.time64("us")).cast(pa.time64("ns"))


def _as_list(column: pa.Array) -> pa.Array:
    size = column.type.list_size
    end = column.offset + len(column)
    offsets = (
        np.arange(0, (end + 1) * size, size, dtype=np.int32)
        if size
        else np.zeros(end + 1, np.int32)
    )
    return pa.Array.from_buffers(
        pa.list_(column.type.value_field),
        len(column),
        [column.buffers()[0], pa.py_buffer(offsets)],
        offset=column.offset,
        children=[column.values],
    )


def _list_conversion(type: pa.DataType) -> Convert | None:
    is_map = pa.types.is_map(type)
    is_large = pa.types.is_large_list(type)
    values = pa.struct([type.key_field, type.item_field]) if is_map else type.value_type
    convert = _conversion(values)
    if convert is None and not is_large:
        return None

    def converted(column: pa.Array) -> pa.Array:
        inner = column.values if convert is None else convert(column.values)
        validity, offsets = column.buffers()[:2]
        if is_large:
            end = column.offset + len(column) + 1
            offsets = pa.py_buffer(np.frombuffer(offsets, np.int64, end).astype(np.int32))
        if is_map:
            key, item = inner.type.field(0), inner.type.field(1)
            target = pa.map_(key, item)
        else:
            target = pa.list_(type.value_field.with_type(inner.type))
        return pa.Array.from_buffers(
            target, len(column), [validity, offsets], offset=column.offset, children=[inner]
        )

    return converted


def _struct_conversion(type: pa.DataType) -> Convert | None:
    members = [type.field(index) for index in range(type.num_fields)]
    conversions = [_conversion(member.type) for member in members]
    if not any(conversions):
        return None

    def converted(column: pa.Array) -> pa.Array:
        children = [
            child if convert is None else convert(child)
            for child, convert in zip(
                (column.field(index) for index in range(len(members))), conversions, strict=True
            )
        ]
        fields = [
            member.with_type(child.type) for member, child in zip(members, children, strict=True)
        ]
        mask = column.is_null() if column.null_count else None
        return pa.StructArray.from_arrays(children, fields=fields, mask=mask)

    return converted


def encode_scan(scan: QueryScan) -> str:
    """Return the scan as one line of text."""
    return json.dumps(
        {
            "pin": asdict(scan.pin),
            "columns": scan.columns,
            "filter": scan.filter,
            "limit": scan.limit,
            "narrow_decimals": scan.narrow_decimals,
        }
    )


def decode_scan(text: str) -> QueryScan:
    """Return the scan that `encode_scan` was given."""
    fields = json.loads(text)
    return QueryScan(**{**fields, "pin": Pin(**fields["pin"]), "columns": tuple(fields["columns"])})


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
                    yield from read_part(decode_scan(scan), decode_part(part), self.storage_options)
        except LancestatError as error:
            raise WorkerError.carrying(error) from None


def make_reader(spark: SparkSession, storage_options: Mapping[str, str]) -> Any:
    """Return the `ChainedPythonFunctions` by which the relation's tasks read, through py4j.

    Storage options travel inside the pickled function only.
    """
    from pyspark.sql.types import StructType
    from pyspark.sql.udf import _wrap_function

    context = spark.sparkContext
    jvm: Any = context._jvm
    threads = task_threads(spark)
    # Spark checks nothing against the schema of a function of this kind.
    with own_python(spark):
        function = _wrap_function(
            context, ReadTask(portable(storage_options), threads), StructType()
        )
    functions = jvm.PythonUtils.toSeq([function])
    return jvm.org.apache.spark.api.python.ChainedPythonFunctions(functions)


def read_part(
    scan: QueryScan, part: ScanPartition, storage_options: Mapping[str, str]
) -> Iterator[pa.RecordBatch]:
    """Yield the live rows of a part in Spark's Arrow types, columns named by their positions.

    A scan of no columns yields the number of rows alone, as an int64.

    Raises:
        LakeError: what cannot be read, and why.
        ValueOutOfRange: a value that Spark's type cannot hold.
    """
    from lancestat.spark.fragment_reader import pinned_dataset, read_range

    dataset = pinned_dataset(scan.pin, storage_options)
    left = scan.limit
    for rows in part:
        if left is not None and left <= 0:
            return
        for batch in read_range(
            dataset, rows, scan.columns, storage_options, filter=scan.filter, limit=left
        ):
            if left is not None and scan.columns:
                batch = batch.slice(0, left)
                left -= batch.num_rows
            try:
                converted = for_spark(batch, narrow_decimals=scan.narrow_decimals)
            except OverflowError as error:
                where = (
                    f"fragment {rows.fragment_id} of {scan.pin.uri} at version {scan.pin.version}"
                )
                reason = redact_line(str(error), secret_values(storage_options))
                raise ValueOutOfRange(f"{where}: {reason}") from None
            yield converted
            if left == 0:
                return
