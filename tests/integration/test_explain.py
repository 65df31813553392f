"""`lancestat.explain` of DataFrames of all kinds."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest
from click.testing import CliRunner

import lancestat
from lancestat.cli.main import cli
from lancestat.errors import InvalidArgument
from lancestat.spark.session import optimizer_settings
from tests.integration.planned import with_cbo
from tests.runs.world import orders, write_project
from tests.versions.needs import python_sources

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of two analyzed tables of three fragments, and one that is not analyzed."""
    folder = tmp_path_factory.mktemp("explained")
    project = write_project(folder, "orders", "returns", "plain")
    for name, step in (("orders", 0), ("returns", 1000), ("plain", 0)):
        lance.write_dataset(orders(step, 300), folder / f"{name}.lance", max_rows_per_file=100)
    assert project.run(project.plan("orders returns")).status.value == "success"
    return folder


@pytest.fixture
def session(spark: SparkSession, folder: Path) -> Iterator[SparkSession]:
    session = with_cbo(spark)
    for key, value in optimizer_settings({}).items():
        session.conf.set(key, value)
    lancestat.Project.load(folder).attach(session)
    yield session
    session.catalog.clearCache()
    for view in ("orders", "returns", "plain"):
        session.catalog.dropTempView(view)


def scans(frame: DataFrame) -> list[dict[str, Any]]:
    explanation: Any = lancestat.explain(frame).to_json()["explanation"]
    scans: list[dict[str, Any]] = explanation["scans"]
    return scans


QUERIES = (
    "select * from orders a join returns b on a.o_id + 1000 = b.o_id where a.o_id < 50",
    "select * from orders where o_id < 9 union all select * from returns union table plain",
    "select o_status, sum(o_id) from orders where o_id > (select avg(o_id) from plain) group by 1",
    "select * from orders where o_id in (select max(o_id) from orders)",
    "with r as (select * from orders where o_id >= 200) select count(*), max(o_id) from r",
    "select * from plain a, plain b where a.o_id = b.o_id and upper(a.o_status) = 'OPEN'",
    "select 1",
)


@pytest.mark.parametrize("query", QUERIES)
def test_it_is_what_sql_explains(session: SparkSession, folder: Path, query: str) -> None:
    arguments = ["sql", "--project-dir", str(folder), "--explain", query]
    printed = CliRunner().invoke(cli, [*arguments, "--output", "json"])
    explained = lancestat.explain(session.sql(query))
    assert json.loads(printed.stdout) == explained.to_json()
    for scan in scans(session.sql(query)):
        if scan["table"] in ("orders", "returns"):
            assert scan["statistics"]["verdict"] == "use"
        elif scan["table"] == "plain":
            assert scan["statistics"]["verdict"] == "refuse"
    verbose = CliRunner().invoke(cli, [*arguments, "--verbose"])
    lines = [line.rstrip() for line in verbose.stdout.splitlines()]
    assert str(explained) == "\n".join(lines)
    assert "\n" not in repr(explained)


def test_every_scan_has_its_own_filters(session: SparkSession) -> None:
    table = session.table("orders")
    low, high = table.where("o_id < 50").alias("a"), table.where("o_id >= 250").alias("b")
    joined = low.join(high, on="o_status")
    found = scans(joined)
    by_filter = {text: scan for scan in found for text in scan["filters"] if "50" in text}
    assert set(by_filter) == {"o_id < 50", "o_id >= 250"}
    for scan in by_filter.values():
        assert (scan["fragments_scanned"], scan["fragments"]) == (1, 3)
        assert (scan["pruning"]["verdict"], scan["pruning"]["reason"]) == ("use", "ruled_out")
    assert by_filter["o_id >= 250"]["statistics"]["columns"]["o_id"]["min"] == "200"
    assert by_filter["o_id < 50"]["statistics"]["columns"]["o_id"]["min"] == "0"


def test_it_is_the_plan_that_an_action_has_run(
    session: SparkSession, asked: list[dict[str, Any]]
) -> None:
    ran = session.table("orders").where("o_id < 50")
    assert len(ran.collect()) == 50
    asked.clear()
    for _ in range(2):
        [scan] = scans(ran)
        assert scan["statistics"]["columns"]["o_id"]["max"] == "99"
    # Nothing is planned again.
    assert asked == []


