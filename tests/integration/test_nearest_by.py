"""NEAREST BY over vectors on lancestat's engine, against Spark's own plan of the same query."""

from __future__ import annotations

import gc
import json
import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyspark.sql import functions as sf

import lancestat
from lancestat.cli.main import cli
from lancestat.joins import nearest_by
from lancestat.joins.nearest_by import install
from lancestat.joins.search.work import JoinRequest
from tests.examples import each, sample
from tests.runs.world import write_project
from tests.versions import needs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = [pytest.mark.spark, needs.nearest_by_join]

ENABLED = "spark.lancestat.nearestBy.enabled"
MIN_RIGHT_ROWS = "spark.lancestat.nearestBy.minRightRows"
NODE = "LancestatNearestBy"
DIRECTIONS = {
    "vector_l2_distance": "DISTANCE",
    "vector_cosine_similarity": "SIMILARITY",
    "vector_inner_product": "SIMILARITY",
}
KINDS = ["", "LEFT OUTER"]
Vector = Sequence[float | None] | None


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """A session in which every join that can be is lancestat's."""
    session = spark.newSession()
    install(session)
    session.conf.set(MIN_RIGHT_ROWS, "0")
    yield session
    session.catalog.clearCache()
    # It stays the active session.
    session.conf.unset(nearest_by.SCRATCH_SETTING)


@dataclass
class Searches:
    """The searches that ran."""

    requests: list[JoinRequest] = field(default_factory=list)
    columns: list[tuple[Sequence[str] | None, Sequence[str] | None]] = field(default_factory=list)


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> Searches:
    seen = Searches()
    run = nearest_by.run_join

    def counted(engine: Any, work: Any, *rest: Any) -> Any:
        seen.requests.append(work.request)
        seen.columns.append((work.left.select, work.right.select))
        return run(engine, work, *rest)

    monkeypatch.setattr(nearest_by, "run_join", counted)
    return seen


@contextmanager
def sparks_own(session: SparkSession) -> Iterator[None]:
    session.conf.set(ENABLED, "false")
    yield
    session.conf.set(ENABLED, "true")


def view(session: SparkSession, name: str, vectors: Sequence[Vector], parts: int = 3) -> None:
    """Rows of a number, a vector and a text, whose columns start with the view's first letter."""
    letter = name[0]
    rows = [(number, vector, f"{name} {number}") for number, vector in enumerate(vectors)]
    schema = f"{letter}_id long, {letter}_v array<float>, {letter}_name string"
    frame = session.createDataFrame(session.sparkContext.parallelize(rows, parts), schema)
    frame.createOrReplaceTempView(name)


def views(session: SparkSession, left: Sequence[Vector], right: Sequence[Vector]) -> None:
    view(session, "left_side", left)
    view(session, "right_side", right)


def small_vectors(seed: int, count: int, dimension: int) -> list[Vector]:
    """Vectors of few values, with ties, duplicates, zeros, nulls and null elements among them."""
    rng = np.random.default_rng(seed)
    vectors: list[Vector] = []
    for _ in range(count):
        vector: list[float | None] = rng.integers(-2, 3, dimension).astype(float).tolist()
        kind = rng.random()
        if kind < 0.1:
            vectors.append(None)
        elif kind < 0.2:
            vector[int(rng.integers(dimension))] = None
            vectors.append(vector)
        elif kind < 0.3 and vectors:
            vectors.append(vectors[int(rng.integers(len(vectors)))])
        else:
            vectors.append(vector)
    return vectors


def floats(seed: int, count: int, dimension: int) -> list[Vector]:
    return np.random.default_rng(seed).standard_normal((count, dimension)).tolist()


def query(
    function: str,
    k: int = 3,
    *,
    kind: str = "",
    mode: str = "EXACT",
    left: str = "l_v",
    right: str = "r_v",
) -> str:
    ranking = f"{function}({left}, {right})"
    return (
        f"SELECT l_id, l_name, r_id, r_name, {ranking} AS d FROM left_side {kind} "
        f"JOIN right_side {mode} NEAREST {k} BY {DIRECTIONS[function]} {ranking}"
    )


def is_ours(frame: DataFrame) -> bool:
    """Whether the search is in the physical plan, and not Spark's lowering of the join."""
    plan = frame._jdf.queryExecution().executedPlan().toString()
    return NODE in plan and "max_by" not in plan and "min_by" not in plan


