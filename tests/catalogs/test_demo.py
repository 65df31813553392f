"""`make demo-catalog` does what it shows."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.whole

REPOSITORY = Path(__file__).parents[2]


def test_the_demo_reads_each_row_of_the_catalog_once(tmp_path: Path) -> None:
    for name in ("catalog", "project"):
        ignored = shutil.ignore_patterns("warehouse", ".lancestat", "__pycache__")
        shutil.copytree(REPOSITORY / "examples" / name, tmp_path / name, ignore=ignored)
    ended = subprocess.run(
        [sys.executable, str(tmp_path / "catalog" / "demo.py")],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    first, second = ended.stdout.split("Orders arrive")
    assert "+ analyze  orders  1 of 1 fragment, 15,000 rows" in first
    assert "+ analyze  nation  1 of 1 fragment, 25 rows" in first
    assert "3 tables brought up to date" in first
    assert "~ refresh  orders  1 of 2 fragments, 100 rows" in second
    assert "Read 1 fragment, 100 rows." in second
    assert "Nothing to do: all statistics are up to date." in second
