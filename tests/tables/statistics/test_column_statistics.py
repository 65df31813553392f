"""The declarations of statistics, and their values of partials."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancestat.tables.statistics.column_statistics import (
    BOUNDS_FIRST,
    STATISTICS,
    column_statistics_of,
)
from lancestat.tables.statistics.column_type import ColumnType, column_type
from lancestat.tables.statistics.partial import EMPTY_PARTIAL, Bound, ColumnPartial
from tests.tables.statistics.columns import BYTES, COLUMNS, hash_value, sketch_of, true_partial

PAGE = Path(__file__).parents[3] / "docs/explanation/statistics.md"


def typed(arrow_type: pa.DataType) -> ColumnType:
    analyzable = column_type(arrow_type)
    assert analyzable is not None
    return analyzable


def partial(
    minimum: Bound | None, maximum: Bound | None, distinct: int, rows: int
) -> ColumnPartial:
    sketch = sketch_of({hash_value(number) for number in range(distinct)})
    return ColumnPartial(rows, 0, 0, minimum, maximum, 0, 0, sketch)


def test_statistics_have_the_names_of_the_formats() -> None:
    assert [(statistic.key, statistic.sql_name) for statistic in BOUNDS_FIRST] == [
        ("min", "min"),
        ("max", "max"),
        ("nullCount", "null_count"),
        ("distinctCount", "distinct_count"),
        ("avgLen", "avg_len"),
        ("maxLen", "max_len"),
    ]


def test_the_page_of_statistics_names_every_suffix() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert not [statistic.key for statistic in STATISTICS if f"`{statistic.key}`" not in page]


@pytest.mark.parametrize("column", COLUMNS, ids=repr)
def test_without_values_lengths_are_the_default_size(column: object) -> None:
    """Spark does so for an empty table and for nulls alone."""
    type = typed(column.type)  # type: ignore[attr-defined]
    for rows in (0, 3):
        statistics = column_statistics_of(replace(EMPTY_PARTIAL, rows=rows, nulls=rows), type)
        assert (statistics.nulls, statistics.distinct) == (rows, 0)
        assert (statistics.minimum, statistics.maximum) == (None, None)
        assert (statistics.average_length, statistics.maximum_length) == (type.default_size,) * 2


def test_lengths_of_text_count_characters_as_spark_does() -> None:
    """avgLen 2 and maxLen 3 are what Spark 4.3 gives for these four rows; they hold 11 bytes."""
    column = next(column for column in COLUMNS if column.type == pa.string())
    values = ["é€\U0001d11e".encode(), b"", b"ab", None]
    statistics = column_statistics_of(true_partial(column, values), typed(pa.string()))
    assert (statistics.average_length, statistics.maximum_length) == (2, 3)


def test_lengths_of_binary_count_bytes() -> None:
    column = next(column for column in COLUMNS if column.type == pa.binary())
    statistics = column_statistics_of(
        true_partial(column, [b"\xff\x00", b"", b"abc", None]), typed(pa.binary())
    )
    assert (statistics.average_length, statistics.maximum_length) == (2, 3)


def test_lengths_of_other_types_are_their_size() -> None:
    statistics = column_statistics_of(partial(0, 9, 10, 10), typed(pa.decimal128(20, 2)))
    assert (statistics.average_length, statistics.maximum_length) == (16, 16)


@pytest.mark.parametrize(
    ("minimum", "maximum", "estimate", "rows", "expected"),
    [
        (0, 10**6, 1000, 999, 999),
        (5, 7, 1000, 2000, 3),
        (0, 1, 3, 50, 2),
        (-(2**63), 2**64, 0, 1, 1),
        (b"a", b"b", 12, 10, 10),
        (1.0, 1.5, 12, 99, 12),
    ],
)
def test_distinct_counts_are_limited_by_rows_and_range(
    minimum: Bound, maximum: Bound, estimate: int, rows: int, expected: int
) -> None:
    statistics = column_statistics_of(partial(minimum, maximum, estimate, rows), typed(pa.int64()))
    assert statistics.distinct == expected


def test_a_column_of_nan_is_one_value_without_bounds() -> None:
    column = next(column for column in COLUMNS if column.type == pa.float64())
    statistics = column_statistics_of(
        true_partial(column, [math.nan, -math.nan, None]), typed(pa.float64())
    )
    assert (statistics.nulls, statistics.distinct) == (1, 1)
    assert (statistics.minimum, statistics.maximum) == (None, None)


@given(st.lists(BYTES, min_size=1))
def test_bounds_of_binary_enclose_all_values(values: list[bytes]) -> None:
    column = next(column for column in COLUMNS if column.type == pa.binary())
    statistics = column_statistics_of(true_partial(column, values), typed(pa.binary()))
    assert isinstance(statistics.minimum, bytes)
    assert statistics.minimum <= min(values)
    assert statistics.maximum is None or max(values) <= statistics.maximum  # type: ignore[operator]
