"""System views of a project, compared with the output of `show`."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from lancestat.cli.main import cli
from lancestat.project import Project
from tests.examples import each
from tests.hidden_spark import hide_spark
from tests.runs.world import write_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Sql = Callable[..., Result]

# Names that lancestat's own schema and views have too.
TABLES: list[str | dict[str, object]] = [
    "orders",
    {"name": "statistics", "uri": "statistics.lance", "columns": ["id"]},
    {"name": "lancestat", "uri": "lancestat.lance", "publish": "none"},
    "gone",
]


def rows(start: int, stop: int) -> pa.Table:
    numbers = range(start, stop)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "day": pa.array([n % 30 for n in numbers], pa.int32()).cast(pa.date32()),
            "note": [f"note {n % 5}" for n in numbers],
        }
    )


@pytest.fixture(scope="module")
def shop(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables after a run, one of which has been appended to since."""
    folder = tmp_path_factory.mktemp("shop")
    lance.write_dataset(rows(0, 100), str(folder / "orders.lance"), max_rows_per_file=25)
    for name in ("statistics", "lancestat"):
        lance.write_dataset(rows(0, 10), str(folder / f"{name}.lance"))
    target = {"state": ".state", "spark": {"master": "local[2]"}}
    write_project(folder, *TABLES, target=target).run()
    lance.write_dataset(rows(100, 125), str(folder / "orders.lance"), mode="append")
    return folder


@pytest.fixture
def sql(shop: Path) -> Sql:
    def run(query: str, *args: str) -> Result:
        return CliRunner().invoke(
            cli, ["--project-dir", str(shop), "sql", query, *args], prog_name="lancestat"
        )

    return run


def rows_of(ran: Result) -> list[dict[str, Any]]:
    assert ran.exit_code == 0, ran.output
    payload = json.loads(ran.stdout)
    names = [column["name"] for column in payload["columns"]]
    return [dict(zip(names, row, strict=True)) for row in payload["rows"]]


def asked(sql: Sql, query: str) -> list[dict[str, Any]]:
    return rows_of(sql(query, "--output", "json"))


def test_statistics_equal_those_of_show(sql: Sql, shop: Path) -> None:
    status = Project.load(shop).show("orders")
    records = asked(
        sql, "select * from lancestat.statistics where table = 'orders' order by column"
    )
    assert [row["column"] for row in records] == ["day", "id", "note"]
    for row in records:
        column = status.columns[row["column"]]
        assert (row["min"], row["max"]) == (column.minimum, column.maximum)
        assert (row["null_count"], row["distinct_count"]) == (column.nulls, column.distinct)
        assert (row["avg_len"], row["max_len"]) == (column.average_length, column.maximum_length)
        assert row["computed_at"] is not None
        assert datetime.fromisoformat(row["computed_at"]) == status.computed_at
    [one] = [row for row in records if row["column"] == "id"]
    assert (one["type"], one["min"], one["max"], one["rows"]) == ("bigint", "0", "99", 125)
    assert (one["fragments"], one["fragments_covered"]) == (5, 4)
    assert (one["verdict"], one["reason"], one["versions_behind"]) == ("refuse", "stale", 1)
    assert one["changed_rows"] == 0.2
    csv = sql("select * from lancestat.statistics where table = 'orders'", "--output", "csv")
    show = ["--project-dir", str(shop), "show", "orders", "--output", "csv"]
    assert csv.stdout == CliRunner().invoke(cli, show).stdout
    assert len(csv.stdout.splitlines()) == 4


def test_values_have_types_that_sql_can_work_with(sql: Sql) -> None:
    query = """
        select count_if(computed_at > timestamp "2020-01-01") as known,
            sum(null_count) as nulls, typeof(any_value(changed_rows)) as share
        from LANCESTAT.Statistics
    """
    assert asked(sql, query) == [{"known": 7, "nulls": 0, "share": "double"}]


def test_runs_and_fragments_have_rows(sql: Sql) -> None:
    """tests/report/test_rows.py has every column."""
    runs = asked(
        sql,
        "select node, status, reasons, rows_scanned, code, finished_at <= current_timestamp() past "
        "from lancestat.runs order by node",
    )
    assert [row["node"] for row in runs] == ["gone", "lancestat", "orders", "statistics"]
    gone, _, orders, _ = runs
    assert (gone["status"], gone["rows_scanned"], gone["code"]) == ("error", None, "LS201")
    assert (orders["reasons"], orders["rows_scanned"], orders["past"]) == (["new"], 100, True)
    fragments = asked(
        sql,
        "select fragment, rows, columns_covered from lancestat.fragments where table = 'orders' "
        "order by fragment",
    )
    assert [tuple(row.values()) for row in fragments] == [
        (number, 25, 0 if number == 4 else 3) for number in range(5)
    ]


