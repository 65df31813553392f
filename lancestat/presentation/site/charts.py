"""Charts of columns, joins and runs, and the graph of nodes, drawn to scale."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from itertools import pairwise

from markupsafe import Markup

from lancestat.formats import count, duration, large, size
from lancestat.joins.action import join_figures
from lancestat.joins.duplicates.action import duplicates_figures
from lancestat.joins.record import JoinDistances, RankDistances
from lancestat.joins.search.metrics import HAMMING
from lancestat.presentation.site.text import NOTHING
from lancestat.report.duplicates import DuplicatesReport
from lancestat.report.joins import JoinReport
from lancestat.report.values import NodeReport, ProjectReport
from lancestat.runs.result import PastRun, Status
from lancestat.state.history import ColumnFigures, HistoryPoint, column_series
from lancestat.tables.statistics.column_statistics import Histogram

INTERVALS = 48
_MOST_VALUES = 60
# Up to here, half of one can be added to a double.
_LARGEST_WHOLE = 2.0**52
_PARTS = 10
WIDTH, HEIGHT = 240, 56
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
# Seconds, as the axes of charts have times.
_SECONDS = {"date": 86_400.0, "timestamp": 1e-6, "time": 1e-6}

# Values between two ends, how many rows hold them, and how many values there are, all in words.
Part = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class Distribution:
    """The distribution of rows over values of a `kind`: `number`, `date`, `timestamp` or `time`.

    `edges` and `rows` are of intervals of equal width, which hold the values that are `margin` or
    more away from their edges: 0, or half of one for whole numbers. `path` draws them in a box of
    `width` by `height`. `parts` are for a table, `low` and `high` the ends in words.
    """

    edges: tuple[float, ...]
    rows: tuple[float, ...]
    path: Markup
    kind: str
    low: str
    high: str
    parts: tuple[Part, ...]
    margin: float
    width: int = WIDTH
    height: int = HEIGHT

    @property
    def chart(self) -> dict[str, object]:
        """The data that the chart on the page is drawn from."""
        return {
            "kind": self.kind,
            "from": _written(self.edges[0]),
            "to": _written(self.edges[-1]),
            "margin": self.margin,
            "rows": [round(rows) for rows in self.rows],
        }


def distribution(histogram: Histogram, kind: str) -> Distribution | None:
    """Share the rows of an equi-height histogram out to intervals of equal width.

    Rows are taken to lie evenly within a bin; those of a bin whose ends are equal lie at that
    value. None where the bounds are too far apart, or no numbers.
    """
    bins = histogram.bins
    if not bins:
        return None
    low, high = bins[0].low, bins[-1].high
    if not high - low < float("inf"):
        return None
    edges = _edges(low, high, (end for bin_ in bins for end in (bin_.low, bin_.high)))
    rows = _shared(histogram, edges)
    seconds = _SECONDS.get(kind, 1.0)
    return Distribution(
        edges=tuple(edge * seconds for edge in edges),
        rows=tuple(rows),
        path=_outline(rows),
        kind=kind,
        low=_value_text(low, kind),
        high=_value_text(high, kind),
        parts=tuple(_parts(histogram, kind)),
        margin=(low - edges[0]) * seconds if edges[0] < low else 0.0,
    )


def _value_text(value: float, kind: str) -> str:
    """Return a value as people write it."""
    if kind == "number":
        return number_text(value)
    try:
        if kind == "date":
            return (_EPOCH + timedelta(days=round(value))).strftime("%Y-%m-%d")
        form = "%H:%M:%S" if kind == "time" else "%Y-%m-%d %H:%M:%S"
        return (_EPOCH + timedelta(microseconds=value)).strftime(form)
    except (OverflowError, ValueError):
        return number_text(value)


def _edges(low: float, high: float, ends: Iterable[float]) -> list[float]:
    """Of intervals with equally many whole numbers where all ends are whole, else equally wide.

    An interval with one number more than the others would look as if it were more frequent.
    """
    # So near to a number, others are too few for the bars and ticks of a chart.
    near = 8 * math.ulp(max(-low, high))
    is_exact = max(-low, high) < _LARGEST_WHOLE and high - low + 1 >= 2 * near
    if is_exact and all(end == int(end) for end in ends):
        values = int(high - low) + 1
        step = 1 if values <= _MOST_VALUES else -(-values // INTERVALS)
        return [low - 0.5 + step * index for index in range(-(-values // step) + 1)]
    width = (high - low) / INTERVALS
    edges = [*(low + width * step for step in range(INTERVALS)), high]
    if high - low >= 2 * near and all(left < right for left, right in pairwise(edges)):
        return edges
    return [low - near - 0.5, high + near + 0.5]


def _shared(histogram: Histogram, edges: Sequence[float]) -> list[float]:
    import numpy as np

    lows = np.array([bin_.low for bin_ in histogram.bins])
    highs = np.array([bin_.high for bin_ in histogram.bins])
    is_spread = lows < highs
    interval = np.searchsorted(edges, lows[~is_spread], side="right") - 1
    intervals = len(edges) - 1
    rows = np.bincount(np.clip(interval, 0, intervals - 1), minlength=intervals) * histogram.height
    if is_spread.any():
        # Bins lie end to end, so that what is below a value rises from one end to the next.
        ends = np.append(lows[is_spread], highs[is_spread][-1])
        at = np.clip(np.searchsorted(ends, edges, side="right") - 1, 0, len(ends) - 2)
        # Shares and not slopes, which are beyond all numbers where ends are very near.
        share = (np.clip(edges, ends[0], ends[-1]) - ends[at]) / np.diff(ends)[at]
        rows = rows + np.diff(histogram.height * (at + share))
    return [float(row_count) for row_count in rows]


def _outline(rows: Sequence[float]) -> Markup:
    """Return the outline of bars over intervals of equal width, as an SVG path."""
    highest = max(rows) or 1.0
    step = WIDTH / len(rows)
    tops = (f"V{_coordinate(HEIGHT * (1 - row_count / highest))}" for row_count in rows)
    ends = (f"H{_coordinate(step * (index + 1))}" for index in range(len(rows)))
    bars = "".join(top + end for top, end in zip(tops, ends, strict=True))
    # Numbers alone: nothing to escape.
    return Markup(f"M0 {HEIGHT}{bars}V{HEIGHT}Z")


def _coordinate(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _parts(histogram: Histogram, kind: str) -> Iterator[Part]:
    """Neighbouring bins together, about equally many in each part."""
    bins = histogram.bins
    parts = min(_PARTS, len(bins))
    stops = [round(len(bins) * part / parts) for part in range(parts + 1)]
    for start, stop in pairwise(stops):
        together = bins[start:stop]
        # The end of a bin is the beginning of the next, and counts in both.
        distinct = sum(bin_.distinct for bin_ in together) - (len(together) - 1)
        low, high = _value_text(together[0].low, kind), _value_text(together[-1].high, kind)
        yield low, high, count(round(histogram.height * len(together))), large(distinct)


def _written(value: float) -> float | int:
    return int(value) if value.is_integer() and abs(value) < 1e15 else value


def number_text(value: float) -> str:
    """Return a number as people write it, with at most six digits unless it is whole."""
    if value == int(value) and abs(value) < 1e15:
        return count(int(value))
    return f"{value:,.6g}"


def distance_words(report: JoinReport, distances: JoinDistances) -> tuple[str, str]:
    """Return the title of the distances of a join, and of which rows they are."""
    assert report.record is not None
    whole = report.record.counts.left_rows
    covers = f"Of the neighbours of all {count(whole, 'left row')}."
    if distances.left_rows != whole:
        some = count(distances.left_rows, "left row")
        covers = f"Only of the {some} that were new in the last run, of {count(whole)} in all."
    title = "Distances" if distances.ranks[0].rank is None else "Distances by rank"
    covers += " In the table they are rounded by up to 1 %"
    is_one = len(distances.ranks) == 1
    return title, covers + ("." if is_one else "; all charts have the same scale of distances.")


def distance_shapes(
    metric: str, distances: JoinDistances
) -> list[tuple[RankDistances, Distribution, str]]:
    """Return each rank with its bars, and in words how many neighbours have no bar."""
    # Bits that differ are whole numbers, whose bars stand in the middle of their intervals.
    are_whole = metric == HAMMING.name and distances.width >= 1
    margin = 0.5 if are_whole else 0.0
    shapes = []
    for rank in distances.ranks:
        shape = _rank_shape(rank, distances, margin)
        outside = [f"{count(rank.below)} nearer than {shape.low}"] if rank.below else []
        outside += [f"{count(rank.above)} farther than {shape.high}"] if rank.above else []
        shapes.append((rank, shape, " and ".join(outside)))
    return shapes


def _rank_shape(rank: RankDistances, distances: JoinDistances, margin: float) -> Distribution:
    start, width = distances.start - margin, distances.width
    edges = tuple(start + width * at for at in range(len(rank.counts) + 1))
    low, high = _end(edges[0] + margin), _end(edges[-1] - margin)
    parts = [("", low, count(rank.below), "")] if rank.below else []
    for at, number in enumerate(rank.counts):
        if number:
            ends = _end(edges[at] + margin), _end(edges[at + 1] - margin)
            parts.append((*ends, count(number), ""))
    parts += [(high, "", count(rank.above), "")] if rank.above else []
    rows = tuple(map(float, rank.counts))
    path = _outline(rank.counts)
    return Distribution(edges, rows, path, "number", low, high, tuple(parts), margin)


def _end(value: float) -> str:
    return number_text(float(f"{value:.4g}"))


def distance_text(value: float | None) -> str:
    """Return a quantile of distances, rounded."""
    return "infinite" if value is None else number_text(float(f"{value:.3g}"))


@dataclass(frozen=True, slots=True)
class LineChart:
    """One figure of a node over runs; `words` say what it is now and was before.

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
    runs, figures = report.results, [join_figures(run.result) for run in report.results]
    unmatched = [figure.counts.unmatched_left_rows for figure in figures]
    excluded = [figure.counts.excluded_right_rows for figure in figures]
    recalls = [figure.accuracy.recall for figure in figures]
    seconds = [run.result.elapsed_seconds for run in runs]
    times = _times(run.ended_at for run in runs)
    charts = (
        _chart("Unmatched left rows", "count", times, unmatched, count),
        _chart("Excluded right rows", "count", times, excluded, count),
        _chart("Recall", "share", times, recalls, _share, report.spec.recall),
        _chart("Time taken", "seconds", times, seconds, duration),
    )
    return tuple(chart for chart in charts if chart is not None)