def assert_same_neighbours(ours: Sequence[Any], theirs: Sequence[Any], k: int) -> None:
    """The same rows, but for which of equally near ones are the last."""
    ranked = [_by_left_row(rows) for rows in (ours, theirs)]
    assert ranked[0].keys() == ranked[1].keys()
    for number, own in ranked[0].items():
        other = ranked[1][number]
        assert sorted(row.d is None for row in own) == sorted(row.d is None for row in other)
        distances = [sorted(_number(row.d) for row in rows) for rows in (own, other)]
        assert distances[0] == distances[1]
        for row in own:
            assert row.r_name == (None if row.r_id is None else f"right_side {row.r_id}")
            assert row.l_name == f"left_side {row.l_id}"
        assert len(own) <= k * len({row.l_id for row in own})
        full = len(own) == k
        last = {max(distances[0]), min(distances[0])} if full else set()
        sets = [
            sorted(row.r_id for row in rows if row.r_id is not None and _number(row.d) not in last)
            for rows in (own, other)
        ]
        assert sets[0] == sets[1]


def _number(distance: float | None) -> float:
    return math.inf if distance is None or math.isnan(distance) else distance


def _by_left_row(rows: Sequence[Any]) -> dict[int, list[Any]]:
    groups = defaultdict(list)
    for row in rows:
        groups[row.l_id].append(row)
    return groups


def compared(session: SparkSession, text: str, k: int = 3) -> list[Any]:
    """The rows of a query, which Spark's own plan returns too."""
    frame = session.sql(text)
    assert is_ours(frame)
    rows = frame.collect()
    with sparks_own(session):
        theirs = session.sql(text)
        assert not is_ours(theirs)
        assert_same_neighbours(rows, theirs.collect(), k)
    return rows


@pytest.mark.parametrize(("function", "kind", "seed"), each(DIRECTIONS, KINDS, (1, 2)))
def test_rows_with_ties_nulls_and_duplicates_are_those_of_spark(
    session: SparkSession, searches: Searches, function: str, kind: str, seed: int
) -> None:
    views(session, small_vectors(seed, 40, 3), small_vectors(seed + 100, 90, 3))
    assert compared(session, query(function, 4, kind=kind), 4)
    assert len(searches.requests) == 1


EXPRESSIONS = {
    "swapped": ("r_v", "l_v"),
    "left expression": ("transform(l_v, x -> float(x * 2))", "r_v"),
    "both sides": ("slice(l_v, 1, 4)", "transform(slice(r_v, 3, 4), x -> float(x + 1))"),
    "of other columns": (
        "array(float(l_id), float(1))",
        "array(float(r_id), float(length(r_name)))",
    ),
    "a literal": ("r_v", "cast(array(1, 0, 0, 2, 0, 1, 0, 0) AS array<float>)"),
}


@pytest.mark.parametrize(("function", "vectors"), each(DIRECTIONS, sample(list(EXPRESSIONS), 3)))
def test_vectors_are_any_expressions_in_any_order(
    session: SparkSession, function: str, vectors: str
) -> None:
    left, right = EXPRESSIONS[vectors]
    views(session, floats(3, 30, 8), floats(4, 70, 8))
    assert compared(session, query(function, left=left, right=right))


@pytest.mark.parametrize("kind", sample(["leftouter", "inner"], 1))
def test_the_method_of_data_frames_is_the_same_join(session: SparkSession, kind: str) -> None:
    views(session, small_vectors(5, 30, 4), small_vectors(6, 60, 4))
    distance = sf.call_function("vector_l2_distance", "l_v", "r_v")

    def joined() -> DataFrame:
        right = session.table("right_side")
        frame = session.table("left_side").nearestByJoin(
            right, distance, 3, "exact", "distance", joinType=kind
        )
        return frame.withColumn("d", distance)

    ours = joined()
    assert is_ours(ours)
    assert ours.columns == ["l_id", "l_v", "l_name", "r_id", "r_v", "r_name", "d"]
    with sparks_own(session):
        theirs = joined()
    assert ours.schema == theirs.schema
    assert_same_neighbours(ours.collect(), theirs.collect(), 3)


