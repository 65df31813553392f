"""`lancestat sql` on real Spark, in the process that has the session already."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from pyspark.sql import functions

from lancestat.cli.main import cli
from lancestat.errors.codes import InvalidQuery
from lancestat.project import Project
from lancestat.query.sql.statement import QueryText, parse, parse_analyze
from lancestat.spark.failure import silent_query_logger
from tests.examples import sample
from tests.interpreted import short_lived
from tests.runs.world import write_project
from tests.versions import needs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Sql = Callable[..., Result]

TABLES = [
    {"name": "Orders", "uri": "orders.lance", "columns": ["id", "customer"]},
    *("customers", "gone"),
]
ROWS = 400


def orders(start: int, rows: int) -> pa.Table:
    numbers = range(start, start + rows)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "customer": pa.array([n % 10 for n in numbers], pa.int32()),
            "Price": pa.array([Decimal(n) / 4 for n in numbers], pa.decimal128(10, 2)),
            "note": [f"nöte {n}" for n in numbers],
            "tags": pa.array([["a"]] * rows, pa.list_(pa.string())),
        }
    )


def declare(folder: Path, **conf: str) -> None:
    spark = {"master": "local[2]", "conf": conf}
    write_project(folder, *TABLES, target={"state": ".state", "spark": spark})


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    declare(tmp_path)
    lance.write_dataset(orders(0, ROWS), tmp_path / "orders.lance", max_rows_per_file=100)
    names = pa.table({"key": pa.array(range(10), pa.int32()), "name": [f"c{n}" for n in range(10)]})
    lance.write_dataset(names, tmp_path / "customers.lance")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def sql(shop: Path, spark: SparkSession) -> Iterator[Sql]:
    views = spark.sql("show views").collect()

    def run(query: str, *args: str, input: str | bytes | None = None) -> Result:
        return CliRunner().invoke(cli, ["sql", query, *args], input=input, prog_name="lancestat")

    yield run
    # The existing session is not affected.
    assert spark.sql("show views").collect() == views


def payload(ran: Result) -> dict[str, Any]:
    assert ran.exit_code == 0, ran.output
    answer: dict[str, Any] = json.loads(ran.stdout)
    return answer


def columns_of(path: Path) -> set[str]:
    """The columns of which statistics are published."""
    config = lance.dataset(path).config()
    prefix = "lance.stats.column."
    return {key[len(prefix) :].rpartition(".")[0] for key in config if key.startswith(prefix)}


def test_declared_tables_are_found_by_name_in_any_case(sql: Sql) -> None:
    result = sql("select id, Price, note, tags from orders o where id in (3, 399) order by id")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        " id  Price  note      tags",
        '  3   0.75  nöte 3    ["a"]',
        '399  99.75  nöte 399  ["a"]',
    ]
    assert result.stderr == "2 rows\n"
    assert sql("select 1", "--quiet").stderr == ""


def test_a_table_for_people_stops_at_its_limit(sql: Sql) -> None:
    result = sql("select id from orders")
    assert len(result.stdout.splitlines()) == 101
    assert result.stderr == "the first 100 rows; --limit all shows every one\n"
    assert len(sql("select id from orders", "--limit", "all").stdout.splitlines()) == ROWS + 1
    assert payload(sql("select id from orders", "--output", "json"))["row_count"] == ROWS
    short = payload(sql("select id from orders", "--output", "json", "--limit", "3"))
    assert (short["row_count"], short["complete"]) == (3, False)
    lines = sql("select id, note from orders order by id", "--output", "csv").stdout.splitlines()
    assert (lines[:2], len(lines)) == (["id,note", "0,nöte 0"], ROWS + 1)


def test_every_type_of_spark_is_exact_in_json(sql: Sql) -> None:
    # Spark 3.5 has no variants.
    variant = (
        "parse_json('{\"k\": [1, null]}')"
        if hasattr(functions, "parse_json")
        else "'{\"k\":[1,null]}'"
    )
    query = rf"""
        select 9223372036854775807 as big, cast('0.1' as float) as f, double('nan') as d,
            cast('-12345678901234567890.12345' as decimal(38, 5)) as dec,
            timestamp '2024-07-01 12:00:00.123456 UTC' as ts,
            timestamp '9999-12-31 23:00:00Z' as late,
            timestamp_ntz '1582-10-04 00:00:00' as ntz, date '-0044-03-15' as ides, x'00ff' as raw,
            interval '1-2' year to month as months, interval '1 02:03:04.5' day to second as span,
            cast(null as void) as nothing, map(1, array(cast(1 as decimal(2, 1)), null)) as m,
            named_struct('a', 1, 'A', timestamp '1970-01-01 00:00:00.000001Z') as twins,
            array(named_struct('x.y', x'41')) as dotted, {variant} as v,
            cast(null as struct<a: int>) as hollow, 'twice' as t, 2 as t
    """
    answer = payload(sql(query, "--output", "json"))
    [row] = answer["rows"]
    names = [column["name"] for column in answer["columns"]]
    assert names[-2:] == ["t", "t"]
    assert row == [
        2**63 - 1,
        0.1,
        "NaN",
        "-12345678901234567890.12345",
        "2024-07-01T12:00:00.123456Z",
        "9999-12-31T23:00:00.000000Z",
        "1582-10-04T00:00:00.000000",
        "-0044-03-15",
        "AP8=",
        "INTERVAL '1-2' YEAR TO MONTH",
        "INTERVAL '1 02:03:04.5' DAY TO SECOND",
        None,
        [[1, ["1.0", None]]],
        {"a": 1, "A": "1970-01-01T00:00:00.000001Z"},
        [{"x.y": "QQ=="}],
        '{"k":[1,null]}',
        None,
        "twice",
        2,
    ]
    types = {column["name"]: column["type"] for column in answer["columns"]}
    assert types["dec"] == "decimal(38,5)"
    assert types["m"] == "map<int,array<decimal(2,1)>>"


def test_queries_come_from_files_and_stdin_too(sql: Sql, shop: Path) -> None:
    (shop / "q.sql").write_text("-- how many; really\nselect count(*) as n from orders;\n")
    result = CliRunner().invoke(cli, ["sql", "-f", "q.sql", "--output", "csv"])
    assert result.stdout == f"n\n{ROWS}\n"
    assert sql("-", "--output", "csv", input="select ';' as s").stdout == "s\n;\n"
    assert sql("-", input=b"select '\xff'").exit_code == 2


def test_other_statements_are_passed_to_spark(sql: Sql, spark: SparkSession) -> None:
    listed = payload(sql("show views", "--output", "json"))
    assert {row[1] for row in listed["rows"]} >= {"orders", "customers"}
    spark.sql("create table sql_made using parquet as select id, 'a' as note from range(5)")
    try:
        result = sql("analyze table sql_made compute statistics for all columns")
        assert (result.exit_code, result.stderr) == (0, "done\n")
        described = spark.sql("describe extended sql_made id").collect()
        assert ("distinct_count", "5") in {tuple(row) for row in described}
        assert sql("analyze table sql_made compute statistics noscan").exit_code == 0
    finally:
        spark.sql("drop table sql_made")


@pytest.mark.parametrize(
    "statement",
    sample(
        [
            "create table sql_never using parquet as select * from orders",
            "create temporary view sql_never as select 1 as a",
            "create database sql_never",
            "drop table orders",
            "drop view orders",
            "insert into orders values (1)",
            "with a as (select 1) insert into orders select * from a",
            "from orders insert into a select * insert into b select *",
            "insert overwrite directory 'sql_never' using parquet select 1",
            "delete from orders",
            "update orders set id = 1",
            "truncate table orders",
            "alter table orders rename to sql_never",
            "cache table sql_never as select 1",
            "add jar 'a.jar'",
        ],
        5,
    ),
)
def test_statements_that_write_or_define_are_refused(
    sql: Sql, shop: Path, spark: SparkSession, statement: str
) -> None:
    for option in ((), ("--explain",), ("--analyze",)):
        result = sql(f"\n  {statement}", *option)
        assert (result.exit_code, result.stdout) == (2, "")
        said = "LS421 query:2:3  this statement is no query"
        assert result.stderr.startswith(said), (option, result.stderr)
    assert not spark.catalog.tableExists("sql_never")
    assert not list(shop.glob("*sql_never*"))


@pytest.mark.parametrize(
    "statement",
    sample(
        [
            "values (1)",
            "table orders",
            "from orders select id",
            "(select 1) union all select 2",
            "show tables",
            "show databases",
            "show columns in orders",
            "describe orders",
            "desc query select 1",
            "describe function abs",
            "explain select 1",
            "set spark.sql.ansi.enabled = true",
            "set time zone 'UTC'",
            "reset",
            "use default",
            "list jars",
        ],
        6,
    ),
)
def test_statements_that_show_something_are_run(sql: Sql, statement: str) -> None:
    result = sql(statement)
    assert result.exit_code == 0, result.stderr


@pytest.mark.parametrize(
    ("query", "lines"),
    [
        ("", ["LS420 query:1:1  the query is empty"]),
        (
            "select *\nfro orders",
            [
                "LS420 query:2:5  [PARSE_SYNTAX_ERROR] Syntax error at or near 'orders': "
                "extra input 'orders'.",
                "      | fro orders",
                "      |     ^",
            ],
        ),
        (
            "select 1;\nselect ';'",
            [
                "LS420 query:2:1  another statement follows the first",
                "      | select ';'",
                "      | ^",
                "      hint: give one statement at a time",
            ],
        ),
        (
            "select idd\nfrom range(3)",
            [
                "LS420 query:1:8  [UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or "
                "function parameter with name `idd` cannot be resolved. Did you mean one of the "
                "following? [`id`].",
                "      | select idd",
                "      |        ^^^",
            ],
        ),
        (
            "select 'é' from\n  ordres o",
            [
                "LS404 query:2:3  there is no table or view 'ordres'",
                "      |   ordres o",
                "      |   ^^^^^^",
                "      hint: did you mean 'Orders'?",
            ],
        ),
    ],
)
def test_a_wrong_query_is_one_error_with_its_place(query: str, lines: list[str], sql: Sql) -> None:
    result = sql(query)
    # Spark 3.5's words.
    printed = result.stderr.replace("A column or function", "A column, variable, or function")
    assert printed.splitlines() == lines
    assert (result.exit_code, result.stdout) == (2, "")


@needs.ansi_by_default
@pytest.mark.parametrize("form", sample(["json", "text", "csv"], 1))
def test_a_query_that_fails_when_it_runs_is_one_error(form: str, sql: Sql) -> None:
    result = sql("select id,\n 1 / (id - 7) as x from orders", "--output", form)
    assert result.exit_code == 1
    first, *rest = result.stderr.splitlines()
    assert first.startswith("LS513 query:2:2  the query failed: [DIVIDE_BY_ZERO] Division by zero.")
    assert rest == ["      |  1 / (id - 7) as x from orders", "      |  ^^^^^^^^^^^^"]
    if form == "json":
        [error] = json.loads(result.stdout)["errors"]
        assert error["code"] == "LS513"
        assert error["location"] == {"file": "query", "line": 2, "column": 2}


def test_a_failure_without_a_condition_is_one_line_too(sql: Sql) -> None:
    result = sql("select java_method('java.lang.Integer', 'parseInt', note) from orders")
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("LS513  the query failed: java.lang")


def test_an_unreadable_table_fails_only_queries_that_name_it(sql: Sql) -> None:
    assert sql("select 1 as gone").exit_code == 0
    result = sql("select * from gone join orders")
    assert result.exit_code == 1
    errors = [line for line in result.stderr.splitlines() if line.startswith("LS2")]
    assert len(errors) == 1
    assert "gone.lance" in errors[0]
    assert "Traceback" not in result.stderr


def test_analyze_has_the_effect_of_run(sql: Sql, shop: Path) -> None:
    result = sql("ANALYZE TABLE ORDERS COMPUTE STATISTICS", "--output", "json")
    [node] = payload(result)["nodes"]
    assert (node["name"], node["action"], node["rows_scanned"]) == ("Orders", "analyze", ROWS)
    assert columns_of(shop / "orders.lance") == {"id", "customer"}

    again = payload(sql("analyze table orders compute statistics", "--output", "json"))
    assert again["nodes"][0]["action"] == "skip"
    planned = Project.load(shop).plan("Orders")
    assert [action.verb for action in planned.actions] == ["skip"]


def test_analyze_of_columns_keeps_existing_statistics_of_others(sql: Sql, shop: Path) -> None:
    assert sql("analyze table orders compute statistics for columns `PRICE`").exit_code == 0
    assert columns_of(shop / "orders.lance") == {"Price"}
    result = sql("analyze table orders compute statistics for columns note, id", "--output", "json")
    assert payload(result)["nodes"][0]["fragments_scanned"] == 4
    assert columns_of(shop / "orders.lance") == {"Price", "note", "id"}

    everything = sql("analyze table orders compute statistics for all columns", "--output", "json")
    assert payload(everything)["nodes"][0]["columns"] == 4
    assert columns_of(shop / "orders.lance") == {"id", "customer", "Price", "note"}
    # What is declared is less, and every value of it is known.
    back = payload(sql("analyze table orders compute statistics", "--output", "json"))["nodes"][0]
    assert (back["action"], back["fragments_scanned"]) == ("refresh", 0)
    assert columns_of(shop / "orders.lance") == {"id", "customer"}


@pytest.mark.parametrize(
    ("statement", "code", "message", "hint"),
    [
        ("orders COMPUTE STATISTICS NOSCAN", "LS421", "NOSCAN", "leave NOSCAN out"),
        ("ordrs COMPUTE STATISTICS", "LS404", "no table 'ordrs'", "did you mean 'Orders'?"),
        (
            "orders COMPUTE STATISTICS FOR COLUMNS id, prise",
            "LS423",
            "table 'Orders' has no column 'prise'",
            "did you mean 'Price'?",
        ),
        (
            "orders COMPUTE STATISTICS FOR COLUMNS tags",
            "LS423",
            "column 'tags' of table 'Orders' cannot have statistics",
            None,
        ),
    ],
)
def test_unsupported_analyze_statements_are_refused_without_a_commit(
    statement: str, code: str, message: str, hint: str | None, sql: Sql, shop: Path
) -> None:
    result = sql(f"ANALYZE TABLE {statement}")
    assert result.exit_code == 2
    assert result.stderr.startswith(f"{code}  ")
    assert message in result.stderr
    assert (f"hint: {hint}" in result.stderr) if hint else ("hint" not in result.stderr)
    assert lance.dataset(shop / "orders.lance").version == 1


def test_analyze_of_an_unreadable_table_fails_like_a_run(sql: Sql) -> None:
    result = sql("ANALYZE TABLE gone COMPUTE STATISTICS")
    assert result.exit_code == 1
    assert "gone.lance" in result.output


def test_columns_that_differ_only_by_case_are_ambiguous(sql: Sql, shop: Path) -> None:
    twins = pa.table({"a": [1], "A": [2]})
    lance.write_dataset(twins, shop / "customers.lance", mode="overwrite")
    result = sql("ANALYZE TABLE customers COMPUTE STATISTICS FOR COLUMNS a")
    assert (result.exit_code, result.stderr.split("\n")[0]) == (
        2,
        "LS423  column 'a' of table 'customers' may be 'a' and 'A'",
    )


def test_explain_reports_when_the_optimizer_ignores_statistics(sql: Sql, shop: Path) -> None:
    declare(shop, **{"spark.sql.cbo.enabled": "false"})
    explanation = payload(sql(JOIN, "--explain", "--output", "json"))["explanation"]
    assert explanation["cost_based"] is False


@pytest.mark.parametrize(
    "args", [("--explain",), ("--analyze",), ("--compare",), ("--output", "csv")]
)
def test_analyze_has_no_plan_and_no_rows(args: tuple[str, ...], sql: Sql) -> None:
    result = sql("ANALYZE TABLE orders COMPUTE STATISTICS", *args)
    assert result.exit_code == 2
    assert result.stdout == ""


STATEMENTS = [
    "analyze table t compute statistics",
    "ANALYZE\tTABLE a.b.t COMPUTE\nSTATISTICS;",
    "-- why\nanalyze /* what */ table t compute statistics -- done",
    "analyze table `a b`.`c``d` compute statistics for columns `x y`, z ,`for`",
    "analyze table`t`compute statistics for columns a",
    "analyze table t . u compute statistics for all columns ;",
    "analyze table t compute statistics noscan",
    "analyze table t partition (day = '(1)', hour) compute statistics",
    "analyze table t partition(day=1)compute statistics noscan",
    "analyze table größe compute statistics for columns größe",
    "analyze table table compute statistics",
    "analyze table t compute statistics for columns",
    "analyze table t compute statistics for columns a b",
    "analyze table t compute statistics for columns a,",
    "analyze table t compute statistics sometimes",
    "analyze table t-u compute statistics",
    "analyze table `` compute statistics",
    "analyze table compute statistics",
    "analyze table t",
    "analyze table t compute statistics; select 1",
    "analyze tables compute statistics",
    "analyzed table t compute statistics",
    "select 1",
    "explain analyze",
]


@pytest.mark.parametrize("written", STATEMENTS)
def test_analyze_is_parsed_as_by_spark(written: str, spark: SparkSession) -> None:
    text = QueryText(written)
    ours = parse_analyze(text)
    with silent_query_logger():
        try:
            plan = parse(spark, text)
        except InvalidQuery:
            plan = None
    if plan is None or plan.nodeName() not in ("AnalyzeTable", "AnalyzeColumn"):
        assert ours is None
        return
    assert ours is not None
    assert ours.name_parts == listed(plan.child().multipartIdentifier())
    is_of_columns = plan.nodeName() == "AnalyzeColumn"
    columns = plan.columnNames() if is_of_columns else None
    assert ours.columns == (listed(columns.get()) if columns and columns.isDefined() else ())
    assert ours.all_columns == (is_of_columns and plan.allColumns())
    is_partial = not is_of_columns and (plan.noScan() or not plan.partitionSpec().isEmpty())
    assert (ours.objection is not None) == is_partial


def listed(sequence: Any) -> tuple[str, ...]:
    return tuple(sequence.apply(index) for index in range(sequence.size()))


@pytest.mark.parametrize("written", ["analyze table t", "analyze table t compute statistics so"])
def test_without_sparks_parser_a_wrong_analyze_is_an_error(written: str) -> None:
    with pytest.raises(InvalidQuery, match="not a valid ANALYZE TABLE"):
        parse_analyze(QueryText(written), is_strict=True)
    assert parse_analyze(QueryText("select 1"), is_strict=True) is None


JOIN = """
    select name, count(*) from orders join customers on customer = key
    where id < 95 and key >= (select avg(customer) from orders) - 9 group by name
