"""What the profiles of tables have in catalogs of metadata, whatever the catalog.

Columns are there where the statistics describe the rows as they are. No rows are read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from lancestat.presentation.terminal import CONSOLE
from lancestat.presentation.views import StatusView

if TYPE_CHECKING:
    from lancestat.report.tables import TableReport
    from lancestat.tables.statistics.column_statistics import Histogram

Payload = list[dict[str, Any]]


def write(payload: Payload) -> None:
    """Print a list of profiles, without what the public must not see."""
    redacted = CONSOLE.redactor.json(payload, CONSOLE.audience)
    CONSOLE.json(json.dumps(redacted, indent=2, ensure_ascii=False, allow_nan=False))


def tables(view: StatusView) -> Iterator[TableReport]:
    """Yield the tables that can be opened."""
    from lancestat.report.tables import TableReport

    for node in view.report.nodes:
        if isinstance(node, TableReport) and node.status is not None:
            yield node


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
            "histogram": _of_numbers(table.histograms.get(name), status.types.get(name, "")),
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


def _of_numbers(histogram: Histogram | None, type: str) -> NumberHistogram | None:
    """Return a histogram of a few bins, None for types whose numbers stand for something else."""
    is_integer = type in _INTEGERS
    if histogram is None or not (is_integer or type in _FLOATS or type.startswith("decimal")):
        return None
    edges = [histogram.bins[0].low, *(bin.high for bin in histogram.bins)]
    step = -(-len(histogram.bins) // _BINS)
    while len(histogram.bins) % step:
        step += 1
    chosen = tuple(round(edge) if is_integer else edge for edge in edges[::step])
    return NumberHistogram(chosen, histogram.height * step)


_INTEGERS = frozenset(("tinyint", "smallint", "int", "bigint"))
_FLOATS = frozenset(("float", "double"))
_BINS = 32


def _share(part: int | None, whole: int | None) -> float | None:
    return None if part is None or not whole else min(1.0, part / whole)


def name_of(table: TableReport) -> str:
    """Return the name in a catalog, else the URI without what may be secret in it."""
    from lancestat.redact import redact_line
    from lancestat.spec.catalog import shown_uri

    declared = table.spec.declared or table.spec
    return redact_line(shown_uri(declared.uri))


def milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def known(members: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}