@pytest.mark.parametrize(("sizes", "kind"), each([(0, 5), (5, 0), (0, 0), (5, 2)], KINDS))
def test_sides_without_rows_and_with_fewer_than_k(
    session: SparkSession, sizes: tuple[int, int], kind: str
) -> None:
    for name, count in zip(("left_side", "right_side"), sizes, strict=True):
        schema = f"{name[0]}_id long, {name[0]}_v array<float>, {name[0]}_name string"
        rows = [(n, vector, f"{name} {n}") for n, vector in enumerate(floats(7, count, 4))]
        # Spark knows nothing of the rows of an RDD before it runs.
        parallel = session.sparkContext.parallelize(rows, 2)
        session.createDataFrame(parallel, schema).createOrReplaceTempView(name)
    rows = compared(session, query("vector_l2_distance", 3, kind=kind))
    assert len(rows) == sizes[0] * max(min(3, sizes[1]), 1 if kind else 0)


@pytest.mark.parametrize(
    ("function", "odd"),
    sample(
        [
            ("vector_l2_distance", [math.nan, 1.0]),
            ("vector_inner_product", [math.inf, 1.0]),
            ("vector_cosine_similarity", [-math.inf, 0.0]),
            ("vector_inner_product", []),
            ("vector_l2_distance", [3e38, 3e38]),
            ("vector_cosine_similarity", []),
        ],
        2,
    ),
)
def test_vectors_that_only_spark_compares_so_are_compared_by_spark(
    session: SparkSession, searches: Searches, function: str, odd: list[float]
) -> None:
    empty: list[Vector] = [[], None]
    right = [*floats(9, 5, 2), odd, odd] if odd else empty
    views(session, floats(8, 5, 2) if odd else empty, right)
    rows = session.sql(query(function, 6)).collect()
    assert len(searches.requests) == 1
    with sparks_own(session):
        theirs = session.sql(query(function, 6)).collect()
    assert sorted((row.l_id, row.r_id, str(row.d)) for row in rows) == sorted(
        (row.l_id, row.r_id, str(row.d)) for row in theirs
    )


def test_the_last_row_of_many_is_left_to_spark_too(session: SparkSession) -> None:
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10")
    view(session, "left_side", floats(8, 5, 2))
    view(session, "right_side", [*floats(9, 200, 2), [math.nan, math.nan]], parts=1)
    assert compared(session, query("vector_l2_distance", 201), 201)


@pytest.mark.thorough
def test_vectors_of_two_lengths_are_the_error_that_spark_raises(session: SparkSession) -> None:
    views(session, floats(8, 5, 2), floats(9, 5, 3))
    with pytest.raises(Exception, match="VECTOR_DIMENSION_MISMATCH"):
        session.sql(query("vector_l2_distance")).collect()


def test_small_inner_products_are_told_apart(session: SparkSession) -> None:
    rng = np.random.default_rng(10)
    views(
        session,
        (rng.standard_normal((20, 8)) * 1e-6).tolist(),
        (rng.standard_normal((500, 8)) * 1e-6).tolist(),
    )
    assert compared(session, query("vector_inner_product", 5), 5)


@pytest.mark.parametrize(
    ("ranking", "why"),
    sample(
        [
            ("DISTANCE abs(l_id - r_id)", "it ranks by none of"),
            ("DISTANCE -vector_inner_product(l_v, r_v)", "it ranks by none of"),
            ("SIMILARITY vector_l2_distance(l_v, r_v)", "farthest by vector_l2_distance"),
            ("DISTANCE vector_inner_product(l_v, r_v)", "farthest by vector_inner_product"),
            ("DISTANCE vector_l2_distance(l_v, l_v)", "does not compare a vector of one side"),
            (
                "DISTANCE vector_l2_distance(transform(l_v, x -> float(x + r_id)), r_v)",
                "does not compare a vector of one side",
            ),
        ],
        3,
    ),
)
def test_other_rankings_stay_those_of_spark(
    session: SparkSession, searches: Searches, ranking: str, why: str
) -> None:
    views(session, floats(11, 6, 4), floats(12, 9, 4))
    text = f"SELECT l_id, r_id FROM left_side JOIN right_side EXACT NEAREST 2 BY {ranking}"
    frame = session.sql(text)
    assert frame.count() == 12
    assert NODE not in frame._jdf.queryExecution().executedPlan().toString()
    assert not searches.requests
    explained = lancestat.explain(frame)
    assert why in str(explained)
    [line] = explained.to_json()["explanation"]["nearest_by"]  # type: ignore[index]
    assert line["strategy"] == "spark" and why in line["reason"]


