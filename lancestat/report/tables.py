"""The tables that SQL sees of what is known of a project."""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum
from typing import TYPE_CHECKING

from lancestat.report.rows import (
    FRAGMENTS,
    RUNS,
    STATISTICS,
    fragment_rows,
    run_rows,
    statistics_rows,
)
from lancestat.report.runs import NodeRuns
from lancestat.report.values import ProjectReport, TableReport

if TYPE_CHECKING:
    import pyarrow as pa


class ReportTable(str, Enum):
    """What there is, by its name in SQL."""

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
