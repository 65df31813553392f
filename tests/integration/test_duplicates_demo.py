"""`make demo-duplicates` finds the pairs that brute force finds, and groups them."""

from __future__ import annotations

import os
import random
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import lance
import numpy as np
import pytest

from tests.interpreted import short_lived

EXAMPLES = Path(__file__).parents[2] / "examples"
MADE = shutil.ignore_patterns("warehouse", ".lancestat", "__pycache__")


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    """A copy of the examples, since the demo writes into its folder."""
    for name in ("project", "duplicates"):
        shutil.copytree(EXAMPLES / name, tmp_path / name, ignore=MADE)
    return tmp_path


@pytest.mark.spark
def test_the_demo_finds_what_was_planted(examples: Path) -> None:
    demo = examples / "duplicates" / "demo.py"
    demo.write_text(
        demo.read_text("utf-8").replace("COPIES = 20_000, 600", "COPIES = 3_000, 200"), "utf-8"
    )
    ended = subprocess.run(
        [sys.executable, str(demo)],
        env={**os.environ, **short_lived(), "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "3,000 products and 200 copies" in ended.stdout
    assert "every pair of rows of the table is to be compared, once, and the result has all" in (
        " ".join(ended.stdout.split())
    )
    assert "Nothing to do" in ended.stdout
    made = examples / "duplicates" / ".lancestat"
    pairs = lance.dataset(str(made / "duplicate.lance")).to_table(columns=["id", "id_right"])
    found = set(zip(pairs["id"].to_pylist(), pairs["id_right"].to_pylist(), strict=True))
    products = lance.dataset(str(made / "product.lance")).to_table()
    vectors = products["vector"].combine_chunks().flatten().to_numpy().reshape(len(products), -1)
    unit = vectors.astype(float) / np.linalg.norm(vectors.astype(float), axis=1, keepdims=True)
    distances = 1 - unit @ unit.T
    # A pair that is so near to the limit may be on either side of it in float32.
    sure = set(zip(*np.nonzero(np.triu(distances < 0.15 - 1e-6, 1)), strict=True))
    likely = set(zip(*np.nonzero(np.triu(distances < 0.15 + 1e-6, 1)), strict=True))
    assert len(sure) > 200
    assert sure <= found <= likely


def test_groups_are_the_connected_components(examples: Path) -> None:
    sys.path.insert(0, str(examples / "duplicates"))
    try:
        components = runpy.run_path(str(examples / "duplicates" / "clusters.py"))["components"]
    finally:
        sys.path.remove(str(examples / "duplicates"))
    chosen = random.Random(0)
    for _ in range(50):
        count = chosen.randint(2, 30)
        pairs = [
            (chosen.randrange(count), chosen.randrange(count)) for _ in range(chosen.randint(0, 30))
        ]
        # Who reaches whom, by powers of the matrix of the graph.
        reaches = np.eye(count, dtype=int)
        for left, right in pairs:
            reaches[left, right] = reaches[right, left] = 1
        reaches = np.linalg.matrix_power(reaches.astype(object), count) > 0
        ends = {node for pair in pairs for node in pair}
        expected = {tuple(np.flatnonzero(reaches[node])) for node in ends}
        assert {tuple(group) for group in components(pairs)} == expected
