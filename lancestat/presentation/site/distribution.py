"""Histograms drawn to scale: intervals of equal width, whose bars are rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from itertools import pairwise

from markupsafe import Markup

from lancestat.formats import count, large
from lancestat.tables.statistics.column_statistics import Histogram

INTERVALS = 48
_MOST_VALUES = 60
# Up to here, half of one can be added to a double.
_LARGEST_WHOLE = 2.0**52
_PARTS = 10
WIDTH, HEIGHT = 240, 56
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True, slots=True)
class Scale:
    """The scale of a histogram's numbers: `kind` is `number`, `date`, `timestamp` or `time`."""

    kind: str

    def text(self, value: float) -> str:
        """A value as people write it."""
        if self.kind == "number":
            return number_text(value)
        try:
            if self.kind == "date":
                return (_EPOCH + timedelta(days=round(value))).strftime("%Y-%m-%d")
            form = "%H:%M:%S" if self.kind == "time" else "%Y-%m-%d %H:%M:%S"
            return (_EPOCH + timedelta(microseconds=value)).strftime(form)
        except (OverflowError, ValueError):
            return number_text(value)

    def drawn(self, values: Iterable[float]) -> list[float]:
        """Values on the axis of the chart: seconds where they are times."""
        factor = {"date": 86_400.0, "timestamp": 1e-6, "time": 1e-6}.get(self.kind, 1.0)
        return [value * factor for value in values]


@dataclass(frozen=True, slots=True)
class Part:
    """Values between two ends, which about `rows` rows hold."""

    low: str
    high: str
    rows: str
    distinct: str


@dataclass(frozen=True, slots=True)
class Distribution:
    """The distribution of a column's rows between its bounds.

    `edges` and `rows` are of intervals of equal width, which hold the values that are `margin` or
    more away from their edges: 0, or half of one for whole numbers. `path` draws them in a box of
    `width` by `height`. `parts` have about equally many rows each.
    """

    edges: tuple[float, ...]
    rows: tuple[float, ...]
    path: Markup
    kind: str
    low: str
    high: str
    bins: int
    parts: tuple[Part, ...]
    margin: float
    width: int = WIDTH
    height: int = HEIGHT

    @property
    def chart(self) -> dict[str, object]:
        """The data that the chart on the page is drawn from."""
        return {
            "kind": self.kind,
            "from": _short(self.edges[0]),
            "to": _short(self.edges[-1]),
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
    scale = Scale(kind)
    return Distribution(
        edges=tuple(scale.drawn(edges)),
        rows=tuple(rows),
        path=outline(rows),
        kind=kind,
        low=scale.text(low),
        high=scale.text(high),
        bins=len(bins),
        parts=_parts(histogram, scale),
        margin=scale.drawn([low - edges[0]])[0] if edges[0] < low else 0.0,
    )


def _edges(low: float, high: float, ends: Iterable[float]) -> list[float]:
    """Of intervals with equally many whole numbers where all ends are whole, else equally wide.

    An interval with one number more than the others would look as if it were more frequent.
    """
    is_exact = max(-low, high) < _LARGEST_WHOLE
    if is_exact and all(end == int(end) for end in ends):
        values = int(high - low) + 1
        step = 1 if values <= _MOST_VALUES else -(-values // INTERVALS)
        return [low - 0.5 + step * index for index in range(-(-values // step) + 1)]
    width = (high - low) / INTERVALS
    edges = [*(low + width * step for step in range(INTERVALS)), high]
    if all(left < right for left, right in pairwise(edges)):
        return edges
    # The bounds are so near to each other that there are not as many numbers between them.
    return [low, high] if low < high else [low - math.ulp(low) - 0.5, high + math.ulp(high) + 0.5]


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


def outline(rows: Sequence[float]) -> Markup:
    """Return the outline of bars over intervals of equal width, as an SVG path."""
    highest = max(rows) or 1.0
    step = WIDTH / len(rows)
    tops = (f"V{coordinate(HEIGHT * (1 - row_count / highest))}" for row_count in rows)
    ends = (f"H{coordinate(step * (index + 1))}" for index in range(len(rows)))
    bars = "".join(top + end for top, end in zip(tops, ends, strict=True))
    # Numbers alone: nothing to escape.
    return Markup(f"M0 {HEIGHT}{bars}V{HEIGHT}Z")


def coordinate(value: float) -> str:
    """Return a coordinate as an SVG path has it."""
    return f"{value:.1f}".removesuffix(".0")


def _parts(histogram: Histogram, scale: Scale) -> tuple[Part, ...]:
    """Neighbouring bins together, about equally many in each part."""
    bins = histogram.bins
    parts = min(_PARTS, len(bins))
    stops = [round(len(bins) * part / parts) for part in range(parts + 1)]
    made = []
    for start, stop in pairwise(stops):
        together = bins[start:stop]
        # The end of a bin is the beginning of the next, and counts in both.
        distinct = sum(bin_.distinct for bin_ in together) - (len(together) - 1)
        made.append(
            Part(
                scale.text(together[0].low),
                scale.text(together[-1].high),
                count(round(histogram.height * len(together))),
                large(distinct),
            )
        )
    return tuple(made)


def _short(value: float) -> float | int:
    """Enough digits for a pixel, and for a microsecond of these days."""
    rounded = float(f"{value:.12g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def number_text(value: float) -> str:
    """Return a number as people write it, with at most six digits unless it is whole."""
    if value == int(value) and abs(value) < 1e15:
        return count(int(value))
    return f"{value:,.6g}"
