"""What differs between versions of Spark; `tests/versions` runs this file with each of them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pyspark
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession, functions

import lancestat
from lancestat.errors import ConnectorMissing, DataSourcesMissing, SparkNotStarted
from lancestat.joins.nearest_by import install
from lancestat.runs.actions import is_pending
from lancestat.spark import compiler, versions
from lancestat.spark.jobs import job_group
from lancestat.spark.session import active, connect
from tests.integration.planned import executed
from tests.query.read.arrow_values import plain
from tests.versions import needs

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject

pytestmark = pytest.mark.spark

EXAMPLE = Path(__file__).parents[2] / "examples" / "project"
SCALE = "0.01"
MARCH = "o_orderdate < date '1992-03-01'"
INSTANT = datetime(2026, 3, 14, 1, 2, 3, 400, tzinfo=timezone.utc)
VALUES: dict[str, Any] = {
    "i": 7,
    "s": "grüße",
    "d": date(1582, 10, 4),
    "t": INSTANT,
    "n": INSTANT.replace(tzinfo=None),
    "m": Decimal("12.34"),
    "b": b"\x00\xff",
    "l": [1, None],
    "r": {"a": 1, "b": None},
}
TYPES = {
    "i": pa.int64(),
    "s": pa.string(),
    "d": pa.date32(),
    "t": pa.timestamp("us", "UTC"),
    "n": pa.timestamp("us"),
    "m": pa.decimal128(10, 2),
    "b": pa.binary(),
    "l": pa.list_(pa.int32()),
    "r": pa.struct({"a": pa.int32(), "b": pa.string()}),
}
ROWS = pa.Table.from_pylist([VALUES, dict.fromkeys(VALUES)], pa.schema(TYPES))


@pytest.fixture
def table(tmp_path: Path) -> str:
    path = str(tmp_path / "t.lance")
    lance.write_dataset(ROWS, path)
    return path


def values(rows: DataFrame) -> list[dict[str, Any]]:
    # The session's zone is UTC, in which PySpark shows instants without one.
    return [
        {name: plain(value) for name, value in row.asDict().items()}
        for row in rows.orderBy(rows["i"].desc()).collect()
    ]


EXPECTED = [{**VALUES, "t": VALUES["n"]}, dict.fromkeys(VALUES)]


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """PySpark shows instants in the zone of the process."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_a_table_is_read_with_every_type(spark: SparkSession, utc: None, table: str) -> None:
    assert values(lancestat.read_table(spark, table)) == EXPECTED


def test_columns_filters_and_limits_reach_the_scan(spark: SparkSession, table: str) -> None:
    rows = lancestat.read_table(spark, table)
    filtered = rows.where("i = 7 and d < date'2000-01-01'").select("s")
    plan = executed(filtered)
    assert "EqualTo(i,7), LessThan(d,2000-01-01)]" in plan
    assert filtered.collect() == [(VALUES["s"],)]
    plan = executed(rows.select("s").limit(1))
    assert "PushedLimit: 1" in plan


@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_a_query_is_run_to_be_explained(spark: SparkSession, table: str, adaptive: str) -> None:
    spark.conf.set("spark.sql.adaptive.enabled", adaptive)
    try:
        rows = lancestat.read_table(spark, table)
        counted = rows.where("i is not null").groupBy("i").count()
        joined = counted.hint("broadcast").join(
            spark.range(10), counted["i"] == functions.col("id")
        )
        plan = lancestat.explain(joined, analyze=True).plan
    finally:
        spark.conf.unset("spark.sql.adaptive.enabled")
    assert plan.execution is not None
    assert plan.execution.rows == 1
    true = {o.text.partition(" ")[0]: o.actual.rows for o in plan.operators if o.actual}
    assert (true["BroadcastHashJoin"], true["BroadcastExchange"], true["Range"]) == (1, 1, 10)
    assert all(operator.actual is not None for operator in plan.operators)
    assert {scan.table for scan in plan.scans} == {table}


def test_an_arrow_table_becomes_a_frame(spark: SparkSession, utc: None) -> None:
    assert values(versions.arrow_frame(spark, ROWS)) == EXPECTED


