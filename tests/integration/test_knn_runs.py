"""Runs of a declared join on Spark, between changes of its sides; filters of them; the result."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from lancestat import Project
from lancestat.errors import RunError
from lancestat.joins.action import JoinAction
from lancestat.joins.record import OutputFormat
from lancestat.joins.run import JoinEvaluation, JoinOpener
from lancestat.joins.search.work import JoinWork
from lancestat.joins.spark.engine import SparkJoin
from lancestat.lake.open import snapshot
from lancestat.query.predicates.filter import parse_filter
from lancestat.query.predicates.filter_sql import to_lance
from lancestat.runs.actions import OnStage, Skip, StageProgress
from lancestat.spark.session import RunSession
from lancestat.spec.catalog import UriOptions
from lancestat.spec.model import KnnSide, Target
from tests.examples import each, sample
from tests.integration import knn_oracle
from tests.interpreted import short_lived
from tests.joins.joined import JoinWorld, Row, in_order, vectors
from tests.joins.records import join_records
from tests.joins.search.counted_distances import assert_counted
from tests.joins.search.results import SCHEMA, add, put
from tests.joins.search.results import rows as numbered_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


pytestmark = pytest.mark.spark

STRATEGIES = {"spark": 10_000, "exact": 0}


class SparkWorld(JoinWorld):
    """A world whose joins run on Spark."""

    spark: SparkSession

    def open_join(self, work: JoinWork, on_stage: OnStage) -> AbstractContextManager[SparkJoin]:
        from lancestat.joins.spark.engine import Engine

        self.works.append(work)
        return Engine(self.spark, self.scratch, uuid.uuid4().hex, UriOptions({}), on_stage).open(
            work
        )


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> SparkWorld:
    lance.write_dataset(vectors(0, 20, name="v"), str(tmp_path / "l.lance"), max_rows_per_file=7)
    lance.write_dataset(vectors(0, 30, name="w"), str(tmp_path / "r.lance"), max_rows_per_file=9)
    world = SparkWorld(tmp_path)
    world.spark = spark
    return world


def converge(world: SparkWorld) -> None:
    before = len(world.rows()) if world.scopes else 0
    [result] = world.run().nodes
    assert result.status == "success", result.message
    expected = world.expected()
    assert in_order(world.rows()) == in_order(expected)
    if not {"new_right", "changed"} & set(world.scopes):
        assert world.rows() == expected
    assert isinstance(world.action(), Skip)
    made = lines(expected)
    # New left rows are behind the others, and the run knows of them alone.
    written = made[before:] if world.scopes[-1] == "new_left" else made
    record = join_records(world.state)["near"]
    assert_counted(record.distances, written, by_rank=world.join.k != "all")
    if world.scopes[-1] == "full":
        assert (record.groups and record.groups.groups) == world.expected_groups()


def lines(rows: Sequence[Row]) -> list[tuple[object, float | None]]:
    """Left row and distance of each row of a result that is in the order of the left rows."""
    # Left rows may have the same id, but not one behind the other.
    left_rows = enumerate(groupby(rows, lambda row: row["id"]))
    return [(number, row["_distance"]) for number, (_, rows) in left_rows for row in rows]


@pytest.mark.parametrize(("strategy", "format"), each(STRATEGIES, ["lance", "parquet"]))
def test_changes_to_tables_are_joined(world: SparkWorld, strategy: str, format: str) -> None:
    world.declare(
        k=3, metric="l2", join="left_outer", rank=True, min_right_rows=STRATEGIES[strategy]
    )
    world.declare(output_format=format, output_uri=str(world.folder / "result"))
    converge(world)
    lance.write_dataset(vectors(100, 9, name="v"), world.uri("l"), mode="append")
    converge(world)
    lance.write_dataset(vectors(100, 9, name="w"), world.uri("r"), mode="append")
    converge(world)
    lance.write_dataset(vectors(200, 3, name="v"), world.uri("l"), mode="append")
    converge(world)
    lance.dataset(world.uri("r")).delete("id % 4 = 1")
    converge(world)
    assert world.scopes == ["full", "new_left", "new_right", "new_left", "changed"]


@pytest.mark.parametrize("on", sample([(), (("id", "key"),)], 1))
def test_sides_of_bits_without_any_vector_match_nothing(
    world: SparkWorld, on: tuple[tuple[str, str], ...]
) -> None:
    nothing = pa.array([None] * 3, pa.list_(pa.uint8()))
    for name, column in (("l", "v"), ("r", "w")):
        rows = pa.table({"id": range(3), "key": range(3), column: nothing})
        lance.write_dataset(rows, world.uri(name), mode="overwrite")
    world.declare(metric="hamming", join="left_outer", on=on, min_right_rows=0)
    [result] = world.run().nodes
    assert result.status == "success", result.message
    assert [row["_distance"] for row in world.rows()] == [None] * 3
    counts = join_records(world.state)["near"].counts
    assert (counts.unmatched_left_rows, counts.excluded_right_rows) == (3, 3)


def test_files_and_queries_are_joined(world: SparkWorld) -> None:
    rows = str(world.folder / "rows.parquet")
    parquet.write_table(vectors(0, 20, name="v"), rows)
    query = KnnSide("w", ("key",), ("r",), sql="select key, w from r")
    world.declare(left=KnnSide("v", ("id",), (), format="parquet", uri=rows), right=query)
    converge(world)
    parquet.write_table(vectors(0, 25, name="v"), rows)
    converge(world)
    lance.write_dataset(vectors(100, 9, name="w"), world.uri("r"), mode="append")
    converge(world)
    assert world.scopes == ["full"] * 3


def test_a_join_reads_the_result_of_another(spark: SparkSession, tmp_path: Path) -> None:
    lance.write_dataset(vectors(0, 20, name="v"), str(tmp_path / "l.lance"))
    lance.write_dataset(vectors(0, 30, name="w"), str(tmp_path / "r.lance"))
    (tmp_path / "specs").mkdir()
    (tmp_path / "lancestat_project.yml").write_text(
        "name: shop\ndefault_target: dev\n"
        "targets: {dev: {state: state, scratch: scratch, spark: {master: 'local[2]'}}}\n"
    )
    (tmp_path / "specs" / "s.yml").write_text(
        """\
