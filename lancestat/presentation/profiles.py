"""What the profiles of tables have in catalogs of metadata, whatever the catalog.

Columns are there where the statistics describe the rows as they are. No rows are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from lancestat.presentation.views import StatusView

if TYPE_CHECKING:
    from lancestat.report.tables import TableReport
    from lancestat.tables.statistics.column_statistics import Histogram
    from lancestat.tables.wire import PublishedColumn

Payload = list[dict[str, Any]]


def tables(view: StatusView) -> Mapping[str, TableReport]:
    """Return the tables that can be opened, by name."""
    from lancestat.report.tables import TableReport

    return {
        _name(node, view): node
        for node in view.report.nodes
        if isinstance(node, TableReport) and node.status is not None
    }


def _name(table: TableReport, view: StatusView) -> str:
    """Return the name in a catalog, or the URI; that of the node where the URI is hidden."""
    from lancestat.redact import redact_line
    from lancestat.spec.catalog import shown_uri

    declared = table.spec.declared or table.spec
    name = redact_line(shown_uri(declared.uri))
    # What comes from the environment is shown as its template, which names no dataset.
    return f"{view.report.name}.{table.spec.name}" if "{{" in name else name


def columns(table: TableReport) -> Iterator[Mapping[str, Any]]:
    """Yield what is known of each column, where the statistics are of the rows as they are."""
    status = table.status
    assert status is not None
    if not status.use or status.reason != "current":
        return
    for name, column in status.columns.items():
        nulls, distinct = column.nulls, column.distinct
        values = None if nulls is None else max(0, status.rows - nulls)
        yield {
            "name": name,
            "values": values,
            "nulls": nulls,
            "null_share": _share(nulls, status.rows),
            "distinct": distinct,
            # Their number is estimated, and may exceed that of the values.
            "distinct_share": _share(distinct, values),
            "min": column.minimum,
            "max": column.maximum,
            "histogram": _of_numbers(
                table.histograms.get(name), status.types.get(name, ""), column
            ),
        }


class NumberHistogram(NamedTuple):
    """An equi-height histogram: `height` rows are between two neighbours of `edges`."""

    edges: tuple[float, ...]
    height: float

    def at(self, quantile: float) -> float:
        """Return a quantile; between two edges values are taken to lie evenly."""
        place = quantile * (len(self.edges) - 1)
        index = min(int(place), len(self.edges) - 2)
        low, high = self.edges[index : index + 2]
        value = low + (high - low) * (place - index)
        return round(value) if isinstance(low, int) else value

    def shown(self) -> tuple[list[float], list[float]]:
        """Return the edges of a few bins, and the rows of each."""
        bins = len(self.edges) - 1
        step = -(-bins // _BINS)
        places = [*range(0, bins, step), bins]
        edges = [self.edges[place] for place in places]
        return edges, [(end - start) * self.height for start, end in pairwise(places)]


def _of_numbers(
    histogram: Histogram | None, type: str, column: PublishedColumn
) -> NumberHistogram | None:
    """Return a histogram, None for types whose numbers stand for something else."""
    is_integer = type in _INTEGERS
    if histogram is None or not (is_integer or type in _FLOATS or type.startswith("decimal")):
        return None
    edges = [histogram.bins[0].low, *(bin.high for bin in histogram.bins)]
    if not is_integer or column.minimum is None or column.maximum is None:
        return NumberHistogram(tuple(edges), histogram.height)
    # Large numbers were rounded on the way.
    low, high = int(column.minimum), int(column.maximum)
    inner = (min(max(round(edge), low), high) for edge in edges[1:-1])
    return NumberHistogram((low, *inner, high), histogram.height)


_INTEGERS = frozenset(("tinyint", "smallint", "int", "bigint"))
_FLOATS = frozenset(("float", "double"))
_BINS = 32


def _share(part: int | None, whole: int | None) -> float | None:
    return None if part is None or not whole else min(1.0, part / whole)


def milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def known(members: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}
