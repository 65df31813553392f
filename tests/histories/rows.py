"""Rows of random tables, and their content as read by Lance, with which readers are compared."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import lance
import pyarrow as pa

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
    """Return rows with similar values, so that fragments have distinct ranges."""
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


@dataclass(frozen=True, slots=True)
class Question:
    """A question about the rows that a condition selects: all of them, or one column's figures.

    Args:
        predicate: The condition.
        column: The column of the figures; None with `is_count` for the number of rows alone.
        is_count: Whether figures are asked for, in one row.
        is_bare: Whether they are figures of the column itself, which may be answered without rows.
    """

    predicate: Predicate
    column: str | None = None
    is_count: bool = False
    is_bare: bool = False

    def expressions(self, schema: pa.Schema) -> list[str]:
        """In Spark's SQL, each of which gives text."""
        if not self.is_count:
            return [text for field in schema if (text := _shown(field))]
        if self.column is None:
            return ["count(*)"]
        field = schema.field(self.column)
        if self.is_bare:
            bare = [f"{function}(`{field.name}`)" for function in ("min", "max")]
            return [
                "count(*)",
                f"count(`{field.name}`)",
                *(str(_shown(field, text)) for text in bare),
            ]
        text = _shown(field)
        return ["count(*)", f"count({text})", f"min({text})", f"max({text})"]

    def answer(self, rows: pa.Table) -> list[list[Any]]:
        """Return the answer computed from the rows of Lance."""
        if not self.is_count:
            columns = [_values(rows[field.name]) for field in rows.schema if _shown(field)]
            return sorted(map(list, zip(*columns, strict=True)), key=repr)
        if self.column is None:
            return [[len(rows)]]
        values = [value for value in _values(rows[self.column]) if value is not None]
        return [[len(rows), len(values), min(values, default=None), max(values, default=None)]]


def draw_question(random: Random, predicate: Predicate, schema: pa.Schema) -> Question:
    """One of the questions about the rows that a condition selects."""
    kind = random.randrange(3)
    if kind == 0:
        return Question(predicate)
    names = [field.name for field in schema if _shown(field)]
    column = None if kind == 1 else random.choice(names)
    return Question(predicate, column, is_count=True, is_bare=random.random() < 0.7)


def _shown(field: pa.Field, text: str | None = None) -> str | None:
    """Return the SQL that gives a value of a column as text, the column itself if there is none."""
    text = text or f"`{field.name}`"
    if pa.types.is_date(field.type):
        return f"unix_date({text})"
    if pa.types.is_timestamp(field.type):
        return f"unix_micros({text})"
    is_plain = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
    return text if is_plain or pa.types.is_string(field.type) else None


def _values(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.int32() if pa.types.is_date32(column.type) else pa.int64())
    values: list[Any] = column.to_pylist()
    return values


def parsed(rows: list[list[str | None]], expected: list[list[Any]]) -> list[list[Any]]:
    """Return Spark's answers, texts or nulls, in the types of the expected ones."""
    types = [
        next((type(value) for value in column if value is not None), str)
        for column in zip(*expected, strict=True)
    ]
    converted = [
        [None if value is None else like(value) for value, like in zip(row, types, strict=True)]
        if types
        else list(row)
        for row in rows
    ]
    return sorted(converted, key=repr)


def lance_rows(uri: str, version: int, predicate: Predicate = ALL) -> pa.Table:
    """Return the rows that Lance itself reads."""
    return lance.dataset(uri, version=version).to_table(filter=predicate.lance)
