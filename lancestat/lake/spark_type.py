"""Arrow types as Spark's catalog strings: as lancestat and as the Lance connector read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


# Blobs of storage format 2.2 on, by the name of their extension type.
BLOB = "lance.blob.v2"
JSON = "arrow.json"

# Where the bytes of a blob lie, which is what the connector reads of one.
_DESCRIPTOR = "struct<kind:smallint,position:bigint,size:bigint,blob_id:bigint,blob_uri:string>"

_OURS = {BLOB: "binary"}
_THE_CONNECTORS = {BLOB: "binary", JSON: "binary"}


def spark_type(arrow_type: pa.DataType) -> str | None:
    """Return the catalog string of the Spark type that lancestat reads an Arrow type as.

    Returns None where Spark has no such type, at any depth: decimal256, unions, calendar intervals.
    Dictionaries are their values, blobs their bytes, other extension types their storage; uint64
    becomes bigint, as in the Lance connector for Spark.
    """
    return _mapped(arrow_type, _OURS)


def connector_type(arrow_type: pa.DataType) -> str | None:
    """Return the catalog string of the type that the Lance connector for Spark gives a column.

    It is `spark_type` but for two kinds of columns: the connector gives a column of blobs as their
    descriptors, and JSON, at any depth, as binary (Lance's JSONB). Those types are in the schema
    hash of published statistics. Tables with dictionaries, and with what `spark_type` has no type
    for, the connector does not read at all.
    """
    import pyarrow as pa

    if isinstance(arrow_type, pa.BaseExtensionType) and arrow_type.extension_name == BLOB:
        return _DESCRIPTOR
    return _mapped(arrow_type, _THE_CONNECTORS)


def _mapped(arrow_type: pa.DataType, extensions: Mapping[str, str]) -> str | None:
    import pyarrow as pa

    types = pa.types
    if isinstance(arrow_type, pa.BaseExtensionType):
        known = extensions.get(arrow_type.extension_name)
        return known or _mapped(arrow_type.storage_type, extensions)
    if types.is_dictionary(arrow_type):
        return _mapped(arrow_type.value_type, extensions)
    if types.is_struct(arrow_type):
        members = [arrow_type.field(index) for index in range(arrow_type.num_fields)]
        return _struct([(member.name, _mapped(member.type, extensions)) for member in members])
    if types.is_map(arrow_type):
        arguments = (arrow_type.key_type, arrow_type.item_type)
        return _generic("map", [_mapped(argument, extensions) for argument in arguments])
    if any(is_list(arrow_type) for is_list in _list_predicates()):
        return _generic("array", [_mapped(arrow_type.value_type, extensions)])
    if types.is_decimal128(arrow_type):
        return f"decimal({arrow_type.precision},{arrow_type.scale})"
    if types.is_timestamp(arrow_type):
        return "timestamp" if arrow_type.tz else "timestamp_ntz"
    return next((name for is_type, name in _scalars() if is_type(arrow_type)), None)


def _struct(members: list[tuple[str, str | None]]) -> str | None:
    if any(type is None for _, type in members):
        return None
    return f"struct<{','.join(f'{name}:{type}' for name, type in members)}>"


def _generic(name: str, arguments: list[str | None]) -> str | None:
    known = [type for type in arguments if type is not None]
    return f"{name}<{','.join(known)}>" if len(known) == len(arguments) else None


_Predicate = Callable[["pa.DataType"], bool]


@cache
def _list_predicates() -> tuple[_Predicate, ...]:
    from pyarrow import types

    names = ("is_list", "is_large_list", "is_fixed_size_list", "is_list_view", "is_large_list_view")
    return tuple(getattr(types, name) for name in names)


@cache
def _scalars() -> tuple[tuple[_Predicate, str], ...]:
    from pyarrow import types

    names = {
        "boolean": "boolean",
        "int8": "tinyint",
        "int16": "smallint",
        "uint8": "smallint",
        "int32": "int",
        "uint16": "int",
        "int64": "bigint",
        "uint32": "bigint",
        "uint64": "bigint",
        "float16": "float",
        "float32": "float",
        "float64": "double",
        "string": "string",
        "large_string": "string",
        "string_view": "string",
        "binary": "binary",
        "large_binary": "binary",
        "binary_view": "binary",
        "fixed_size_binary": "binary",
        "date": "date",
        "time": "time(6)",
        "duration": "interval day to second",
        "null": "void",
    }
    return tuple((getattr(types, f"is_{arrow}"), spark) for arrow, spark in names.items())
