"""Charts of a join's page: distances by rank, and figures of its last runs as lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from lancestat.formats import count, duration
from lancestat.joins.action import join_figures
from lancestat.joins.record import JoinDistances, RankDistances
from lancestat.joins.search.metrics import HAMMING
from lancestat.presentation.site.distribution import (
    HEIGHT,
    WIDTH,
    Distribution,
    Part,
    coordinate,
    number_text,
    outline,
)
from lancestat.presentation.site.text import NOTHING
from lancestat.report.joins import JoinReport
from lancestat.runs.result import NodeResult, PastRun, Status


@dataclass(frozen=True, slots=True)
class RankFigure:
    """The distances of one rank, whose `name` is its number, or of all together.

    `quantiles` are in words, in the order of `QUANTILES`. `outside` says how many neighbours have
    no bar, and is empty where all have one.
    """

    name: str
    title: str
    rows: str
    quantiles: tuple[str, ...]
    shape: Distribution
    outside: str


@dataclass(frozen=True, slots=True)
class DistanceFigures:
    """The distances that the last run wrote, and of which left rows."""

    title: str
    covers: str
    ranks: tuple[RankFigure, ...]


def distance_figures(report: JoinReport) -> DistanceFigures | None:
    """Return the distances of a join's last result, None where none are recorded."""
    record = report.record
    if record is None or record.distances is None:
        return None
    distances, whole = record.distances, record.counts.left_rows
    covers = f"Of the neighbours of all {count(whole, 'left row')}."
    if distances.left_rows != whole:
        some = count(distances.left_rows, "left row")
        covers = f"Only of the {some} that were new in the last run, of {count(whole)} in all."
    # Bits that differ are whole numbers, whose bars stand in the middle of their intervals.
    are_whole = report.spec.metric == HAMMING.name and distances.width >= 1
    margin = 0.5 if are_whole else 0.0
    ranks = tuple(_rank(rank, distances, margin) for rank in distances.ranks)
    title = "Distances" if distances.ranks[0].rank is None else "Distances by rank"
    covers += " In the table they are rounded by up to 1 %"
    covers += "; all charts have the same scale of distances." if len(ranks) > 1 else "."
    return DistanceFigures(title, covers, ranks)


def _rank(rank: RankDistances, distances: JoinDistances, margin: float) -> RankFigure:
    start, width = distances.start - margin, distances.width
    edges = tuple(start + width * at for at in range(len(rank.counts) + 1))
    parts = tuple(_parts(rank, edges, margin))
    shape = Distribution(
        edges=edges,
        rows=tuple(map(float, rank.counts)),
        path=outline(rank.counts),
        kind="number",
        low=_end(edges[0] + margin),
        high=_end(edges[-1] - margin),
        bins=len(rank.counts),
        parts=parts,
        margin=margin,
    )
    outside = [f"{count(rank.below)} nearer than {shape.low}"] if rank.below else []
    outside += [f"{count(rank.above)} farther than {shape.high}"] if rank.above else []
    return RankFigure(
        "all" if rank.rank is None else count(rank.rank),
        "All ranks together" if rank.rank is None else f"Rank {count(rank.rank)}",
        count(rank.rows),
        tuple(map(_rounded, rank.quantiles)),
        shape,
        " and ".join(outside),
    )


def _parts(rank: RankDistances, edges: Sequence[float], margin: float) -> Iterable[Part]:
    if rank.below:
        yield Part("", _end(edges[0] + margin), count(rank.below), "")
    for at, rows in enumerate(rank.counts):
        if rows:
            yield Part(_end(edges[at] + margin), _end(edges[at + 1] - margin), count(rows), "")
    if rank.above:
        yield Part(_end(edges[-1] - margin), "", count(rank.above), "")


def _end(value: float) -> str:
    return number_text(float(f"{value:.4g}"))


def _rounded(value: float | None) -> str:
    return "infinite" if value is None else number_text(float(f"{value:.3g}"))


