from __future__ import annotations

from pathlib import Path

import lance
import pytest

from tests.runs.world import World, orders


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A table of 100 rows in 4 fragments that no run has seen."""
    path = tmp_path / "orders.lance"
    lance.write_dataset(orders(0, 100), str(path), max_rows_per_file=25)
    return World(path)
