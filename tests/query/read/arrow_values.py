"""A column of every Arrow type, and its expected values in Spark."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Row


@dataclass(frozen=True)
class Case:
    """Values as Arrow has them, the Spark type, and the values as Python has them in Spark."""

    column: pa.Array
    spark_type: str
    values: list[Any]


def same(type: pa.DataType, spark_type: str, values: list[Any]) -> Case:
    return Case(pa.array(values, type), spark_type, values)


def case(type: pa.DataType, spark_type: str, stored: list[Any], values: list[Any]) -> Case:
    return Case(pa.array(stored, type), spark_type, values)


def plain(value: Any) -> Any:
    """A collected value, whatever classes the version of PySpark has for it."""
    if isinstance(value, Row):
        return {name: plain(member) for name, member in value.asDict().items()}
    if isinstance(value, dict):
        return dict(sorted(value.items()))
    if isinstance(value, list):
        return [plain(member) for member in value]
    return bytes(value) if isinstance(value, bytearray) else value


_LONG = pa.decimal128(38, 2)
_DEEP = pa.struct(
    [
        ("a", pa.uint16()),
        ("b", pa.list_(pa.struct([("c", pa.decimal128(5, 2)), ("d", pa.date64())]))),
    ]
)
_DAY = date(1969, 12, 31)

CASES = {
    "boolean": same(pa.bool_(), "boolean", [True, None, False]),
    "int8": same(pa.int8(), "tinyint", [-128, None, 127]),
    "int16": same(pa.int16(), "smallint", [-32_768, None, 32_767]),
    "int32": same(pa.int32(), "int", [-(2**31), None, 2**31 - 1]),
    "int64": same(pa.int64(), "bigint", [-(2**63), None, 2**63 - 1]),
    "uint8": same(pa.uint8(), "smallint", [0, None, 255]),
    "uint16": same(pa.uint16(), "int", [0, None, 65_535]),
    "uint32": same(pa.uint32(), "bigint", [0, None, 2**32 - 1]),
    "uint64": same(pa.uint64(), "bigint", [0, None, 2**63 - 1]),
    "float16": case(
        pa.float16(), "float", [np.float16(1.5), None, np.float16("-inf")], [1.5, None, -np.inf]
    ),
    "float32": same(pa.float32(), "float", [-0.0, None, 2.0**-149]),
    "float64": same(pa.float64(), "double", [-0.0, None, 5e-324]),
    "narrow decimal": same(
        pa.decimal128(9, 2), "decimal(9,2)", [Decimal("-9999999.99"), None, Decimal("0.01")]
    ),
    "18 digits": same(
        pa.decimal128(18, 0), "decimal(18,0)", [Decimal("-" + "9" * 18), None, Decimal("9" * 18)]
    ),
    "19 digits": same(
        pa.decimal128(19, 0), "decimal(19,0)", [Decimal("-" + "9" * 19), None, Decimal("9" * 19)]
    ),
    "wide decimal": same(
        _LONG, "decimal(38,2)", [Decimal("9" * 36 + ".99"), None, Decimal("-0.01")]
    ),
    "string": same(pa.string(), "string", ["", None, "ü€😀"]),
    "large string": same(pa.large_string(), "string", ["", None, "ü€😀"]),
    "binary": same(pa.binary(), "binary", [b"", None, b"\x00\xff"]),
    "large binary": same(pa.large_binary(), "binary", [b"", None, b"\x00\xff"]),
    "fixed size binary": same(pa.binary(3), "binary", [b"abc", None, b"\x00\xff\x01"]),
    "date32": same(pa.date32(), "date", [date(1, 1, 1), None, date(9999, 12, 31)]),
    "date64": same(pa.date64(), "date", [_DAY, None, date(2026, 2, 28)]),
    "timestamp[s]": same(
        pa.timestamp("s"), "timestamp_ntz", [datetime(1, 1, 1), None, datetime(9999, 12, 31)]
    ),
    "timestamp[ms]": same(
        pa.timestamp("ms"), "timestamp_ntz", [datetime(1969, 12, 31, 23, 59, 59, 999_000), None]
    ),
    "timestamp[us]": same(
        pa.timestamp("us"), "timestamp_ntz", [datetime(1969, 12, 31, 23, 59, 59, 999_999), None]
    ),
    "timestamp[ns]": case(
        pa.timestamp("ns"),
        "timestamp_ntz",
        [-1, None, 1_999],
        [datetime(1969, 12, 31, 23, 59, 59, 999_999), None, datetime(1970, 1, 1, 0, 0, 0, 1)],
    ),
    "timestamp[s, zone]": case(
        pa.timestamp("s", "Europe/Berlin"),
        "timestamp",
        [0, None, -1],
        [datetime(1970, 1, 1), None, datetime(1969, 12, 31, 23, 59, 59)],
    ),
    "timestamp[ns, zone]": case(
        pa.timestamp("ns", "+02:00"),
        "timestamp",
        [-1_001, None],
        [datetime(1969, 12, 31, 23, 59, 59, 999_998), None],
    ),
    "time32[s]": same(pa.time32("s"), "time(6)", [time(0), None, time(23, 59, 59)]),
    "time32[ms]": same(pa.time32("ms"), "time(6)", [time(0, 0, 0, 1_000), None]),
    "time64[us]": same(pa.time64("us"), "time(6)", [time(23, 59, 59, 999_999), None]),
    "time64[ns]": case(
        pa.time64("ns"), "time(6)", [86_399_999_999_999, None], [time(23, 59, 59, 999_999), None]
    ),
    "duration[s]": same(
        pa.duration("s"), "interval day to second", [timedelta(days=-400, seconds=7), None]
    ),
    "duration[ns]": case(
        pa.duration("ns"),
        "interval day to second",
        [-1, None, 1_999],
        [timedelta(microseconds=-1), None, timedelta(microseconds=1)],
    ),
    "null": same(pa.null(), "void", [None, None]),
    "dictionary": case(
        pa.dictionary(pa.int8(), pa.string()),
        "string",
        ["x", None, "y", "x"],
        ["x", None, "y", "x"],
    ),
    "list": same(pa.list_(pa.int32()), "array<int>", [[1, None], None, []]),
    "large list": same(pa.large_list(pa.int32()), "array<int>", [[1, None], None, [], [2]]),
    "list of uint32": same(pa.list_(pa.uint32()), "array<bigint>", [[2**32 - 1], None, [], [None]]),
    "vector": same(pa.list_(pa.float32(), 2), "array<float>", [[1.5, 2.5], None, [3.5, 4.5]]),
    "vector of float16": case(
        pa.list_(pa.float16(), 2),
        "array<float>",
        [np.array([1.5, 2.5], np.float16), None, np.array([3.5, 4.5], np.float16)],
        [[1.5, 2.5], None, [3.5, 4.5]],
    ),
    "matrix": same(
        pa.list_(pa.list_(pa.int8(), 2), 2),
        "array<array<tinyint>>",
        [[[1, 2], [3, 4]], None, [[5, 6], [7, 8]]],
    ),
    "struct": same(
        _DEEP,
        "struct<a:int,b:array<struct<c:decimal(5,2),d:date>>>",
        [
            {"a": 65_535, "b": [{"c": Decimal("-1.25"), "d": _DAY}, None]},
            None,
            {"a": None, "b": None},
            {"a": 1, "b": []},
        ],
    ),
    "map": same(
        pa.map_(pa.string(), pa.uint8()),
        "map<string,smallint>",
        [[("k", 255), ("l", None)], None, []],
    ),
}
