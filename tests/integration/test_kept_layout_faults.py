"""`lancestat run` over a join with a kept index, killed wherever the layout changes."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pytest

from lancestat.runs.actions import Skip
from tests.examples import sample
from tests.integration.faulty_daemon import Faults
from tests.integration.knn_oracle import awkward, table
from tests.integration.test_knn_faults import LEFT, OLD, TYPE, Shop, check

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.fault, pytest.mark.spark]

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
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> LayoutShop:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "spark"))
    lance.write_dataset(table(LEFT, TYPE), str(tmp_path / "l.lance"), max_rows_per_file=15)
    lance.write_dataset(table(OLD, TYPE), str(tmp_path / "r.lance"), max_rows_per_file=40)
    shop = LayoutShop(tmp_path, Faults(tmp_path / "faults"), right={"lance": "r.lance"})
    shop.declare()
    return shop


def run(shop: LayoutShop, **environment: Any) -> str:
    with shop.running("ivf", "--verbose") as process:
        stdout, stderr = process.communicate(timeout=180)
    assert process.returncode == 0, stdout + stderr
    return stdout + stderr


@pytest.mark.parametrize(
    ("point", "extends"),
    sample(
        [
            ("layout", False),
            ("publish", False),
            ("published", False),
            ("probe", False),
            ("layout", True),
            ("publish", True),
            ("published", True),
            ("probe", True),
        ],
        4,
    ),
)
def test_a_killed_run_leaves_no_layout_or_a_whole_one(
    shop: LayoutShop, point: str, extends: bool
) -> None:
    right = list(OLD)
    if extends:
        run(shop)
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
    run(shop)
    check(shop, right)
    assert len(shop.layouts) == 1
    assert all(isinstance(action, Skip) for action in shop.project.plan(select="near").actions)
    assert not list(shop.folder.glob("scratch/indexes/*/*/readers/*"))