def duplicates_history(report: DuplicatesReport) -> tuple[LineChart, ...]:
    """Return what became of near-duplicates over the last runs that wrote a result."""
    runs, figures = report.results, [duplicates_figures(run.result) for run in report.results]
    counts = [figure.counts for figure in figures]
    groups = [None if one is None else one.groups for one in counts]
    redundant = [None if one is None else one.redundant_rows for one in counts]
    pairs = [None if one is None else one.pairs for one in counts]
    seconds = [run.result.elapsed_seconds for run in runs]
    times = _times(run.ended_at for run in runs)
    charts = (
        _chart("Groups", "count", times, groups, count),
        _chart("Rows that could go", "count", times, redundant, count),
        _chart("Pairs", "count", times, pairs, count),
        _chart("Time taken", "seconds", times, seconds, duration),
    )
    return tuple(chart for chart in charts if chart is not None)


# Of a column over runs: its key in the JSON of `show`, and a title.
_OF_COLUMNS = (
    ("null_count", "nulls"),
    ("distinct_count", "distinct values"),
    ("min", "least value"),
    ("max", "greatest value"),
    ("avg_len", "mean length"),
)
# A table may have hundreds of columns, and a project a thousand tables.
_COLUMNS_DRAWN = 8


def table_trends(
    history: Sequence[HistoryPoint],
) -> tuple[tuple[LineChart, ...], Mapping[str, tuple[LineChart, ...]]]:
    """Return what became of a table over its runs, and of its columns: the figures that changed.

    `history` has the oldest first. Of columns up to 8 are drawn.
    """
    times = _times(point.at for point in reversed(history))
    newest_first = [point.decoded() for point in reversed(history)]

    def chart(title: str, kind: str, name: str, text: Callable[..., str]) -> LineChart | None:
        return _chart(title, kind, times, [own.get(name) for own, _ in newest_first], text)

    charts = (
        chart("Rows", "count", "rows", count),
        chart("Size", "size", "size_bytes", size),
        chart("Bytes read by runs", "size", "bytes_read", size),
        chart("Time taken", "seconds", "seconds", duration),
    )
    of_columns = _column_trends(times, [columns for _, columns in newest_first])
    return tuple(chart for chart in charts if chart is not None), of_columns


