"""Trials of each fault, few in the profile `quick`; `python -m tests.faults` tries any number."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.examples import examples, sample
from tests.faults import clocks, crowds, disks, kills, stores
from tests.faults.__main__ import Trial, carry_out
from tests.faults.children import FAKETIME, REPOSITORY

pytestmark = pytest.mark.fault

SEED = 20
# A run of joins and a retry take the steps of a run.
KILLED = ("run", "gc", "docs", "plan --out", "init", "schema --out", "comment")


def try_all(kind: str, *commands: str) -> list[bool]:
    """Return which faults struck, none of which may do harm."""
    wanted = [Trial(kind, command, SEED, number) for number, command in enumerate(commands)]
    results = list(carry_out(wanted))
    assert [problem for result in results for problem in result.problems] == []
    return [result.effective for result in results]


@pytest.mark.spark
def test_killed_commands_leave_a_consistent_state() -> None:
    here, on_spark = sample(KILLED, 3), sample([kills.ON_SPARK] * 3, 1)
    struck = try_all(kills.KIND, *here, *on_spark)
    assert any(struck[: len(here)]) and all(struck[len(here) :])


@pytest.mark.s3
def test_store_failures_leave_a_consistent_state() -> None:
    assert any(try_all(stores.KIND, *sample(["run", "gc"], 1)))


@pytest.mark.skipif(FAKETIME is None, reason="needs libfaketime: apt-get install faketime")
def test_clock_changes_leave_a_consistent_state() -> None:
    assert all(try_all(clocks.KIND, *sample(["run", "gc"], 1)))


def test_concurrent_commands_leave_a_consistent_state() -> None:
    assert any(try_all(crowds.KIND, *sample(["all at once"] * 2, 1)))


@pytest.mark.skipif(disks.namespace() is None, reason="nobody may mount a tmpfs on this system")
def test_full_disks_leave_a_consistent_state() -> None:
    """In a process of its own, since the disk is mounted for it alone."""
    command = [sys.executable, "-m", "tests.faults", "--full-disks", str(examples(10))]
    command += ["--seed", str(SEED)]
    completed = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stdout + completed.stderr
