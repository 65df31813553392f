"""`lancestat run` over a join, killed and interrupted in each stage, and several runs at once."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import lancestat
from lancestat import Project
from lancestat.joins.scratch.folder import MARKER
from lancestat.joins.spark import engine
from lancestat.runs.actions import Skip
from tests.examples import sample
from tests.integration.faulty_daemon import REPOSITORY, Faults, configuration
from tests.integration.faulty_run import arm, force
from tests.integration.knn_oracle import Row, Vector, assert_same, awkward, joined, table
from tests.integration.test_knn_cluster import unnamed
from tests.interpreted import short_lived

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


pytestmark = [pytest.mark.fault, pytest.mark.spark]

K = 3
TYPE = pa.list_(pa.float32())
LEFT = awkward(np.random.default_rng(1), 40, 4)
OLD, NEW = (awkward(np.random.default_rng(seed), 90, 4) for seed in (2, 3))


@dataclass
class Shop:
    """A project with a join whose right side is a file, and a Lance or Parquet result.

    Runs in which nothing is to strike are those of this process, which has a Spark already.
    """

    folder: Path
    faults: Faults
    format: str = "lance"
    right: Mapping[str, str] = field(default_factory=lambda: {"parquet": "r.parquet"})

    def declare(self, master: str = "local[2]", scratch: str | None = "scratch") -> None:
        conf = {**configuration(self.faults.folder), "spark.sql.shuffle.partitions": "2"}
        target = {"state": "state", "spark": {"master": master, "conf": conf}}
        if scratch is not None:
            target["scratch"] = scratch
        project = {"name": "shop", "default_target": "dev", "targets": {"dev": target}}
        specs = {"tables": [{"name": "l", "uri": "l.lance"}], "knn_joins": [self.join]}
        (self.folder / "specs").mkdir(exist_ok=True)
        (self.folder / "lancestat_project.yml").write_text(yaml.safe_dump(project))
        (self.folder / "specs" / "near.yml").write_text(yaml.safe_dump(specs))

    @property
    def join(self) -> dict[str, object]:
        return {
            "name": "near",
            "left": {"table": "l", "vector": "emb", "select": ["id"]},
            "right": {**self.right, "vector": "emb", "select": ["id"]},
            "k": K,
            "join": "left_outer",
            "min_right_rows": 0,
            "output": {self.format: self.output.name},
        }

    @property
    def output(self) -> Path:
        return self.folder / f"near.{self.format}"

    @property
    def project(self) -> Project:
        return Project.load(self.folder)

    def offer(self, right: list[Vector]) -> None:
        pq.write_table(table(right, TYPE), self.folder / "r.parquet")

    def rows(self) -> list[Row]:
        read = (
            pq.read_table if self.format == "parquet" else lambda at: lance.dataset(at).to_table()
        )
        columns = read(str(self.output)).to_pydict()
        return list(zip(columns["id"], columns["id_right"], columns["_distance"], strict=True))

    def scratch(self) -> list[Path]:
        return list((self.folder / "scratch").rglob("*"))

    @contextmanager
    def running(self, strategy: str, *options: str) -> Iterator[subprocess.Popen[str]]:
        """`lancestat run`, of which nothing is left in the end."""
        command = [sys.executable, "-m", "tests.integration.faulty_run"]
        command += [str(self.faults.folder), strategy, "--project-dir", str(self.folder)]
        with subprocess.Popen(
            [*command, "run", *options],
            cwd=REPOSITORY,
            env={**os.environ, **short_lived()},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as run:
            try:
                yield run
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(run.pid, signal.SIGKILL)


def check_rows(actual: list[Row], right: list[Vector]) -> None:
    """Rows are those of a join with that right side, as a whole."""
    expected = [row[:3] for row in joined(LEFT, right, K, "l2", "left_outer")]
    assert_same(*([(*row, rank) for rank, row in enumerate(rows)] for rows in (actual, expected)))


def check(shop: Shop, right: list[Vector]) -> None:
    check_rows(shop.rows(), right)


def converge(shop: Shop, right: list[Vector]) -> None:
    """One run in this process joins all, and another would have nothing to do."""
    [node] = [node for node in shop.project.run().nodes if node.name == "near"]
    assert node.status == "success", node.message
    check(shop, right)
    assert all(isinstance(action, Skip) for action in shop.project.plan().actions)
    assert shop.scratch() == []


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> Shop:
    # What others left on this machine is not collected here.
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "spark"))
    lance.write_dataset(table(LEFT, TYPE), str(tmp_path / "l.lance"), max_rows_per_file=15)
    return Shop(tmp_path, Faults(tmp_path / "faults"))


def settle(shop: Shop, format: str = "lance") -> None:
    """A result of the old right side, and a new one to be joined."""
    shop.format = format
    shop.declare()
    shop.offer(OLD)
    converge(shop, OLD)
    shop.offer(NEW)


@pytest.mark.parametrize(
    ("strategy", "format", "point"),
    sample(
        [
            ("exact", "parquet", "materialize"),
            ("exact", "lance", "committed"),
            ("exact", "lance", "scratch"),
            ("exact", "lance", "commit"),
        ],
        1,
    ),
)
def test_a_killed_run_leaves_the_old_or_the_new_result_and_the_next_one_converges(
    shop: Shop, strategy: str, format: str, point: str
) -> None:
    settle(shop, format)
    shop.faults.plan(point, "pause")
    with shop.running(strategy) as run:
        shop.faults.wait_for(point)
        assert shop.project.collect_garbage().scratch_dropped == 0, "it is in use"
        os.kill(run.pid, signal.SIGKILL)
        run.wait(60)
    check(shop, NEW if point == "committed" else OLD)
    assert shop.scratch()

    assert shop.project.collect_garbage(dry_run=True).scratch_dropped == 1
    assert shop.project.collect_garbage().scratch_dropped == 1

    assert shop.scratch() == []
    converge(shop, NEW)
    if format == "lance":
        assert unnamed(shop.output) == set()


# A terminal interrupts the whole group; a scheduler terminates the process it started.
INTERRUPTS = [
    (os.killpg, signal.SIGINT, 130, "interrupted"),
    (os.kill, signal.SIGTERM, 143, "terminated"),
]


def test_interrupted_runs_leave_the_old_result_and_no_scratch(shop: Shop) -> None:
    settle(shop)
    for number, (send, sent, code, message) in enumerate(sample(INTERRUPTS, 1), 1):
        shop.faults.plan("probe", "pause")
        with shop.running("exact", "--quiet") as run:
            shop.faults.wait_for("probe", times=number)
            send(run.pid, sent)
            stdout, stderr = run.communicate(timeout=120)
        assert run.returncode == code
        assert "the run was interrupted" in stdout
        assert stderr == f"{message}; nothing was stored yet; lancestat retry begins again\n"
        check(shop, OLD)
        assert shop.scratch() == []
        assert unnamed(shop.output) == set()


def test_concurrent_runs_of_one_join_leave_one_whole_result(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of this process, and one of another."""
    settle(shop)
    arm(shop.faults.folder, "exact", monkeypatch.setattr)
    shop.faults.plan("commit", "pause", "pause")
    with ThreadPoolExecutor(1) as pool, shop.running("exact", "--quiet") as other:
        here = pool.submit(shop.project.run)
        try:
            shop.faults.wait_for("commit", times=2)
            folders = {path.parent for path in shop.scratch() if path.name == MARKER}
            check(shop, OLD)
        finally:
            shop.faults.go_on()
        _, stderr = other.communicate(timeout=120)
    assert (stderr, other.returncode) == ("", 0)
    assert here.result().ok, [node.message for node in here.result().nodes]
    assert len(folders) == 2, "each has scratch of its own"
    check(shop, NEW)
    converge(shop, NEW)
    assert unnamed(shop.output) == set()


