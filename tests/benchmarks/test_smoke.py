"""Every benchmark runs at a tiny size, so that none of them rots."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lancestat.spark import daemon
from tests.benchmarks.programs import programs
from tests.interpreted import short_lived

REPOSITORY = Path(__file__).parents[2]
BENCHMARKS = REPOSITORY / "benchmarks"
PROGRAMS = programs(BENCHMARKS)

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str | None]]:
    """The outcome of each program, of which all run in one process."""
    folder = tmp_path_factory.mktemp("benchmarks")
    report = folder / "report.jsonl"
    environment = short_lived()
    environment["PYSPARK_SUBMIT_ARGS"] = (
        f"--conf {daemon.SETTING}={daemon.__name__} {environment['PYSPARK_SUBMIT_ARGS']}"
    )
    subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.programs", report, *PROGRAMS],
        cwd=folder,
        env={**os.environ, **environment, "PYTHONPATH": str(REPOSITORY)},
        timeout=900,
        check=True,
    )
    made = [json.loads(line) for line in report.read_text(encoding="utf-8").splitlines()]
    return {outcome["program"]: outcome for outcome in made}


@pytest.mark.parametrize("program", [path.name for path in PROGRAMS])
def test_every_benchmark_runs_at_a_tiny_size(
    program: str, outcomes: dict[str, dict[str, str | None]]
) -> None:
    outcome = outcomes[program]
    assert not outcome["error"], f"{outcome['output']}{outcome['error']}"
    assert (outcome["output"] or "").strip(), "it prints its figures"
