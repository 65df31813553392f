"""The history of nodes: what runs found of them, and what is proved of the time before."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from lancestat.errors import LakeError
from lancestat.joins.record import decode_record as decode_join
from lancestat.lake.open import pinned_history, snapshot_at
from lancestat.lake.snapshot import Snapshot
from lancestat.report.rows import CellType, Row, RowShape
from lancestat.runs.observe import Observer
from lancestat.spec.model import NodeKind
from lancestat.state.history import HistoryPoint
from lancestat.state.store import StateReader
from lancestat.tables.judgement import TableStatistics
from lancestat.tables.node import assess_table
from lancestat.tables.statistics.column_statistics import BOUNDS_FIRST
from lancestat.tables.stored import decode_record
from lancestat.tables.wire import column_figures

_log = logging.getLogger("lancestat.report")

History = tuple[HistoryPoint, ...]
# How many versions of a table are opened for the time before its first run.
_VERSIONS_OPENED = 50


def recorded_history(
    state: StateReader, keys: Collection[str] | None = None
) -> Mapping[str, History]:
    """Return the history of nodes by the keys of their records, oldest first; None is of all.

    Runs before the first that kept a history count as far as their records are still there.
    """
    kept = {
        key: tuple(point for point in points if point.decoded()[0])
        for key, points in state.history(keys).items()
    }
    past: dict[str, list[HistoryPoint]] = {}
    for kind, decode in _RECORDED:
        for key, records in state.past_records(kind, decode).items():
            if keys is not None and key not in keys:
                continue
            first = kept[key][0].at if kept.get(key) else None
            past[key] = [
                HistoryPoint.of(
                    key,
                    run.nodes[0].node,
                    run.run_id,
                    run.finished_at,
                    {
                        **record.history_figures(),
                        "bytes_read": None,
                        "seconds": run.nodes[0].result.get("elapsed_seconds"),
                    },
                )
                for run, record in records
                if first is None or run.finished_at < first
            ]
    return {key: (*past.get(key, ()), *kept.get(key, ())) for key in {**past, **kept}}


_RECORDED: Sequence[tuple[str, Any]] = (
    (NodeKind.TABLE.value, decode_record),
    (NodeKind.KNN_JOIN.value, decode_join),
)


def table_history(observer: Observer, name: str) -> History:
    """Return what is known of a table's past, oldest first, with versions before its first run.

    Raises:
        UnknownTable: No table has this name.
        LancestatError: The dataset cannot be opened, or the state cannot be read.
    """
    assessment, _ = assess_table(observer, observer.spec.table(name))
    key, snapshot = assessment.identity, assessment.snapshot
    points = recorded_history(observer.state, [key]).get(key, ())
    options = observer.spec.options.of(snapshot.uri)
    return with_versions(points, key, name, snapshot, options)


def with_versions(
    history: History, key: str, node: str, snapshot: Snapshot, options: Mapping[str, str]
) -> History:
    """Return a table's history with the versions before it that the dataset still has.

    Rows and fragments are those of each version, and columns what it has published of itself.
    """
    first = min((point.decoded()[0]["version"] for point in history), default=snapshot.version + 1)
    try:
        before = [*_versions(key, node, snapshot, first, options)]
    except LakeError as error:
        _log.warning("earlier versions of '%s' are not known: %s", node, error.message)
        return history
    return (*before, *history)


def _versions(
    key: str, node: str, now: Snapshot, first: int, options: Mapping[str, str]
) -> Iterator[HistoryPoint]:
    with pinned_history(now.pin, options) as newest:
        for number in range(max(1, first - _VERSIONS_OPENED), first):
            version = snapshot_at(newest, number, now.uri, options)
            if version is None or version.committed_at is None:
                continue
            published = TableStatistics(version).published
            is_own = published is not None and published.version_tag == number
            figures = {
                "version": number,
                "rows": version.rows,
                "fragments": len(version.fragments),
                "size_bytes": version.size_bytes,
                "columns": column_figures(version.config) if is_own else {},
                "bytes_read": None,
                "seconds": None,
            }
            yield HistoryPoint.of(key, node, "", version.committed_at, figures)


_TEXT, _COUNT, _NUMBER = CellType.TEXT, CellType.COUNT, CellType.NUMBER
_OF_NODE = {
    "version": _COUNT,
    "rows": _COUNT,
    "fragments": _COUNT,
    "size_bytes": _COUNT,
    "bytes_read": _COUNT,
    "seconds": _NUMBER,
    "left_rows": _COUNT,
    "right_rows": _COUNT,
    "unmatched_left_rows": _COUNT,
    "recall": _NUMBER,
    "duplicate_groups": _COUNT,
    "duplicate_rows": _COUNT,
    "duplicate_pairs": _COUNT,
}
_OF_COLUMN = {
    statistic.sql_name: _TEXT if statistic.is_bound else _COUNT for statistic in BOUNDS_FIRST
}
HISTORY = RowShape(
    {
        "node": _TEXT,
        "run_id": _TEXT,
        "at": CellType.INSTANT,
        "column": _TEXT,
        **_OF_NODE,
        **_OF_COLUMN,
    }
)


def history_rows(points: Iterable[HistoryPoint]) -> Iterator[Row]:
    """A row per node and run, and one for each column of a table, in which `column` is set."""
    for point in points:
        head: Row = {"node": point.node, "run_id": point.run_id or None, "at": point.at}
        own, columns = point.decoded()
        yield {**head, **{name: own.get(name) for name in _OF_NODE}}
        for column, figures in columns.by_name().items():
            of_column = {name: figures.get(name) for name in _OF_COLUMN}
            yield {**head, "column": column, "version": own.get("version"), **of_column}