"""


def test_explain_shows_the_basis_of_estimates(sql: Sql, shop: Path) -> None:
    assert sql("analyze table orders compute statistics").exit_code == 0
    explanation = payload(sql(JOIN, "--explain", "--output", "json"))["explanation"]

    assert explanation["cost_based"] is True
    scans = {(scan["table"], scan["rows"]): scan for scan in explanation["scans"]}
    whole, pruned, refused = scans["Orders", ROWS], scans["Orders", 100], scans["customers", 10]
    assert (whole["fragments_scanned"], whole["fragments"]) == (4, 4)
    assert list(whole["statistics"]["columns"]) == ["customer"]
    assert (pruned["table_rows"], pruned["fragments_scanned"]) == (ROWS, 1)
    assert pruned["statistics"]["columns"]["id"]["max"] == "99"
    assert "id < 95" in pruned["filters"]
    assert (refused["statistics"]["verdict"], refused["statistics"]["reason"]) == (
        "refuse",
        "absent",
    )
    [join] = [line for line in explanation["plan"] if line["join"]]
    assert join["join"]["strategy"] == "broadcast_hash"
    assert join["text"].startswith("BroadcastHashJoin inner on customer = key")
    # All but five ids, and a third of the customers that a subquery is compared with, for a guess.
    filters = [line for line in explanation["plan"] if line["text"].startswith("Filter")]
    assert filters[0]["rows"] == 32


def test_explain_runs_nothing(sql: Sql) -> None:
    assert sql("select raise_error(note) from orders", "--explain").exit_code == 0
    wrong = sql("select idd from orders", "--explain")
    assert (wrong.exit_code, wrong.stdout) == (2, "")
    assert wrong.stderr.startswith("LS420 query:1:8  ")


def test_a_failed_process_prints_only_its_error(shop: Path) -> None:
    declare(shop, **{"spark.sql.ansi.enabled": "true"})
    command = [sys.executable, "-m", "lancestat", "sql", "select id / 0 from orders where id = 7"]
    environment = {**os.environ, **short_lived()}
    completed = subprocess.run(
        command, cwd=shop, env=environment, capture_output=True, encoding="utf-8"
    )
    assert (completed.returncode, completed.stdout) == (1, "")
    first, *rest = completed.stderr.splitlines()
    assert first.startswith("LS513 query:1:8  the query failed: [DIVIDE_BY_ZERO] ")
    assert rest[1:] == ["      |        ^^^^^^"]
