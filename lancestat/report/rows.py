"""Runs, statistics and tables as rows, for the system views."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from enum import Enum
from typing import TYPE_CHECKING

from lancestat.plan.actions import JoinFigures
from lancestat.plan.node_result import NodeResult
from lancestat.plan.table_status import TableStatus
from lancestat.report.values import NodeRunReport, ProjectReport, TableReport
from lancestat.state.values import NodeOutcome, StateReader
from lancestat.statistics.column_statistics import BOUNDS_FIRST

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger("lancestat.report")

# More than the state keeps.
ALL = 1_000_000

NodeRuns = Mapping[str, tuple[NodeRunReport, ...]]


def runs_by_node(state: StateReader, target: str, limit: int) -> NodeRuns:
    """By node, the newest runs under a target, newest first; what does not decode is left out.

    Args:
        state: Which may be that of several targets.
        target: Whose runs are of interest.
        limit: How many runs of a node are looked at.
    """
    found = state.outcomes(target, limit)
    return {node: _reports(outcomes) for node, outcomes in found.items()}


def _reports(outcomes: tuple[NodeOutcome, ...]) -> tuple[NodeRunReport, ...]:
    reports = []
    for each in outcomes:
        try:
            result = NodeResult.from_json(each.result)
        except ValueError as error:
            _log.debug("an outcome of run %s is skipped: %s", each.run_id, error)
            continue
        reports.append(
            NodeRunReport(each.run_id, each.command, each.target, each.finished_at, result)
        )
    return tuple(reports)


Row = dict[str, object]


class CellType(str, Enum):
    """What the cells of a column are; any may be null. The spelling is Spark's."""

    TEXT = "string"
    TEXTS = "array<string>"
    COUNT = "bigint"
    NUMBER = "double"
    INSTANT = "timestamp"


@dataclass(frozen=True, slots=True)
class RowShape:
    """The columns of some rows, in their order, each with the type of its cells."""

    columns: Mapping[str, CellType]

    def table(self, rows: Iterable[Row]) -> pa.Table:
        """Rows as an Arrow table; instants are microseconds in UTC."""
        import pyarrow as pa

        types = {
            CellType.TEXT: pa.string(),
            CellType.TEXTS: pa.list_(pa.string()),
            CellType.COUNT: pa.int64(),
            CellType.NUMBER: pa.float64(),
            CellType.INSTANT: pa.timestamp("us", "UTC"),
        }
        schema = pa.schema([pa.field(name, types[of]) for name, of in self.columns.items()])
        return pa.Table.from_pylist(list(rows), schema)


_TEXT, _TEXTS, _COUNT = CellType.TEXT, CellType.TEXTS, CellType.COUNT
_NUMBER, _INSTANT = CellType.NUMBER, CellType.INSTANT

STATISTICS = RowShape(
    {
        "table": _TEXT,
        "column": _TEXT,
        "type": _TEXT,
        **{
            statistic.sql_name: _TEXT if statistic.is_bound else _COUNT
            for statistic in BOUNDS_FIRST
        },
        "rows": _COUNT,
        "version": _COUNT,
        "computed_at": _INSTANT,
        "versions_behind": _COUNT,
        "changed_rows": _NUMBER,
        "fragments": _COUNT,
        "fragments_covered": _COUNT,
        "verdict": _TEXT,
        "reason": _TEXT,
        "detail": _TEXT,
        "policy": _TEXT,
    }
)

# What a run's row begins with, and what only plans have.
_ELSEWHERE = frozenset({"name", "kind", "join", "why", "estimated_seconds"})
_CELLS = {"int": _COUNT, "float": _NUMBER, "tuple[str, ...]": _TEXTS}


def _result_columns() -> Iterator[tuple[str, CellType]]:
    """Those of a node's object in the JSON of runs, less what stands before them."""
    for field in (*fields(NodeResult), *fields(JoinFigures)):
        if field.name not in _ELSEWHERE:
            # Annotations are texts here.
            yield field.name, _CELLS.get(str(field.type).removesuffix(" | None"), _TEXT)


