"""The history of nodes: what each run found of them, thinned with age.

A row has the figures of one node in one run, as compressed JSON: an array of the node's own, the
names of its columns, and the values of each figure in the order of these names. Of each node the
newest rows are kept, and of older ones the last of each day, week and month, as far back as
`_TIERS` says.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from typing_extensions import Self

from lancestat.formats import string_literal
from lancestat.state.stored_table import commit_order

if TYPE_CHECKING:
    import pyarrow as pa
    from lance import LanceDataset


_Column = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ColumnFigures:
    """Figures of columns: `values` has those of a figure in the order of `names`, None for none."""

    names: Sequence[str] = ()
    values: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, columns: Mapping[str, _Column]) -> Self:
        """Return the figures of columns by name."""
        # A column with many figures says in which order they come.
        longest_first = sorted(columns.values(), key=len, reverse=True)
        keys = dict.fromkeys(key for column in longest_first for key in column)
        return cls(
            list(columns), {key: [column.get(key) for column in columns.values()] for key in keys}
        )

    def by_name(self) -> dict[str, dict[str, Any]]:
        """Return the figures of each column, as far as they are known."""
        columns: dict[str, dict[str, Any]] = {name: {} for name in self.names}
        for figure, values in self.values.items():
            for column, value in zip(columns.values(), values, strict=True):
                if value is not None:
                    column[figure] = value
        return columns


def column_series(
    points: Sequence[ColumnFigures], names: Sequence[str], figure: str
) -> list[Sequence[Any]]:
    """Return a figure of each named column at several points; None where it is not known."""
    if not points:
        return [()] * len(names)
    nothing, listed = [None] * len(names), list(names)
    rows: list[Sequence[Any]] = []
    for point in points:
        values = point.values.get(figure, nothing)
        if values is not nothing and point.names != listed:
            known = dict(zip(point.names, values, strict=True))
            values = [known.get(name) for name in names]
        rows.append(values)
    return list(zip(*rows, strict=True))


class HistoryPoint(NamedTuple):
    """The figures of a node in one run that made something of it, at the end of that run.

    `key` is that of the node's record (`state.values`). Figures are kept as they are stored, since
    there may be hundreds of thousands of points, which tuples are made of in the least time:
    `decoded` and `figures` decode them each time.
    """

    key: str
    node: str
    run_id: str
    at: datetime
    stored: bytes

    @classmethod
    def of(cls, key: str, node: str, run_id: str, at: datetime, figures: Mapping[str, Any]) -> Self:
        """Return a point of figures that are JSON; those of columns are objects by name."""
        columns = ColumnFigures.of(figures.get("columns") or {})
        own = {name: None if name == "columns" else value for name, value in figures.items()}
        text = json.dumps([own, columns.names, columns.values], separators=(",", ":"))
        return cls(key, node, run_id, at, zlib.compress(text.encode()))

    def decoded(self) -> tuple[Mapping[str, Any], ColumnFigures]:
        """Return the figures of the node, and those of its columns; none where they are damaged."""
        try:
            own, names, values = _decode(zlib.decompress(self.stored))
        except (msgspec.MsgspecError, zlib.error):
            return {}, ColumnFigures()
        return own, ColumnFigures(names, values)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.node} at {self.at:%Y-%m-%d %H:%M:%S})"

    @property
    def figures(self) -> dict[str, Any]:
        """All figures as JSON, those of columns by name; none where they are damaged."""
        own, columns = self.decoded()
        return {**own, "columns": columns.by_name()} if "columns" in own else dict(own)


_decode = msgspec.json.Decoder(tuple[dict[str, Any], list[str], dict[str, list[Any]]]).decode


NEWEST_KEPT = 48
"""How many of the newest points of a node are kept, whatever lies between them."""
# How many rows of older ones are kept, one for each span of time.
_TIERS = ((60, timedelta(days=1)), (52, timedelta(days=7)), (36, timedelta(days=28)))
MOST_POINTS = NEWEST_KEPT + sum(number for number, _ in _TIERS)
# Rows are dropped several at a time, so that most runs leave the dataset alone.
_SHARE_TOLERATED = 0.05
_DROPPED_AT_ONCE = 32


def history_schema() -> pa.Schema:
    """Columns of the history dataset; `StoredTable` gives each row its `id`."""
    import pyarrow as pa

    return pa.schema(
        [
            pa.field("id", pa.int64()),
            pa.field("table", pa.string()),
            pa.field("node", pa.string()),
            pa.field("run_id", pa.string()),
            pa.field("at", pa.timestamp("us", "UTC")),
            pa.field("figures", pa.binary()),
        ]
    )


def history_batch(points: Iterable[HistoryPoint], schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows of some points."""
    import pyarrow as pa

    rows = [
        {
            "table": point.key,
            "node": point.node,
            "run_id": point.run_id,
            "at": point.at,
            "figures": point.stored,
        }
        for point in points
    ]
    return pa.RecordBatch.from_pylist(rows, schema)


def read_history(
    dataset: LanceDataset, keys: Collection[str] | None
) -> Mapping[str, tuple[HistoryPoint, ...]]:
    """Return the points of nodes by key, oldest first."""
    predicate = None
    if keys is not None:
        predicate = f"`table` IN ({', '.join(map(string_literal, sorted(keys)))})"
    rows = dataset.to_table(filter=predicate)
    # Column by column, and with the epoch in place of zones: there may be hundreds of thousands.
    microseconds = rows.column("at").cast("int64").to_pylist()
    names, nodes, runs = (rows.column(name).to_pylist() for name in ("table", "node", "run_id"))
    stored = rows.column("figures").to_pylist()
    points: dict[str, list[HistoryPoint]] = {}
    for row in commit_order(rows.column("id")).tolist():
        at = _EPOCH + timedelta(microseconds=microseconds[row])
        point = HistoryPoint(names[row], nodes[row], runs[row], at, stored[row])
        points.setdefault(names[row], []).append(point)
    return {key: tuple(some) for key, some in points.items()}


_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def spread(points: Sequence[HistoryPoint], most: int) -> tuple[HistoryPoint, ...]:
    """Return at most so many points, the newest included, as evenly as they are there."""
    step = max(1, -(-len(points) // most))
    return tuple(points[::-1][::step][::-1])


def past_history_ids(dataset: LanceDataset) -> list[int]:
    """Return the ids of rows that need not be kept any more, once there are many."""
    rows = dataset.to_table(columns=["id", "table", "at"])
    newest_first = rows.take(commit_order(rows.column("id"))[::-1])
    by_table: dict[str, list[tuple[int, datetime]]] = {}
    for row in newest_first.to_pylist():
        by_table.setdefault(row["table"], []).append((row["id"], row["at"]))
    past = [id for points in by_table.values() for id in _past(points)]
    is_due = len(past) >= max(_DROPPED_AT_ONCE, _SHARE_TOLERATED * len(rows))
    return past if is_due else []


def _past(points: list[tuple[int, datetime]]) -> list[int]:
    """Return the ids of those points of a node that are not kept; newest come first."""
    rest = points[NEWEST_KEPT:]
    past: list[int] = []
    for number, span in _TIERS:
        kept: set[int] = set()
        for place, (id, at) in enumerate(rest):
            period = int(at.timestamp() // span.total_seconds())
            if period in kept:
                past.append(id)
            elif len(kept) == number:
                rest = rest[place:]
                break
            else:
                kept.add(period)
        else:
            return past
    return past + [id for id, _ in rest]