@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_cached_rows_show_where_they_came_from(session: SparkSession, adaptive: str) -> None:
    session.conf.set("spark.sql.optimizer.canChangeCachedPlanOutputPartitioning", adaptive)
    joined = session.table("orders").join(session.table("returns"), on="o_status")
    cached = joined.where("orders.o_id < 50").cache()
    for _ in range(2):
        tables = {scan["table"]: scan for scan in scans(cached.groupBy("o_status").count())}
        assert set(tables) == {"orders", "returns"}
        assert tables["orders"]["fragments_scanned"] == 1
        assert tables["orders"]["statistics"]["reason"] == "current"
        assert cached.count() > 0


def test_a_table_of_no_project_is_explained(session: SparkSession, folder: Path) -> None:
    read = lancestat.read_table(session, str(folder / "orders.lance"))
    [scan] = scans(read.where("o_id < 50"))
    assert scan["table"] == str(folder / "orders.lance")
    assert scan["statistics"]["reason"] == "current"
    assert (scan["pruning"]["verdict"], scan["pruning"]["reason"]) == ("refuse", "no_statistics")
    [scan] = scans(read.groupBy().agg({"o_id": "max", "*": "count"}))
    assert scan["aggregates"] == {
        "verdict": "refuse",
        "reason": "unproven",
        "detail": "no state knows the content of 'o_id' in all fragments of this version",
        "functions": ["max(o_id)", "count(*)"],
    }


@python_sources
def test_the_format_says_why_it_has_no_statistics(session: SparkSession, folder: Path) -> None:
    lancestat.register(session)
    loaded = session.read.format("lancestat").load(str(folder / "orders.lance"))
    explained = lancestat.explain(loaded.join(session.table("orders"), on="o_id"))
    by_table = {scan.table: scan for scan in explained.plan.scans}
    assert by_table["orders"].explanation is not None
    assert by_table["lancestat"].explanation is None
    assert "a Python data source" in str(by_table["lancestat"].note)
    assert "Python data source, which Spark neither prunes" in " ".join(str(explained).split())


def test_rows_that_no_lance_table_has_a_part_in_say_so(
    session: SparkSession, tmp_path: Path
) -> None:
    session.range(5).write.parquet(str(tmp_path / "numbers"))
    for frame in (session.range(5), session.read.parquet(str(tmp_path / "numbers"))):
        explained = lancestat.explain(frame.where("id > 2"))
        assert not explained.plan.reads_lance
        assert "No scan is lancestat's" in str(explained)
    mixed = session.table("orders").join(frame, frame["id"] == session.table("orders")["o_id"])
    explained = lancestat.explain(mixed)
    assert "No scan is lancestat's" not in str(explained)
    assert {scan.explanation is None for scan in explained.plan.scans} == {True, False}


Change = Callable[["DataFrame"], "DataFrame"]
PRUNING: list[tuple[str, str, Mapping[str, str]]] = [
    ("orders", "true", {"verdict": "refuse", "reason": "no_filters"}),
    ("orders", "upper(o_status) = 'OPEN'", {"verdict": "refuse", "reason": "all_match"}),
    ("orders", "o_id % 2 = 0 or o_id < 5", {"verdict": "refuse", "reason": "unknown_filters"}),
    ("orders", "o_id > 50 or o_id < 40", {"verdict": "refuse", "reason": "all_match"}),
    ("orders", "o_id < 50", {"verdict": "use", "reason": "ruled_out"}),
    ("plain", "o_id < 50", {"verdict": "refuse", "reason": "no_statistics"}),
]


@pytest.mark.parametrize(("table", "condition", "expected"), PRUNING)
def test_why_fragments_are_ruled_out_or_not(
    session: SparkSession, table: str, condition: str, expected: Mapping[str, str]
) -> None:
    [scan] = scans(session.table(table).where(condition))
    assert {key: scan["pruning"][key] for key in expected} == expected
    assert scan["pruning"]["detail"]


