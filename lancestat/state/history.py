"""The history of nodes: what each run found of them, thinned with age.

A row has the figures of one node in one run, as compressed JSON. Of each node the newest rows are
kept, and of older ones the last of each day, week and month, as far back as `_TIERS` says.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import msgspec

from lancestat.formats import string_literal
from lancestat.state.stored_table import commit_order

if TYPE_CHECKING:
    import pyarrow as pa
    from lance import LanceDataset


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    """The figures of a node in one run that made something of it, at the end of that run.

    `key` is that of the node's record (`state.values`). Figures are JSON.
    """

    key: str
    node: str
    run_id: str
    at: datetime
    figures: Mapping[str, Any]


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
            "figures": zlib.compress(json.dumps(point.figures, separators=(",", ":")).encode()),
        }
        for point in points
    ]
    return pa.RecordBatch.from_pylist(rows, schema)


def read_history(
    dataset: LanceDataset, keys: Collection[str] | None, most: int | None = None
) -> Mapping[str, tuple[HistoryPoint, ...]]:
    """Return the points of nodes by key, oldest first; those that do not decode are left out.

    Of more than `most` points of a node as many are returned, the newest included, as evenly as
    they are there.
    """
    predicate = None
    if keys is not None:
        predicate = f"`table` IN ({', '.join(map(string_literal, sorted(keys)))})"
    rows = dataset.to_table(filter=predicate)
    rows = rows.take(commit_order(rows.column("id")))
    # Column by column, and with the epoch in place of zones: there may be hundreds of thousands.
    microseconds = rows.column("at").cast("int64").to_pylist()
    texts = (rows.column(name).to_pylist() for name in ("table", "node", "run_id", "figures"))
    stored: dict[str, list[_Stored]] = {}
    for key, *row in zip(*texts, microseconds, strict=True):
        stored.setdefault(key, []).append((key, *row))
    points = {key: map(_point, _spread(some, most)) for key, some in stored.items()}
    return {key: tuple(filter(None, some)) for key, some in points.items()}


# The values of a row: its key, node, run, figures, and microseconds since 1970.
_Stored = tuple[str, str, str, bytes, int]


def _spread(rows: list[_Stored], most: int | None) -> list[_Stored]:
    step = 1 if most is None else -(-len(rows) // most)
    return rows[::-1][::step][::-1]


def _point(row: _Stored) -> HistoryPoint | None:
    key, node, run_id, stored, at = row
    try:
        figures = _decode(zlib.decompress(stored))
    except (msgspec.MsgspecError, zlib.error):
        return None
    return HistoryPoint(key, node, run_id, _EPOCH + timedelta(microseconds=at), figures)


_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_decode = msgspec.json.Decoder(dict[str, Any]).decode


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
