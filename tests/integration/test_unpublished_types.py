"""Timestamps without a zone and times of day: Spark plans every query, since it is told nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lancestat
from lancestat.spark.versions import has_time_type
from lancestat.tables.statistics.column_type import KEPT_KINDS, ColumnType, Kind
from lancestat.tables.wire import COLUMN_PREFIX
from tests.examples import each, sample
from tests.filters.columns import TIME_OF_MICROS
from tests.integration.catalyst import Catalyst, PlannedTable
from tests.integration.planned import executed, planned, related, with_cbo
from tests.runs.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROWS, FRAGMENTS = 40_000, 10
FIRST = datetime(2020, 1, 1)


@dataclass(frozen=True)
class Tried:
    """A type, a literal of it in the middle of its values, and one in the same fragment."""

    type: ColumnType
    column: str
    middle: str
    near: str
    bounds: Mapping[str, str]


TRIED = [
    Tried(
        ColumnType(Kind.TIMESTAMP_NTZ, "timestamp_ntz", 8),
        "local",
        "TIMESTAMP_NTZ'2020-01-14 20:00:00'",
        "TIMESTAMP_NTZ'2020-01-14 20:31:00'",
        {"c.min": "2020-01-01 00:00:00.000000", "c.max": "2020-02-01 00:00:00.000000"},
    )
]
if has_time_type():
    TRIED.append(
        Tried(
            ColumnType(Kind.TIME, "time(6)", 8),
            "clock",
            "TIME'11:00:00'",
            "TIME'11:01:00'",
            {"c.min": "00:00:00.000000", "c.max": "23:59:59.000000"},
        )
    )
STATISTICS = ({"c.nullCount": "10"}, {"c.distinctCount": "500"}, {"c.avgLen": "8"})


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    session = with_cbo(spark)
    for key in ("cbo.joinReorder.enabled", "timeType.enabled", "statistics.histogram.enabled"):
        session.conf.set(f"spark.sql.{key}", "true")
    return session


@pytest.fixture(params=TRIED, ids=lambda tried: tried.column)
def tried(request: pytest.FixtureRequest) -> Tried:
    case: Tried = request.param
    return case


@pytest.fixture
def told(session: SparkSession, tried: Tried, tmp_path: Path) -> Iterator[PlannedTable]:
    """A table of Spark's own, whose column has the statistics that tests set."""
    name = f"unpublished_{tried.column}"
    yield PlannedTable(Catalyst(session), tried.type, tmp_path / "told", name)
    session.sql(f"drop table {name}")


def test_every_kept_kind_is_tried() -> None:
    kinds = {case.type.kind for case in TRIED}
    assert kinds == KEPT_KINDS - (set() if has_time_type() else {Kind.TIME})


@pytest.mark.parametrize(
    ("entries", "tried"), each([*STATISTICS, {}], TRIED), indirect=["tried"], ids=str
)
def test_spark_fails_to_plan_with_any_statistic(
    told: PlannedTable, tried: Tried, entries: dict[str, str]
) -> None:
    """Where this fails, Spark has learned the types, and more of them may be published."""
    told.set({"c.version": "2", **(entries or tried.bounds)})
    with pytest.raises(Exception, match=r"MatchError|INTERNAL_ERROR|is not supported for column"):
        told.estimate(f"c < {tried.middle}")


def test_counts_alone_would_make_joins_empty(
    session: SparkSession, told: PlannedTable, tried: Tried
) -> None:
    told.set({"c.version": "2", "c.nullCount": "10", "c.distinctCount": "500"})
    join = session.sql(f"select * from {told.name} a join {told.name} b on a.c = b.c")
    assert planned(join).rows == 0