def test_a_column_without_bounds_is_named(session: SparkSession, tmp_path: Path) -> None:
    uri = str(tmp_path / "zoned.lance")
    lance.write_dataset(orders(0, 300), uri, max_rows_per_file=100)
    lance.dataset(uri).create_scalar_index("o_id", "ZONEMAP")
    read = lancestat.read_table(session, uri)
    [scan] = scans(read.where("o_total > 1"))
    assert scan["pruning"]["reason"] == "unknown_columns"
    assert scan["pruning"]["detail"] == "no fragment has known bounds of 'o_total'"
    assert scan["filters"] == ["o_total is not null", "o_total > 1.0"]


AGGREGATES: list[tuple[str, tuple[str, str] | None]] = [
    ("select count(*), max(o_id) from orders", ("use", "exact")),
    ("select count(*) from orders where o_id >= 100", ("use", "exact")),
    ("select count(*) from orders where o_id >= 101", ("refuse", "filtered")),
    ("select count(*) from orders where o_id % 3 = 1", ("refuse", "filtered")),
    ("select o_status, count(*) from orders group by o_status", ("refuse", "grouped")),
    ("select sum(o_id) from orders", ("refuse", "unsupported")),
    ("select count(distinct o_id) from orders", ("refuse", "unsupported")),
    ("select min(o_total) from orders", ("refuse", "inexact")),
    ("select max(o_id) from plain", ("refuse", "unproven")),
    ("select o_id from orders", None),
    ("select count(*) from orders a join orders b on a.o_id = b.o_id", None),
]


@pytest.mark.parametrize(("query", "expected"), AGGREGATES)
def test_why_aggregates_are_answered_or_not(
    session: SparkSession, query: str, expected: tuple[str, str] | None
) -> None:
    for scan in scans(session.sql(query)):
        decision = scan["aggregates"]
        assert (decision and (decision["verdict"], decision["reason"])) == expected
        if expected == ("use", "exact"):
            assert scan["fragments_scanned"] == 0
            assert decision["functions"][0] == "count(*)"
            assert "answered without reading" in str(lancestat.explain(session.sql(query)))


def test_push_down_that_is_off_is_named(session: SparkSession) -> None:
    session.conf.set("spark.lancestat.aggregate.pushdown.enabled", "false")
    [scan] = scans(session.sql("select max(o_id) from orders"))
    assert (scan["aggregates"]["verdict"], scan["aggregates"]["reason"]) == ("refuse", "disabled")


def test_filters_are_shown_by_who_knows_them(session: SparkSession) -> None:
    [scan] = scans(session.sql("select * from orders where o_id >= 200 and upper(o_status) = 'A'"))
    assert set(scan["filters"]) == {"o_status is not null", "o_id is not null", "o_id >= 200"}
    assert len(scan["other_filters"]) == 1
    assert "upper" in scan["other_filters"][0]
    assert scan["filters_proven"] is False
    [scan] = scans(session.sql("select * from orders where o_id >= 200"))
    assert (scan["other_filters"], scan["filters_proven"]) == ([], True)


def test_no_secret_is_shown(session: SparkSession, tmp_path: Path) -> None:
    secret = "qzsecret123456"
    rows = pa.table({"k": [secret, "b"], "n": [1, 2]})
    lance.write_dataset(rows, tmp_path / "t.lance")
    options = {"aws_secret_access_key": secret}
    read = lancestat.read_table(session, str(tmp_path / "t.lance"), storage_options=options)
    explained = lancestat.explain(read.where(f"k = '{secret}' or upper(k) = '{secret}'"))
    shown = f"{explained} {explained!r} {json.dumps(explained.to_json())}"
    assert "***" in shown
    assert secret not in shown
    assert secret.upper() not in shown


def test_commands_are_explained(session: SparkSession) -> None:
    assert not lancestat.explain(session.sql("show tables")).plan.reads_lance


def test_what_is_no_dataframe_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="explain takes a DataFrame, not str"):
        lancestat.explain("select 1")  # type: ignore[arg-type]
