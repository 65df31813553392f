"""Rows of random tables, and what Lance itself says of them: the truth that readers are held to."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import lance
import pyarrow as pa
import pyarrow.compute as pc

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("k", pa.int32()),
        pa.field("s", pa.string()),
        pa.field("x", pa.float64()),
        pa.field("d", pa.date32()),
        pa.field("t", pa.timestamp("us", "UTC")),
        pa.field("v", pa.list_(pa.float32(), 2)),
    ]
)
# 1582-10-01, so that days fall into the gap between the calendars.
_FIRST_DAY = -141_441
_SPAN = 400


@dataclass(frozen=True, slots=True)
class Predicate:
    """The same condition in Spark's SQL and in Lance's, and the column it is about."""

    column: str | None
    spark: str
    lance: str | None


ALL = Predicate(None, "true", None)
PREDICATES = (
    ALL,
    Predicate("id", "id < 120", "id < 120"),
    Predicate("id", "id >= 250 and id < 300", "id >= 250 and id < 300"),
    Predicate("s", "s = 's3'", "s = 's3'"),
    Predicate("s", "s is null", "s is null"),
    Predicate("x", "x > 50", "x > 50"),
    Predicate(
        "d",
        f"d <= date_from_unix_date({_FIRST_DAY + 9})",
        f"d <= arrow_cast({_FIRST_DAY + 9}, 'Date32')",
    ),
    Predicate(
        "t",
        "t >= timestamp_micros(300000000)",
        "t >= arrow_cast(300000000, 'Timestamp(Microsecond, Some(\"UTC\"))')",
    ),
)


def make_rows(random: Random, count: int, start: int | None = None) -> pa.Table:
    """Rows whose values lie near each other, so that fragments can be told apart by them."""
    start = random.randrange(_SPAN) if start is None else start
    numbers = [start + place for place in range(count)]

    def some(value: Any) -> Any:
        return None if random.random() < 0.1 else value

    return pa.table(
        [
            pa.array(numbers, pa.int64()),
            pa.array([some(number % 7) for number in numbers], pa.int32()),
            pa.array([some(f"s{number // 40}") for number in numbers]),
            pa.array([some(number / 4) for number in numbers], pa.float64()),
            pa.array([_FIRST_DAY + number // 20 for number in numbers], pa.int32()).view(
                pa.date32()
            ),
            pa.array([number * 10**6 for number in numbers], pa.int64()).view(
                pa.timestamp("us", "UTC")
            ),
            pa.array([[float(number), 1.0] for number in numbers], pa.list_(pa.float32(), 2)),
        ],
        schema=SCHEMA,
    )


def conformed(rows: pa.Table, schema: pa.Schema, random: Random) -> pa.Table:
    """The rows in a schema that has grown, shrunk or changed since."""
    arrays = []
    for field in schema:
        if field.name in rows.schema.names:
            arrays.append(rows[field.name].combine_chunks().cast(field.type))
        elif pa.types.is_integer(field.type):
            arrays.append(pa.array([random.randrange(9) for _ in range(len(rows))], field.type))
        else:
            arrays.append(pa.nulls(len(rows), field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def aggregates(schema: pa.Schema) -> list[str]:
    """What is asked about each column, as Spark's SQL."""
    asked = ["count(*)"]
    for field in schema:
        name, shown = f"`{field.name}`", _shown(field)
        asked.append(f"count({name})")
        if shown is not None:
            asked += [f"min({shown})", f"max({shown})"]
            if not pa.types.is_string(field.type):
                asked.append(f"sum({shown})")
    return asked


def _shown(field: pa.Field) -> str | None:
    if pa.types.is_date(field.type):
        return f"unix_date(`{field.name}`)"
    if pa.types.is_timestamp(field.type):
        return f"unix_micros(`{field.name}`)"
    is_plain = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
    return f"`{field.name}`" if is_plain or pa.types.is_string(field.type) else None


def answer(rows: pa.Table) -> list[Any]:
    """What `aggregates` are over rows, from Arrow."""
    found: list[Any] = [len(rows)]
    for field in rows.schema:
        column = rows[field.name]
        found.append(len(column) - column.null_count)
        if _shown(field) is None:
            continue
        if pa.types.is_temporal(field.type):
            column = column.cast(pa.int32() if pa.types.is_date32(field.type) else pa.int64())
        low_high = pc.min_max(column)
        found += [low_high["min"].as_py(), low_high["max"].as_py()]
        if not pa.types.is_string(field.type):
            found.append(pc.sum(column).as_py())
    return found


def lance_rows(uri: str, version: int, predicate: Predicate = ALL) -> pa.Table:
    """What Lance itself reads."""
    return lance.dataset(uri, version=version).to_table(filter=predicate.lance)


def parsed(values: list[str | None], expected: list[Any]) -> list[Any]:
    """Spark's answers, each a text or null, in the types of those that are expected."""
    return [
        value if value is None or like is None else type(like)(value)
        for value, like in zip(values, expected, strict=True)
    ]
