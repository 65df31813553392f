"""Runs of a declared join on Spark, between changes of its sides."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest
from pyarrow import parquet

from lancestat import Project
from lancestat.errors import RunError
from lancestat.joins.action import JoinAction
from lancestat.joins.record import join_records
from lancestat.joins.run import JoinEvaluation, JoinOpener
from lancestat.joins.search.work import JoinWork
from lancestat.joins.spark.engine import SparkJoin
from lancestat.runs.actions import OnStage, Skip, StageProgress
from lancestat.spark.session import RunSession
from lancestat.spec.catalog import UriOptions
from lancestat.spec.model import KnnSide, Target
from tests.interpreted import INTERPRETED, short_lived
from tests.joins.joined import JoinWorld, vectors
from tests.joins.search.counted_distances import assert_counted

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
        scratch = str(self.folder / "scratch")
        return Engine(self.spark, scratch, uuid.uuid4().hex, UriOptions({}), on_stage).open(work)


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> SparkWorld:
    lance.write_dataset(vectors(0, 20, name="v"), str(tmp_path / "l.lance"), max_rows_per_file=7)
    lance.write_dataset(vectors(0, 30, name="w"), str(tmp_path / "r.lance"), max_rows_per_file=9)
    world = SparkWorld(tmp_path)
    world.spark = spark
    return world


def converge(world: SparkWorld) -> None:
    before = lines(world)
    [result] = world.run().nodes
    assert result.status == "success", result.message
    assert world.rows() == world.expected()
    assert isinstance(world.action(), Skip)
    made = lines(world)
    # New left rows are behind the others, and the run knows of them alone.
    written = made[len(before) :] if world.scopes[-1] == "new_left" else made
    record = join_records(world.state)["near"]
    assert_counted(record.distances, written, by_rank=world.join.k != "all")
    if world.scopes[-1] == "full":
        assert (record.groups and record.groups.groups) == world.expected_groups()


def lines(world: SparkWorld) -> list[tuple[object, float | None]]:
    """Left row and distance of each row of the result, none where there is no result."""
    if "near" not in join_records(world.state):
        return []
    # Left rows may have the same id, but not one behind the other.
    left_rows = enumerate(groupby(world.rows(), lambda row: row["id"]))
    return [(number, row["_distance"]) for number, (_, rows) in left_rows for row in rows]


@pytest.mark.parametrize("format", ["lance", "parquet"])
@pytest.mark.parametrize("strategy", STRATEGIES)
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
    assert world.scopes == ["full", "new_left", "new_right", "new_left", "full"]


@pytest.mark.parametrize("on", [(), (("id", "key"),)])
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
        "targets: {dev: {state: state, scratch: scratch, spark: "
        f"{{master: 'local[2]', conf: {json.dumps(INTERPRETED)}}}}}}}\n"
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
    assert not list((tmp_path / "scratch").rglob("*.lance"))
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


@pytest.mark.parametrize("changed", ["", "l", "r"])
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
    world.declare(right=KnnSide("w", ("key",), ("r",), sql="select key, w from r"))
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
