"""Charts: distributions, distances by rank, figures of past runs, and the graph of nodes."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lancestat.joins.action import JoinFigures
from lancestat.joins.record import Accuracy, JoinCounts, JoinDistances, RankDistances
from lancestat.presentation.site.charts import (
    BOX_HEIGHT,
    Distribution,
    LineChart,
    arrange,
    distance_shapes,
    distance_text,
    distance_words,
    distribution,
    draw,
    join_history,
    join_run_figures,
)
from lancestat.presentation.site.text import NOTHING
from lancestat.report.joins import JoinReport
from lancestat.runs.result import Status
from lancestat.tables.statistics.column_statistics import Histogram, HistogramBin
from tests.presentation.site.conftest import Build
from tests.presentation.site.markup import page_of
from tests.presentation.site.reports import (
    distances,
    evenly,
    join,
    join_report,
    join_run,
    leaning,
    project,
    rank_distances,
    table_report,
)

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
    assert parts[0][0] == "0"
    assert parts[-1][1] == "254,000"
    rows = [int(rows.replace(",", "")) for _, _, rows, _ in parts]
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


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [
        ("number", 1_733_000_000_123.0, 1_733_000_000_123.0),
        ("number", -1_733_000_000_123.0, -1_733_000_000_100.0),
        ("number", 4e15, 4e15),
        ("number", 1e17, 1e17 + 32),
        ("number", 1e18, 1e18),
        ("number", 0.1, 0.1 + 2e-16),
        ("timestamp", 1_767_225_600_000_000.0, 1_767_225_600_000_000.0),
        ("timestamp", 1_767_225_600_000_000.0, 1_767_225_600_000_001.0),
    ],
)
def test_bounds_that_are_near_for_their_size_have_a_chart(
    kind: str, low: float, high: float
) -> None:
    shape = made(histogram(low, high), kind)
    chart = json.loads(json.dumps(shape.chart))
    # The browser puts ticks between them, of which no two may be one number.
    assert chart["to"] - chart["from"] >= 15 * math.ulp(max(-chart["from"], chart["to"]))
    seconds = 1e-6 if kind == "timestamp" else 1.0
    shown = chart["from"] + chart["margin"], chart["to"] - chart["margin"]
    assert shown == pytest.approx((low * seconds, high * seconds), rel=1e-15)


def test_the_chart_has_whole_rows_and_short_numbers() -> None:
    chart = made(leaning(857.71, 555285.16)).chart
    assert chart["kind"] == "number"
    assert chart["margin"] == 0
    assert made(histogram(1, 1, 2, 2, 3)).chart["margin"] == 0.5
    assert made(histogram(1, 1, 2, 2, 3), "date").chart["margin"] == 43200
    assert all(isinstance(rows, int) for rows in chart["rows"])  # type: ignore[attr-defined]


def measured(made: JoinDistances | None, **changes: object) -> JoinReport:
    record = join_report().record
    assert record is not None
    return join_report(record=replace(record, distances=made), **changes)


def drawn(made: JoinDistances, **changes: object) -> list[tuple[RankDistances, Distribution, str]]:
    return distance_shapes(measured(made, **changes).spec.metric, made)


def test_every_counted_rank_is_drawn_at_the_same_scale() -> None:
    shapes = [shape for _, shape, _ in drawn(distances())]
    assert len(shapes) == 5
    assert len({(shape.edges, shape.width) for shape in shapes}) == 1
    chart = shapes[0].chart
    assert (chart["from"], chart["to"]) == (0.125, 0.125 + 36 / 64)
    assert chart["rows"] == list(rank_distances(1, 8).counts)


def test_the_table_of_a_rank_has_its_counts() -> None:
    rank = RankDistances(2, (3, 0, 4), 1, 2, (0.333333, 0.5, None))
    [(_, shape, outside)] = drawn(JoinDistances(10, 0.25, 0.125, (rank,)))
    assert [part[:3] for part in shape.parts] == [
        ("", "0.25", "1"),
        ("0.25", "0.375", "3"),
        ("0.5", "0.625", "4"),
        ("0.625", "", "2"),
    ]
    assert [distance_text(value) for value in rank.quantiles] == ["0.333", "0.5", "infinite"]
    assert outside == "1 nearer than 0.25 and 2 farther than 0.625"


def test_bits_that_differ_are_whole_numbers() -> None:
    rank = RankDistances(1, (5, 6), 0, 0, (3.0, 4.0, 4.0))
    made = JoinDistances(11, 3.0, 1.0, (rank,))
    [(_, shape, _)] = drawn(made, spec=join(metric="hamming"))
    assert shape.edges == (2.5, 3.5, 4.5)
    assert [part[:2] for part in shape.parts] == [("3", "3"), ("4", "4")]
    assert shape.chart["margin"] == 0.5
    [(_, other, _)] = drawn(made)
    assert [part[:2] for part in other.parts] == [("3", "4"), ("4", "5")]


@pytest.mark.parametrize(
    ("made", "title", "covers"),
    [
        (distances(), "Distances by rank", "Of the neighbours of all 20,000 left rows."),
        (
            distances(left_rows=12),
            "Distances by rank",
            "Only of the 12 left rows that were new in the last run, of 20,000 in all.",
        ),
        (
            distances(ranks=(rank_distances(None),)),
            "Distances",
            "Of the neighbours of all 20,000 left rows.",
        ),
    ],
    ids=["all", "new", "together"],
)
def test_the_page_says_of_what_the_distances_are(
    made: JoinDistances, title: str, covers: str, build: Build
) -> None:
    report = measured(made)
    covers += " In the table they are rounded by up to 1 %"
    covers += "." if len(made.ranks) == 1 else "; all charts have the same scale of distances."
    assert distance_words(report, made) == (title, covers)
    page = page_of(build(project(report)), "joins/similar_parts.html").text
    assert f"{title} {covers}" in page
    assert ("All ranks together median" in page) == (title == "Distances")


def test_a_result_without_distances_has_no_chart(build: Build) -> None:
    report = measured(None)
    page = page_of(build(project(report)), "joins/similar_parts.html").text
    assert "None are recorded: the last run found no neighbours" in page
    fresh = page_of(
        build(project(join_report(record=None, runs=())), "fresh"), "joins/similar_parts.html"
    )
    assert "Distances by rank" not in fresh.text


def history(*figures: JoinFigures, recall: float | None = 0.95) -> dict[str, LineChart]:
    """The charts of runs with these figures, the newest first."""
    runs = tuple(join_run(number=number, figures=made) for number, made in enumerate(figures))
    report = join_report(results=runs, spec=join(recall=recall))
    return {chart.title: chart for chart in join_history(report)}


def figures_of(unmatched: int, excluded: int, recall: float | None) -> JoinFigures:
    counts = JoinCounts(100, 1000, unmatched, excluded)
    return JoinFigures("exact", "full", counts, 100_000, Accuracy(recall))


def test_figures_of_runs_are_drawn_by_time() -> None:
    charts = history(figures_of(9, 4, 0.97), figures_of(3, 4, 0.94), figures_of(5, 4, 0.96))
    assert [*charts] == ["Unmatched left rows", "Excluded right rows", "Recall", "Time taken"]
    unmatched = charts["Unmatched left rows"]
    assert unmatched.values == (5, 3, 9)
    assert unmatched.times == tuple(sorted(unmatched.times))
    assert unmatched.words == "9 in the last run; 3 to 9 in 3 runs"
    assert charts["Excluded right rows"].words == "4 in the last run, as in the 2 runs before"
    assert charts["Recall"].words == (
        "0.970 in the last run; 0.940 to 0.970 in 3 runs; 0.950 is asked"
    )
    assert (charts["Recall"].bound, unmatched.bound) == (0.95, None)
    assert charts["Time taken"].values == (14.5, 13.5, 12.5)
    assert json.loads(json.dumps(unmatched.chart))["values"] == [5, 3, 9]


def test_a_figure_of_one_run_is_no_history() -> None:
    assert history(figures_of(1, 1, 0.9)) == {}
    charts = history(figures_of(1, 1, None), figures_of(1, 1, 0.9))
    assert charts["Unmatched left rows"].words == "1 in the last run, as in the run before"
    assert "Recall" not in charts and "Time taken" in charts


def test_a_figure_that_the_last_run_lacks_is_of_an_earlier_one() -> None:
    charts = history(figures_of(1, 1, None), figures_of(1, 1, 0.9), figures_of(1, 1, 0.96))
    assert charts["Recall"].words == (
        "0.900 in an earlier run; 0.900 to 0.960 in 2 runs; 0.950 is asked"
    )


def test_runs_that_wrote_nothing_have_no_figures() -> None:
    runs = (
        join_run(number=0, action="skip", reasons=("unchanged",)),
        join_run(number=1),
        join_run(number=2, status=Status.ERROR, message="no room", figures=JoinFigures()),
        join_run(number=3),
    )
    shown = [join_run_figures(run) for run in runs]
    assert [unmatched for unmatched, _, _ in shown] == [NOTHING, "10", NOTHING, "3"]
    assert [recall for _, _, recall in shown] == [NOTHING, "0.964", NOTHING, "0.956"]


def test_runs_at_one_moment_are_no_line() -> None:
    one = join_run(number=1)
    again = replace(one, finished_at=one.finished_at + timedelta(milliseconds=3))
    assert join_history(join_report(results=(again, one))) == ()


def test_the_runs_of_a_join_have_its_figures(build: Build) -> None:
    page = page_of(build(), "joins/similar_parts.html").text
    assert "Compared Unmatched Excluded Recall Version Took" in page
    assert "3.6 billion pairs, new left rows 3 41 0.968 7 12 s" in page


Reads = dict[str, list[str]]


@st.composite
def graphs(draw_value: st.DrawFn) -> Reads:
    """Nodes that read some of those before them."""
    size = draw_value(st.integers(1, 25))
    names = [f"n{at}" for at in range(size)]
    return {
        name: draw_value(st.lists(st.sampled_from(names[:at]), unique=True, max_size=4))
        if at
        else []
        for at, name in enumerate(names)
    }


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graphs())
def test_a_node_is_right_of_its_inputs_in_its_own_place(reads: Reads) -> None:
    places = arrange(reads)
    assert set(places) == set(reads)
    assert all(
        places[dependency][0] < places[name][0] for name in reads for dependency in reads[name]
    )
    assert len({*places.values()}) == len(reads)


def test_edges_do_not_cross_without_need() -> None:
    places = arrange({"a": [], "b": [], "c": [], "x": ["c"], "y": ["b"], "z": ["a"]})
    left = sorted("abc", key=lambda name: places[name][1])
    right = sorted("zyx", key=lambda name: places[name][1])
    assert [{"a": "z", "b": "y", "c": "x"}[name] for name in left] == right


def test_a_long_chain_needs_no_recursion() -> None:
    chain = {f"n{at}": [f"n{at - 1}"] if at else [] for at in range(3000)}
    assert arrange(dict(reversed(chain.items())))["n2999"][0] == 2999


def test_only_nodes_with_edges_are_drawn_in_parts_that_do_not_overlap() -> None:
    names = ["a", "b", "c", "d", "lone"]
    report = project(*map(table_report, names), reads={"b": ("a",), "d": ("c",), "a": ("gone",)})
    boxes, edges, _, height = draw(report)
    assert sorted(node.spec.name for node, _, _ in boxes) == ["a", "b", "c", "d"]
    assert [edge[:2] for edge in edges] == [("a", "b"), ("c", "d")]
    assert len({(x, y) for _, x, y in boxes}) == 4
    assert all(y + BOX_HEIGHT < height for _, _, y in boxes)
