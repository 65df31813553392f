"""Every benchmark runs at a tiny size, so that none of them rots."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
PROGRAMS = sorted(
    path.name for path in BENCHMARKS.glob("*.py") if "__main__" in path.read_text(encoding="utf-8")
)


@pytest.mark.spark
@pytest.mark.parametrize("program", PROGRAMS)
def test_every_benchmark_runs_at_a_tiny_size(program: str, tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, str(BENCHMARKS / program), "--tiny"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.strip(), "it prints its figures"
