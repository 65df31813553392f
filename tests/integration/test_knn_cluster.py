"""Joins and scans on a cluster whose workers and executors are killed, or whose tasks fail."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lancestat.spec.model import Target
from lancestat.tables.analyze import ProcessScanner
from tests.examples import sample
from tests.integration.executors import described
from tests.integration.faulty_daemon import REPOSITORY, Faults
from tests.integration.knn_driver import SCAN, K
from tests.integration.knn_oracle import Row, Vector, assert_same, awkward, joined, table
from tests.integration.scans import decoded, merged, whole_table
from tests.runs.world import orders
from tests.versions import needs

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
        place = self.scratch if scratch else None
        return self.ask(by, self.side(lefts), self.side(RIGHT), output, place)

    def ask(self, by: str, left: str, right: str, output: Path, scratch: Path | None) -> Any:
        asked: dict[str, str | None] = {"by": by, "left": left, "right": right}
        asked["scratch"] = scratch and str(scratch)
        asked["output"] = str(output)
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
    paths = {str(path.relative_to(output)) for path in output.rglob("*") if path.is_file()}
    return {path for path in paths - named if path.split("/")[0] in ("data", "_lancestat")}


def rows(output: Path) -> list[Row]:
    output_table = lance.dataset(str(output)).to_table()
    for right, name in zip(
        output_table["id_right"].to_pylist(), output_table["name"].to_pylist(), strict=True
    ):
        assert name == (None if right is None else f"row {right}")
    columns = (output_table[name].to_pylist() for name in ("id", "id_right", "_distance", "_rank"))
    return list(zip(*columns, strict=True))


@contextmanager
def started(folder: Path, master: str) -> Iterator[Cluster]:
    """A driver with a cluster of its own."""
    faults = Faults(folder / "faults")
    command = [sys.executable, "-m", "tests.integration.knn_driver"]
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(
            [*command, master, str(faults.folder)],
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


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with started(tmp_path_factory.mktemp("cluster"), "local-cluster[2,1,1024]") as cluster:
        yield cluster


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
    ("by", "lefts", "faults"),
    sample(
        [
            ("in place", FEW, {"probe": ["kill executor"]}),
            ("exact", FEW, {"scratch": ["kill worker", "raise"], "merge": ["kill worker"]}),
            ("exact", MANY, {"write": ["kill worker"]}),
            (
                "ivf",
                MANY,
                {"layout": ["kill worker"], "probe": ["raise"] * 2, "materialize": ["kill worker"]},
            ),
            pytest.param(
                "spark",
                FEW,
                {"materialize": ["kill executor", "raise"]},
                marks=needs.nearest_by_join,
            ),
        ],
        3,
    ),
)
def test_failed_tasks_are_retried_in_each_stage(
    cluster: Cluster, tmp_path: Path, by: str, lefts: int, faults: dict[str, list[str]]
) -> None:
    for point, planned in faults.items():
        cluster.faults.plan(point, *planned)
    output = tmp_path / "near.lance"

    answer = cluster.join(by, lefts, output)

    assert answer.get("strategy") == by, answer
    assert cluster.faults.end() == sum(map(len, faults.values()))
    assert_same(rows(output), expected(lefts))
    cluster.check_nothing_is_left(output)


def test_fragments_whose_executor_is_killed_are_read_again_and_count_once(
    cluster: Cluster, tmp_path: Path
) -> None:
    uri = str(tmp_path / "orders.lance")
    lance.write_dataset(orders(0, 600), uri, max_rows_per_file=100)
    table = whole_table(uri)
    with ProcessScanner(Target("local", "state")) as scanner:
        here = merged(table, decoded(scanner.scan("orders", table.table, table.scans)))
    cluster.faults.plan("read", "kill executor")

    figures = cluster.ask(SCAN, uri, "", tmp_path, None)

    assert cluster.faults.end() == 1
    assert figures == {name: described(column) for name, column in here.items()}


@pytest.mark.parametrize(
    ("by", "lefts", "point", "what"),
    sample(
        [
            ("exact", FEW, "scratch", "computing the (left|right) side"),
            ("exact", MANY, "probe", "searching for neighbours"),
            ("ivf", FEW, "layout", "writing the IVF lists of the right side"),
            pytest.param(
                "spark", FEW, "materialize", "writing the result", marks=needs.nearest_by_join
            ),
        ],
        2,
    ),
)
def test_tasks_that_always_fail_are_one_error_and_keep_the_old_result(
    cluster: Cluster, old: Path, by: str, lefts: int, point: str, what: str
) -> None:
    cluster.faults.always(point, "raise")

    [code, message, hint] = cluster.join(by, lefts, old)["error"]

    assert (code, hint) == ("LS511", None)
    assert re.fullmatch(f"{what} failed: ValueError: a disk went away", message)
    assert_same(rows(old), expected(FEW))
    cluster.check_nothing_is_left(old)


def test_workers_that_are_always_killed_are_one_error_and_keep_the_old_result(
    cluster: Cluster, old: Path
) -> None:
    cluster.faults.always("materialize", "kill worker")

    [code, message, hint] = cluster.join("exact", FEW, old)["error"]

    assert code == "LS511"
    assert message.startswith("joining 'near' failed: ")
    assert "Python worker exited unexpectedly" in message
    assert "\n" not in message
    assert hint.startswith("a worker ran out of memory or was killed")
    assert_same(rows(old), expected(FEW))
    cluster.check_nothing_is_left(old)


@pytest.mark.parametrize("point", sample(["layout", "scratch"], 1))
def test_a_full_disk_is_one_clear_error(cluster: Cluster, tmp_path: Path, point: str) -> None:
    cluster.faults.always(point, "no room")

    error = cluster.join("ivf", FEW, tmp_path / "near.lance")["error"]

    place = f"no space is left in the scratch folder {cluster.scratch}"
    assert error[:2] == ["LS581", place]
    cluster.check_nothing_is_left(tmp_path / "near.lance")


def test_a_cluster_without_shared_scratch_is_an_error(cluster: Cluster, tmp_path: Path) -> None:
    [code, message, hint] = cluster.join("knn_join", FEW, tmp_path / "none", scratch=False)["error"]

    assert code == "LS580"
    assert "needs scratch that all executors share" in message
    assert "'scratch'" in hint


def test_a_worker_holds_only_blocks_of_the_right_side(disk: Path) -> None:
    """Of 1,200 MB of vectors; the libraries and blocks of a worker take half of that."""
    dimension, few, rights = 768, 1_000, 400_000
    some = np.random.default_rng(5).standard_normal((few, dimension), np.float32)

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, rights, few):
            yield numbered(some + np.float32(start), start)

    schema = numbered(some, 0).schema
    right, left, output = (str(disk / f"{name}.lance") for name in ("r", "l", "near"))
    lance.write_dataset(batches(), right, schema=schema)
    asked = np.array([399_999, 0, 77_123])
    queries = some[asked % few] + (asked // few * few)[:, None].astype(np.float32)
    lance.write_dataset(pa.Table.from_batches([numbered(queries, 0)]), left)

    with started(disk, "local[1]") as driver:
        join = driver.ask("exact", left, right, Path(output), disk)
        most = max(map(peak_bytes, workers_below(driver.driver.pid)))

    assert join.get("strategy") == "exact", join
    neighbours = lance.dataset(output).to_table(filter="_rank = 1").to_pydict()
    assert neighbours["id_right"] == asked.tolist()
    assert neighbours["_distance"] == [0.0] * 3
    # A worker that had ended would leave its daemon alone, which takes less than any libraries.
    assert 200 << 20 < most < 1_000 << 20 < rights * dimension * 4


def workers_below(driver: int) -> list[int]:
    """The Python processes that a driver's JVM started, and theirs."""
    parents = {process: int(status_field(process, "PPid")) for process in processes()}
    below = {driver}
    for _ in range(4):
        below |= {process for process, parent in parents.items() if parent in below}
    return [pid for pid in below - {driver} if status_field(pid, "Name").startswith("python")]


def processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def peak_bytes(process: int) -> int:
    """The most memory that a process was in at once."""
    return int(status_field(process, "VmHWM").removesuffix(" kB")) << 10


def status_field(process: int, field: str) -> str:
    """Return a file of a process in /proc; an empty text for one that has ended."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return "0"
    match = re.search(rf"^{field}:\s+(.*)$", status, re.MULTILINE)
    return match[1] if match else "0"


def numbered(values: np.ndarray, first: int) -> pa.RecordBatch:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])
    numbers = pa.array(range(first, first + len(values)))
    names = pa.array([f"row {number}" for number in numbers.to_pylist()])
    return pa.RecordBatch.from_arrays([numbers, vectors, names], ["id", "emb", "name"])