tables: [{name: l, uri: l.lance}, {name: r, uri: r.lance}, {name: result, uri: second.lance}]
knn_joins:
  - name: second
    left: {table: first, vector: w, select: [id]}
    right: {table: r, vector: w, select: [key]}
    k: 1
    output: {lance: second.lance}
  - name: first
    left: {table: l, vector: v, select: [id]}
    right: {sql: "select w from {{ ref('r') }}", vector: w}
    k: 1
    output: {lance: first.lance}
"""
    )
    # In its own process, whose threads are the first to import Spark.
    command = [sys.executable, "-m", "lancestat", "--project-dir", str(tmp_path), "run"]
    environment = {**os.environ, **short_lived()}
    completed = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert "3 tables and 2 joins brought up to date, 0 unchanged." in completed.stdout
    project = Project.load(tmp_path)
    assert [entry.name for entry in (tmp_path / "scratch").iterdir()] == ["neighbours"]
    assert {action.verb for action in project.plan().actions} == {"skip"}
    lance.write_dataset(vectors(100, 5, name="v"), str(tmp_path / "l.lance"), mode="append")
    again = {node.name: node for node in project.run().nodes}
    assert [again[name].action for name in ("first", "second", "result", "r")] == [
        "refresh",
        "refresh",
        "refresh",
        "skip",
    ]
    assert {again[name].figures.scope for name in ("first", "second") if again[name].figures} == {
        "new_left"
    }
    assert {action.verb for action in project.plan().actions} == {"skip"}


@pytest.mark.parametrize("changed", sample(["", "l", "r"], 1))
def test_progress_goes_through_the_stages_of_the_action(world: SparkWorld, changed: str) -> None:
    world.declare(min_right_rows=0)
    if changed:
        converge(world)
        name = "v" if changed == "l" else "w"
        lance.write_dataset(vectors(100, 9, name=name), world.uri(changed), mode="append")
    action = world.action()
    assert isinstance(action, JoinAction)
    reached: list[StageProgress] = []
    done, _ = JoinEvaluation(world.open_join, reached.append).run(action)
    assert done.work.scope.value == {"": "full", "l": "new_left", "r": "new_right"}[changed]
    assert set(done.stages) == {progress.stage for progress in reached}
    assert (reached[0].stage, reached[-1].stage) == (done.stages[0], done.stages[-1])


def test_a_join_that_is_cancelled_leaves_nothing(world: SparkWorld) -> None:
    target = Target("dev", "state", scratch=str(world.folder / "scratch"), spark_master="local[2]")
    # Spark is told again every 0.1 s: a query that takes less could end before.
    slow = "aggregate(sequence(key, key + 300000), 0L, (a, n) -> a + n) is not null"
    query = f"select key, w from r where {slow}"
    world.declare(right=KnnSide("w", ("key",), ("r",), sql=query))
    action = world.action()
    assert isinstance(action, JoinAction)
    stages = []
    with RunSession(target, computes=True) as scanner, ThreadPoolExecutor(1) as pool:
        opener = JoinOpener(scanner, target, UriOptions({}))

        def cancel(stage: StageProgress) -> None:
            stages.append(stage.stage)
            scanner.cancel()

        for _ in range(2):
            with pytest.raises(RunError) as caught:
                evaluation = JoinEvaluation(opener.open, cancel)
                pool.submit(evaluation.run, action).result()
            assert caught.value.code == "LS512"
    assert set(stages) == {action.stages[0]}
    assert not Path(world.join.output_uri).exists()
    assert not list(world.folder.glob("scratch/**/*.lance"))
    assert world.spark.range(3).count() == 3, "a session that was there goes on"


BELOW = float(np.nextafter(np.float32(0.1), np.float32(0)))
TYPED = pa.schema(
    {
        "id": pa.int64(),
        "size": pa.int32(),
        "name": pa.string(),
        "ok": pa.bool_(),
        "half": pa.float32(),
        "wide": pa.float64(),
    }
)
ROWS: Mapping[str, list[Any]] = {
    "id": list(range(6)),
    "size": [1, 20, None, -3, 0, 7],
    "name": ["a", "it's", "ba", None, "", "abc"],
    "ok": [True, False, None, True, None, False],
    "half": [0.1, BELOW, float("nan"), None, float("inf"), 0.5],
    "wide": [0.1, BELOW, float("nan"), None, float("-inf"), 0.0],
}
TEXTS = (
    "size < 20", "size <> 1", "size <=> null", "size = null", "not size = null", "size in (1, 7)",
    "not size in (1, null)", "size not between 0 and 7", "name like 'a%'", "name not like '%a%'",
    "ok", "not ok", "ok is null or size < 0", "not (ok and size > 0)", "half < 0.1", "half <= 0.1",
    "half > 0.1", "half >= 0.1", "half = 0.1", "half <> 0.1", "half <=> 0.1", "half in (0.1, 0.5)",
    "wide < 0.1", "wide >= 0.1", "wide = 0", "name = 'it''s' or name = ''", "half > 1e300",
    "half >= -1e300", "wide <> 0.1",
)  # fmt: skip


def test_filters_select_what_spark_selects(spark: SparkSession, tmp_path: Path) -> None:
    """The text is evaluated by Spark over Parquet, and in Lance's SQL over the same rows."""
    table = pa.table(dict(ROWS), schema=TYPED)
    parquet.write_table(table, tmp_path / "rows.parquet")
    dataset = lance.write_dataset(table, str(tmp_path / "rows.lance"))
    fields = {field.name: field for field in snapshot(dataset, dataset.uri).fields}
    rows = spark.read.parquet(str(tmp_path / "rows.parquet"))
    for text in TEXTS:
        # Two quotes are one in SQL and in ours; Spark reads them like that from 4.1 on.
        in_spark = text.replace("'it''s'", '"it\'s"')
        expected = [row.id for row in rows.where(in_spark).select("id").orderBy("id").collect()]
        pushed = to_lance(parse_filter(text, fields), fields)
        assert pushed is not None, text
        selected = dataset.to_table(columns=["id"], filter=pushed).column("id").to_pylist()
        assert sorted(selected) == expected, text


