"""Columns of every Arrow type that Lance stores, each with two values and a null."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from lance.blob import blob_array, blob_field

# These need the storage format 2.2, of which Lance 7, the connector's, cannot read all that later
# releases write.
MAPS = {"map", "map_of_structs"}
# Beside it, Lance 7 mistakes one column for another.
READ_ALONE = "struct_of_nothing"
BLOBS = {"blob", "blob_required", "blob_by_metadata", "struct_of_blobs"}

# The connector opens no table with one of these columns: Spark has no such type, or no way from it.
NOT_OPENED = {
    "decimal_negative_scale",
    "decimal256",
    "duration_s",
    "duration_ms",
    "duration_ns",
}
# The builds differ.
NOT_ALWAYS_OPENED = {"large_list"}
# It opens a table with one of these, and fails to read any of its columns.
NOT_READ = {"dictionary", "dictionary_of_integers"}
# Its own type of what it reads differs from lancestat's.
SEEN_OTHERWISE = BLOBS | {"json", "large_json", "list_of_json", "struct_of_json"}

HALVES = [np.float16(1.5), np.float16(-2), None]
_TEXTS, _BYTES, _NUMBERS = ["a", "", None], [b"a", b"", None], [1, 2, None]


def _plain() -> dict[str, tuple[pa.DataType, Sequence[Any]]]:
    utc = {unit: pa.timestamp(unit, "UTC") for unit in ("s", "ms", "us", "ns")}
    local = {unit: pa.timestamp(unit) for unit in utc}
    inner = [("x.y", pa.float64()), ("ü z", pa.list_(pa.large_string())), ("n", pa.uint64())]
    nested = {"x.y": 1.5, "ü z": ["a", None], "n": 7}
    times = pa.struct([("at", pa.time64("us")), ("took", pa.duration("us")), ("n", pa.uint8())])
    return {
        "boolean": (pa.bool_(), [True, False, None]),
        **{f"int{bits}": (getattr(pa, f"int{bits}")(), _NUMBERS) for bits in (8, 16, 32, 64)},
        **{f"uint{bits}": (getattr(pa, f"uint{bits}")(), _NUMBERS) for bits in (8, 16, 32, 64)},
        "float16": (pa.float16(), HALVES),
        "float32": (pa.float32(), [1.5, -2.0, None]),
        "float64": (pa.float64(), [1.5, -2.0, None]),
        "decimal": (pa.decimal128(9, 2), [Decimal("1.25"), Decimal("-3"), None]),
        "decimal_long": (pa.decimal128(38, 10), [Decimal("1.25"), Decimal("-3"), None]),
        "decimal_negative_scale": (pa.decimal128(5, -2), [Decimal(100), None, None]),
        "decimal256": (pa.decimal256(50, 2), [Decimal(1), None, None]),
        "string": (pa.string(), _TEXTS),
        "large_string": (pa.large_string(), _TEXTS),
        "binary": (pa.binary(), _BYTES),
        "large_binary": (pa.large_binary(), _BYTES),
        "fixed_size_binary": (pa.binary(3), [b"abc", b"\0\0\0", None]),
        "date32": (pa.date32(), [date(2026, 3, 1), date(1969, 12, 31), None]),
        "date64": (pa.date64(), [date(2026, 3, 1), date(1969, 12, 31), None]),
        **{f"timestamp_{unit}": (type, _NUMBERS) for unit, type in utc.items()},
        "timestamp_paris": (pa.timestamp("us", "Europe/Paris"), _NUMBERS),
        **{f"timestamp_ntz_{unit}": (type, _NUMBERS) for unit, type in local.items()},
        "time_s": (pa.time32("s"), _NUMBERS),
        "time_ms": (pa.time32("ms"), _NUMBERS),
        "time_us": (pa.time64("us"), _NUMBERS),
        "time_ns": (pa.time64("ns"), [1_000, 2_000, None]),
        **{f"duration_{unit}": (pa.duration(unit), _NUMBERS) for unit in utc},
        "nothing": (pa.null(), [None, None, None]),
        "dictionary": (pa.dictionary(pa.int32(), pa.string()), _TEXTS),
        "dictionary_of_integers": (pa.dictionary(pa.int8(), pa.int64()), [1_000, 2_000, None]),
        "list": (pa.list_(pa.int32()), [[1, None], [], None]),
        "large_list": (pa.large_list(pa.int32()), [[1, None], [], None]),
        "vector": (pa.list_(pa.float32(), 2), [[1, 2], [3, 4], [5, 6]]),
        "half_vector": (pa.list_(pa.float16(), 2), [HALVES[:2], HALVES[:2], HALVES[:2]]),
        "list_of_unsigned": (pa.list_(pa.uint16()), [[1], [], None]),
        "list_of_instants": (pa.list_(pa.timestamp("ns", "UTC")), [[1_000], [], None]),
        "struct": (pa.struct(inner), [nested, {**nested, "n": None}, None]),
        "struct_of_nothing": (pa.struct([]), [{}, {}, {}]),
        "map": (pa.map_(pa.string(), pa.list_(pa.date32())), [[("a", [1])], [], None]),
        "map_of_structs": (
            pa.map_(pa.string(), times),
            [[("a", {"at": 1, "took": timedelta(1), "n": 1})], [], None],
        ),
    }


def _extensions() -> dict[str, pa.Table]:
    json, large_json = pa.json_(), pa.json_(pa.large_string())
    uuid, tensor = pa.uuid(), pa.fixed_shape_tensor(pa.float32(), [2])
    documents = ['{"a": 1}', "[]", None]
    stored = {
        "json": (json, pa.array(documents)),
        "large_json": (large_json, pa.array(documents, pa.large_string())),
        "uuid": (uuid, pa.array([b"0123456789abcdef", None, None], pa.binary(16))),
        "tensor": (tensor, pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.float32(), 2))),
        "bool8": (pa.bool8(), pa.array([1, 0, None], pa.int8())),
        "opaque": (pa.opaque(pa.int32(), "kind", "vendor"), pa.array([1, 2, None], pa.int32())),
    }
    columns = {
        name: _of(pa.field(name, type), pa.ExtensionArray.from_storage(type, values))
        for name, (type, values) in stored.items()
    }
    item = pa.ExtensionArray.from_storage(json, pa.array(documents))
    lists, member = pa.list_(pa.field("item", json)), pa.field("j", json)
    columns["list_of_json"] = _of(
        pa.field("list_of_json", lists), pa.ListArray.from_arrays([0, 1, 3, 3], item, type=lists)
    )
    columns["struct_of_json"] = _of(
        pa.field("struct_of_json", pa.struct([member])),
        pa.StructArray.from_arrays([item], fields=[member]),
    )
    return columns


def _blobs() -> dict[str, pa.Table]:
    marked = {"lance-encoding:blob": "true"}
    columns = {
        "blob": _of(blob_field("blob"), blob_array([b"ab", b"", None])),
        "blob_required": _of(
            blob_field("blob_required", nullable=False), blob_array([b"ab", b"", b"c"])
        ),
        "blob_by_metadata": _of(
            pa.field("blob_by_metadata", pa.large_binary(), metadata=marked),
            pa.array([b"ab", b"", None], pa.large_binary()),
        ),
    }
    inner = blob_field("inner")
    columns["struct_of_blobs"] = _of(
        pa.field("struct_of_blobs", pa.struct([inner])),
        pa.StructArray.from_arrays([blob_array([b"ab", b"", b"c"])], fields=[inner]),
    )
    return columns


def _of(field: pa.Field, values: pa.Array) -> pa.Table:
    return pa.table([values], schema=pa.schema([field]))


def every_column() -> dict[str, pa.Table]:
    """Return a table of one column for each type, by the name of that column."""
    columns = {
        name: _of(pa.field(name, type), pa.array(values, type))
        for name, (type, values) in _plain().items()
    }
    required = pa.field("required", pa.int64(), nullable=False)
    columns["required"] = _of(required, pa.array([1, 2, 3]))
    return columns | _extensions() | _blobs()


EVERY_COLUMN = every_column()


def joined(names: Sequence[str]) -> pa.Table:
    """Return one table of some columns, with the key `id` before them."""
    columns: Mapping[str, pa.Table] = {"id": pa.table({"id": [1, 2, 3]})}
    columns = {**columns, **{name: EVERY_COLUMN[name] for name in names}}
    schema = pa.schema([table.schema.field(0) for table in columns.values()])
    return pa.table([table.column(0) for table in columns.values()], schema=schema)


def write(table: pa.Table, path: Path, version: str = "2.2") -> lance.LanceDataset:
    """Write a table in a storage format, by default one that has all of the types."""
    return lance.write_dataset(table, path, data_storage_version=version)
