"""What a join's page shows of distances by rank, and of the last runs."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

from lancestat.joins.action import JoinFigures
from lancestat.joins.record import Accuracy, JoinCounts, JoinDistances, RankDistances
from lancestat.presentation.site.join_charts import (
    DistanceFigures,
    LineChart,
    distance_figures,
    join_history,
    join_run_figures,
)
from lancestat.presentation.site.text import NOTHING
from lancestat.report.joins import JoinReport
from lancestat.runs.result import Status
from tests.presentation.site.conftest import Build
from tests.presentation.site.markup import page_of
from tests.presentation.site.reports import (
    distances,
    join,
    join_report,
    join_run,
    project,
    rank_distances,
)


def measured(made: JoinDistances | None, **changes: object) -> JoinReport:
    record = join_report().record
    assert record is not None
    return join_report(record=replace(record, distances=made), **changes)


def drawn(made: JoinDistances, **changes: object) -> DistanceFigures:
    figures = distance_figures(measured(made, **changes))
    assert figures is not None
    return figures


def test_every_counted_rank_is_drawn_at_the_same_scale() -> None:
    figures = drawn(distances())
    assert [rank.title for rank in figures.ranks] == [f"Rank {at}" for at in (1, 2, 3, 5, 10)]
    assert [rank.name for rank in figures.ranks] == ["1", "2", "3", "5", "10"]
    scales = {(rank.shape.edges, rank.shape.width) for rank in figures.ranks}
    assert len(scales) == 1
    [chart, *_] = [rank.shape.chart for rank in figures.ranks]
    assert (chart["from"], chart["to"]) == (0.125, 0.125 + 36 / 64)
    assert chart["rows"] == list(rank_distances(1, 8).counts)


def test_the_table_of_a_rank_has_its_counts() -> None:
    rank = RankDistances(2, (3, 0, 4), 1, 2, (0.333333, 0.5, None))
    [figure] = drawn(JoinDistances(10, 0.25, 0.125, (rank,))).ranks
    parts = [(part.low, part.high, part.rows) for part in figure.shape.parts]
    assert parts == [
        ("", "0.25", "1"),
        ("0.25", "0.375", "3"),
        ("0.5", "0.625", "4"),
        ("0.625", "", "2"),
    ]
    assert (figure.rows, figure.quantiles) == ("10", ("0.333", "0.5", "infinite"))
    assert figure.outside == "1 nearer than 0.25 and 2 farther than 0.625"


def test_bits_that_differ_are_whole_numbers() -> None:
    rank = RankDistances(1, (5, 6), 0, 0, (3.0, 4.0, 4.0))
    made = JoinDistances(11, 3.0, 1.0, (rank,))
    [figure] = drawn(made, spec=join(metric="hamming")).ranks
    assert figure.shape.edges == (2.5, 3.5, 4.5)
    assert [(part.low, part.high) for part in figure.shape.parts] == [("3", "3"), ("4", "4")]
    assert figure.shape.chart["margin"] == 0.5
    [other] = drawn(made).ranks
    assert [(part.low, part.high) for part in other.shape.parts] == [("3", "4"), ("4", "5")]


def test_the_page_says_which_rows_the_distances_are_of() -> None:
    every, some = drawn(distances()), drawn(distances(left_rows=12))
    assert every.covers.startswith("Of the neighbours of all 20,000 left rows. In the table ")
    assert some.covers.startswith(
        "Only of the 12 left rows that were new in the last run, of 20,000 in all. In the table "
    )


def test_all_distances_together_have_one_chart() -> None:
    figures = drawn(distances(ranks=(rank_distances(None),)))
    [figure] = figures.ranks
    assert (figures.title, drawn(distances()).title) == ("Distances", "Distances by rank")
    assert (figure.name, figure.title) == ("all", "All ranks together")


def test_a_result_without_distances_has_no_chart(build: Build) -> None:
    report = measured(None)
    assert distance_figures(report) is None
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


def test_runs_that_wrote_nothing_have_no_figures() -> None:
    runs = (
        join_run(number=0, action="skip", reasons=("unchanged",)),
        join_run(number=1),
        join_run(number=2, status=Status.ERROR, message="no room", figures=JoinFigures()),
        join_run(number=3),
    )
    shown = [join_run_figures(run) for run in runs]
    assert [figures.unmatched for figures in shown] == [NOTHING, "10", NOTHING, "3"]
    assert [figures.recall for figures in shown] == [NOTHING, "0.964", NOTHING, "0.956"]


def test_runs_at_one_moment_are_no_line() -> None:
    one = join_run(number=1)
    again = replace(one, finished_at=one.finished_at + timedelta(milliseconds=3))
    assert join_history(join_report(results=(again, one))) == ()


def test_the_runs_of_a_join_have_its_figures(build: Build) -> None:
    page = page_of(build(), "joins/similar_parts.html").text
    assert "Compared Unmatched Excluded Recall Version Took" in page
    assert "3.6 billion pairs, new left rows 3 41 0.968 7 12 s" in page