@pytest.fixture
def filtered(spark: SparkSession, tmp_path: Path) -> SparkWorld:
    lance.write_dataset(vectors(0, 40, name="v"), str(tmp_path / "l.lance"), max_rows_per_file=9)
    lance.write_dataset(vectors(0, 60, name="w"), str(tmp_path / "r.lance"), max_rows_per_file=13)
    world = SparkWorld(tmp_path)
    world.spark = spark
    world.declare(
        left=replace(world.join.left, where="id between 3 and 30 or id >= 100"),
        right=replace(world.join.right, where="id > 5 and key not like '%7'"),
        k=3,
    )
    return world


@pytest.mark.parametrize("min_right_rows", sample([0, 10_000], 1))
def test_filtered_sides_are_joined_between_changes(
    filtered: SparkWorld, min_right_rows: int
) -> None:
    filtered.declare(join="left_outer", rank=True, min_right_rows=min_right_rows)
    lance.dataset(filtered.uri("l")).delete("id in (4, 11)")
    lance.dataset(filtered.uri("r")).delete("id in (6, 20, 21)")
    converge(filtered)
    lance.write_dataset(vectors(98, 9, name="v"), filtered.uri("l"), mode="append")
    converge(filtered)
    lance.write_dataset(vectors(98, 9, name="w"), filtered.uri("r"), mode="append")
    converge(filtered)
    assert filtered.scopes == ["full", "new_left", "new_right"]


