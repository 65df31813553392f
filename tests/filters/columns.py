"""A table whose columns hold the extremes of their types, for Lance and for Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.parquet as pq

from lancestat.lake.snapshot import spark_type
from lancestat.query.predicates.filter import Day, Instant, LocalTime
from lancestat.spark.versions import has_time_type
from tests.integration.spark_predicates import spark_literal
from tests.lake import awkward
from tests.lake.awkward import day, micros

ROWS_PER_FRAGMENT = 8

_MOMENTS = (
    *(datetime(1, 1, 3), datetime(1582, 10, 4), datetime(1582, 10, 4, 23, 59, 59, 999_999)),
    *(datetime(1582, 10, number, 12) for number in range(5, 15)),
    *(datetime(1582, 10, 15), datetime(1582, 10, 15, 1), datetime(1600, 2, 29)),
    *(datetime(1883, 11, 18, 17), datetime(1899, 12, 31, 23, 59, 59), datetime(1937, 6, 30, 23)),
    *(datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime(1970, 1, 1), datetime(1972, 1, 6, 23)),
    *(datetime(2011, 12, 30, 9), datetime(2011, 12, 30, 10), datetime(2011, 12, 31, 1)),
    *(datetime(2023, 3, 12, 5, 31), datetime(2023, 11, 5, 4, 30), datetime(2023, 11, 5, 5, 30)),
    *(datetime(2024, 2, 29, 12), datetime(9999, 12, 30, 23, 59, 59, 999_999)),
)
_OF_DAY = (0, 1, 999_999, 43_200_000_000, 86_399_999_999)
_SPANS = (0, 1, -1, 86_400_000_000, -86_400_000_001, 2**62, -(2**62))
# Spark has no literal of it that is the same in all zones.
_UNSPELLED = LocalTime(-(2**63))
_MICROS = {"s": 1_000_000, "ms": 1_000, "us": 1}

# The time of day of microseconds; Spark 4.1 has no function of that.
TIME_OF_MICROS = (
    "make_time(cast({0} div 3600000000 as int), cast({0} div 60000000 % 60 as int), "
    "cast({0} % 60000000 as decimal(16, 6)) / 1000000)"
)


@dataclass(frozen=True)
class Extremes:
    """A column and its values, without nulls, in Spark's order.

    Args:
        name: Its name.
        type: Lance's.
        stored: Values that make an array of that type by `build`.
        seen: What Spark sees of them.
        spell: Writes what Spark sees as a foldable expression.
        family: The rules that conditions on it follow.
        build: As of `awkward.Column`.
        others: What no row has.
        view: An expression over a column of Parquet that holds `seen`, for what Parquet has not.
    """

    name: str
    type: pa.DataType
    stored: tuple[Any, ...]
    seen: tuple[Any, ...]
    spell: Callable[[Any], str]
    family: str
    build: Callable[[Sequence[Any], pa.DataType], pa.Array]
    others: tuple[Any, ...] = ()
    view: str = "`{}`"


def _sorted(
    type: pa.DataType, stored: Sequence[Any], see: Callable[[Any], Any], **rest: Any
) -> dict[str, Any]:
    ordered = sorted(stored, key=lambda value: _rank(see(value)))
    return {"type": type, "stored": tuple(ordered), "seen": tuple(map(see, ordered)), **rest}


def _rank(value: Any) -> Any:
    if isinstance(value, float):
        return (value != value, 0.0 if value != value else value)
    if isinstance(value, (Day, Instant, LocalTime)):
        return count(value)
    return value.encode() if isinstance(value, str) else value


def count(value: Any) -> Any:
    """A date or an instant as a number, anything else as it is."""
    if isinstance(value, Day):
        return value.days
    return value.micros if isinstance(value, (Instant, LocalTime)) else value


def _speller(type: str) -> Callable[[Any], str]:
    return lambda value: spark_literal(value, type)


def _awkward(column: awkward.Column) -> Extremes:
    kind = str(spark_type(column.type))
    stored = [value for value in column.stored if column.seen(value) != _UNSPELLED]
    others = tuple(value for value in column.literals if value != _UNSPELLED)
    shape = _sorted(column.type, stored, column.seen, others=others)
    family = kind.split("(")[0]
    return Extremes(column.name, spell=_speller(kind), family=family, build=column.build, **shape)


def _counted(values: Sequence[Any], type: pa.DataType) -> pa.Array:
    return pa.array(values, pa.int32() if type.bit_width == 32 else pa.int64()).view(type)


def _clocks(unit: str) -> Extremes:
    type = pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)
    stored, see = _in_unit(_OF_DAY, unit)
    return Extremes(
        name=f"clock_{unit}",
        spell=lambda value: TIME_OF_MICROS.format(value),
        family="time",
        build=_counted,
        view=TIME_OF_MICROS.format("`{0}`"),
        **_sorted(type, stored, see, others=(7,)),
    )


def _spans(unit: str) -> Extremes:
    stored, see = _in_unit(_SPANS[: 5 if unit == "ns" else None], unit)
    micro = "CAST(INTERVAL '0.000001' SECOND * {} AS INTERVAL DAY TO SECOND)"
    return Extremes(
        name=f"span_{unit}",
        spell=lambda value: micro.format(f"CAST('{value}' AS BIGINT)"),
        family="interval",
        build=_counted,
        view=micro.format("`{}`"),
        **_sorted(pa.duration(unit), stored, see, others=(7,)),
    )


def _in_unit(counts: Sequence[int], unit: str) -> tuple[list[int], Callable[[int], int]]:
    if unit == "ns":
        return [total * 1_000 + 999 for total in counts], lambda value: value // 1_000
    factor = _MICROS[unit]
    return sorted({total // factor for total in counts}), lambda value: value * factor


def _middling(name: str, type: pa.DataType, see: Callable[[int], Any], spark: str) -> Extremes:
    """Values that are a date, an instant and a local time in every zone, to be cast."""
    counts = {day(moment.date()).days if spark == "date" else micros(moment) for moment in _MOMENTS}
    other = see(day(date(1, 1, 4)).days if spark == "date" else 7)
    shape = _sorted(type, list(counts), see, others=(other,))
    return Extremes(name, spell=_speller(spark), family=f"mid {spark}", build=_counted, **shape)


COLUMNS: tuple[Extremes, ...] = (
    *map(_awkward, awkward.COLUMNS),
    *(_clocks(unit) for unit in ("s", "ms", "us", "ns") if has_time_type()),
    *map(_spans, ("s", "ms", "us", "ns")),
    _middling("day_mid", pa.date32(), Day, "date"),
    _middling("at_mid", pa.timestamp("us", "UTC"), Instant, "timestamp"),
    _middling("local_mid", pa.timestamp("us"), LocalTime, "timestamp_ntz"),
)


def write_lance(path: Path) -> int:
    """Write fragments that differ in the values of any column; return the number of rows."""
    rows = max(len(column.stored) for column in COLUMNS) + 2
    arrays = {"id": pa.array(range(rows), pa.int64())}
    for column in COLUMNS:
        arrays[column.name] = column.build(_spread(column.stored, rows), column.type)
    lance.write_dataset(pa.table(arrays), path, max_rows_per_file=ROWS_PER_FRAGMENT)
    return rows


def write_parquet(path: Path, rows: int) -> None:
    """Write the same rows as Parquet, as far as it has the types of Spark."""
    arrays = {"id": pa.array(range(rows), pa.int64())}
    for column in COLUMNS:
        values = [count(value) for value in _spread(column.seen, rows)]
        type = _PARQUET.get(column.family, column.type)
        build = _counted if pa.types.is_temporal(type) else pa.array
        arrays[column.name] = build(values, type)
    pq.write_table(pa.table(arrays), path)


def parquet_view(column: Extremes) -> str:
    """The column of `write_parquet` in the type that Spark sees."""
    return f"{column.view.format(column.name)} AS `{column.name}`"


_PARQUET = {
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "time": pa.int64(),
    "interval": pa.int64(),
}


def _spread(values: Sequence[Any], rows: int) -> list[Any]:
    """Return the values of all rows, placed by their rank, and nulls after the last."""
    valued = rows - 2
    return [values[place * len(values) // valued] for place in range(valued)] + [None, None]