def _column_trends(
    times: Sequence[int], newest_first: Sequence[ColumnFigures]
) -> dict[str, tuple[LineChart, ...]]:
    names = newest_first[0].names if newest_first else ()
    found = [(title, column_series(newest_first, names, key)) for key, title in _OF_COLUMNS]
    trends: dict[str, tuple[LineChart, ...]] = {}
    for place, name in enumerate(names):
        charts = [
            _chart(title, "number", times, values, number_text)
            for title, columns in found
            # Most figures stay as they are, which tells without reading the numbers.
            if len({*columns[place]}) > 1
            and len({*(values := list(map(_number, columns[place])))}) > 1
        ]
        if known := tuple(chart for chart in charts if chart is not None):
            trends[name] = known
        if len(trends) == _COLUMNS_DRAWN:
            break
    return trends


def _number(value: object) -> float | None:
    """Return a figure or a bound that is a finite number, None for others, such as dates."""
    try:
        number = float(str(value))
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def sparkline(history: Sequence[HistoryPoint]) -> Markup | None:
    """Return the rows of a table over its runs as an SVG path, None where there is one point."""
    rows = [point.decoded()[0].get("rows") for point in reversed(history)]
    chart = _chart("Rows", "count", _times(point.at for point in reversed(history)), rows, count)
    return None if chart is None else chart.path