def test_few_right_rows_stay_those_of_spark(session: SparkSession, searches: Searches) -> None:
    session.conf.unset(MIN_RIGHT_ROWS)
    session.createDataFrame(
        [(1, [1.0, 2.0], "left_side 1")], "l_id long, l_v array<float>, l_name string"
    ).createOrReplaceTempView("left_side")
    session.sql(
        "SELECT id AS r_id, array(float(id), float(2)) AS r_v, concat('right_side ', id) AS r_name "
        "FROM range(50)"
    ).createOrReplaceTempView("right_side")
    frame = session.sql(query("vector_l2_distance"))
    assert sorted(row.r_id for row in frame.collect()) == [0, 1, 2]
    assert not searches.requests
    explained = str(lancestat.explain(frame))
    assert "by vector_l2_distance, exact: spark, since fewer than 10,000 right rows" in explained
    assert "spark: fewer than 10,000 right rows" in plan_of(frame)


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().toString())


def test_explain_shows_node_strategy_and_reason(session: SparkSession, searches: Searches) -> None:
    views(session, floats(13, 6, 4), floats(14, 9, 4))
    frame = session.sql(query("vector_cosine_similarity", kind="LEFT OUTER"))
    shown = (
        f"{NODE} left outer, 3 by vector_cosine_similarity, exact; "
        "exact: every pair is to be compared"
    )
    assert shown in plan_of(frame)
    explained = lancestat.explain(frame)
    assert (
        "NEAREST BY left outer, 3 by vector_cosine_similarity, exact: exact, since every pair is "
        "to be compared"
    ) in str(explained)
    assert explained.to_json()["explanation"]["nearest_by"] == [  # type: ignore[index]
        {
            "join": "left outer, 3 by vector_cosine_similarity, exact",
            "strategy": "exact",
            "reason": "every pair is to be compared",
        }
    ]
    approximate = session.sql(query("vector_l2_distance", mode="APPROX"))
    assert (
        "by vector_l2_distance, approximate: ivf, since an approximate result will do; "
        "every pair is compared where the run finds that to take less time"
    ) in str(lancestat.explain(approximate))
    assert not searches.requests, "nothing runs for an explanation"


def test_the_search_runs_with_the_query_and_writes_what_it_uses(
    session: SparkSession, searches: Searches
) -> None:
    views(session, floats(15, 6, 4), floats(16, 9, 4))
    joined = query("vector_l2_distance")
    frame = session.sql(f"SELECT r_name FROM ({joined})")
    assert frame.columns and frame._jdf.queryExecution().executedPlan()
    frame.explain(True)
    assert not searches.requests
    frame.collect()
    session.sql(f"SELECT count(*) FROM ({joined})").collect()
    widths = [(len(left or ()), len(right or ())) for left, right in searches.columns]
    assert widths == [(0, 1), (0, 0)]


