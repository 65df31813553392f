"""Near-duplicates on Spark: groups of all pairs, by brute force; runs that die in between."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from lancestat import Project
from lancestat.joins.duplicates.action import DuplicatesFigures
from tests.examples import each, sample
from tests.integration.kept import always_in_lists, clustered, rows_of
from tests.interpreted import short_lived
from tests.joins.duplicates.shop import brute
from tests.runs.world import write_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["always_in_lists"]

pytestmark = pytest.mark.spark

ROWS, DIMENSION = 400, 8


def rows(metric: str) -> pa.Table:
    """Return rows of which some are near others, and some have no usable vector."""
    chosen = np.random.default_rng(11)
    if metric == "hamming":
        vectors: Any = chosen.integers(0, 256, (ROWS, DIMENSION)).astype(np.uint8)
        vectors[198:396] = vectors[:198]
        vectors[198:396, 0] ^= (1 << chosen.integers(0, 4, 198)).astype(np.uint8)
        element = pa.uint8()
    else:
        vectors = chosen.normal(size=(ROWS, DIMENSION)).astype(np.float32)
        vectors[200:] = vectors[chosen.integers(0, 150, 200)]
        vectors[200:] += chosen.normal(size=(200, DIMENSION)).astype(np.float32) / 50
        element = pa.float32()
    usable = [None if id % 37 == 5 else vector.tolist() for id, vector in enumerate(vectors)]
    if metric != "hamming":
        usable[6], usable[7] = [float("nan")] * DIMENSION, [0.0] * DIMENSION
    return pa.table(
        {
            "id": pa.array(range(ROWS)),
            "tenant": pa.array([None if id % 41 == 0 else f"t{id % 3}" for id in range(ROWS)]),
            "rank": pa.array([id * 7 % 100 for id in range(ROWS)]),
            "v": pa.array(usable, pa.list_(element, DIMENSION)),
        }
    )


def bits(row: dict[str, Any]) -> dict[str, Any]:
    vector = row["v"]
    unpacked = None if vector is None else np.unpackbits(np.array(vector, np.uint8)).tolist()
    return {**row, "v": unpacked}


NEAR = {"l2": 0.02, "cosine": 0.002, "hamming": 2}


@pytest.mark.parametrize(
    ("metric", "where", "on"), each(NEAR, [None, "id < 350"], [["tenant"], []])
)
def test_groups_are_those_of_all_pairs(
    spark: SparkSession, tmp_path: Path, metric: str, where: str, on: list[str]
) -> None:
    max_distance = NEAR[metric]
    table = str(tmp_path / "rows.lance")
    lance.write_dataset(rows(metric), table, max_rows_per_file=90)
    lance.dataset(table).delete("id % 10 = 3")
    node: dict[str, Any] = {
        "name": "same",
        "lance": "rows.lance",
        "vector": "v",
        "metric": metric,
        "max_distance": max_distance,
        "keep": {"order_by": ["rank desc", "id"]},
        "select": ["id", "rank", "v"],
        "output": {"lance": "same.lance"},
        **({"on": on} if on else {}),
        **({"where": where} if where else {}),
    }
    project = write_project(tmp_path, duplicates=[node])
    result = project.run(project.plan(), session=spark)
    assert result.status == "success", result.nodes[0].text
    found = lance.dataset(str(tmp_path / "same.lance")).to_table().to_pylist()
    live = lance.dataset(table).to_table(filter=where).to_pylist()
    measure = "l2" if metric == "hamming" else metric
    compared = [bits(row) if metric == "hamming" else row for row in live]
    expected = brute(compared, max_distance, measure, on)
    assert expected
    groups: dict[int, list[dict[str, Any]]] = {}
    for row in found:
        groups.setdefault(row["group_id"], []).append(row)
    assert sorted(sorted(row["id"] for row in group) for group in groups.values()) == sorted(
        map(sorted, expected)
    )
    vectors = {row["id"]: np.array(row["v"], np.float64) for row in compared if row["v"]}
    for group in groups.values():
        kept, *others = group
        assert kept["is_kept"] and kept["_distance"] is None
        assert kept["id"] == min(group, key=lambda row: (-row["rank"], row["id"]))["id"]
        for row in others:
            assert not row["is_kept"]
            left, right = vectors[kept["id"]], vectors[row["id"]]
            lengths = np.sqrt((left**2).sum() * (right**2).sum())
            true = ((left - right) ** 2).sum()
            true = 1 - (left * right).sum() / lengths if metric == "cosine" else true
            assert row["_distance"] == pytest.approx(true, abs=1e-7)
    [node_result] = result.nodes
    assert isinstance(node_result.figures, DuplicatesFigures)
    assert node_result.figures.counts is not None
    assert node_result.figures.counts.rows == len(found)
    assert project.plan().actions[0].verb == "skip"


def pairs_of(uri: str) -> set[tuple[int, int]]:
    found = lance.dataset(uri).to_table(columns=["id", "id_right"]).to_pydict()
    pairs = list(zip(found["id"], found["id_right"], strict=True))
    assert len(pairs) == len(set(pairs)) and all(left < right for left, right in pairs)
    return set(pairs)


def near_pairs(table: str, max_distance: float) -> set[tuple[int, int]]:
    rows = lance.dataset(table).to_table(columns=["id", "emb"])
    vectors = rows["emb"].combine_chunks().flatten().to_numpy().reshape(len(rows), -1)
    ids = rows["id"].to_pylist()
    squares = ((vectors[:, None, :] - vectors[None, :, :]).astype(np.float64) ** 2).sum(2)
    return {
        (min(ids[i], ids[j]), max(ids[i], ids[j]))
        for i, j in np.argwhere(np.triu(squares <= max_distance, 1)).tolist()
    }


def test_approximate_duplicates_have_the_recall_that_is_asked_for(
    spark: SparkSession, tmp_path: Path, always_in_lists: None
) -> None:
    table, near = str(tmp_path / "rows.lance"), 0.5
    vectors = clustered(1200, 3)
    vectors[1000:] = vectors[:200] + np.float32(0.05)
    lance.write_dataset(rows_of(vectors), table, max_rows_per_file=500)
    node = {
        "name": "same",
        "lance": "rows.lance",
        "vector": "emb",
        "max_distance": near,
        "mode": "approx",
        "approx": {"recall": 0.9},
        "select": ["id"],
        "output": {"lance": "same.lance"},
        "pairs": {"lance": "pairs.lance"},
    }
    project = write_project(tmp_path, duplicates=[node])

    def run(*stages: str) -> DuplicatesFigures:
        plan = project.plan()
        assert [stage.name for stage in plan.actions[0].stages][: len(stages)] == list(stages)
        [done] = project.run(plan, session=spark).nodes
        assert isinstance(done.figures, DuplicatesFigures), done.message
        found, true = pairs_of(str(tmp_path / "pairs.lance")), near_pairs(table, near)
        assert found <= true and len(found) >= 0.9 * len(true) > 100
        return done.figures

    first = run("prepare", "build index", "probe")
    [report] = project.report().nodes
    [check] = report.node_checks(datetime.now(timezone.utc))
    assert (check.check, check.passed) == ("recall", True)
    assert first.join is not None and first.join.accuracy.nprobes is not None
    assert 0.9 <= (first.join.accuracy.recall or 0) <= 1
    assert first.join.pairs is not None and first.join.pairs < 1200 * 1199 // 2
    again = clustered(200, 3) + np.float32(0.02)
    lance.write_dataset(rows_of(again, 1200), table, mode="append")
    lance.dataset(table).delete("id % 50 = 7")
    shutil.rmtree(tmp_path / "pairs.lance")
    run("prepare", "extend index", "probe")
    assert project.collect_garbage().indexes_dropped == 0
    assert write_project(tmp_path, duplicates=[]).collect_garbage().indexes_dropped == 1


KILLED = """
import os, signal, sys
import lancestat.joins.duplicates.run
from lancestat import Project

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

