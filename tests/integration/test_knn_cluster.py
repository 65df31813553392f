"""Joins on a cluster whose workers and executors are killed, or whose tasks fail, in each stage."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.integration.faulty_daemon import REPOSITORY, Faults
from tests.integration.knn_driver import K
from tests.integration.knn_oracle import Row, Vector, assert_same, awkward, joined, table

pytestmark = [pytest.mark.fault, pytest.mark.spark]

# With few left rows the right side is split, and neighbours are merged behind a shuffle.
FEW, MANY = 60, 1100
RIGHT = 240
TYPE = pa.list_(pa.float32())


@cache
def side(rows: int) -> list[Vector]:
    return awkward(np.random.default_rng(rows), rows, 4)


@cache
def expected(lefts: int) -> list[Row]:
    return joined(side(lefts), side(RIGHT), K, "l2", "left_outer")


@dataclass
class Cluster:
    """A driver with two executors, which share a folder."""

    folder: Path
    faults: Faults
    driver: subprocess.Popen[str]

    def join(self, by: str, lefts: int, output: Path, *, scratch: bool = True) -> Any:
        asked = {
            "by": by,
            "left": self.side(lefts),
            "right": self.side(RIGHT),
            "output": str(output),
            "scratch": str(self.scratch) if scratch else None,
        }
        assert self.driver.stdin is not None and self.driver.stdout is not None
        self.driver.stdin.write(json.dumps(asked) + "\n")
        self.driver.stdin.flush()
        return json.loads(self.driver.stdout.readline())

    def side(self, rows: int) -> str:
        path = self.folder / f"{rows}.parquet"
        if not path.exists():
            path.mkdir()
            content = table(side(rows), TYPE)
            # Spark takes the largest file first.
            most = rows * 2 // 3
            pq.write_table(content.slice(0, most), path / "part-0.parquet")
            pq.write_table(content.slice(most), path / "part-1.parquet")
        return str(path)

    @property
    def scratch(self) -> Path:
        return self.folder / "scratch"

    def check_nothing_is_left(self, output: Path) -> None:
        assert list(self.scratch.rglob("*")) == []
        assert unnamed(output) == set()


def unnamed(output: Path) -> set[str]:
    """Files in a result's folder that no version of it names, and that are not Lance's own."""
    if not (output / "_versions").exists():
        return {str(path) for path in output.rglob("*")}
    named = {
        f"data/{file.path}"
        for version in lance.dataset(str(output)).versions()
        for fragment in lance.dataset(str(output), version=version["version"]).get_fragments()
        for file in fragment.metadata.files
    }
    found = {str(path.relative_to(output)) for path in output.rglob("*") if path.is_file()}
    return {path for path in found - named if path.split("/")[0] in ("data", "_lancestat")}


def rows(output: Path) -> list[Row]:
    found = lance.dataset(str(output)).to_table()
    for right, name in zip(found["id_right"].to_pylist(), found["name"].to_pylist(), strict=True):
        assert name == (None if right is None else f"row {right}")
    columns = (found[name].to_pylist() for name in ("id", "id_right", "_distance", "_rank"))
    return list(zip(*columns, strict=True))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    faults = Faults(folder / "faults")
    command = [sys.executable, "-m", "tests.integration.knn_driver"]
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(
            [*command, "local-cluster[2,1,1024]", str(faults.folder)],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as driver,
    ):
        assert driver.stdout is not None
        assert driver.stdout.readline() == "ready\n", (folder / "log").read_text()
        yield Cluster(folder, faults, driver)
        assert driver.stdin is not None
        driver.stdin.close()
        assert driver.wait(60) == 0


@pytest.fixture
def cluster(running: Cluster) -> Iterator[Cluster]:
    yield running
    running.faults.end()


@pytest.fixture(scope="module")
def old(running: Cluster) -> Path:
    """A result of an earlier run."""
    output = running.folder / "old.lance"
    assert running.join("exact", FEW, output)["strategy"] == "exact"
    return output


@pytest.mark.parametrize(
    ("by", "lefts", "point", "fault"),
    [
        ("exact", FEW, "scratch", "kill worker"),
        ("exact", FEW, "probe", "kill worker"),
        ("exact", FEW, "merge", "kill worker"),
        ("exact", FEW, "materialize", "kill executor"),
        ("exact", MANY, "scratch", "kill executor"),
        ("exact", MANY, "probe", "kill worker"),
        ("exact", MANY, "materialize", "kill worker"),
        ("partitioned", FEW, "layout", "kill worker"),
        ("partitioned", FEW, "probe", "kill executor"),
        ("partitioned", MANY, "materialize", "kill worker"),
        ("spark", FEW, "scratch", "kill worker"),
        ("spark", FEW, "materialize", "kill executor"),
    ],
)
def test_what_is_killed_is_done_again(
    cluster: Cluster, tmp_path: Path, by: str, lefts: int, point: str, fault: str
) -> None:
    cluster.faults.plan(point, fault)
    output = tmp_path / "near.lance"

    told = cluster.join(by, lefts, output)

    assert told.get("strategy") == by, told
    assert cluster.faults.end() == 1
    assert_same(rows(output), expected(lefts))
    cluster.check_nothing_is_left(output)


@pytest.mark.parametrize(
    ("by", "point"), [("exact", "scratch"), ("partitioned", "probe"), ("spark", "materialize")]
)
def test_tasks_that_fail_twice_and_then_work(
    cluster: Cluster, tmp_path: Path, by: str, point: str
) -> None:
    cluster.faults.plan(point, "raise", times=2)
    output = tmp_path / "near.lance"

    told = cluster.join(by, FEW, output)

    assert told.get("strategy") == by, told
    assert cluster.faults.end() == 2
    assert_same(rows(output), expected(FEW))
    cluster.check_nothing_is_left(output)


@pytest.mark.parametrize(
    ("by", "lefts", "point", "what"),
    [
        ("exact", FEW, "scratch", "computing the left side"),
        ("exact", MANY, "probe", "searching for neighbours"),
        ("partitioned", FEW, "layout", "laying out the right side"),
        ("spark", FEW, "materialize", "writing the result"),
    ],
)
def test_tasks_that_always_fail_are_one_error_and_the_old_result_stays(
    cluster: Cluster, old: Path, by: str, lefts: int, point: str, what: str
) -> None:
    cluster.faults.always(point, "raise")

    error = cluster.join(by, lefts, old)["error"]

    assert error == ["LS553", f"{what} failed: ValueError: a disk went away", None]
    assert_same(rows(old), expected(FEW))
    cluster.check_nothing_is_left(old)


def test_workers_that_are_always_killed_are_one_error_and_the_old_result_stays(
    cluster: Cluster, old: Path
) -> None:
    cluster.faults.always("materialize", "kill worker")

    [code, message, hint] = cluster.join("exact", FEW, old)["error"]

    assert code == "LS553"
    assert message.startswith("joining 'near' failed: ")
    assert "Python worker exited unexpectedly" in message
    assert "\n" not in message
    assert hint.startswith("a worker ran out of memory or was killed")
    assert_same(rows(old), expected(FEW))
    cluster.check_nothing_is_left(old)


@pytest.mark.parametrize("point", ["scratch", "layout"])
def test_a_full_disk_is_one_clear_error(cluster: Cluster, tmp_path: Path, point: str) -> None:
    cluster.faults.always(point, "no room")

    found = cluster.join("partitioned", FEW, tmp_path / "near.lance")["error"]

    place = f"no space is left in the scratch folder {cluster.scratch}"
    assert found[:2] == ["LS581", place]
    cluster.check_nothing_is_left(tmp_path / "near.lance")


def test_a_cluster_without_shared_scratch_is_an_error(cluster: Cluster, tmp_path: Path) -> None:
    [code, message, hint] = cluster.join("knn_join", FEW, tmp_path / "none", scratch=False)["error"]

    assert code == "LS580"
    assert "needs scratch that all executors share" in message
    assert "'scratch'" in hint
