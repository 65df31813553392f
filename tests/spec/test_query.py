"""Checks of the text of a side's query without Spark."""

from __future__ import annotations

import pytest

from lancestat.spec.build import option_objection, query_objection

NO_QUERY = "is not a query, which begins with SELECT, WITH, FROM, VALUES or TABLE"
SEVERAL = "has more than one statement"


@pytest.mark.parametrize(
    "sql",
    [
        "select 1",
        "SELECT a FROM t;",
        "select ';' as a, \"x;\" as b, `c;d` from t ; ; -- and no more;",
        "/* a /* nested */ comment */ -- another\n ((select 1) union (select 2))",
        "with x as (select 1) select * from x",
        "from t select a",
        "values (1), (2)",
        "table t",
        "select 1 /* ; drop table t */",
        "select 'it\\'s; fine' as a",
        "\n\n  select\n1",
    ],
)
def test_a_query_is_left_to_spark(sql: str) -> None:
    assert query_objection(sql) is None


@pytest.mark.parametrize(
    ("sql", "objection"),
    [
        ("", "is empty"),
        (" -- nothing\n/* at all */ (", "is empty"),
        ("/* never ends select 1", "is empty"),
        ("insert overwrite directory '/victim' using parquet select 1", NO_QUERY),
        ("-- select\nCREATE TABLE t AS SELECT 1", NO_QUERY),
        ("/* /* */ select */ drop table t", NO_QUERY),
        ("set spark.sql.warehouse.dir = x", NO_QUERY),
        ("cache table t", NO_QUERY),
        ("add jar '/x.jar'", NO_QUERY),
        ("map a using 'sh' as b from t", NO_QUERY),
        ("execute immediate 'drop table t'", NO_QUERY),
        ("call system.drop('t')", NO_QUERY),
        ("begin drop table t; end", NO_QUERY),
        ("(((explain select 1)))", NO_QUERY),
        ("select 1; drop table t", SEVERAL),
        ("select 1;\n-- and\nselect 2", SEVERAL),
        ("select ';' ; 'x'", SEVERAL),
    ],
)
def test_statements_other_than_a_query_are_refused(sql: str, objection: str) -> None:
    assert query_objection(sql) == objection


@pytest.mark.parametrize(
    ("format", "key", "value", "objection"),
    [
        ("jdbc", "sessionInitStatement", "drop table t", "is a statement that the database runs"),
        ("JDBC", "PREPAREQUERY", "create table t (a int)", "is a statement that the database runs"),
        ("jdbc", "query", "delete from t", NO_QUERY),
        ("org.apache.spark.sql.jdbc", "query", "select 1; drop table t", SEVERAL),
        ("jdbc", "dbtable", "t; drop table t; --", SEVERAL),
        ("jdbc", "dbtable", "(select a from t) as q", None),
        ("jdbc", "query", "select a from t", None),
        ("jdbc", "url", "jdbc:postgresql://host/db", None),
        ("csv", "header", "true", None),
    ],
)
def test_options_that_a_database_executes_are_recognized(
    format: str, key: str, value: str, objection: str | None
) -> None:
    assert option_objection(format, key, value) == objection