setattr(lancestat.joins.duplicates.run, sys.argv[2], die)
project = Project.load(sys.argv[1])
project.run(project.plan())
"""


@pytest.mark.fault
@pytest.mark.parametrize("at", sample(["components", "result_schema"], 1))
def test_a_killed_run_leaves_the_result_and_the_next_one_converges(
    spark: SparkSession, tmp_path: Path, at: str
) -> None:
    table = str(tmp_path / "rows.lance")
    lance.write_dataset(rows("l2").slice(0, 300), table)
    node = {
        "name": "same",
        "lance": "rows.lance",
        "vector": "v",
        "max_distance": 0.02,
        "select": ["id"],
        "output": {"lance": "same.lance"},
    }
    project = write_project(tmp_path, duplicates=[node])
    assert project.run(project.plan(), session=spark).status == "success"
    before = lance.dataset(str(tmp_path / "same.lance")).to_table()
    lance.write_dataset(rows("l2").slice(300), table, mode="append")
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, tmp_path, at],
        env={**os.environ, **short_lived()},
        timeout=200,
        capture_output=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert lance.dataset(str(tmp_path / "same.lance")).to_table().equals(before)
    project = Project.load(tmp_path)
    assert project.run(project.plan(), session=spark).status == "success"
    assert project.plan().actions[0].verb == "skip"
    found = lance.dataset(str(tmp_path / "same.lance")).to_table().to_pylist()
    groups: dict[int, set[int]] = {}
    for row in found:
        groups.setdefault(row["group_id"], set()).add(row["id"])
    expected = brute(lance.dataset(table).to_table().to_pylist(), 0.02, "l2")
    assert sorted(map(sorted, groups.values())) == sorted(map(sorted, expected))
    earlier = before.to_pylist()
    members = {row["group_id"]: row["id"] for row in earlier if row["is_kept"]}
    for id, row in members.items():
        assert row in groups[id], "groups that only grew have their ids"
    assert json.loads(
        lance.dataset(str(tmp_path / "same.lance")).schema.metadata[b"lancestat.duplicates"]
    )["highest_id"] == max(groups)
