"""A query's plain values as JSON and as text."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from lancestat.spark.query_result import Array, Map, Plain, Scalar, Shape, Struct

if TYPE_CHECKING:
    from collections.abc import Mapping

_EPOCH = datetime(1970, 1, 1)
_NOT_NUMBERS = frozenset({"NaN", "Infinity", "-Infinity"})


def json_value(value: Plain, shape: Shape) -> object:
    """The value as JSON holds it.

    Integers and finite floats are numbers, decimals strings, as are NaN and the infinities; dates
    and timestamps are ISO 8601 with six digits of a second, those with a zone in UTC with a `Z`;
    binary is base64. A struct is an object, or a list of its values where fields share a name; a
    map is a list of `[key, value]`.
    """
    if value is None:
        return None
    match shape:
        case Array(element):
            assert isinstance(value, list)
            return [json_value(each, element) for each in value]
        case Map(key, of):
            assert isinstance(value, list)
            return [_pair(each, key, of) for each in value]
        case Struct(fields):
            assert isinstance(value, tuple)
            return _object(value, fields)
        case Scalar(kind):
            assert not isinstance(value, (list, tuple))
            return _scalar(value, kind)


def text_value(value: Plain, shape: Shape) -> str:
    """The value as a cell: top-level text bare, what is made of values as compact JSON."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return json.dumps(json_value(value, shape), ensure_ascii=False)
    if isinstance(shape, Scalar) and shape.kind == "binary":
        return f"0x{value}"
    return str(value)


def _pair(pair: Plain, key: Shape, of: Shape) -> list[object]:
    assert isinstance(pair, tuple)
    return [json_value(pair[0], key), json_value(pair[1], of)]


def _object(
    values: Sequence[Plain], fields: Sequence[tuple[str, Shape]]
) -> Mapping[str, object] | list[object]:
    found = [json_value(value, of) for value, (_, of) in zip(values, fields, strict=True)]
    names = [name for name, _ in fields]
    return found if len(set(names)) < len(names) else dict(zip(names, found, strict=True))


def _scalar(value: bool | int | str, kind: str) -> object:
    match kind:
        case "float" | "double":
            return value if value in _NOT_NUMBERS else float(value)
        case "binary":
            return base64.b64encode(bytes.fromhex(str(value))).decode("ascii")
        case "timestamp" if isinstance(value, int):
            return f"{_instant(value)}Z"
        case "timestamp_ntz":
            day, _, time = str(value).partition(" ")
            whole, _, fraction = time.partition(".")
            return f"{day}T{whole}.{fraction:0<6}"
    return value


def _instant(microseconds: int) -> str:
    """ISO 8601 in UTC; years beyond four digits carry a sign, as Spark writes them."""
    try:
        return (_EPOCH + timedelta(microseconds=microseconds)).isoformat(timespec="microseconds")
    except OverflowError:
        import numpy as np

        text = str(np.datetime64(microseconds, "us"))
        return text if text.startswith("-") else f"+{text}"