def test_a_function_is_applied_to_arrow_batches(spark: SparkSession) -> None:
    def doubled(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            numbers = [2 * number for number in batch.column(0).to_pylist()]
            yield pa.RecordBatch.from_pydict({"twice": pa.array(numbers, pa.int64())})

    rows = versions.map_in_arrow(spark.range(0, 5, 1, 2), doubled, "twice long").collect()
    assert sorted(row.twice for row in rows) == [0, 2, 4, 6, 8]


def test_the_active_session_is_set_by_the_class_of_sessions(spark: SparkSession) -> None:
    sessions = versions.session_class(spark)
    before: JavaObject = sessions.getActiveSession()
    other = spark.newSession()
    sessions.setActiveSession(other._jsparkSession)
    assert sessions.getActiveSession().get().equals(other._jsparkSession)
    if before.isDefined():
        sessions.setActiveSession(before.get())
    else:
        sessions.clearActiveSession()


def test_threads_inherit_the_job_group(spark: SparkSession) -> None:
    context, seen = spark.sparkContext, []

    def look() -> None:
        seen.append(context.getLocalProperty("spark.jobGroup.id"))

    with job_group(context, "inherited", "a test"):
        target = versions.thread_target(spark, look)
        thread = threading.Thread(target=target)
        thread.start()
        thread.join()
    assert seen == ["inherited"]


def test_jobs_that_start_after_their_group_was_cancelled_are_cancelled(
    spark: SparkSession,
) -> None:
    context, is_over = spark.sparkContext, threading.Event()

    def slow(numbers: Iterator[int]) -> Iterator[int]:
        time.sleep(60)
        return numbers

    versions.cancel_jobs(context, "cancelled", is_over.is_set)
    try:
        with (
            job_group(context, "cancelled", "a test"),
            pytest.raises(Exception, match=r"(?i)cancel"),
        ):
            context.parallelize(range(2), 2).mapPartitions(slow).collect()
    finally:
        is_over.set()


def test_arrow_schemas_have_the_zone_that_is_asked_for(spark: SparkSession) -> None:
    schema = spark.sql(
        "select timestamp'2026-01-01' as t, array(timestamp'2026-01-01') as l, "
        "map('k', timestamp'2026-01-01') as m, struct(timestamp'2026-01-01' as t) as r"
    ).schema
    arrow = versions.to_arrow_schema(schema, "Europe/Berlin")
    berlin = pa.timestamp("us", "Europe/Berlin")
    assert arrow.field("t").type == berlin
    assert arrow.field("l").type.value_type == berlin
    assert arrow.field("m").type.item_type == berlin
    assert arrow.field("r").type.field("t").type == berlin


def test_what_runs_joins_by_nearest_by_is_compiled_where_spark_has_them(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = versions.java_sources(spark, compiler.sources())
    assert ("NearestByRule.java" in known) == versions.has_nearest_by_join()
    install(spark)
    monkeypatch.setattr(versions, "has_nearest_by_join", lambda: False)
    without = versions.java_sources(spark, compiler.sources())
    assert without and not any("NearestBy" in name for name in without)


def test_the_format_is_there_where_spark_has_python_sources(
    spark: SparkSession, table: str
) -> None:
    if versions.has_python_sources():
        lancestat.register(spark)
        rows = spark.read.format("lancestat").load(table)
        assert rows.where("i = 7").count() == 1
    else:
        with pytest.raises(DataSourcesMissing, match=r"needs Spark 4\.0 or newer"):
            lancestat.register(spark)


def test_the_connector_that_is_missing_is_the_one_for_this_spark(
    spark: SparkSession, table: str
) -> None:
    jars = Path(pyspark.__file__).parent / "jars"
    [core] = jars.glob("spark-core_*.jar")
    release = re.fullmatch(r"spark-core_(\d\.\d+)-(\d\.\d+)\..*", core.name)
    assert release is not None
    with pytest.raises(ConnectorMissing) as refused:
        lancestat.read_table(spark, table, reader="connector")
    package = f"org.lance:lance-spark-bundle-{release[2]}_{release[1]}:VERSION"
    # The connector is not released for the newest Spark.
    expected = f"none for {release[2]}" if release[2] == "4.3" else package
    assert expected in str(refused.value.hint)


def test_times_of_day_are_read_where_spark_has_them(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "times.lance")
    times = pa.array([3_723_000_000], pa.time64("us"))
    lance.write_dataset(pa.table({"id": [1], "at": times}), path)
    columns = lancestat.read_table(spark, path).columns
    assert columns == (["id", "at"] if versions.has_time_type() else ["id"])


@needs.time_type
def test_times_of_day_that_a_session_has_turned_off_are_warned_of(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = str(tmp_path / "times.lance")
    times = pa.array([{"at": 3_723_000_000}], pa.struct([("at", pa.time64("us"))]))
    lance.write_dataset(pa.table({"id": [1], "shift": times}), path)
    session = spark.newSession()
    session.conf.set(versions.TIME_SETTING, "false")
    rows = lancestat.read_table(session, path)
    assert rows.columns == ["id", "shift"]
    [warning] = [record.getMessage() for record in caplog.records]
    assert "column 'shift'" in warning
    assert warning.endswith("set spark.sql.timeType.enabled to true")
    with active(session), pytest.raises(AnalysisException, match="UNSUPPORTED_TIME_TYPE"):
        rows.count()

    caplog.clear()
    session.conf.set(versions.TIME_SETTING, "true")
    with active(session):
        assert lancestat.read_table(session, path).count() == 1
    assert not caplog.records


def test_views_are_made_and_replaced(spark: SparkSession, table: str) -> None:
    from lancestat.query.read.relation import Relation, relate
    from lancestat.query.table import open_table

    for _ in range(2):
        relate(spark, [Relation(open_table(table), view="of_any_version")])
        assert spark.table("of_any_version").count() == 2
    spark.catalog.dropTempView("of_any_version")


def test_vectors_are_joined(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "v.lance")
    vectors = pa.array([[float(i), 1.0] for i in range(50)], pa.list_(pa.float32(), 2))
    lance.write_dataset(pa.table({"id": range(50), "v": vectors}), path)
    rows = lancestat.read_table(spark, path)
    joined = lancestat.knn_join(rows, rows, left_vector="v", right_vector="v", k=2)
    pairs = {(row.id, row.id_right) for row in joined.select("id", "id_right").collect()}
    assert {(number, number) for number in range(50)} <= pairs
    assert len(pairs) == 100


def example(program: str, warehouse: Path) -> None:
    """Run a program with the example project's modules and its two arguments."""
    subprocess.run(
        [sys.executable, "-c", f"import sys\n{program}", str(warehouse), SCALE],
        cwd=EXAMPLE,
        check=True,
    )


def test_the_example_project_is_run_and_queried_before_and_after_changes(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The path of `make demo` in one session, where even the smallest table is read on Spark."""
    warehouse, folder = tmp_path / "warehouse", tmp_path / "project"
    shutil.copytree(EXAMPLE / "specs", folder / "specs")
    shutil.copy(EXAMPLE / "lancestat_project.yml", folder)
    loading = "from load import *; load(Path(sys.argv[1]), Decimal(sys.argv[2]))"
    example(loading, warehouse)
    project = lancestat.Project.load(folder, vars={"warehouse": str(warehouse)})

    first = project.run()
    assert {node.status.value for node in first.nodes} == {"success"}
    assert {node.runs_on for node in first.nodes if node.kind == "table"} == {"spark"}
    changing = "from changes import *; list(change(Path(sys.argv[1]), Decimal(sys.argv[2])))"
    example(changing, warehouse)
    second = project.run()
    assert {node.status.value for node in second.nodes} == {"success"}
    assert {node.name: (node.action, node.fragments_scanned) for node in second.nodes} == {
        **dict.fromkeys(("nation", "region", "part"), ("skip", 0)),
        **dict.fromkeys(("partsupp", "customer"), ("restamp", 0)),
        **dict.fromkeys(("lineitem", "orders"), ("refresh", 1)),
        "supplier": ("refresh", 2),
        "suggestion": ("refresh", None),
    }
    assert not any(map(is_pending, project.plan().actions))
    suggestions = lance.dataset(str(warehouse / "suggestion.lance"))
    assert suggestions.count_rows(filter="_rank is not null") == 3 * (202 - 4)

    project.attach(spark)
    joined = spark.sql(
        "select c_mktsegment, count(*) as orders from customer join orders "
        f"on c_custkey = o_custkey where {MARCH} group by c_mktsegment"
    )
    orders = lance.dataset(str(warehouse / "orders.lance"))
    assert sum(row.orders for row in joined.collect()) == orders.count_rows(filter=MARCH)


@pytest.mark.skipif(versions.has_python_sources(), reason="this PySpark has a Connect server")
def test_spark_connect_is_refused_before_4() -> None:
    with pytest.raises(SparkNotStarted, match=r"from Spark 4\.0 on"):
        connect("sc://127.0.0.1:1", {}, "test")
