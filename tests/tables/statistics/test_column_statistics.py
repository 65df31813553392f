"""Statistics and histograms of a merged partial."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lancestat.tables.statistics.bounds import Bound
from lancestat.tables.statistics.column_statistics import (
    BINS,
    BOUNDS_FIRST,
    HISTOGRAM_KINDS,
    STATISTICS,
    Histogram,
    column_statistics_of,
    equi_height,
)
from lancestat.tables.statistics.column_type import (
    ColumnType,
    Kind,
    are_estimable,
    column_type,
    format_bound,
)
from lancestat.tables.statistics.kernel import analyze
from lancestat.tables.statistics.partial import EMPTY_PARTIAL, ColumnPartial, merge
from tests.tables.statistics.columns import (
    BYTES,
    COLUMNS,
    Column,
    hash_value,
    sketch_of,
    true_partial,
)

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


def type_of(array: pa.Array) -> ColumnType:
    analyzable = column_type(array.type)
    assert analyzable is not None
    return analyzable


NUMBERS = [c for c in COLUMNS if type_of(c.array([])).kind in HISTOGRAM_KINDS]


def reduced(array: pa.Array, *, with_quantiles: bool = True) -> ColumnPartial:
    table = pa.table({"c": array})
    asked = {"c"} if with_quantiles else set()
    return analyze(table.to_batches(max_chunksize=65_536), table.schema, quantiles=asked)["c"]


def histogram(array: pa.Array, bins: int = BINS) -> Histogram:
    column_histogram = equi_height(reduced(array), type_of(array), bins)
    assert column_histogram is not None
    return column_histogram


def ends(column_histogram: Histogram) -> list[float]:
    return [column_histogram.bins[0].low, *(bin.high for bin in column_histogram.bins)]


def counts(column_histogram: Histogram) -> list[int]:
    return [bin.distinct for bin in column_histogram.bins]


@settings(deadline=None)
@given(
    st.sampled_from(NUMBERS).flatmap(
        lambda column: st.tuples(
            st.just(column),
            st.lists(st.lists(st.one_of(st.none(), column.values), max_size=15), max_size=3),
            st.sampled_from([1, 2, 7, BINS]),
        )
    )
)
def test_any_histogram_satisfies_the_assertions_of_spark(
    drawn: tuple[Column, list[list[object]], int],
) -> None:
    """Its estimation asserts these properties of a histogram, or divides by these values."""
    column, parts, bins = drawn
    type = type_of(column.array([]))
    partial = merge([EMPTY_PARTIAL, *(reduced(column.array(part)) for part in parts)])
    result = equi_height(partial, type, bins)
    if result is None:
        usable = partial.minimum is not None and partial.maximum is not None
        assert not usable or not (
            are_estimable(partial.minimum, partial.maximum)  # type: ignore[arg-type]
            and format_bound(partial.minimum, type) is not None  # type: ignore[arg-type]
            and format_bound(partial.maximum, type) is not None  # type: ignore[arg-type]
        )
        return
    assert len(result.bins) == bins
    assert result.height * bins == pytest.approx(partial.values)
    assert all(math.isfinite(end) for end in ends(result))
    assert all(bin.low <= bin.high for bin in result.bins)
    assert all(left.high == right.low for left, right in pairwise(result.bins))
    assert all(bin.distinct >= (1 if bin.low == bin.high else 2) for bin in result.bins)
    low, high = (
        as_spark_reads(bound, type)
        for bound in (partial.minimum, partial.maximum)  # type: ignore[arg-type]
    )
    if type.spark_type == "float":
        # Java 17 may print another text of the same float than the shortest.
        outer = [ends(result)[0], ends(result)[-1]]
        assert outer[0] < low <= high < outer[1]
        assert outer == pytest.approx([low, high], rel=1e-6, abs=1e-44)
    else:
        assert (ends(result)[0], ends(result)[-1]) == (low, high)


def as_spark_reads(bound: int | float, type: ColumnType) -> float:
    """The double of the text that Spark has of a bound; dates and times are numbers as they are."""
    text = format_bound(bound, type)
    assert text is not None
    is_time = type.kind in (Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ, Kind.TIME)
    return float(bound) if is_time else float(text)


@pytest.mark.parametrize(
    "array",
    [
        pa.array([], pa.int64()),
        pa.array([None, None], pa.int64()),
        pa.array([math.nan, None], pa.float64()),
        pa.array([1.0, math.inf]),
        pa.array([-1.7e308, 1.7e308]),
        pa.array([2**63], pa.uint64()),
    ],
    ids=str,
)
def test_a_column_without_bounds_has_no_histogram(array: pa.Array) -> None:
    assert equi_height(reduced(array), type_of(array)) is None


def test_without_quantiles_there_is_no_histogram() -> None:
    array = pa.array([1, 2, 3])
    assert equi_height(reduced(array, with_quantiles=False), type_of(array)) is None


def test_bins_end_at_the_percentiles() -> None:
    result = histogram(pa.array(range(1, 101)), bins=4)
    assert ends(result) == [1, 25, 50, 75, 100]
    assert result.height == 25
    assert counts(result) == [25, 26, 26, 26], "both ends count"


def test_a_single_value_fills_every_bin() -> None:
    result = histogram(pa.array([7, 7, None, 7]), bins=5)
    assert ends(result) == [7] * 6
    assert counts(result) == [1] * 5
    assert result.height == 3 / 5


def test_a_frequent_value_fills_bins_of_its_own() -> None:
    result = histogram(pa.array([5] * 60 + list(range(100, 140))), bins=10)
    assert ends(result) == [5] * 7 + [109, 119, 129, 139]
    assert counts(result) == [1] * 6 + [11, 11, 11, 11]


def test_few_values_share_bins_at_their_borders() -> None:
    result = histogram(pa.array([1, 2, 3] * 1000), bins=8)
    assert ends(result) == [1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert counts(result) == [1, 1, 2, 1, 1, 2, 1, 1]


def test_rows_of_nan_count_at_the_maximum() -> None:
    """Spark orders NaN last: they are above every other number."""
    result = histogram(pa.array([1.0, 2.0, 3.0, math.nan, -math.nan, math.nan]), bins=6)
    assert ends(result) == [1, 1, 2, 3, 3, 3, 3]
    assert result.height == 1


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.array([Decimal("-0.10"), Decimal("0.30")], pa.decimal128(4, 2)), [-0.1, -0.1, 0.3]),
        (pa.array([-0.0, 0.0]), [0.0, 0.0, 0.0]),
        (pa.array([-3, 4], pa.int32()).cast(pa.date32()), [-3, -3, 4]),
        (pa.array([-3, 4], pa.timestamp("ms", "UTC")), [-3000, -3000, 4000]),
        (pa.array([2**53 + 1, 2**62]), [2.0**53, 2.0**53, 2.0**62]),
    ],
    ids=str,
)
def test_values_are_in_sparks_numeric_form(array: pa.Array, expected: list[float]) -> None:
    """A float is the double of its own text there, not of its bits."""
    assert ends(histogram(array, bins=2)) == expected


def test_single_floats_are_the_doubles_of_their_text() -> None:
    edges = ends(histogram(pa.array([0.1, 0.2, 0.2, 0.3], pa.float32()), bins=4))
    assert edges[1:-1] == [0.1, 0.2, 0.2]
    assert [edges[0], edges[-1]] == pytest.approx([0.1, 0.3], rel=1e-6)


def skewed() -> dict[str, npt.NDArray[np.float64 | np.int64]]:
    random = np.random.default_rng(17)
    zipf = random.zipf(1.4, 300_000)
    return {
        "zipf": zipf[zipf < 1_000_000],
        "exponential": random.exponential(100, 200_000),
        "mixed": np.concatenate([np.repeat(np.arange(20.0), 5000), random.random(100_000) + 50]),
        "uniform": random.integers(0, 1_000_000, 200_000),
    }


@pytest.mark.parametrize("name", list(skewed()))
def test_bins_hold_equally_many_rows(name: str) -> None:
    """The tolerance is the error of a sketch: three times 0.35 % at either end."""
    values = skewed()[name]
    result = histogram(pa.array(values))
    inner = np.array(ends(result)[1:-1])
    ordered = np.sort(values)
    wanted = np.arange(1, BINS) / BINS
    low = np.searchsorted(ordered, inner, side="left") / len(values)
    high = np.searchsorted(ordered, inner, side="right") / len(values)
    assert (low - wanted < 0.0105).all()
    assert (wanted - high < 0.0105).all()


@pytest.mark.parametrize("name", list(skewed()))
def test_distinct_counts_add_up(name: str) -> None:
    """To those of the column, where each end that two bins share counts twice."""
    values = skewed()[name]
    array = pa.array(values)
    result = histogram(array)
    shared = sum(
        left.low < left.high and right.low < right.high for left, right in pairwise(result.bins)
    )
    distinct = column_statistics_of(reduced(array), type_of(array)).distinct
    assert sum(counts_of_values(result)) - shared == pytest.approx(distinct, rel=0.05)


def counts_of_values(column_histogram: Histogram) -> Sequence[int]:
    """Counts where a value of several bins of its own, or at their borders, is one value."""
    alone = {bin.low for bin in column_histogram.bins if bin.low == bin.high}
    wide = [bin for bin in column_histogram.bins if bin.low < bin.high]
    borders = [(bin.low in alone) + (bin.high in alone) for bin in wide]
    return [len(alone), *(b.distinct - n for b, n in zip(wide, borders, strict=True))]


def test_distinct_counts_are_where_the_values_are() -> None:
    """Half of the rows hold 20 values, the others one each."""
    result = histogram(pa.array(skewed()["mixed"]))
    few = [bin.distinct for bin in result.bins if bin.high < 50]
    many = [bin.distinct for bin in result.bins if bin.low > 50]
    assert max(few) < 0.25 * result.height
    assert np.median(few) == 1
    assert np.median(many) == pytest.approx(result.height, rel=0.3)


def test_integers_have_no_more_values_than_fit() -> None:
    result = histogram(pa.array(skewed()["zipf"]))
    assert all(bin.distinct <= bin.high - bin.low + 1 for bin in result.bins)
    cents = histogram(pa.array([Decimal(n) / 100 for n in range(100)] * 9, pa.decimal128(9, 2)))
    assert all(bin.distinct <= round((bin.high - bin.low) * 100) + 1 for bin in cents.bins)
