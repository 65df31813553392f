"""Rows for SQL and files have exactly their declared columns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa
import pytest

from lancestat.report.gather import (
    FRAGMENTS,
    RUNS,
    STATISTICS,
    CellType,
    ReportTable,
    Row,
    RowShape,
    fragment_rows,
    report_tables,
    run_rows,
    statistics_rows,
)
from lancestat.report.tables import FragmentReport, TableReport
from lancestat.report.values import ProjectReport
from tests.cli.statuses import NOW, SHOWN, join, ran, table

TABLE = replace(
    table("orders"),
    fragments=(FragmentReport(7, 90, 10, 2, None, 1), FragmentReport(8, 1, 0, 1, 5, 3)),
)


def names(rows: Iterable[Row]) -> set[str]:
    return {name for row in rows for name in row}


def test_every_column_is_filled_somewhere_and_typed() -> None:
    rows = [*statistics_rows(SHOWN)]
    assert names(rows) == set(STATISTICS.columns)
    shape = STATISTICS.table(rows)
    assert shape.schema.field("computed_at").type == pa.timestamp("us", "UTC")
    assert shape.schema.field("changed_rows").type == pa.float64()
    assert shape.column("computed_at").to_pylist()[0] == SHOWN.computed_at
    assert names(fragment_rows(TABLE)) == set(FRAGMENTS.columns)
    ended = [*run_rows([*TABLE.runs, *join("near").runs])]
    assert names(ended) >= set(RUNS.columns)
    assert RUNS.table(ended).column("pairs").to_pylist() == [None, 4_000_000]


def test_the_columns_of_runs_are_those_of_their_json() -> None:
    assert RUNS.columns["reasons"] is CellType.TEXTS
    assert RUNS.columns["status"] is RUNS.columns["strategy"] is CellType.TEXT
    assert RUNS.columns["elapsed_seconds"] is RUNS.columns["recall"] is CellType.NUMBER
    assert RUNS.columns["rows_scanned"] is RUNS.columns["pairs"] is CellType.COUNT
    [row] = RUNS.table(run_rows([ran("orders")])).to_pylist()
    assert (row["node"], row["kind"], row["reasons"]) == ("orders", "table", ["rows_appended"])
    assert (row["run_id"], row["finished_at"]) == ("4f1c", ran("orders").finished_at)


def test_columns_without_statistics_have_rows_without_figures() -> None:
    *_, missing = statistics_rows(replace(SHOWN, missing=("o_new",), use=False, reason="stale"))
    assert (missing["column"], missing["type"], missing["verdict"]) == ("o_new", "double", "refuse")
    assert missing["fragments_covered"] == 0
    assert missing["min"] is missing["null_count"] is missing["distinct_count"] is None


@pytest.mark.parametrize("shape", [STATISTICS, RUNS, FRAGMENTS])
def test_a_table_may_have_no_rows(shape: RowShape) -> None:
    empty = shape.table([])
    assert (empty.num_rows, empty.column_names) == (0, list(shape.columns))


def test_only_requested_views_are_computed() -> None:
    lost = replace(TABLE, status=None, fragments=())
    asked: list[str] = []

    def report() -> ProjectReport:
        asked.append("report")
        return ProjectReport("shop", "dev", NOW, (TABLE, lost), {})

    def runs() -> dict[str, tuple[object, ...]]:
        asked.append("runs")
        old, new = (replace(ran("a"), finished_at=NOW.replace(year=y)) for y in (2020, 2025))
        return {"a": (old,), "b": (new,)}

    every = report_tables(frozenset(ReportTable), report, runs)  # type: ignore[arg-type]
    assert {name: rows.num_rows for name, rows in every.items()} == {
        "statistics": 2,
        "runs": 2,
        "fragments": 2,
    }
    assert [at.year for at in every["runs"].column("finished_at").to_pylist()] == [2025, 2020]
    assert every["fragments"].column("columns").to_pylist() == [3, 3]
    assert asked == ["runs", "report"]
    for name, needs in (("runs", "runs"), ("statistics", "report"), ("fragments", "report")):
        asked.clear()
        assert list(report_tables([ReportTable(name)], report, runs)) == [name]  # type: ignore[arg-type]
        assert asked == [needs]
    assert report_tables([], report, runs) == {}  # type: ignore[arg-type]
    assert isinstance(TABLE, TableReport)
