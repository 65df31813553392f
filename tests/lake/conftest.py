from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pytest

Rows = Callable[[int, int], pa.Table]


@pytest.fixture
def rows() -> Rows:
    """Rows `start` up to but not including `stop`, of three columns."""

    def make(start: int, stop: int) -> pa.Table:
        ids = range(start, stop)
        return pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "x": pa.array([float(i) for i in ids], pa.float64()),
                "s": pa.array([f"name {i}" for i in ids], pa.string()),
            }
        )

    return make


@pytest.fixture
def orders(tmp_path: Path, rows: Rows) -> lance.LanceDataset:
    """100 rows in five fragments of 20."""
    return lance.write_dataset(rows(0, 100), tmp_path / "orders.lance", max_rows_per_file=20)
