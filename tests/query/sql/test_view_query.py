"""Queries of system views that are answered without Spark, and those that are not."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timezone

import pyarrow as pa
import pytest

from lancestat.query.sql.query import QueryResult
from lancestat.query.sql.view_query import answer
from lancestat.report.rows import RUNS

MOMENT = datetime(2026, 3, 1, 4, 5, 6, 7_800, tzinfo=timezone.utc)
ROWS = [
    {"node": "a", "status": "success", "rows_scanned": 5, "elapsed_seconds": 1.5},
    {"node": "b", "status": "error", "rows_scanned": None, "elapsed_seconds": 1e-5},
    {"node": "c%\n", "status": "success", "rows_scanned": 7, "finished_at": MOMENT},
]


def tables(names: Collection[str]) -> Mapping[str, pa.Table]:
    assert list(names) == ["runs"]
    return {"runs": RUNS.table(ROWS)}


def asked(query: str, **options: object) -> QueryResult | None:
    return answer(query, {"runs": RUNS.columns}, tables, schema="lancestat", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("select node from lancestat.runs order by rows_scanned", [("b",), ("a",), ("c%\n",)]),
        ("select node from lancestat.runs where node like 'c%'", [("c%\n",)]),
        (
            "select elapsed_seconds e from lancestat.runs order by e",
            [(None,), ("1.0E-5",), ("1.5",)],
        ),
        ("select sum(rows_scanned), count(*) from lancestat.runs where node = 'b'", [(None, 1)]),
        ("select finished_at from lancestat.runs where node > 'b'", [(1772337906007800,)]),
        (
            "select node from lancestat.runs where rows_scanned = 5 or status = 'error' limit 1",
            [("a",)],
        ),
        ("select node from lancestat.runs where not (rows_scanned = 5)", [("c%\n",)]),
        ("select node from lancestat.runs limit 0", []),
    ],
)
def test_rows_are_those_of_spark(query: str, rows: list[tuple[object, ...]]) -> None:
    result = asked(query)
    assert result is not None
    assert list(result.rows) == rows


def test_one_row_more_than_the_limit_is_computed() -> None:
    result = asked("select node from lancestat.runs", limit=1)
    assert result is not None
    assert (len(list(result.rows)), result.limit) == (2, 1)


@pytest.mark.parametrize(
    "query",
    [
        "",
        "select 1",
        "show views in lancestat",
        "select * from lancestat.run",
        "select * from other.runs",
        "select * from runs",
        "select nothing from lancestat.runs",
        "select NODE from lancestat.runs",
        "select node from lancestat.runs as r",
        "select r.node from lancestat.runs",
        "select node, count(*) from lancestat.runs",
        "select node from lancestat.runs group by status",
        "select count(*) from lancestat.runs group by reasons",
        "select count(*) from lancestat.runs order by node",
        "select distinct reasons from lancestat.runs",
        "select distinct node from lancestat.runs order by status",
        "select node from lancestat.runs where rows_scanned = '5'",
        "select node from lancestat.runs where rows_scanned > 5.5",
        "select node from lancestat.runs where rows_scanned = 99999999999",
        "select node from lancestat.runs where node = 5",
        'select node from lancestat.runs where node = "a"',
        "select node from lancestat.runs where node = 'a' 'b'",
        "select node from lancestat.runs where node like 'a\\%'",
        "select node from lancestat.runs where finished_at > '2026-01-01'",
        "select node from lancestat.runs where rows_scanned + 1 = 6",
        "select node from lancestat.runs where node = status",
        "select avg(rows_scanned) from lancestat.runs",
        "select sum(elapsed_seconds) from lancestat.runs",
        "select upper(node) from lancestat.runs",
        "select node from lancestat.runs -- all",
        "select node from lancestat.runs union select node from lancestat.runs",
        "select node from lancestat.runs; select 1",
        "with x as (select 1) select node from lancestat.runs",
        "select node from lancestat.runs where node in (select node from lancestat.runs)",
        "select * , node from lancestat.runs",
        "insert into t select * from lancestat.runs",
        "select node n, status n from lancestat.runs order by n",
        "select node from lancestat.runs limit all",
        "select from lancestat.runs",
        "select node from lancestat.runs where",
        "select node from lancestat.runs order by 1",
    ],
)
def test_everything_else_is_left_to_spark(query: str) -> None:
    assert asked(query) is None
