"""Arrow types as Spark's catalog strings, the way the Lance connector for Spark maps them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


def spark_type(arrow_type: pa.DataType) -> str | None:
    """Return the catalog string of the Spark type that the connector reads an Arrow type as.

    Returns None where Spark has no such type, at any depth: decimal256, unions, calendar intervals.
    Dictionaries are their values, extension types their storage; uint64 becomes bigint, as there.
    """
    import pyarrow as pa

    types = pa.types
    if isinstance(arrow_type, pa.BaseExtensionType):
        return spark_type(arrow_type.storage_type)
    if types.is_dictionary(arrow_type):
        return spark_type(arrow_type.value_type)
    if types.is_struct(arrow_type):
        return _struct([arrow_type.field(index) for index in range(arrow_type.num_fields)])
    if types.is_map(arrow_type):
        return _generic("map", arrow_type.key_type, arrow_type.item_type)
    if any(is_list(arrow_type) for is_list in _list_predicates()):
        return _generic("array", arrow_type.value_type)
    if types.is_decimal128(arrow_type):
        return f"decimal({arrow_type.precision},{arrow_type.scale})"
    if types.is_timestamp(arrow_type):
        return "timestamp" if arrow_type.tz else "timestamp_ntz"
    return next((name for is_type, name in _scalars() if is_type(arrow_type)), None)


def _struct(fields: list[pa.Field]) -> str | None:
    members = [(field.name, spark_type(field.type)) for field in fields]
    if any(type is None for _, type in members):
        return None
    return f"struct<{','.join(f'{name}:{type}' for name, type in members)}>"


def _generic(name: str, *arguments: pa.DataType) -> str | None:
    inner = [spark_type(argument) for argument in arguments]
    known = [type for type in inner if type is not None]
    return f"{name}<{','.join(known)}>" if len(known) == len(inner) else None


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