JOINED = query("vector_l2_distance", 2)
BIGGER = {
    "cte": f"WITH j AS ({JOINED}) SELECT a.l_id, b.r_id FROM j a JOIN j b ON a.r_id = b.r_id",
    "cte of a side": (
        "WITH s AS (SELECT r_id AS s_id, r_v AS s_v FROM right_side WHERE r_id % 2 = 0) "
        "SELECT l_id, s_id, (SELECT max(s_id) FROM s) FROM left_side JOIN s "
        "EXACT NEAREST 2 BY DISTANCE vector_l2_distance(l_v, s_v)"
    ),
    "aggregated": f"SELECT r_id, count(*), sum(d) FROM ({JOINED}) GROUP BY r_id",
    "in a subquery": f"SELECT l_id FROM left_side WHERE l_id IN (SELECT r_id FROM ({JOINED}))",
    "scalar": f"SELECT l_id, (SELECT max(d) FROM ({JOINED})) FROM left_side",
    "exists": (
        "SELECT l_id FROM left_side o WHERE EXISTS "
        f"(SELECT 1 FROM ({JOINED}) i WHERE i.r_id = o.l_id)"
    ),
    "grouped sides": (
        "SELECT l.n, r.m FROM "
        "(SELECT l_id % 4 AS g, count(*) AS n, max_by(l_v, l_id) AS a FROM left_side GROUP BY 1) l "
        "JOIN (SELECT r_id % 9 AS g, sum(r_id) AS m, max_by(r_v, r_id) AS b FROM right_side "
        "GROUP BY 1) r EXACT NEAREST 2 BY DISTANCE vector_l2_distance(l.a, r.b)"
    ),
    "self-join": (
        "SELECT a.r_id, b.r_id, b.r_name FROM right_side a JOIN right_side b "
        "EXACT NEAREST 2 BY DISTANCE vector_l2_distance(a.r_v, b.r_v)"
    ),
    "nested": (
        f"SELECT j.l_id, j.r_id, t.r_id FROM ({JOINED}) j JOIN right_side t "
        "EXACT NEAREST 2 BY DISTANCE "
        "vector_l2_distance(cast(array(j.d, 0, 0, 1) AS array<float>), t.r_v)"
    ),
    "joined": (
        f"SELECT j.l_id, t.r_name FROM ({JOINED}) j JOIN right_side t ON j.r_id = t.r_id "
        "ORDER BY j.l_id, t.r_name"
    ),
    "union": f"SELECT l_id, r_id FROM ({JOINED}) UNION ALL SELECT r_id, l_id FROM ({JOINED})",
    "ranked": (
        f"SELECT l_id, r_id, row_number() OVER (PARTITION BY l_id ORDER BY d) FROM ({JOINED})"
    ),
    "filtered": f"SELECT l_id, r_id FROM ({JOINED}) WHERE d < 2 AND l_id > 3 AND r_id > 2",
    "lateral": (
        "SELECT t.l_id, n.c FROM left_side t, LATERAL "
        f"(SELECT count(*) AS c FROM ({JOINED}) j WHERE j.r_id = t.l_id) n"
    ),
}


@pytest.mark.parametrize("name", sample(list(BIGGER), 4))
def test_joins_within_bigger_queries(session: SparkSession, searches: Searches, name: str) -> None:
    views(session, floats(19, 12, 4), floats(20, 30, 4))
    text = BIGGER[name]
    rows = session.sql(text).collect()
    assert searches.requests
    with sparks_own(session):
        theirs = session.sql(text).collect()
    assert sorted(map(str, rows)) == sorted(map(str, theirs))
    assert rows


# The left rows that are searched, by the condition of a query.
ON_THE_LEFT = {
    "l_id < 5": 5,
    "l_id < 5 and r_id > 2 and l_id < r_id": 5,
    "l_id + 1 < 5 and rand(7) < 2": 4,
    "l_name like '%1' and length(l_name) > 11": 1,
    "l_id in (select r_id from right_side where r_id % 4 = 0)": 3,
    "l_id not in (select r_id from right_side where r_id % 4 = 0)": 9,
    "not exists (select 1 from right_side o where o.r_id = l_id and o.r_id > 3)": 4,
    "l_id = (select max(r_id) from right_side where r_id < 7)": 1,
    "exists (select 1 from right_side o where o.r_id = l_id + d and o.r_id > 3)": 12,
    "r_id > 2 or l_id < 5": 12,
    "d < 2": 12,
    "l_id > 99": 0,
}


@pytest.mark.parametrize(("kind", "condition"), each(KINDS, sample(list(ON_THE_LEFT), 4)))
def test_left_rows_that_a_condition_drops_are_not_searched(
    session: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    condition: str,
) -> None:
    views(session, floats(19, 12, 4), floats(20, 30, 4))
    searched: list[int] = []
    start = nearest_by.run_join

    def counted(engine: Any, work: Any, frames: Any, names: Any) -> Any:
        searched.append(frames["left"].count())
        return start(engine, work, frames, names)

    monkeypatch.setattr(nearest_by, "run_join", counted)
    text = f"SELECT l_id, r_id FROM ({query('vector_l2_distance', kind=kind)}) WHERE {condition}"
    rows = session.sql(text).collect()
    assert searched == [ON_THE_LEFT[condition]]
    with sparks_own(session):
        assert sorted(map(str, rows)) == sorted(map(str, session.sql(text).collect()))


