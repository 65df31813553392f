from __future__ import annotations

from pathlib import Path

import lance
import pytest

from tests.joins.joined import JoinWorld, vectors
from tests.report.gathering import Gathering
from tests.runs.world import World, orders


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A table of 100 rows in 4 fragments that no run has read, with the current clock."""
    path = tmp_path / "orders.lance"
    lance.write_dataset(orders(0, 100), str(path), max_rows_per_file=25)
    return World(path)


@pytest.fixture
def gathering(world: World) -> Gathering:
    return Gathering(world)


@pytest.fixture
def joins(tmp_path: Path) -> JoinWorld:
    """A join of two tables that has never run."""
    join_world = JoinWorld(tmp_path)
    lance.write_dataset(vectors(0, 20, name="v"), join_world.uri("l"), max_rows_per_file=10)
    lance.write_dataset(vectors(0, 30, name="w"), join_world.uri("r"), max_rows_per_file=10)
    return join_world