RUNS = RowShape(
    {
        "run_id": _TEXT,
        "command": _TEXT,
        "target": _TEXT,
        "finished_at": _INSTANT,
        "node": _TEXT,
        "kind": _TEXT,
        **dict(_result_columns()),
    }
)

FRAGMENTS = RowShape(
    {
        "table": _TEXT,
        "fragment": _COUNT,
        "rows": _COUNT,
        "deleted_rows": _COUNT,
        "files": _COUNT,
        "size_bytes": _COUNT,
        "columns": _COUNT,
        "columns_covered": _COUNT,
    }
)


def statistics_rows(shown: TableStatus) -> Iterator[Row]:
    """A row per column that has statistics or is wanted to; figures that are not known are null."""
    whole: Row = {
        "table": shown.table,
        "rows": shown.rows,
        "version": shown.version,
        "computed_at": shown.computed_at,
        "versions_behind": shown.versions_behind,
        "changed_rows": shown.changed_rows,
        "fragments": shown.fragments,
        "verdict": "use" if shown.use else "refuse",
        "reason": shown.reason,
        "detail": shown.detail,
        "policy": shown.policy,
    }
    for name in (*shown.columns, *shown.missing):
        column = shown.columns.get(name)
        yield {
            **whole,
            "column": name,
            "type": shown.types.get(name),
            **{
                statistic.sql_name: None if column is None else statistic.of(column)
                for statistic in BOUNDS_FIRST
            },
            "fragments_covered": (shown.covered or {}).get(name),
        }


def run_rows(runs: Iterable[NodeRunReport]) -> Iterator[Row]:
    """A row per run of a node."""
    for run in runs:
        result = run.result
        figures = asdict(result.join or JoinFigures())
        yield {
            **figures,
            **result.to_json(),
            "run_id": run.run_id,
            "command": run.command,
            "target": run.target,
            "finished_at": run.finished_at,
            "node": result.name,
            "kind": result.kind,
        }


def fragment_rows(table: TableReport) -> Iterator[Row]:
    """A row per fragment of a table that could be opened."""
    shown = table.shown
    wanted = None if shown is None or shown.covered is None else len(shown.covered)
    for each in table.fragments:
        yield {
            "table": table.spec.name,
            "fragment": each.id,
            "rows": each.rows,
            "deleted_rows": each.deleted_rows,
            "files": each.files,
            "size_bytes": each.size_bytes,
            "columns": wanted,
            "columns_covered": each.covered,
        }


class ReportTable(str, Enum):
    """The system views, by their names in SQL."""

    STATISTICS = "statistics"
    RUNS = "runs"
    FRAGMENTS = "fragments"


def report_tables(
    wanted: Collection[ReportTable],
    report: Callable[[], ProjectReport],
    runs: Callable[[], NodeRuns],
) -> dict[str, pa.Table]:
    """The wanted ones by name; only what they need is gathered.

    Args:
        wanted: Which.
        report: Gathers all tables, with their fragments.
        runs: Gathers all runs, newest first.
    """
    found: dict[str, pa.Table] = {}
    if ReportTable.RUNS in wanted:
        ended = [run for each in runs().values() for run in each]
        ended.sort(key=lambda run: run.finished_at, reverse=True)
        found[ReportTable.RUNS.value] = RUNS.table(run_rows(ended))
    if {ReportTable.STATISTICS, ReportTable.FRAGMENTS}.isdisjoint(wanted):
        return found
    tables = [node for node in report().nodes if isinstance(node, TableReport)]
    if ReportTable.STATISTICS in wanted:
        shown = (table.shown for table in tables if table.shown is not None)
        rows = (row for each in shown for row in statistics_rows(each))
        found[ReportTable.STATISTICS.value] = STATISTICS.table(rows)
    if ReportTable.FRAGMENTS in wanted:
        rows = (row for table in tables for row in fragment_rows(table))
        found[ReportTable.FRAGMENTS.value] = FRAGMENTS.table(rows)
    return found