@pytest.mark.parametrize("is_ours", sample([True, False], 1))
def test_conditions_around_a_join_reach_its_left_side(session: SparkSession, is_ours: bool) -> None:
    """A vector of another length is an error, unless its row is dropped: by a filter or a join."""
    views(session, [*floats(8, 5, 3), [1.0, 2.0]], floats(9, 5, 3))
    joined = f"({query('vector_l2_distance')})"
    keys = "(select r_id as l_id from right_side where r_id < 4)"
    session.conf.set(ENABLED, str(is_ours).lower())
    try:
        for text, left_rows in {
            f"select * from {joined} where l_id < 5": 5,
            f"select * from (select l_id as x, r_id from {joined}) where x <> 5": 5,
            f"select * from {joined} where l_name <> 'left_side 5' and r_id >= 0": 5,
            f"select l_id from {joined} j left semi join {keys} k on j.l_id = k.l_id": 4,
            f"select l_id from {joined} union all select 0 where false": None,
            f"select j.l_id from {joined} j join {keys} k on j.l_id = k.l_id and k.l_id < 4": 4,
            f"select l_id, count(*) from {joined} group by l_id having l_id < 2": 2,
        }.items():
            frame = session.sql(text)
            if left_rows is None:
                with pytest.raises(Exception, match="VECTOR_DIMENSION_MISMATCH"):
                    frame.collect()
            else:
                assert len({row[0] for row in frame.collect()}) == left_rows, text
    finally:
        session.conf.set(ENABLED, "true")


def test_a_data_frame_joined_with_itself(session: SparkSession) -> None:
    views(session, floats(21, 8, 4), floats(22, 20, 4))

    def joined() -> DataFrame:
        frame = session.sql(JOINED)
        near = frame.filter("d < 3")
        pairs = frame.alias("a").join(near.alias("b"), sf.expr("a.l_id = b.l_id"))
        return pairs.select("a.r_id", "b.r_name")

    ours = joined().collect()
    with sparks_own(session):
        assert sorted(map(str, ours)) == sorted(map(str, joined().collect()))


def test_results_are_cached_written_and_viewed(
    session: SparkSession, searches: Searches, tmp_path: Path
) -> None:
    views(session, floats(23, 8, 4), floats(24, 20, 4))
    frame = session.sql(JOINED).cache()
    expected = sorted(map(str, frame.collect()))
    assert sorted(map(str, frame.collect())) == expected
    # An equal query is the cached one.
    assert sorted(map(str, session.sql(JOINED).collect())) == expected
    assert len(searches.requests) == 1
    frame.unpersist()

    session.sql(JOINED).write.parquet(str(tmp_path / "joined"))
    assert sorted(map(str, session.read.parquet(str(tmp_path / "joined")).collect())) == expected
    session.sql(f"CREATE OR REPLACE TEMP VIEW joined AS {JOINED}")
    assert sorted(map(str, session.table("joined").collect())) == expected
    assert len(searches.requests) == 3