def test_system_views_and_declared_tables_with_their_names_are_distinct(sql: Sql) -> None:
    query = """
        select (select count(*) from statistics) as own, (select count(*) from lancestat) as other,
            (select count(distinct table) from lancestat.statistics) as told
    """
    assert asked(sql, query) == [{"own": 10, "other": 10, "told": 3}]
    joined = asked(
        sql,
        "select s.table, count(*) n from lancestat.statistics s join lancestat.runs r "
        "on s.table = r.node group by 1 order by 1",
    )
    assert joined == [
        {"table": "lancestat", "n": 3},
        {"table": "orders", "n": 3},
        {"table": "statistics", "n": 1},
    ]


def test_views_exist_only_during_their_query(sql: Sql, spark: SparkSession) -> None:
    listed = asked(sql, "show views in lancestat")
    assert {row["viewName"] for row in listed} >= {"statistics", "runs", "fragments"}
    # Asked of Spark's own record, since the session catalog may be another one's by now.
    views = spark._jsparkSession.sharedState().globalTempViewManager()
    assert views.listViewNames("*").isEmpty()
    assert sql("select 1 as one", "--output", "csv").stdout == "one\n1\n"
    explained = sql("select node from lancestat.runs where status = 'error'", "--explain")
    assert (explained.exit_code, "Scan" in explained.stdout) == (0, True), explained.output


def test_an_unknown_view_is_an_error_that_lists_the_existing_ones(sql: Sql) -> None:
    result = sql("select *\nfrom lancestat.statistic")
    assert result.exit_code == 2
    assert result.stderr.splitlines() == [
        "LS404 query:2:6  there is no table or view 'lancestat.statistic'",
        "      | from lancestat.statistic",
        "      |      ^^^^^^^^^^^^^^^^^^^",
        "      hint: did you mean 'lancestat.statistics'?",
    ]


# What a query means is what Spark says it means.
WITHOUT_SPARK = (
    "select * from lancestat.runs order by node",
    "select * from lancestat.statistics order by table, column",
    "select * from lancestat.fragments order by table desc, fragment",
    "select node as n, status s, message from lancestat.runs where rows_scanned is null",
    "select count(*), count(rows_scanned), count(distinct status), min(node), max(finished_at), "
    "sum(rows_scanned) as rows from lancestat.runs",
    "select count(*) as n, sum(rows_scanned) from lancestat.runs where node = 'nobody'",
    "select status, count(*) as n from lancestat.runs group by status order by n desc, status;",
    "select node, rows_scanned from lancestat.runs order by rows_scanned, node",
    "select node, rows_scanned from lancestat.runs order by rows_scanned desc, node",
    "select node from lancestat.runs order by rows_scanned desc nulls first, node limit 2",
    "select node from lancestat.runs order by rows_scanned asc nulls last, node limit 2",
    "select distinct table, version from lancestat.statistics order by version desc, table",
    "select `column`, min, max from lancestat.statistics where table = 'orders' "
    "and (column like 'd%' or column like 'n_t_') and not null_count > 0 order by column",
    "select node from lancestat.runs where not rows_scanned in (100, 7) order by node",
    "select node from lancestat.runs where rows_scanned not in (100) or code = 'LS201' "
    "order by node",
    "select table, changed_rows from lancestat.statistics where changed_rows >= 0.2 "
    "or changed_rows <> 0 order by table, changed_rows",
    "select max(changed_rows), min(changed_rows), max(column) from lancestat.statistics",
    "select node from lancestat.runs where status <> 'success' and elapsed_seconds < 9",
    "select reasons, node from lancestat.runs where action like '%' order by node limit 1",
)


@pytest.mark.parametrize(("query", "form"), each(WITHOUT_SPARK, ["json", "csv", "text"]))
def test_what_is_answered_without_spark_is_what_spark_answers(
    sql: Sql, shop: Path, query: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_spark = sql(query, "--output", form)
    # There is a session in this process, which decides what a query means.
    with monkeypatch.context() as patched:
        hide_spark(patched)
        patched.setattr("lancestat.query.sql.query.query_session", _no_spark)
        of_polars = sql(query, "--output", form)
    assert (of_polars.stdout, of_polars.stderr) == (of_spark.stdout, of_spark.stderr)
    assert of_spark.exit_code == of_polars.exit_code == 0


def _no_spark(target: object) -> None:
    raise AssertionError("the query was left to Spark")