def test_concurrent_joins_in_one_process_are_both_correct(
    shop: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of one session, and one of another."""
    folders = []
    make = engine.scratch

    def remembered(*arguments: Any) -> Any:
        entered = make(*arguments)
        folders.append(entered)
        together.wait(60)
        return entered

    together = threading.Barrier(3)
    monkeypatch.setattr(engine, "scratch", remembered)

    def join(session: SparkSession, right: list[Vector]) -> list[Row]:
        sides = (
            session.createDataFrame(list(enumerate(side)), "id long, emb array<float>").repartition(
                1
            )
            for side in (LEFT, right)
        )
        frame = lancestat.knn_join(
            *sides, left_vector="emb", right_vector="emb", k=K, join="left_outer",
            select_left=["id"], select_right=["id"], min_right_rows=0,
            scratch=str(shop.folder / "scratch"),
        )  # fmt: skip
        return [tuple(row) for row in frame.collect()]

    sessions = (spark, spark, spark.newSession())
    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(join, sessions, (OLD, NEW, OLD)))

    for rows, right in zip(results, (OLD, NEW, OLD), strict=True):
        check_rows(rows, right)
    assert len(set(folders)) == 3


@pytest.mark.parametrize("side", sample(["parquet", "lance"], 1))
def test_a_cluster_without_shared_scratch_is_refused_before_the_join_starts(
    shop: Shop, side: str
) -> None:
    """The join is refused even if it would not use scratch."""
    shop.right = {side: f"r.{side}"}
    shop.declare(master="local-cluster[2,1,1024]", scratch=None)
    shop.offer(NEW)
    lance.write_dataset(table(NEW, TYPE), str(shop.folder / "r.lance"))
    run = subprocess.run(
        [sys.executable, "-m", "lancestat", "--project-dir", str(shop.folder), "run"],
        env={**os.environ, "JAVA_HOME": str(shop.folder / "none")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1
    output = " ".join(run.stdout.split())
    assert "LS580" in output
    assert "a join on 'local-cluster[2,1,1024]' needs scratch that all executors share" in output
    assert not shop.output.exists()


MORE = awkward(np.random.default_rng(4), 30, 4)


class LayoutShop(Shop):
    """A shop whose right side is a table, and whose join is approximate but visits every list."""

    @property
    def join(self) -> dict[str, object]:
        return {**super().join, "mode": "approx", "approx": {"nprobes": 3}}

    @property
    def layouts(self) -> list[Path]:
        return sorted(path.parent for path in self.folder.glob("scratch/indexes/*/*/index.json"))

    def files(self) -> list[Path]:
        return [path for path in self.scratch() if path.is_file()]


@pytest.fixture
def layout_shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> LayoutShop:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "spark"))
    lance.write_dataset(table(LEFT, TYPE), str(tmp_path / "l.lance"), max_rows_per_file=15)
    lance.write_dataset(table(OLD, TYPE), str(tmp_path / "r.lance"), max_rows_per_file=40)
    shop = LayoutShop(tmp_path, Faults(tmp_path / "faults"), right={"lance": "r.lance"})
    shop.declare()
    return shop


def run_in_lists(shop: LayoutShop) -> None:
    """A run in this process."""
    with pytest.MonkeyPatch.context() as patch:
        force("ivf", patch.setattr)
        result = shop.project.run()
    assert result.ok, [node.message for node in result.nodes]


@pytest.mark.parametrize(
    ("point", "extends"),
    sample(
        [
            ("layout", True),
            ("layout", False),
            ("publish", False),
            ("published", False),
            ("probe", False),
            ("published", True),
            ("publish", True),
            ("probe", True),
        ],
        1,
    ),
)
def test_a_killed_run_leaves_no_layout_or_a_whole_one(
    layout_shop: LayoutShop, point: str, extends: bool
) -> None:
    shop = layout_shop
    right = list(OLD)
    if extends:
        run_in_lists(shop)
        assert len(shop.layouts) == 1
        lance.write_dataset(
            table(MORE, TYPE, len(OLD)), str(shop.folder / "r.lance"), mode="append"
        )
        right += MORE
        # Without a result new right rows are not compared alone.
        shutil.rmtree(shop.output)
    before = len(shop.layouts)
    shop.faults.plan(point, "pause")
    with shop.running("ivf") as process:
        shop.faults.wait_for(point)
        assert shop.project.collect_garbage().indexes_dropped == 0, "it is in use"
        os.kill(process.pid, signal.SIGKILL)
        process.wait(60)
    is_whole = point in ("published", "probe")
    assert len(shop.layouts) == (1 if is_whole else before)
    garbage = shop.project.collect_garbage()
    assert garbage.indexes_dropped == (0 if is_whole or extends else 1)
    run_in_lists(shop)
    check(shop, right)
    assert len(shop.layouts) == 1
    assert all(isinstance(action, Skip) for action in shop.project.plan(select="near").actions)
    assert not list(shop.folder.glob("scratch/indexes/*/*/readers/*"))


def in_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row[0], row[2] or 0.0, row[1] or 0))


@pytest.mark.parametrize(
    ("point", "format"),
    sample(
        [
            ("keep", "lance"),
            ("commit", "lance"),
            ("keep", "parquet"),
            ("committed", "parquet"),
            ("committed", "lance"),
            ("commit", "parquet"),
        ],
        1,
    ),
)
def test_a_killed_update_leaves_the_old_or_the_new_result_and_the_next_one_converges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession, point: str, format: str
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "spark"))
    right = str(tmp_path / "r.lance")
    lance.write_dataset(table(LEFT, TYPE), str(tmp_path / "l.lance"), max_rows_per_file=15)
    lance.write_dataset(table(OLD, TYPE), right, max_rows_per_file=40)
    shop = Shop(tmp_path, Faults(tmp_path / "faults"), format, {"lance": "r.lance"})
    shop.declare()
    assert shop.project.run().ok
    check(shop, OLD)
    kept = set(shop.folder.glob("scratch/neighbours/*/*"))
    assert len(kept) == 1
    new: list[Vector] = [*OLD[:4], *[None] * 6, *OLD[10:], *MORE]
    lance.dataset(right).delete("id >= 4 and id < 10")
    lance.write_dataset(table(MORE, TYPE, len(OLD)), right, mode="append")
    shop.faults.plan(point, "pause")
    with shop.running("exact") as run:
        shop.faults.wait_for(point)
        assert shop.project.collect_garbage().scratch_dropped == 0, "it is in use"
        os.kill(run.pid, signal.SIGKILL)
        run.wait(60)
    check_rows(in_order(shop.rows()), new if point == "committed" else OLD)
    shop.project.collect_garbage()
    # What was finished may be about to be recorded, and stays for a while.
    left = set(shop.folder.glob("scratch/neighbours/*/*")) - kept
    assert len(left) == (point != "keep")
    [node] = [node for node in shop.project.run().nodes if node.name == "near"]
    assert node.figures is not None
    assert node.figures.narrowed == ("" if point == "committed" else "changed rows")
    check_rows(in_order(shop.rows()), new)
    assert len(set(shop.folder.glob("scratch/neighbours/*/*")) - kept - left) == 1
    assert all(isinstance(action, Skip) for action in shop.project.plan().actions)
