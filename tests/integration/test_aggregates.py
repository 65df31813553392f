"""Aggregates that Spark leaves to lancestat, against the same queries that read the rows."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from functools import reduce
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lancestat
from lancestat.lake.snapshot import spark_type
from lancestat.query.read.relation import Relation, relate
from lancestat.query.table import PUSHDOWN
from lancestat.spec.model import Policy
from tests.examples import examples, sample
from tests.integration.planned import opened, planned
from tests.interpreted import compiled
from tests.lake import awkward
from tests.runs.world import World, orders, write_project

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

CONF = f"spark.lancestat.{PUSHDOWN}"
OFF = {PUSHDOWN: "false"}
FILTER = "Filter ("


def both(session: SparkSession, world: World) -> tuple[DataFrame, DataFrame]:
    """The table with aggregates left to lancestat, and without."""
    table = opened(world)
    on, off = relate(session, [Relation(table), Relation(table, options=OFF)])
    return on, off


def answered(frame: DataFrame) -> int:
    """How many scans of a plan answer aggregates."""
    return len(re.findall(r"PushedAggregates: \[", _explained(frame)))


def _explained(frame: DataFrame) -> str:
    mode = frame.sparkSession._jvm.org.apache.spark.sql.execution.ExplainMode  # type: ignore[union-attr]
    text: str = frame._jdf.queryExecution().explainString(mode.fromString("simple"))
    return text


# Random tables of every type.

# Values that Spark compares as it reads them, in a text that shows every bit of them.
_SHOWN = {
    "date": "cast(unix_date({}) as string)",
    "timestamp": "cast(unix_micros({}) as string)",
    "timestamp_ntz": "cast(unix_micros(cast({} as timestamp)) as string)",
    "string": "hex(cast({} as binary))",
    "binary": "hex({})",
}


def shown(name: str, type: pa.DataType) -> Iterator[str]:
    """Aggregates of a column as text."""
    yield f"cast(count(`{name}`) as string)"
    text = _SHOWN.get(str(spark_type(type)), "cast({} as string)")
    yield text.format(f"min(`{name}`)")
    yield text.format(f"max(`{name}`)")


def append(world: World, random: Random) -> None:
    rows, _ = awkward.table(random.randrange(10**6), random.randrange(1, 9))
    rows = rows.select(world.dataset.schema.names)
    lance.write_dataset(rows, str(world.path), mode="append")


def delete(world: World, random: Random) -> None:
    low = random.randrange(40)
    world.dataset.delete(f"id >= {low} and id < {low + random.randrange(1, 9)}")


def update(world: World, random: Random) -> None:
    world.dataset.update({"f64": "nanvl(f64, 0.0) / 7 + 1.5"}, where="id % 3 = 0")
    world.dataset.update({"i8": "cast(null as tinyint)"}, where="id >= 0")


def compact(world: World, random: Random) -> None:
    world.dataset.optimize.compact_files(target_rows_per_fragment=20)


def drop(world: World, random: Random) -> None:
    if "flag" in world.dataset.schema.names:
        world.dataset.drop_columns(["flag"])


def analyze(world: World, random: Random) -> None:
    [node] = world.run().nodes
    assert node.status == "success", node


CHANGES = (append, append, delete, delete, update, compact, drop, analyze, analyze, analyze)


SEEDS = sample(range(20), 2)


@pytest.mark.parametrize("seed", SEEDS)
def test_answers_are_those_of_reading_for_every_type(
    session: SparkSession, tmp_path: Path, seed: int
) -> None:
    rows, _ = awkward.table(seed, 50)
    lance.write_dataset(rows, str(tmp_path / "t.lance"), max_rows_per_file=10)
    world = World(tmp_path / "t.lance", policy=Policy(allow_stale=True))
    random = Random(seed)
    for made in (0, random.randrange(1, 5), random.randrange(1, 5)):
        changes = random.choices(CHANGES, k=made) or [analyze]
        for change in changes:
            change(world, random)
        schema = world.dataset.schema
        asked = ["cast(count(*) as string)"]
        for field in schema:
            asked += shown(field.name, field.type)
        asked = random.sample(asked, min(examples(150), len(asked)))
        on, off = both(session, world)
        conditions = ["true", f"id >= {random.randrange(50)}", "i8 is not null", "f64 < 'NaN'"]
        condition = random.choice(conditions) if made else "true"
        [truth] = off.where(condition).selectExpr(*asked).collect()
        expected = dict(zip(asked, map(unsigned_zero, truth), strict=True))
        assert answers(on.where(condition), asked) == expected, (changes, condition)


def answers(frame: DataFrame, asked: Sequence[str]) -> dict[str, str | None]:
    """Return the answer to each aggregate by itself, from one job."""
    parts = [
        frame.selectExpr(f"{place} as place", f"{text} as a") for place, text in enumerate(asked)
    ]
    rows = reduce(lambda left, right: left.unionAll(right), parts).collect()
    return {asked[place]: unsigned_zero(answer) for place, answer in rows}


def unsigned_zero(answer: str | None) -> str | None:
    """The text without the sign of a zero: Spark returns whichever zero it met first."""
    return "0.0" if answer == "-0.0" else answer


def test_after_an_analysis_all_exact_answers_are_given(
    session: SparkSession, tmp_path: Path
) -> None:
    rows, _ = awkward.table(1, 50)
    lance.write_dataset(rows, str(tmp_path / "t.lance"), max_rows_per_file=10)
    world = World(tmp_path / "t.lance")
    world.run()
    on, _ = both(session, world)
    left = {
        field.name
        for field in world.dataset.schema
        for function in ("min", "max")
        if not answered(on.selectExpr(f"{function}(`{field.name}`)"))
    }
    # Of long text no bounds are exact.
    assert left == {"it's", "large"}


# One table in order, and questions that Spark asks in many ways.


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """300 rows in 3 fragments, some deleted, all analyzed."""
    path = tmp_path_factory.mktemp("aggregates") / "orders.lance"
    rows = orders(0, 300)
    names = [None if n % 7 == 0 else f"n{n % 50}" for n in range(300)]
    rows = rows.append_column("Na me", pa.array(names, pa.string()))
    rows = rows.append_column("part", pa.array([n // 100 for n in range(300)], pa.int32()))
    rows = rows.append_column("tags", pa.array([[n] for n in range(300)], pa.list_(pa.int64())))
    struct = pa.array([{"x": n, "y": None} for n in range(300)])
    lance.write_dataset(rows.append_column("s", struct), str(path), max_rows_per_file=100)
    lance.dataset(str(path)).delete("o_id in (0, 5, 299)")
    world = World(path)
    assert world.run().status == "success"
    return world


@pytest.fixture
def views(session: SparkSession, world: World) -> Iterator[SparkSession]:
    """The views `t` and, without push-down, `r`."""
    on, off = both(session, world)
    on.createOrReplaceTempView("t")
    off.createOrReplaceTempView("r")
    yield session
    session.catalog.dropTempView("t")
    session.catalog.dropTempView("r")


# Each with the number of scans that answer.
QUERIES: list[tuple[str, int]] = [
    ("select count(*) from {t}", 1),
    ("select count(1), count('x'), count(o_id) from {t}", 1),
    ("select max(o_id), min(o_id), count(o_status), max(o_status), min(part) from {t}", 1),
    ("select max(o_id) - min(o_id) + count(*) as d, 7 from {t}", 1),
    ("select max(o_id), max(o_id) + 1, max(O_ID) from {t}", 1),
    ("select count(`Na me`), min(`Na me`) from {t}", 1),
    ("select min(x), count(y) from (select o_id as x, `Na me` as y from {t})", 1),
    ("select count(*) from (select o_id + 1 as x from {t})", 1),
    ("select count(distinct 1) from {t}", 1),
    ("select count(distinct 1), count(*), count(distinct 'a'), max(o_id) from {t}", 1),
    ("select count(distinct 1) from {t} where part = 7", 1),
    ("select min(distinct o_id), max(distinct part) from {t}", 1),
    ("select count(null), count(*) from {t}", 1),
    ("select bool_and(o_id > 0) from {t}", 0),
    ("select count(*) from {t} having count(*) > 1", 1),
    ("select count(*) from {t} having max(o_id) < 1", 1),
    ("select count(*) as c from {t} order by c limit 1", 1),
    ("select count(*) from {t} limit 1", 1),
    ("select max(o_id) from {t} limit 1 offset 1", 1),
    ("select * from (select max(o_id) as m, count(*) from {t}) where m > 10", 1),
    ("select count(*) from (select * from {t} limit 5)", 0),
    ("select count(*) from (select * from {t} limit 5 offset 297)", 0),
    ("select count(*) from (select distinct part from {t})", 0),
    ("select count(*) from (select count(*) from {t})", 1),
    ("select max(m) from (select max(o_id) as m from {t} union all select 1)", 1),
    ("select count(*) from {t} where o_id >= 100", 1),
    ("select count(*), min(o_total), max(`Na me`) from {t} where o_id >= 100 and part < 2", 1),
    ("select min(o_id) from {t} where part = 1", 1),
    ("select min(o_id) from {t} where part = 1 and o_id >= 100 and o_id is not null", 1),
    ("select count(o_status) from {t} where part between 1 and 2", 1),
    ("select count(*) from {t} where part = 9", 1),
    ("select max(o_id), count(*) from {t} where part > 9", 1),
    ("select count(*) from {t} where not (part = 0 or part = 2)", 1),
    ("select count(*) from {t} where part = 1 and o_status = 'open'", 0),
    ("select count(*) from {t} where o_id >= 101", 0),
    ("select count(*) from {t} where part = 1 and o_id % 2 = 0", 0),
    ("select count(*) from {t} where part = 1 or o_id % 2 = 0", 0),
    ("select count(*) from {t} where part = 1 and o_id > (select min(o_id) from {t})", 1),
    ("select count(*) from {t} where o_id in (select max(o_id) from {t})", 1),
    ("select count(*) from {t} where `Na me` is not null", 0),
    ("select part, count(*), max(o_id) from {t} group by part order by part", 0),
    ("select part, count(*) from {t} group by rollup (part) order by part", 0),
    ("select count(distinct part) from {t}", 0),
    ("select count(distinct part), count(*) from {t}", 0),
    ("select count(*) filter (where part = 1) from {t}", 0),
    ("select count(*), sum(o_id) from {t}", 0),
    ("select avg(part) from {t}", 0),
    ("select max(o_id + 1) from {t}", 0),
    ("select max(cast(o_id as string)) from {t}", 0),
    ("select min(o_total) from {t}", 1),
    ("select count(tags) from {t}", 0),
    ("select max(s) from {t}", 0),
    ("select max(s.x) from {t}", 0),
    ("select first(o_id) is null from {t}", 0),
    ("select count(part, o_id) from {t}", 0),
    ("select max_by(o_id, o_total) from {t}", 0),
    ("select count(*) from {t} a join {t} b on a.o_id = b.o_id", 0),
    ("select a.c, b.m from (select count(*) c from {t}) a, (select max(o_id) m from {t}) b", 2),
    ("select o_id from {t} where o_id = (select max(o_id) from {t})", 1),
    ("with c as (select count(*) n from {t}) select x.n + y.n from c x, c y", 2),
    ("select count(*) from {t} tablesample (100 percent)", 0),
    ("select max(o_id) over () as m from {t} limit 1", 0),
    ("select count(*) from {t} where rand(1) < 0.5", 0),
    ("select count_if(part = 1) from {t}", 0),
    ("select mean(c) from (select count(*) c from {t})", 1),
]


@pytest.mark.parametrize(("query", "scans"), sample(QUERIES, 26), ids=str)
def test_queries_give_the_same_rows_and_types(views: SparkSession, query: str, scans: int) -> None:
    mine, theirs = (views.sql(query.format(t=name)) for name in ("t", "r"))
    assert mine.schema.simpleString() == theirs.schema.simpleString()
    assert answered(theirs) == 0
    seen = answered(mine)
    assert (seen > 0) == (scans > 0), _explained(mine)
    assert mine.collect() == theirs.collect()


def test_compiled_queries_give_the_same_rows(spark: SparkSession, world: World) -> None:
    on, off = both(compiled(spark), world)
    asked = ["count(*)", "max(o_id)", "min(`Na me`)", "count(o_status)", "min(o_total)"]
    for some in (asked, asked[1:], asked[1:2]):
        assert answered(on.selectExpr(*some)) == 1
        assert on.selectExpr(*some).collect() == off.selectExpr(*some).collect()


def test_dataframes_are_answered(session: SparkSession, world: World) -> None:
    from pyspark.sql import functions as f

    on, off = both(session, world)
    assert on.count() == off.count() == 297
    asked = [f.max("o_id"), f.count("*"), f.countDistinct(f.lit(1))]
    assert on.agg(*asked).collect() == off.agg(*asked).collect() == [(298, 297, 1)]
    assert answered(on.agg(*asked)) == 1
    assert on.where("part = 1").cache().agg(f.max("o_id")).collect() == [(199,)]
    session.catalog.clearCache()


def test_no_row_is_read(session: SparkSession, world: World, asked: list[dict[str, Any]]) -> None:
    on, off = both(session, world)

    def count(op: str) -> int:
        return [request["op"] for request in asked].count(op)

    assert on.selectExpr("count(*)", "max(o_id)").collect() == [(297, 298)]
    assert on.where("part = 2").selectExpr("min(`Na me`)").collect() == [("n0",)]
    assert (count("parts"), count("aggregate"), count("verify")) == (0, 2, 2)
    assert off.selectExpr("max(o_id)").collect() == [(298,)]
    assert count("parts") == 1


def test_a_table_without_its_data_files_is_answered(session: SparkSession, tmp_path: Path) -> None:
    lance.write_dataset(orders(0, 50), str(tmp_path / "t.lance"))
    world = World(tmp_path / "t.lance")
    world.run()
    on, off = both(session, world)
    shutil.rmtree(tmp_path / "t.lance" / "data")
    asked = ["count(*)", "max(o_id)", "min(o_status)", "count(o_status)"]
    assert on.selectExpr(*asked).collect() == [(50, 49, "open", 33)]
    with pytest.raises(Exception, match="LS2"):
        off.selectExpr(*asked).collect()


def test_the_pinned_version_is_answered(session: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    lance.write_dataset(orders(0, 50), str(path))
    world = World(path)
    world.run()
    before, _ = both(session, world)
    lance.write_dataset(orders(50, 50), str(path), mode="append")
    world.dataset.delete("o_id < 10")
    world.run()
    after, _ = both(session, world)
    first = lancestat.read_table(session, str(path), version=1)
    asked = ["count(*)", "min(o_id)", "max(o_id)"]
    # The state goes by content: the later run has forgotten what was deleted.
    for frame, scans, rows in ((before, 0, (50, 0, 49)), (after, 1, (90, 10, 99))):
        assert answered(frame.selectExpr(*asked)) == scans
        assert frame.selectExpr(*asked).collect() == [rows]
    for frame, count in ((before, 50), (after, 90), (first, 50)):
        assert answered(frame.selectExpr("count(*)")) == 1
        assert frame.count() == count


def test_a_proof_is_that_of_the_plan_until_the_query_runs(
    session: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    on, off = both(session, world)
    filtered = on.where("part = 1").select("o_id")
    assert FILTER not in _explained(filtered)
    monkeypatch.setattr(
        "lancestat.query.fragments.FragmentStatistics.covers", lambda *arguments: False
    )
    expected = off.where("part = 1").select("o_id").collect()
    assert sorted(filtered.collect()) == sorted(expected)


def test_rows_under_proven_filters_and_limits(session: SparkSession, world: World) -> None:
    on, off = both(session, world)
    assert planned(on.where("part = 1")).rows == 100
    for condition in ("part = 1", "part >= 1 and o_id >= 100", "part = 9", "part < 9"):
        mine, theirs = (frame.where(condition).drop("s", "tags") for frame in (on, off))
        assert FILTER not in _explained(mine)
        assert sorted(mine.collect()) == sorted(theirs.collect())
        assert len(mine.limit(7).collect()) == min(7, theirs.count())
        assert len(mine.select("o_id").limit(150).collect()) == min(150, theirs.count())


# Settings.


def test_it_can_be_switched_off(session: SparkSession, world: World) -> None:
    on, off = both(session, world)
    assert answered(on.selectExpr("count(*)")) == 1
    assert answered(off.selectExpr("count(*)")) == 0
    try:
        session.conf.set(CONF, "false")
        assert answered(on.selectExpr("count(*)")) == 0
        assert FILTER in _explained(on.where("part = 1"))
        session.conf.set(CONF, "true")
        assert answered(off.selectExpr("count(*)")) == 1
    finally:
        session.conf.unset(CONF)


def test_it_is_an_option_of_attach_and_read_table(session: SparkSession, tmp_path: Path) -> None:
    project = write_project(tmp_path, "orders")
    uri = tmp_path / "orders.lance"
    lance.write_dataset(orders(0, 100), uri)
    project.run()
    query = "select count(*), max(o_id) from orders"
    for options, scans in ((None, 1), (OFF, 0), ({PUSHDOWN: "true"}, 1)):
        project.attach(session, options=options)
        assert answered(session.sql(query)) == scans
        assert session.sql(query).collect() == [(100, 99)]
    session.catalog.dropTempView("orders")
    read = lancestat.read_table(session, str(uri))
    assert answered(read.selectExpr("count(*)")) == 1
    assert answered(read.selectExpr("max(o_id)")) == 0
    read = lancestat.read_table(session, str(uri), options=OFF)
    assert answered(read.selectExpr("count(*)")) == 0
    assert read.count() == 100


def test_neither_the_cost_based_optimizer_nor_column_statistics_matter(
    spark: SparkSession, world: World
) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.cbo.enabled", "false")
    session.conf.set("spark.lance.cbo.column.stats.enabled", "false")
    on, _ = both(session, world)
    assert answered(on.selectExpr("max(o_id)")) == 1


def test_sparks_plan_names_the_aggregates(session: SparkSession, world: World) -> None:
    on, _ = both(session, world)
    asked = on.where("part = 1").selectExpr("count(*)", "max(o_id)", "count(`Na me`)")
    [line] = [line for line in _explained(asked).splitlines() if "BatchScan" in line]
    assert "PushedAggregates: [COUNT(*), MAX(o_id), COUNT(`Na me`)]" in line
    assert "lance orders, PushedFilters: [IsNotNull(part), EqualTo(part,1)]" in line
