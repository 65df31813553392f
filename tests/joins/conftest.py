"""A join of two small tables."""

from __future__ import annotations

from pathlib import Path

import lance
import pytest

from tests.joins.joined import JoinWorld, vectors
from tests.joins.local import LocalWorld


@pytest.fixture
def local(world: JoinWorld) -> LocalWorld:
    """The same join by the engine itself, which keeps neighbours."""
    return LocalWorld(world.folder)


@pytest.fixture
def world(tmp_path: Path) -> JoinWorld:
    lance.write_dataset(vectors(0, 20, name="v"), str(tmp_path / "l.lance"), max_rows_per_file=7)
    lance.write_dataset(vectors(0, 30, name="w"), str(tmp_path / "r.lance"), max_rows_per_file=9)
    return JoinWorld(tmp_path)
