"""`lancestat run`, killed: published statistics are true, and the next run converges."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import lance
import pytest

from lancestat import Project
from lancestat.runs.actions import Skip
from tests.examples import sample
from tests.runs.test_faults import check_no_reader_is_misled
from tests.runs.world import orders, write_project

pytestmark = [pytest.mark.fault, pytest.mark.spark]


@pytest.mark.parametrize(
    ("min_bytes", "longest"), [("0", 9.0), ("16MB", 4.0)], ids=["on Spark", "in process"]
)
@pytest.mark.parametrize("seed", sample(range(2), 1))
def test_a_killed_run_leaves_no_false_statistics(
    tmp_path: Path, min_bytes: str, longest: float, seed: int
) -> None:
    write_project(tmp_path, "orders", "returns", min_bytes=min_bytes)
    paths = [tmp_path / "orders.lance", tmp_path / "returns.lance"]
    for path in paths:
        lance.write_dataset(orders(0, 20_000), str(path), max_rows_per_file=1_000)
    command = [sys.executable, "-m", "lancestat", "--project-dir", str(tmp_path), "run"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    ) as run:
        # From the start of the reading until after the end of the run.
        time.sleep(random.Random(seed).uniform(1, longest))
        os.killpg(run.pid, signal.SIGKILL)
    for path in paths:
        check_no_reader_is_misled(path)
    # Where the next run reads makes no difference to what it finds.
    write_project(tmp_path, "orders", "returns")
    completed = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    for path in paths:
        assert check_no_reader_is_misled(path)
    assert all(isinstance(action, Skip) for action in Project.load(tmp_path).plan().actions)