def test_large_results_stay_in_scratch_until_nobody_can_read_them(
    session: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    session.conf.set(nearest_by.SCRATCH_SETTING, str(tmp_path))
    monkeypatch.setattr("lancestat.joins.knn_join.LOCAL_BYTES", 0)
    views(session, floats(25, 30, 4), floats(26, 60, 4))
    frame = session.sql(query("vector_l2_distance", 3))
    first = sorted(map(str, frame.collect()))
    assert list(tmp_path.rglob("result.lance"))
    assert sorted(map(str, frame.collect())) == first
    nearest_by._kept.clear()
    assert not list(tmp_path.rglob("result.lance"))

    session.sql(query("vector_l2_distance", 2)).collect()
    assert list(tmp_path.rglob("result.lance"))
    del frame
    # The JVM's garbage collector finds that no plan refers to it.
    system: Any = session._jvm
    for _ in range(200):
        if not list(tmp_path.rglob("result.lance")):
            break
        gc.collect()
        system.java.lang.System.gc()
        time.sleep(0.2)
    assert not list(tmp_path.rglob("result.lance"))


def test_cancelling_the_group_of_a_query_ends_its_search(
    session: SparkSession, tmp_path: Path
) -> None:
    """The search comes before any job of the query itself."""
    context, began = session.sparkContext, tmp_path / "began"

    def slow(rows: Iterator[Row]) -> Iterator[Row]:
        began.touch()
        time.sleep(30)
        yield from rows

    views(session, floats(25, 30, 4), floats(26, 60, 4))
    rows = session.table("right_side")
    slow_rows = session.createDataFrame(rows.rdd.mapPartitions(slow), rows.schema)
    slow_rows.createOrReplaceTempView("right_side")
    frame = session.sql(query("vector_l2_distance", 3))

    def cancel() -> None:
        while not began.exists():
            time.sleep(0.05)
        context.cancelJobGroup("mine")

    canceller = threading.Thread(target=cancel)
    canceller.start()
    context.setJobGroup("mine", "my query")
    try:
        with pytest.raises(Exception, match=r"(?i)cancel"):
            frame.collect()
        assert context.getLocalProperty("spark.jobGroup.id") == "mine"
    finally:
        for name in ("spark.jobGroup.id", "spark.job.description"):
            context.setLocalProperty(name, None)
        canceller.join()


COLUMNS = {
    "flag": "l_id % 2 = 0",
    "bytes": "cast(l_name AS binary)",
    "price": "cast(l_id / 7 AS decimal(20, 6))",
    "day": "date'1583-01-01' + cast(l_id AS int)",
    "moment": "timestamp'1900-01-01 00:00:00.123456' + make_dt_interval(cast(l_id AS int))",
    "local": "timestamp_ntz'2020-02-29 12:00:00.5'",
    "small": "cast(l_id AS tinyint)",
    "wide": "cast(l_id AS double) / 3",
    "nothing": "cast(NULL AS string)",
    "texts": "array(l_name, NULL, 'é')",
    "nested": "named_struct('a', l_id, 'b', array(named_struct('c', l_name)))",
    "absent": "if(l_id % 3 = 0, NULL, named_struct('a', if(l_id % 2 = 0, NULL, l_id)))",
}


def test_columns_of_many_types_come_back_as_they_were(session: SparkSession) -> None:
    views(session, floats(27, 12, 4), floats(28, 30, 4))
    chosen = ", ".join(f"{text} AS `{name}`" for name, text in COLUMNS.items())
    session.sql(f"SELECT *, {chosen} FROM left_side").createOrReplaceTempView("typed")
    text = (
        "SELECT t.*, r_id FROM typed t LEFT OUTER JOIN right_side EXACT NEAREST 2 BY DISTANCE "
        "vector_l2_distance(l_v, r_v)"
    )
    frame = session.sql(text)
    assert is_ours(frame)
    with sparks_own(session):
        theirs = session.sql(text)
    assert frame.schema.fields == theirs.schema.fields
    assert sorted(map(str, frame.collect())) == sorted(map(str, theirs.collect()))


@pytest.mark.parametrize(
    "column",
    sample(
        [
            "map(l_id, l_name)",
            "make_dt_interval(1)",
            "l_name COLLATE UNICODE_CI",
            "array(map(1, 2))",
            "make_ym_interval(1)",
        ],
        2,
    ),
)
def test_columns_that_scratch_does_not_keep_leave_the_join_to_spark(
    session: SparkSession, searches: Searches, column: str
) -> None:
    views(session, floats(29, 5, 4), floats(30, 8, 4))
    typed = session.sql(f"SELECT l_id, l_v, {column} AS odd FROM left_side")
    typed.createOrReplaceTempView("typed")
    text = (
        "SELECT {} FROM typed JOIN right_side EXACT NEAREST 2 BY DISTANCE "
        "vector_l2_distance(l_v, r_v)"
    )
    frame = session.sql(text.format("odd, r_id"))
    assert frame.count() == 10
    assert "spark: scratch does not keep values of type" in plan_of(frame)
    assert is_ours(session.sql(text.format("l_id, r_id"))), "it is not used there"


def test_an_approximate_query_finds_most_neighbours(
    session: SparkSession, searches: Searches
) -> None:
    views(session, floats(31, 60, 8), floats(32, 4000, 8))
    frame = session.sql(query("vector_l2_distance", 5, mode="APPROX"))
    assert "5 by vector_l2_distance, approximate; ivf:" in plan_of(frame)
    found = {(row.l_id, row.r_id) for row in frame.collect()}
    assert searches.requests[0].recall == 0.95
    with sparks_own(session):
        exact = session.sql(query("vector_l2_distance", 5)).collect()
    true = {(row.l_id, row.r_id) for row in exact}
    assert len(found) == len(true) == 300
    assert len(found & true) >= 0.9 * len(true)


def break_decide(monkeypatch: pytest.MonkeyPatch, session: SparkSession) -> None:
    monkeypatch.setattr(nearest_by, "decide", None)


def take_shared_scratch_away(monkeypatch: pytest.MonkeyPatch, session: SparkSession) -> None:
    monkeypatch.setattr("lancestat.joins.scratch.folder.is_local", lambda master: False)


LEFT_TO_SPARK: dict[str, Callable[[pytest.MonkeyPatch, SparkSession], None]] = {
    f"{ENABLED} is false": lambda _, session: session.conf.set(ENABLED, "perhaps"),
    f"{MIN_RIGHT_ROWS} is 'few'; expected a number": (
        lambda _, session: session.conf.set(MIN_RIGHT_ROWS, "few")
    ),
    "needs scratch that all executors share": take_shared_scratch_away,
    "a join by NEAREST BY failed: TypeError": break_decide,
}


@pytest.mark.parametrize("why", LEFT_TO_SPARK)
def test_what_keeps_a_join_from_running_leaves_it_to_spark(
    session: SparkSession, searches: Searches, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    LEFT_TO_SPARK[why](monkeypatch, session)
    views(session, floats(33, 5, 4), floats(34, 8, 4))
    frame = session.sql(query("vector_l2_distance"))
    assert frame.count() == 15
    assert why in str(lancestat.explain(frame))
    assert not searches.requests


def test_sessions_made_of_one_with_the_rule_have_it(session: SparkSession) -> None:
    other = session.newSession()
    other.conf.set(MIN_RIGHT_ROWS, "0")
    views(other, floats(35, 5, 4), floats(36, 8, 4))
    other.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    assert compared(other, query("vector_l2_distance"))


def test_scratch_that_cannot_be_used_is_an_error_with_its_code(
    session: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    session.conf.set(nearest_by.SCRATCH_SETTING, str(tmp_path / "file" / "below"))
    views(session, floats(37, 5, 4), floats(38, 8, 4))
    with pytest.raises(Exception, match="LS583  the scratch folder"):
        session.sql(query("vector_l2_distance")).collect()


def test_errors_of_a_side_are_those_of_its_rows(session: SparkSession) -> None:
    views(session, floats(37, 5, 1), floats(38, 8, 1))
    text = query("vector_l2_distance", left="array(float(1 / (l_id - 3)))")
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        session.sql(text).collect()


def test_a_project_has_it_in_its_sessions(
    spark: SparkSession, tmp_path: Path, searches: Searches, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_project(tmp_path, "left_side", "right_side")
    for name, seed, count in (("left_side", 39, 20), ("right_side", 40, 10_000)):
        rows = pa.table(
            {
                f"{name[0]}_id": pa.array(range(count)),
                f"{name[0]}_v": pa.array(floats(seed, count, 4), pa.list_(pa.float32(), 4)),
            }
        )
        lance.write_dataset(rows, tmp_path / f"{name}.lance")
    text = (
        "SELECT l_id, r_id FROM left_side JOIN right_side EXACT NEAREST 1 BY DISTANCE "
        "vector_l2_distance(l_v, r_v) ORDER BY l_id"
    )
    monkeypatch.chdir(tmp_path)
    session = lancestat.Project.load(tmp_path).spark()
    session.conf.unset(MIN_RIGHT_ROWS)
    try:
        expected = [(row.l_id, row.r_id) for row in session.sql(text).collect()]
        assert len(searches.requests) == 1
        printed = CliRunner().invoke(cli, ["sql", text, "--output", "json"])
        assert len(searches.requests) == 2, printed.output
        rows = json.loads(printed.stdout)["rows"]
        assert [tuple(int(value) for value in row) for row in rows] == expected
    finally:
        for name in ("left_side", "right_side"):
            session.catalog.dropTempView(name)


def test_a_spark_whose_rules_are_out_of_reach_keeps_its_joins(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class OutOfReach:
        def install(self, session: object) -> str:
            return "its rules are out of reach"

    monkeypatch.setattr(nearest_by, "nearest_by_extension", lambda spark: OutOfReach())
    nearest_by.install(spark)
    assert caplog.messages == ["joins by NEAREST BY are left to Spark: its rules are out of reach"]
