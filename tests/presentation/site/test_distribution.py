from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lancestat.presentation.site.distribution import Distribution, distribution
from lancestat.tables.statistics.column_statistics import Histogram, HistogramBin
from tests.presentation.site.reports import evenly, leaning

BOUNDS = st.floats(-1e300, 1e300, allow_nan=False)


def made(histogram: Histogram, kind: str = "number") -> Distribution:
    shape = distribution(histogram, kind)
    assert shape is not None
    return shape


def histogram(*ends: float, height: float = 10.0) -> Histogram:
    return Histogram(height, tuple(HistogramBin(low, high, 1) for low, high in pairwise(ends)))


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(BOUNDS, min_size=2, max_size=60).map(sorted))
@example([0.0, 2.2250738585e-313])
def test_no_row_is_lost_and_edges_rise(ends: list[float]) -> None:
    shape = made(histogram(*ends))
    assert sum(shape.rows) == pytest.approx(10.0 * (len(ends) - 1))
    assert min(shape.rows) >= 0
    assert all(low < high for low, high in pairwise(shape.edges))
    assert shape.edges[0] <= ends[0]
    assert shape.edges[-1] >= ends[-1]
    assert len(shape.edges) == len(shape.rows) + 1


@pytest.mark.parametrize("source", [evenly(0.5, 99.25), leaning(-3.5, 1e6), leaning(1e9, 2e9)])
def test_bars_are_the_rows_between_their_edges(source: Histogram) -> None:
    """Against numpy: the share of rows below a value, interpolated between the ends of bins."""
    shape = made(source)
    ends = [source.bins[0].low, *(interval.high for interval in source.bins)]
    below = np.interp(shape.edges, ends, source.height * np.arange(len(ends)))
    np.testing.assert_allclose(shape.rows, np.diff(below), atol=1e-3)


def test_rows_of_one_value_lie_at_that_value() -> None:
    shape = made(histogram(0.0, 50.25, 50.25, 50.25, 100.5))
    peak = shape.rows.index(max(shape.rows))
    assert shape.edges[peak] <= 50.25 <= shape.edges[peak + 1]
    assert max(shape.rows) > 20


def test_few_whole_numbers_have_a_bar_each() -> None:
    shape = made(histogram(1, 1, 2, 2, 3))
    assert shape.edges == (0.5, 1.5, 2.5, 3.5)
    assert shape.rows == (15.0, 20.0, 5.0)


def test_whole_numbers_are_shared_out_evenly() -> None:
    """A hundred values of one row each, where 48 intervals would hold two or three."""
    shape = made(histogram(*[float(value) for value in range(1, 101) for _ in (0, 1)], height=1.0))
    assert len({high - low for low, high in pairwise(shape.edges)}) == 1
    assert (shape.edges[1] - shape.edges[0]).is_integer()
    assert max(shape.rows[:-1]) - min(shape.rows[:-1]) <= 1


def test_a_column_of_one_value_has_one_bar() -> None:
    assert made(histogram(7.25, 7.25)).rows == (10.0,)


def test_bounds_that_no_axis_holds_are_not_drawn() -> None:
    assert distribution(histogram(-1.7e308, 1.7e308), "number") is None
    assert distribution(Histogram(1.0, ()), "number") is None


def test_the_table_has_parts_of_about_equally_many_rows() -> None:
    parts = made(evenly(0, 254_000)).parts
    assert len(parts) == 10
    assert parts[0].low == "0"
    assert parts[-1].high == "254,000"
    rows = [int(part.rows.replace(",", "")) for part in parts]
    assert sum(rows) == 254_000
    assert max(rows) - min(rows) <= 1000


@pytest.mark.parametrize(
    ("kind", "value", "text", "drawn"),
    [
        ("date", 8035.0, "1992-01-01", 694224000.0 - 43200),
        ("timestamp", 1_767_225_600_000_000.0, "2026-01-01 00:00:00", 1767225600.0),
        ("time", 43_200_000_000.0, "12:00:00", 43_200.0),
        ("date", 1e9, "1,000,000,000", 8.64e13),
        ("number", 0.125, "0.125", 0.125),
    ],
)
def test_values_read_as_their_type_does(kind: str, value: float, text: str, drawn: float) -> None:
    shape = made(histogram(value, value + 100), kind)
    assert shape.low == text
    assert shape.edges[0] == pytest.approx(drawn)


def test_an_outline_is_closed() -> None:
    path = made(leaning(857.71, 555285.16)).path
    assert path.startswith("M0 56V")
    assert path.endswith("H240V56Z")
    assert path.count("V") == 49


def test_the_chart_has_whole_rows_and_short_numbers() -> None:
    chart = made(leaning(857.71, 555285.16)).chart
    assert chart["kind"] == "number"
    assert chart["margin"] == 0
    assert made(histogram(1, 1, 2, 2, 3)).chart["margin"] == 0.5
    assert made(histogram(1, 1, 2, 2, 3), "date").chart["margin"] == 43200
    assert all(isinstance(rows, int) for rows in chart["rows"])  # type: ignore[attr-defined]