def test_a_filter_that_no_row_passes_leaves_nothing(filtered: SparkWorld) -> None:
    filtered.declare(right=replace(filtered.join.right, where="id < 0"), join="left_outer")
    converge(filtered)
    assert {row["_distance"] for row in filtered.rows()} == {None}
    filtered.declare(left=replace(filtered.join.left, where="id < 0"))
    converge(filtered)
    assert filtered.rows() == []


@pytest.mark.parametrize("strategy", ["exact", "ivf"])
def test_large_filtered_sides_equal_brute_force(filtered: SparkWorld, strategy: str) -> None:
    """Rows are chosen by NumPy, and compared in float64."""
    random = np.random.default_rng(5)
    left, right = (random.normal(size=(n, 8)).astype(np.float32) for n in (1500, 4000))
    sizes = random.integers(0, 50, 4000)
    chosen = np.flatnonzero(sizes < 20)
    for name, rows, column in (("l", left, "v"), ("r", right, "w")):
        vector = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), 8)
        table = pa.table({"id": np.arange(len(rows)), column: vector})
        if name == "r":
            table = table.append_column("size", pa.array(sizes))
        lance.write_dataset(table, filtered.uri(name), mode="overwrite", max_rows_per_file=900)
    dataset = lance.dataset(filtered.uri("r"))
    dataset.delete("id >= 1000 and id < 1100")
    chosen = chosen[(chosen < 1000) | (chosen >= 1100)]
    dataset.create_scalar_index("size", "BTREE")
    filtered.declare(
        left=replace(filtered.join.left, where="id >= 700", select=("id",)),
        right=replace(filtered.join.right, where="size < 20", select=("id", "size")),
        min_right_rows=0,
    )
    if strategy == "ivf":
        filtered.declare(mode="approx", nprobes=10_000)
    [result] = filtered.run().nodes
    assert result.status == "success", result.message
    assert result.figures is not None
    counts = result.figures.counts
    assert (counts.left_rows, counts.right_rows) == (800, len(chosen))
    matrix = knn_oracle.distances(left[700:], right[chosen], "l2").astype(np.float32)
    order = np.argsort(matrix, axis=1, kind="stable")[:, :3]
    expected = [
        (700 + row, int(chosen[at]), int(sizes[chosen[at]]))
        for row, line in enumerate(order)
        for at in line
    ]
    rows = [(row["id"], row["id_right"], row["size"]) for row in filtered.rows()]
    assert rows == expected


PARQUET = OutputFormat.PARQUET


def read(spark: SparkSession, path: Path) -> list[tuple[int, str, float]]:
    frame = spark.read.parquet(str(path))
    assert frame.columns == SCHEMA.names
    return sorted(tuple(row) for row in frame.collect())


def values(*batches: pa.RecordBatch) -> list[tuple[int, str, float]]:
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def test_spark_reads_parquet_results_as_they_follow_each_other(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "similar.parquet"
    put(PARQUET, str(path), [numbered_rows(0, 3)], [numbered_rows(3, 5)])
    assert read(spark, path) == values(numbered_rows(0, 5))
    add(PARQUET, str(path), [numbered_rows(5, 9)])
    assert read(spark, path) == values(numbered_rows(0, 9))
    put(PARQUET, str(path), [numbered_rows(2, 4, "b")])
    assert read(spark, path) == values(numbered_rows(2, 4, "b"))
    put(PARQUET, str(path))
    assert read(spark, path) == []


def test_a_table_over_a_result_sees_the_newest(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "similar.parquet"
    put(PARQUET, str(path), [numbered_rows(0, 3)])
    spark.sql(f"CREATE TABLE similar USING parquet LOCATION '{path}'")
    try:
        assert spark.table("similar").count() == 3
        put(PARQUET, str(path), [numbered_rows(0, 7)])
        spark.catalog.refreshTable("similar")
        assert spark.table("similar").count() == 7
    finally:
        spark.sql("DROP TABLE similar")
    assert path.is_symlink()


def test_a_query_that_is_planned_on_an_earlier_result_never_mixes(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "similar.parquet"
    put(PARQUET, str(path), [numbered_rows(0, 3)], [numbered_rows(3, 5)])
    planned = spark.read.parquet(str(path))
    put(PARQUET, str(path), [numbered_rows(0, 3, "b")], [numbered_rows(3, 5, "b")])
    with pytest.raises(Exception, match=r"FILE_NOT_EXIST|does not exist"):
        planned.collect()
    planned = spark.read.parquet(str(path))
    add(PARQUET, str(path), [numbered_rows(5, 6, "b")])
    assert sorted(tuple(row) for row in planned.collect()) == values(numbered_rows(0, 5, "b"))
