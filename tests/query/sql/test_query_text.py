from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancestat.errors import DatasetDamaged, RunError, UnknownTable, UsageError
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
from lancestat.spark.failure import WorkerError


def test_an_excerpt_underlines_the_error() -> None:
    text = QueryText("select *\n  from\torders o\nwhere x", "q.sql")
    start = text.text.index("orders")
    assert str(text.location(start)) == "q.sql:2:8"
    assert text.excerpt(start, start + 5) == "      |   from orders o\n      |        ^^^^^^"


def test_an_excerpt_of_a_long_line_contains_the_error() -> None:
    text = QueryText("x" * 400 + "HERE" + "y" * 400)
    line, carets = text.excerpt(400, 403).splitlines()
    assert len(line) < 120
    assert line[carets.index("^") : carets.rindex("^") + 1] == "HERE"


def test_the_end_of_the_text_has_a_location() -> None:
    text = QueryText("select")
    assert text.excerpt(6) == "      | select\n      |       ^"
    assert str(text.location(6)) == "query:1:7"


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


def test_declared_names_are_found_as_spark_finds_names() -> None:
    statement = AnalyzeStatement(("ORDERS",))
    assert find_declared(statement, ["part", "orders"], is_case_sensitive=False) == "orders"
    assert find_declared(statement, ["part", "orders"], is_case_sensitive=True) is None
    elsewhere = AnalyzeStatement(("shop", "orders"))
    assert find_declared(elsewhere, ["orders"], is_case_sensitive=False) is None


def test_an_undeclared_table_has_a_hint_with_the_declared_ones() -> None:
    error = not_declared(AnalyzeStatement(("ordrs",)), ["part", "orders"], asked_catalog=True)
    assert (error.code, error.hint) == ("LS404", "did you mean 'orders'?")
    error = not_declared(AnalyzeStatement(("db", "zzz")), ["part", "orders"], asked_catalog=True)
    assert error.hint == "declared tables: part, orders"
    assert "'db.zzz'" in error.message
    assert (
        not_declared(AnalyzeStatement(("x",)), [], asked_catalog=False).hint
        == "declared tables: none"
    )


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