def _share(value: float) -> str:
    return f"{value:.3f}"


def _times(moments: Iterable[datetime]) -> list[int]:
    return [round(moment.timestamp()) for moment in moments]


def _chart(
    title: str,
    kind: str,
    moments: Sequence[int],
    values: Sequence[float | None],
    text: Callable[..., str],
    bound: float | None = None,
) -> LineChart | None:
    """Return the chart of a figure at some moments, the newest first."""
    known = [
        (moment, value)
        for moment, value in zip(reversed(moments), reversed(values), strict=True)
        if value is not None
    ]
    if len({moment for moment, _ in known}) < 2:
        return None
    times, figures = zip(*known, strict=True)
    low, high = text(min(figures)), text(max(figures))
    words = f"{text(figures[-1])} in {'the last' if values[0] is not None else 'an earlier'} run"
    if low != high:
        words += f"; {low} to {high} in {count(len(figures), 'run')}"
    else:
        before = "run" if len(figures) == 2 else f"{count(len(figures) - 1)} runs"
        words += f", as in the {before} before"
    if bound is not None:
        words += f"; {text(bound)} is asked"
    return LineChart(title, words, kind, times, figures, bound, _line(times, figures))


def _line(times: tuple[int, ...], values: Sequence[float]) -> Markup:
    """Return the values as an SVG path; the lowest and the highest have a margin."""
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    points = (
        f"{place} {_coordinate(HEIGHT * (0.9 - 0.8 * (value - low) / span))}"
        for place, value in zip(_places(times), values, strict=True)
    )
    # Numbers alone: nothing to escape.
    return Markup("M" + "L".join(points))


# Most charts of a page have the same times.
@lru_cache(maxsize=16)
def _places(times: tuple[int, ...]) -> list[str]:
    """Return where times are on their axis."""
    return [_coordinate(WIDTH * (time - times[0]) / (times[-1] - times[0])) for time in times]


def join_run_figures(run: PastRun) -> tuple[str, str, str]:
    """Return what a run that wrote a result left unmatched and excluded, and its recall."""
    if run.result.status is not Status.SUCCESS or run.result.action == "skip":
        return NOTHING, NOTHING, NOTHING
    figures = join_figures(run.result)
    unmatched, excluded = figures.counts.unmatched_left_rows, figures.counts.excluded_right_rows
    recall = figures.accuracy.recall
    return (
        NOTHING if unmatched is None else count(unmatched),
        NOTHING if excluded is None else count(excluded),
        NOTHING if recall is None else _share(recall),
    )


def table_history(runs: Sequence[PastRun]) -> dict[str, object] | None:
    """Fragments, those that were scanned, and versions by time; None with less than two runs.

    Runs come the newest first, charts go the other way. Times are seconds since 1970.
    """
    counted = [run for run in reversed(runs) if run.result.fragments_total is not None]
    times = [round(run.ended_at.timestamp()) for run in counted]
    if len({*times}) < 2:
        return None
    results = [run.result for run in counted]
    return {
        "times": times,
        "fragments": [result.fragments_total for result in results],
        "scanned": [result.fragments_scanned or 0 for result in results],
        "versions": [result.version_published or result.version_read for result in results],
    }


_SWEEPS = 4