@dataclass(frozen=True, slots=True)
class LineChart:
    """One figure of a join over its last runs; `words` say what it is now and was before.

    `values` belong to `times`, seconds since 1970, the newest last. `bound` is drawn as a line of
    its own. `path` draws the values in a box of `width` by `height`.
    """

    title: str
    words: str
    kind: str
    times: tuple[int, ...]
    values: tuple[float, ...]
    bound: float | None
    path: Markup
    width: int = WIDTH
    height: int = HEIGHT

    @property
    def chart(self) -> dict[str, object]:
        """The data that the chart on the page is drawn from."""
        return {
            "kind": self.kind,
            "label": self.title.lower(),
            "times": self.times,
            "values": self.values,
            "bound": self.bound,
        }


def join_history(report: JoinReport) -> tuple[LineChart, ...]:
    """Return what became of a join over the last runs that wrote a result.

    A figure that less than two runs have is left out.
    """
    made = report.results
    charts = (
        _chart("Unmatched left rows", "count", made, _unmatched, count),
        _chart("Excluded right rows", "count", made, _excluded, count),
        _chart("Recall", "share", made, _recall, _share, report.spec.recall),
        _chart("Time taken", "seconds", made, _seconds, duration),
    )
    return tuple(chart for chart in charts if chart is not None)


def _unmatched(result: NodeResult) -> int | None:
    return join_figures(result).counts.unmatched_left_rows


def _excluded(result: NodeResult) -> int | None:
    return join_figures(result).counts.excluded_right_rows


def _recall(result: NodeResult) -> float | None:
    return join_figures(result).accuracy.recall


def _seconds(result: NodeResult) -> float | None:
    return result.elapsed_seconds


def _share(value: float) -> str:
    return f"{value:.3f}"


def _chart(
    title: str,
    kind: str,
    runs: Sequence[PastRun],
    figure: Callable[[NodeResult], float | None],
    text: Callable[..., str],
    bound: float | None = None,
) -> LineChart | None:
    known = [
        (round(run.ended_at.timestamp()), value)
        for run in reversed(runs)
        if (value := figure(run.result)) is not None
    ]
    if len({moment for moment, _ in known}) < 2:
        return None
    times, values = zip(*known, strict=True)
    low, high = text(min(values)), text(max(values))
    words = f"{text(values[-1])} in the last run"
    if low != high:
        words += f"; {low} to {high} in {count(len(values), 'run')}"
    else:
        before = "run" if len(values) == 2 else f"{count(len(values) - 1)} runs"
        words += f", as in the {before} before"
    if bound is not None:
        words += f"; {text(bound)} is asked"
    return LineChart(title, words, kind, times, values, bound, _line(times, values))


def _line(times: Sequence[int], values: Sequence[float]) -> Markup:
    """Return the values as an SVG path; the lowest and the highest have a margin."""
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    points = (
        f"{coordinate(WIDTH * (moment - times[0]) / (times[-1] - times[0]))} "
        f"{coordinate(HEIGHT * (0.9 - 0.8 * (value - low) / span))}"
        for moment, value in zip(times, values, strict=True)
    )
    # Numbers alone: nothing to escape.
    return Markup("M" + "L".join(points))


@dataclass(frozen=True, slots=True)
class JoinRunFigures:
    """The figures of one run of a join, in words."""

    unmatched: str
    excluded: str
    recall: str


def join_run_figures(run: PastRun) -> JoinRunFigures:
    """Return the figures of a run that wrote a result, nothing of another one."""
    if run.result.status is not Status.SUCCESS or run.result.action == "skip":
        return JoinRunFigures(NOTHING, NOTHING, NOTHING)
    unmatched, excluded = _unmatched(run.result), _excluded(run.result)
    recall = _recall(run.result)
    return JoinRunFigures(
        NOTHING if unmatched is None else count(unmatched),
        NOTHING if excluded is None else count(excluded),
        NOTHING if recall is None else _share(recall),
    )
