"""Queries of system views that are answered without Spark, and those that are not."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancestat.errors.base import Location, RunError, UsageError
from lancestat.errors.codes import DatasetDamaged, UnknownTable
from lancestat.query.sql.query import QueryResult, answer, mentioned_views, view_schema
from lancestat.query.sql.statement import (
    AnalyzeStatement,
    QueryContext,
    QueryText,
    explain_failure,
    find_declared,
    mentioned,
    not_declared,
    query_text,
)
from lancestat.report.gather import RUNS
from lancestat.spark.failure import WorkerError
from lancestat.spark.session import VIEW_SCHEMA_SETTING, defaults
from lancestat.spec.catalog import TableName
from lancestat.spec.model import Table

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


NAMES = ("statistics", "runs", "fragments")


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("select 1", ()),
        ("select * from orders join runs using (id)", ()),
        ("select * from my_lancestat.runs", ()),
        ("select * from lancestat.runs", ("runs",)),
        ("select * from LanceStat . `Statistics` s", ("statistics",)),
        ("select * from `lancestat`.`fragments`", ("fragments",)),
        ("select * from lancestat.runs natural join lancestat.fragments", ("runs", "fragments")),
        ("show views in lancestat", NAMES),
        ("select * from lancestat.statistic", NAMES),
    ],
)
def test_only_views_that_a_query_may_read_are_made(query: str, wanted: tuple[str, ...]) -> None:
    assert mentioned_views(query, "lancestat", NAMES) == wanted


@dataclass
class Session:
    """A session with a configuration; missing keys have the defaults of Spark."""

    conf: dict[str, str]

    def get(self, key: str) -> str:
        return self.conf.get(key, "global_temp")


@pytest.mark.parametrize(
    ("conf", "schema"),
    [
        ({}, "global_temp"),
        ({VIEW_SCHEMA_SETTING: "shared"}, "shared"),
        (defaults("local[1]", {}), "lancestat"),
    ],
)
def test_the_schema_is_that_with_which_spark_was_started(conf: dict[str, str], schema: str) -> None:
    assert view_schema(SimpleNamespace(conf=Session(conf))) == schema  # type: ignore[arg-type]


def test_in_an_existing_session_views_have_its_schema() -> None:
    assert mentioned_views("select * from lancestat.runs", "global_temp", NAMES) == ()
    assert mentioned_views("select * from global_temp.runs", "global_temp", NAMES) == ("runs",)


@pytest.mark.parametrize(
    ("schema", "name", "hint"),
    [
        ("lancestat", "lancestat.statistic", "did you mean 'lancestat.statistics'?"),
        ("lancestat", "LANCESTAT.Run", "did you mean 'lancestat.runs'?"),
        (
            "lancestat",
            "lancestat.zzz",
            "there are lancestat.statistics, lancestat.runs, lancestat.fragments",
        ),
        ("global_temp", "lancestat.runs", "did you mean 'global_temp.runs'?"),
        ("lancestat", "ordres", "did you mean 'orders'?"),
        ("lancestat", "other.zzz", "declared tables: orders"),
    ],
)
def test_an_unknown_view_has_a_hint(schema: str, name: str, hint: str) -> None:
    views = tuple(f"{schema}.{view}" for view in NAMES)
    assert QueryContext({"orders": None}, views=views).hint_for(name) == hint


@pytest.mark.parametrize(
    ("text", "span", "place", "excerpt"),
    [
        (
            "select *\n  from\torders o\nwhere x",
            (16, 21),
            "q.sql:2:8",
            "      |   from orders o\n      |        ^^^^^^",
        ),
        ("select", (6, 6), "q.sql:1:7", "      | select\n      |       ^"),
    ],
)
def test_an_excerpt_underlines_the_error(
    text: str, span: tuple[int, int], place: str, excerpt: str
) -> None:
    query = QueryText(text, "q.sql")
    assert str(query.location(span[0])) == place
    assert query.excerpt(*span) == excerpt


def test_an_excerpt_of_a_long_line_contains_the_error() -> None:
    text = QueryText("x" * 400 + "HERE" + "y" * 400)
    line, carets = text.excerpt(400, 403).splitlines()
    assert len(line) < 120
    assert line[carets.index("^") : carets.rindex("^") + 1] == "HERE"


@given(st.text(alphabet="ab \t\nö\U0001f600", max_size=30), st.integers(0, 30))
def test_line_and_position_lead_back_to_the_character(text: str, offset: int) -> None:
    query = QueryText(text)
    offset = min(offset, len(text))
    place = query.location(offset)
    assert query.offset(place.line, place.column - 1) == offset
    assert "^" in query.excerpt(offset, offset + 3)


def test_a_query_is_utf_8_with_or_without_a_mark() -> None:
    assert query_text("\ufeffselect 'é'".encode(), "q").text == "select 'é'"
    with pytest.raises(UsageError, match="byte 0xe9 is not UTF-8") as caught:
        query_text(b"select\n  '\xe9'", "q.sql")
    assert str(caught.value.location) == "q.sql:2:4"


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("select * from ORDERS", {"orders"}),
        ("select * from `Line-Items` l join orders", {"orders", "line-items"}),
        ("select 1", set()),
        ("show tables", {"orders", "line-items", "part"}),
        ("select * from identifier('or' || 'ders')", {"orders", "line-items", "part"}),
        ("select * from part order by 1 desc", {"part"}),
    ],
)
def test_only_tables_whose_names_are_written_are_opened(query: str, names: set[str]) -> None:
    assert set(mentioned(query, ["orders", "line-items", "part"])) == names


@pytest.mark.parametrize(
    ("parts", "is_case_sensitive", "name"),
    [
        (("ORDERS",), False, "orders"),
        (("ORDERS",), True, None),
        (("shop", "orders"), False, None),
        (("lake", "sales", "part"), False, "part"),
    ],
)
def test_declared_names_are_found_as_spark_finds_names(
    parts: tuple[str, ...], is_case_sensitive: bool, name: str | None
) -> None:
    written = {"part": TableName("lake", ("sales", "part")).uri, "orders": "orders.lance"}
    tables = [
        Table(name, uri, location=Location("shop.yml", 1, 1)) for name, uri in written.items()
    ]
    statement = AnalyzeStatement(parts)
    assert find_declared(statement, tables, is_case_sensitive=is_case_sensitive) == name


@pytest.mark.parametrize(
    ("parts", "declared", "hint"),
    [
        (("ordrs",), ["part", "orders"], "did you mean 'orders'?"),
        (("db", "zzz"), ["part", "orders"], "declared tables: part, orders"),
        (("x",), [], "declared tables: none"),
    ],
)
def test_an_undeclared_table_has_a_hint_with_the_declared_ones(
    parts: tuple[str, ...], declared: list[str], hint: str
) -> None:
    error = not_declared(AnalyzeStatement(parts), declared, asked_catalog=True)
    assert (error.code, error.hint) == ("LS404", hint)
    assert f"'{'.'.join(parts)}'" in error.message


def test_a_name_is_quoted_for_spark() -> None:
    assert AnalyzeStatement(("a b", "c`d")).quoted_name == "`a b`.`c``d`"


def test_an_error_of_a_worker_is_reported_unchanged() -> None:
    raised = DatasetDamaged("fragment 3 is gone", hint="restore it")
    error = Exception(f"Job aborted: {WorkerError.carrying(raised)}")
    explained = explain_failure(error, QueryText("select 1"))
    assert (type(explained), str(explained)) == (DatasetDamaged, str(raised))


def test_a_failed_task_is_reported_in_one_line_without_secrets() -> None:
    error = Exception(
        "Job aborted due to stage failure: Task 0 in stage 4.0 failed 4 times, most recent failure:"
        " Lost task 0.3 in stage 4.0 (TID 9) (10.0.0.7 executor 2): java.lang.Error: key hunter2\n"
        "\tat org.apache.spark\n"
    )
    explained = explain_failure(
        error, QueryText("select 1"), QueryContext(secrets=frozenset({"hunter2"}))
    )
    assert isinstance(explained, RunError)
    assert str(explained) == "LS513  the query failed: java.lang.Error: key ***"


def test_a_cancelled_query_is_not_a_failure_of_the_query() -> None:
    explained = explain_failure(Exception("Job 3 cancelled because"), QueryText("select 1"))
    assert (explained.code, explained.message) == ("LS512", "the query was cancelled")


def test_a_table_that_is_missing_has_one_code_in_every_statement() -> None:
    error: Any = Exception("the relation is not found")
    error.getCondition = lambda: "TABLE_OR_VIEW_NOT_FOUND"
    error.getMessageParameters = lambda: {"relationName": "`ordrs`"}
    context = QueryContext(tables={"orders": None})
    explained = explain_failure(error, QueryText("select * from ordrs"), context)
    analyzed = not_declared(AnalyzeStatement(("ordrs",)), ["orders"], asked_catalog=True)
    assert type(explained) is type(analyzed) is UnknownTable
    assert explained.hint == analyzed.hint == "did you mean 'orders'?"


def test_the_repr_of_a_context_shows_no_secrets() -> None:
    assert "hunter2" not in repr(QueryContext(secrets=frozenset({"hunter2"})))