def arrange(reads: Mapping[str, Sequence[str]]) -> Mapping[str, tuple[int, float]]:
    """Return each node's column, right of those of all that it reads, and its row in it.

    `reads` must be free of cycles.
    Source: the layers are longest paths, and their order is by barycentres, as in Sugiyama, Tagawa
    and Toda, "Methods for Visual Understanding of Hierarchical System Structures" (1981).
    """
    known = {name: [read for read in read_by if read in reads] for name, read_by in reads.items()}
    columns = _columns(known)
    layers: list[list[str]] = [[] for _ in range(max(columns.values(), default=-1) + 1)]
    for name, column in columns.items():
        layers[column].append(name)
    read_by: dict[str, list[str]] = defaultdict(list)
    for name, inputs in known.items():
        for source in inputs:
            read_by[source].append(name)
    for _ in range(_SWEEPS):
        _order(layers, known)
        _order(layers[::-1], read_by)
    _order(layers, known)
    tallest = max(map(len, layers), default=0)
    return {
        name: (column, row + (tallest - len(layer)) / 2)
        for column, layer in enumerate(layers)
        for row, name in enumerate(layer)
    }


def _columns(reads: Mapping[str, Sequence[str]]) -> dict[str, int]:
    columns: dict[str, int] = {}
    for name in reads:
        stack = [name]
        while stack:
            top = stack[-1]
            waiting = [source for source in reads[top] if source not in columns]
            # A node that reads itself would never get a column.
            waiting = [source for source in waiting if source not in stack]
            if waiting:
                stack += waiting
                continue
            columns[top] = 1 + max((columns.get(source, -1) for source in reads[top]), default=-1)
            stack.pop()
    return columns


def _order(layers: Sequence[list[str]], neighbours: Mapping[str, Sequence[str]]) -> None:
    """Sort each layer by the middle of its nodes' neighbours in the layers before."""
    rows: dict[str, float] = {}
    for layer in layers:
        before = {name: row for row, name in enumerate(layer)}

        def middle(name: str, before: Mapping[str, int] = before) -> float:
            positions = [
                rows[neighbour] for neighbour in neighbours.get(name, ()) if neighbour in rows
            ]
            return (
                sum(positions) / len(positions) if positions else before[name] / max(1, len(before))
            )

        layer.sort(key=middle)
        span = max(1, len(layer))
        rows.update({name: row / span for row, name in enumerate(layer)})


BOX_WIDTH, BOX_HEIGHT = 208, 30
_COLUMN, _ROW = 288, 42
_MARGIN = 12

# A node with the upper left corner of its box.
Box = tuple[NodeReport, float, float]
# The node that is read, the one that reads it, and a curve between them.
Edge = tuple[str, str, str]


def draw(report: ProjectReport) -> tuple[list[Box], list[Edge], float, float]:
    """Return the boxes and edges of all nodes that read or are read, their width and height.

    Each connected part is laid out by itself, the largest first, one below the other.
    """
    nodes = {node.spec.name: node for node in report.nodes}
    drawn: dict[str, Box] = {}
    edges: list[Edge] = []
    top = float(_MARGIN)
    for part in _connected(nodes, report.reads):
        places = arrange(part)
        for name, (column, row) in places.items():
            drawn[name] = nodes[name], _MARGIN + column * _COLUMN, top + row * _ROW
        edges += [
            (read, name, _curve(drawn[read], drawn[name]))
            for name, inputs in part.items()
            for read in inputs
        ]
        top = max(drawn[name][2] for name in places) + _ROW + _ROW / 2
    width = max((x + BOX_WIDTH for _, x, _ in drawn.values()), default=0) + _MARGIN
    return [*drawn.values()], edges, width, top


def _connected(
    nodes: Mapping[str, NodeReport], reads: Mapping[str, Sequence[str]]
) -> list[dict[str, list[str]]]:
    """The connected parts of the graph but lone nodes, each with what its nodes read."""
    known = {name: [source for source in reads.get(name, ()) if source in nodes] for name in nodes}
    linked: dict[str, set[str]] = defaultdict(set)
    for name, inputs in known.items():
        for source in inputs:
            linked[name].add(source)
            linked[source].add(name)
    parts: list[dict[str, list[str]]] = []
    seen: set[str] = set()
    for name in known:
        if name in seen or name not in linked:
            continue
        waiting, members = [name], {name}
        while waiting:
            more = linked[waiting.pop()] - members
            members |= more
            waiting += more
        seen |= members
        parts.append({member: inputs for member, inputs in known.items() if member in members})
    return sorted(parts, key=len, reverse=True)


def _curve(start: Box, end: Box) -> str:
    x0, y0 = start[1] + BOX_WIDTH, start[2] + BOX_HEIGHT / 2
    x1, y1 = end[1], end[2] + BOX_HEIGHT / 2
    bend = min(60.0, abs(x1 - x0) / 2)
    return f"M{x0:g} {y0:g}C{x0 + bend:g} {y0:g} {x1 - bend:g} {y1:g} {x1:g} {y1:g}"