def rows() -> pa.Table:
    """Every minute from `FIRST` on, and every fiftieth row null; clocks rise all the way, too."""
    minutes = [None if n % 50 == 0 else FIRST + timedelta(minutes=n) for n in range(ROWS)]
    clocks = [None if n % 50 == 0 else n * 2_000_000 for n in range(ROWS)]
    return pa.table(
        {
            "k": pa.array([n % 40 for n in range(ROWS)], pa.int32()),
            "local": pa.array(minutes, pa.timestamp("ns")),
            "clock": pa.array(clocks, pa.int64()).view(pa.time64("us")),
            "name": pa.array([f"n{n % 7}" for n in range(ROWS)]),
        }
    )


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    path = tmp_path_factory.mktemp("unpublished") / "t.lance"
    lance.write_dataset(rows(), str(path), max_rows_per_file=ROWS // FRAGMENTS)
    world = World(path, histogram=True)
    assert world.run().status == "success"
    return world


@pytest.fixture(scope="module")
def views(session: SparkSession, world: World) -> Iterator[SparkSession]:
    """The views `t` over Lance and `p` over Parquet of the same rows."""
    related(session, world).createOrReplaceTempView("t")
    names = [name for name in rows().column_names if name != "clock" or has_time_type()]
    parquet = world.path.parent / "rows.parquet"
    written = rows().set_column(1, "local", rows()["local"].cast(pa.timestamp("us")))
    pq.write_table(written.set_column(2, "clock", written["clock"].cast(pa.int64())), parquet)
    clock = "timestampadd(MICROSECOND, clock, TIMESTAMP_NTZ'1970-01-01') as clock"
    if has_time_type():
        clock = f"{TIME_OF_MICROS.format('clock')} as clock"
    read = session.read.parquet(str(parquet))
    read.selectExpr(
        *(clock if name == "clock" else name for name in names)
    ).createOrReplaceTempView("p")
    yield session
    for view in ("t", "p"):
        session.catalog.dropTempView(view)


FILTERS = [
    "c = {m}",
    "c <=> {m}",
    "c < {m}",
    "c <= {m}",
    "c > {m}",
    "c between {m} and {n}",
    "c in ({m}, {n})",
    "c not in ({m}, {n})",
    "c <> {m}",
    "c is null",
    "c is not null",
    "c < {m} or k = 3",
    "c < {m} or c is null",
    "not (c < {m}) and k < 20",
    "(c < {m} and k = 1) or (c > {n} and name = 'n1')",
]
QUERIES = [
    "select c, count(*) from {t} group by c",
    "select k, c, count(*) from {t} group by k, c having c > {m}",
    "select distinct c from {t} where c < {m}",
    "select count(distinct c) from {t}",
    "select k, min(c), max(c) from {t} group by k",
    "select a.k, b.k from {t} a join {t} b on a.c = b.c where a.c > {m}",
    "select a.k, b.k from {t} a left join {t} b on a.c = b.c and a.k = b.k",
    "select a.k from {t} a join {t} b on a.c = b.c join {t} d on b.c = d.c where d.name = 'n1'",
    "select k from {t} where c in (select c from {t} where c < {m})",
    "select k from {t} a where not exists (select 1 from {t} b where a.c = b.c and b.c < {m})",
    "select c from {t} union select c from {t} where c < {m}",
    "select c from {t} except select c from {t} where c < {m}",
    "select c from {t} where c = (select max(c) from {t})",
    "select c, row_number() over (order by c) from {t} order by c limit 5",
]


@pytest.mark.parametrize(("query", "tried"), each(sample(QUERIES, 5), TRIED), indirect=["tried"])
def test_every_query_is_planned_and_answered(views: SparkSession, tried: Tried, query: str) -> None:
    def rows_of(view: str) -> list[str]:
        source = f"(select *, {tried.column} as c from {view})"
        frame = views.sql(query.format(t=source, m=tried.middle, n=tried.near))
        # Estimates are made here, and fail here.
        planned(frame)
        return sorted(map(str, frame.collect()))

    assert rows_of("t") == rows_of("p")


def test_nothing_of_them_is_published_or_reported(
    views: SparkSession, world: World, tried: Tried
) -> None:
    published = {key for key in world.published() if key.startswith(COLUMN_PREFIX)}
    assert {key.split(".")[3] for key in published} == {"k", "name"}
    assert planned(views.table("t")).columns.keys() == {"k", "name"}
    narrowed = views.sql(f"select * from t where {tried.column} < {tried.middle}")
    assert planned(narrowed).columns.keys() == {"k", "name"}


LEFT_FRAGMENTS = {
    "c = {m}": 1,
    "c between {m} and {n}": 1,
    "c in ({m}, {n})": 1,
    "c < {m}": 5,
    "c >= {m}": 6,
    "not (c >= {m})": 5,
    "c is null": FRAGMENTS,
    "c < {m} and c > {n}": 1,
}


@pytest.mark.parametrize(("filter", "tried"), each(LEFT_FRAGMENTS, TRIED), indirect=["tried"])
def test_fragments_are_ruled_out(views: SparkSession, tried: Tried, filter: str) -> None:
    condition = filter.replace("c ", f"{tried.column} ").format(m=tried.middle, n=tried.near)
    explained: Any = lancestat.explain(views.sql(f"select * from t where {condition}")).to_json()
    [scan] = explained["explanation"]["scans"]
    assert scan["fragments_scanned"] == LEFT_FRAGMENTS[filter]


# Spark takes a disjunction with a condition that it does not estimate for true of every row.
MIXED = ("c < {m} or k = 3", "(c < {m} and k = 1) or (c > {n} and name = 'n1')")


@pytest.mark.parametrize(("filter", "tried"), each(sample(FILTERS, 5), TRIED), indirect=["tried"])
def test_the_sample_stands_in_for_what_spark_does_not_estimate(
    views: SparkSession, tried: Tried, filter: str
) -> None:
    condition = filter.replace("c ", f"{tried.column} ").format(m=tried.middle, n=tried.near)
    frame, plain = (views.sql(f"select * from {view} where {condition}") for view in ("t", "p"))
    rows = sorted(map(str, frame.collect()))
    assert rows == sorted(map(str, plain.collect()))
    estimated = planned(frame).rows
    assert filter in MIXED or estimated == pytest.approx(len(rows), rel=0.25, abs=200)


@pytest.mark.parametrize(
    ("condition", "tried"),
    each(["true", "c > {m}", "c is not null", "c < {m} and c > {m}"], TRIED),
    indirect=["tried"],
)
def test_aggregates_are_those_of_the_rows(
    views: SparkSession, tried: Tried, condition: str
) -> None:
    where = condition.replace("c ", f"{tried.column} ").format(m=tried.middle)
    asked = f"select count({tried.column}), min({tried.column}), max({tried.column}) from {{}}"
    mine, theirs = (views.sql(f"{asked.format(view)} where {where}") for view in ("t", "p"))
    assert mine.collect() == theirs.collect()
    if condition == "true":
        assert "PushedAggregates: [" in executed(mine)
