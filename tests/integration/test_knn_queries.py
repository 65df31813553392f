"""Sides that are queries: statements that Spark may run, and the proof of their inputs."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest
from pyarrow import parquet

from lancestat.errors import LancestatError, Location
from lancestat.joins.action import JoinAction
from lancestat.joins.knn_join import run_join
from lancestat.joins.record import OutputFormat
from lancestat.joins.search.work import JoinRequest, JoinWork, PinnedTable, SideSource
from lancestat.joins.spark.engine import Engine
from lancestat.joins.spark.sides import plain_query, query_rows
from lancestat.lake.open import snapshot
from lancestat.runs.actions import Reason, Skip
from lancestat.spec.catalog import UriOptions
from lancestat.spec.model import KnnSide
from tests.integration.test_knn_runs import SparkWorld
from tests.joins.joined import vectors
from tests.versions.needs import SPARK, syntax_since

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NONE = UriOptions({})
pytestmark = pytest.mark.spark

PLACE = Location("specs/shop.yml", 7, 12)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`t` and `u`, declared, with columns of most types."""
    folder = tmp_path_factory.mktemp("tables")
    rows = pa.table(
        {
            "id": pa.array([1, 2, 3], pa.int64()),
            "s": ["a", "b", None],
            "x": pa.array([0.5, 1.5, 2.5], pa.float64()),
            "m": pa.array([1, 2, 3], pa.decimal128(9, 2)),
            "d": pa.array([1, 20_000, None], pa.date32()),
            "ts": pa.array([1, 2, 3], pa.timestamp("us", "UTC")),
            "v": pa.array([[1.0, 2.0]] * 3, pa.list_(pa.float32(), 2)),
        }
    )
    for name in ("t", "u"):
        lance.write_dataset(rows, str(folder / f"{name}.lance"))
    return folder


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A folder of files that no query may touch."""
    folder = tmp_path / "victim"
    folder.mkdir()
    (folder / "precious.txt").write_text("mine")
    return folder


@pytest.fixture(scope="module")
def catalog(spark: SparkSession, tables: Path) -> Iterator[str]:
    """A database that the project does not declare, with a table, and views of it."""
    name = f"db{uuid.uuid4().hex[:8]}"
    spark.sql(f"create database {name} location '{tables / name}'")
    spark.sql(f"create table {name}.plain using parquet as select 1 as id, array(1.0D) as v")
    spark.sql(f"create view {name}.seen as select 1 as id")
    spark.sql(f"create view {name}.program as select transform(1) using 'cat' as (id)")
    spark.sql("create or replace global temporary view everywhere as select 1 as id")
    yield name
    spark.catalog.dropGlobalTempView("everywhere")
    spark.sql(f"drop database {name} cascade")


def side(tables: Path, sql: str) -> SideSource:
    views = tuple(
        PinnedTable.at(snapshot(lance.dataset(str(tables / f"{name}.lance"))), name)
        for name in ("t", "u")
    )
    return SideSource("v", None, sql=sql, views=views, location=PLACE)


def refused(spark: SparkSession, tables: Path, sql: str) -> LancestatError:
    """The error for a join with that query on its right, of which nothing has run."""
    table = PinnedTable.at(snapshot(lance.dataset(str(tables / "t.lance"))), "t")
    output = str(tables / f"{uuid.uuid4().hex}.lance")
    work = JoinWork(
        "near",
        JoinRequest(2),
        SideSource("v", ("id",), table),
        side(tables, sql),
        OutputFormat.LANCE,
        output,
    )
    with pytest.raises(LancestatError) as caught:
        run_join(Engine(spark, str(tables / "scratch"), uuid.uuid4().hex), work)
    assert not Path(output).exists()
    assert caught.value.location == PLACE
    return caught.value


STATEMENTS = [
    "insert overwrite directory '{victim}' using parquet select 1 as a",
    "insert overwrite local directory '{victim}' stored as parquet select 1 as a",
    "insert into made select 1",
    "from t insert into made select id",
    "from t insert overwrite table made select id insert into made select id",
    "with x as (select 1 as a) insert into made select * from x",
    "with x as (select 1 as a) insert overwrite directory '{victim}' using csv select * from x",
    "create table made as select 1 as a",
    "create table made (a int) using parquet location '{victim}'",
    "create temporary view made as select 1",
    "create function made as 'x'",
    "drop table if exists made",
    "truncate table made",
    "delete from made where true",
    "update made set a = 1",
    "merge into made using t on true when matched then delete",
    "alter table made add columns (a int)",
    "set spark.sql.ansi.enabled = false",
    "set time zone 'UTC'",
    "reset",
    "use other",
    "cache table made as select 1",
    "cache table t",
    "uncache table t",
    "clear cache",
    "refresh '{victim}'",
    "add jar '{victim}/a.jar'",
    "add file '{victim}/precious.txt'",
    "load data inpath '{victim}' into table made",
    "analyze table t compute statistics",
    "show tables",
    "describe query select 1",
    "explain select 1",
    "call system.made(1)",
    "execute immediate 'create table made as select 1 as a'",
    "declare variable made int",
    "begin create table made as select 1 as a; end",
    "begin select 1; end",
    "select transform(id) using 'touch {victim}/made' as (a) from t",
    "map id using 'touch {victim}/made' as a from t",
    "reduce id using 'touch {victim}/made' as a from t",
    "select * from (select transform(id) using 'touch {victim}/made' as (a) from t)",
    "select id from t where id in (select transform(id) using 'touch {victim}/made' as (a) from t)",
    "with x as (select transform(id) using 'touch {victim}/made' as (a) from t) select * from x",
    "select reflect('java.lang.System', 'setProperty', 'made', 'x')",
    "select JAVA_METHOD('java.lang.System', 'setProperty', 'made', 'x') from t",
    "select try_reflect('java.lang.System', 'setProperty', 'made', 'x')",
    "select `reflect`('java.lang.System', 'setProperty', 'made', 'x')",
    "select system.builtin.reflect('java.lang.System', 'setProperty', 'made', 'x')",
    "select id from t order by (select reflect('java.lang.System', 'setProperty', 'made', 'x'))",
    "select transform(array(1), i -> reflect('java.lang.System', 'setProperty', 'made', 'x'))",
    "select identifier('ref' || 'lect')('java.lang.System', 'setProperty', 'made', 'x')",
    "select identifier('reflect')('java.lang.System', 'setProperty', 'made', 'x')",
    "values (reflect('java.lang.System', 'setProperty', 'made', 'x'))",
    "select * from t |> extend reflect('java.lang.System', 'setProperty', 'made', 'x') as a",
    "select * from stream(t)",
    "select * from identifier(reflect('java.lang.System', 'setProperty', 'made', 'x'))",
]


# Before these versions Spark itself refuses them, as what it cannot parse or resolve.
STATEMENTS_SINCE = {
    "call system.made(1)": (4, 0),
    "execute immediate 'create table made as select 1 as a'": (4, 0),
    "declare variable made int": (4, 0),
    "select * from t |> extend reflect('java.lang.System', 'setProperty', 'made', 'x') as a": (
        4,
        0,
    ),
    "begin create table made as select 1 as a; end": (4, 1),
    "begin select 1; end": (4, 1),
    "select * from stream(t)": (4, 1),
}


@pytest.mark.parametrize("sql", STATEMENTS)
def test_statements_other_than_a_query_are_refused_before_spark_runs(
    spark: SparkSession, tables: Path, victim: Path, sql: str
) -> None:
    error = refused(spark, tables, sql.format(victim=victim))
    if STATEMENTS_SINCE.get(sql, SPARK) > SPARK:
        assert error.code == "LS555", error
    else:
        assert error.code == "LS459", error
        assert error.hint == "a side is one SELECT, which writes nothing and runs no program"
    assert str(victim) not in str(error)
    assert {path.name for path in victim.iterdir()} == {"precious.txt"}
    assert not spark.catalog.tableExists("made")
    assert spark._jvm.java.lang.System.getProperty("made") is None  # type: ignore[union-attr]


@pytest.mark.parametrize("sql", ["select 1; drop table t", "select from where", ""])
def test_a_syntax_error_is_reported_with_its_code(
    spark: SparkSession, tables: Path, sql: str
) -> None:
    assert refused(spark, tables, sql).code == "LS555"


@pytest.mark.parametrize("name", ["program"])
def test_a_view_that_hides_a_program_is_refused(
    spark: SparkSession, tables: Path, catalog: str, name: str
) -> None:
    error = refused(spark, tables, f"select * from {catalog}.{name}")
    assert error.code == "LS459"
    assert "TRANSFORM with a program" in error.message


def test_no_side_runs_when_the_other_is_not_a_query(
    spark: SparkSession, tables: Path, victim: Path
) -> None:
    """Spark infers the columns of CSV by a job, as soon as a query names it."""
    (victim / "rows.csv").write_text("1,2\n")
    work = JoinWork(
        "near",
        JoinRequest(2),
        side(tables, f"select * from csv.`{victim}`"),
        side(tables, "drop table made"),
        OutputFormat.LANCE,
        str(tables / "never.lance"),
    )
    run = uuid.uuid4().hex
    with pytest.raises(LancestatError, match="LS459"):
        run_join(Engine(spark, str(tables / "scratch"), run), work)
    assert spark.sparkContext.statusTracker().getJobIdsForGroup(run) == []


def proof(spark: SparkSession, tables: Path, sql: str) -> tuple[str, ...]:
    source = side(tables, sql)
    _, reasons = query_rows(plain_query(spark, source, NONE, "right"), source, NONE, "right")
    return reasons


PROVEN = [
    "select * from t",
    "SELECT T.id, upper(s) FROM T WHERE id > 1 AND s LIKE 'a%' OR x BETWEEN 0 AND 1",
    "table t",
    "from t select id",
    "with x as (select id from t), y as (select * from x) select * from y join u using (id)",
    "select * from t where id in (select id from u) and exists (select 1 from u where u.id = t.id)",
    "select s, count(*), sum(id), sum(m), max(x), avg(m) from t group by s having count(*) > 0",
    "select s, count(distinct id) from t group by cube (s, id)",
    pytest.param(
        "select * from t where d > date'2020-01-31' or d = \"2020-01-31\" or d < '1999-1-1'",
        marks=syntax_since(4, 0),
    ),
    "select date '2020-01-31' as d, interval 1 day as i, 1.5 as a, x'00' as b, null as n",
    "select d + interval 1 day, d - interval 1 month from t",
    "select year(d), month(d), date_add(d, 1), datediff(d, date'2020-01-01') from t",
    "select case when id = 1 then 'x' else s end, coalesce(s, 'y'), nvl(s, '') from t",
    pytest.param(
        "select cast(id as string), cast(s as int), cast(x as decimal(9, 2)), id :: double from t",
        marks=syntax_since(4, 0),
    ),
    "select transform(v, e -> e * 2) as v, v[0], size(v), array(x, 1D) from t",
    "select id, e from t lateral view explode(v) q as e",
    "select * from t, lateral (select t.id + 1 as b)",
    "select id from t union all select id from u except select 3 intersect select 4",
    "select distinct s from t order by s",
    "select /*+ broadcast(u) */ t.id from t left join u on t.id = u.id",
    "values (1, array(1.0D, 2.0D)), (2, null)",
    "select * from (values (1, date'2020-01-01')) as q(a, b)",
    "select * from range(10)",
    pytest.param(
        "select * from t |> where id > 1 |> select id |> aggregate count(*) as n",
        marks=syntax_since(4, 0),
    ),
    pytest.param("select t.* except (s) from t", marks=syntax_since(4, 0)),
    "select round(x, 1), abs(id), floor(x), sqrt(x), id % 2, -id from t",
    "select substring(s, 1, 2), trim(s), length(s), concat(s, 'x'), md5(s), lower(s) || 'x' from t",
]


@pytest.mark.parametrize("sql", PROVEN)
def test_a_query_over_declared_tables_alone_is_proven(
    spark: SparkSession, tables: Path, sql: str
) -> None:
    assert proof(spark, tables, sql) == ()


CLOCK = "has a time that depends on the clock or the time zone"
UNDECLARED = "reads what the project does not declare"
SOME = "takes some rows of many"
COMPUTED = "computes the values of a table in the query"
UNPROVEN = {
    "select * from t where d = date'today'": CLOCK,
    "select * from t where d = DATE \"Yesterday\"": CLOCK,
    "select * from t where d > date'tomorrow'": CLOCK,
    "select * from t where d > date'now'": CLOCK,
    "select * from t where d > date'epoch'": CLOCK,
    "select * from t where d = 'today'": CLOCK,
    "select * from t where d = 'to' || 'day'": CLOCK,
    "select * from t where d = cast('yesterday' as date)": CLOCK,
    "select * from t where d = date('today')": CLOCK,
    "select * from t where ts > timestamp'now'": CLOCK,
    "select * from t where ts > timestamp'2020-01-01'": CLOCK,
    "select * from t where ts > '2020-01-01'": CLOCK,
    "select timestamp_ntz'today'": CLOCK,
    "select cast(s as date) from t": CLOCK,
    "select cast(ts as string), cast(ts as date) from t": CLOCK,
    "select hour(ts) from t": "calls 'hour'",
    "select * from t where d > current_date": "calls 'current_date'",
    "select * from t where d > curdate()": "calls 'current_date'",
    "select now()": "calls 'now'",
    "select localtimestamp()": "calls 'localtimestamp'",
    "select unix_timestamp()": "calls 'unix_timestamp'",
    "select current_user, session_user": "calls 'current_user'",
    "select current_timezone()": None,
    "select current_database(), current_catalog()": None,
    "select typeof(id) from t": "calls 'typeof'",
    "select rand() from t": "calls 'rand'",
    "select id from t where uuid() > 'a'": "calls 'uuid'",
    "select shuffle(v) from t": "calls 'shuffle'",
    "select monotonically_increasing_id(), spark_partition_id() from t": None,
    "select input_file_name() from t": "calls 'input_file_name'",
    "select first(id), collect_list(id) from t": None,
    "select sum(x) from t": "calls 'sum' over numbers whose sum depends on their order",
    "select avg(id) from t": "calls 'avg' over numbers whose sum depends on their order",
    "select avg(x) from t": "calls 'avg' over numbers whose sum depends on their order",
    "select row_number() over (order by id) from t": None,
    "select * from t limit 1": SOME,
    "select * from t order by id limit 1 offset 1": SOME,
    "select * from t tablesample (50 percent)": SOME,
    "select * from t tablesample (1 rows)": SOME,
    "select * from (select * from t limit 2)": SOME,
    "select * from t where id in (select id from u limit 1)": SOME,
    "values (current_date())": COMPUTED,
    "values (date'today')": CLOCK,
    "select * from values (cast('2020-01-01' as timestamp)) as q(a)": COMPUTED,
    "select * from range(unix_timestamp())": None,
    "select * from explode(array(1))": "calls a table function",
    "select * from t pivot (max(id) for d in (current_date() as a))": "uses Pivot",
    "with recursive r(n) as (select 1 union all select n + 1 from r) select * from r": None,
    "select '${env:HOME}' as h": "uses ${...}",
    "select * from {catalog}.plain": UNDECLARED,
    "select * from {catalog}.seen": UNDECLARED,
    "select * from t where id in (select id from {catalog}.plain)": UNDECLARED,
    "with x as (select * from {catalog}.plain) select * from x": UNDECLARED,
    "select * from parquet.`{rows}`": UNDECLARED,
    "select * from t join parquet . `{rows}` as p on p.id = t.id": UNDECLARED,
    "select * from csv.`{rows}`": UNDECLARED,
    "select * from lancestat.everywhere": UNDECLARED,
    "with plain as (select 1) select * from {catalog}.plain": UNDECLARED,
}  # fmt: skip


UNPROVEN_SINCE = {
    "select current_user, session_user": (4, 0),
    "with recursive r(n) as (select 1 union all select n + 1 from r) select * from r": (4, 0),
    "select * from range(unix_timestamp())": (4, 1),
    "select * from t pivot (max(id) for d in (current_date() as a))": (4, 1),
}


@pytest.mark.parametrize(
    "sql",
    [pytest.param(sql, marks=syntax_since(*UNPROVEN_SINCE.get(sql, (0,)))) for sql in UNPROVEN],
)
def test_an_unproven_query_has_reasons(
    spark: SparkSession, tables: Path, catalog: str, tmp_path: Path, sql: str
) -> None:
    rows = tmp_path / "secret rows.parquet"
    parquet.write_table(pa.table({"id": [1]}), rows)
    text = sql.replace("{catalog}", catalog).replace("{rows}", str(rows))
    reasons = proof(spark, tables, text)
    assert reasons
    assert UNPROVEN[sql] is None or UNPROVEN[sql] in reasons, reasons
    joined_reasons = " ".join(reasons)
    assert catalog not in joined_reasons
    assert "secret rows" not in joined_reasons


def test_a_user_defined_function_is_not_proven(spark: SparkSession, tables: Path) -> None:
    source = side(tables, "select mine(id) from t")
    query = plain_query(spark, source, NONE, "right")
    query.session.udf.register("mine", lambda value: int(time.time()), "bigint")
    _, reasons = query_rows(query, source, NONE, "right")
    assert reasons
    assert "mine" not in " ".join(reasons)


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> SparkWorld:
    rows = vectors(0, 20, name="v").append_column("d", pa.array(range(20), pa.date32()))
    lance.write_dataset(rows, str(tmp_path / "l.lance"))
    lance.write_dataset(vectors(0, 30, name="w"), str(tmp_path / "r.lance"))
    world = SparkWorld(tmp_path)
    world.spark = spark
    return world


def run(world: SparkWorld, sql: str) -> None:
    world.declare(left=KnnSide("v", ("id",), ("l",), sql=sql))
    [result] = world.run().nodes
    assert result.status == "success", result.message


def test_a_proven_query_is_unchanged_until_its_tables_are(world: SparkWorld) -> None:
    run(world, "select * from l where d >= date'1970-01-05'")
    assert isinstance(world.action(), Skip)
    lance.dataset(world.uri("l")).delete("id = 7")
    action = world.action()
    assert isinstance(action, JoinAction)
    assert action.notes == ("the left side has changed",)


def test_a_query_of_the_current_time_is_joined_again_with_a_reason(world: SparkWorld) -> None:
    run(world, "select * from l where d < date'today'")
    action = world.action()
    assert isinstance(action, JoinAction)
    assert action.reasons == (Reason.INPUT_CHANGED,)
    note = f"the left side may differ from run to run: its query {CLOCK}"
    assert action.notes == (note,)


def test_files_that_a_query_names_are_not_watched(world: SparkWorld) -> None:
    rows = world.folder / "extra"
    rows.mkdir()
    parquet.write_table(pa.table({"id": [1, 2, 3]}), rows / "a.parquet")
    run(world, f"select l.* from l left semi join parquet.`{rows}` as e on e.id = l.id")
    assert len({row["id"] for row in world.rows()}) == 2, "the vector of row 3 is null"
    parquet.write_table(pa.table({"id": [9]}), rows / "a.parquet")
    run(world, world.join.left.sql or "")
    assert {row["id"] for row in world.rows()} == {9}
