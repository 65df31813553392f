from __future__ import annotations

from pathlib import Path

import pytest
from sample import PROJECT, SPECS, write_orders, write_products


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A project of two tables and a join that nothing was run for yet."""
    (tmp_path / "specs").mkdir()
    (tmp_path / "lancestat_project.yml").write_text(PROJECT)
    (tmp_path / "specs" / "shop.yml").write_text(SPECS)
    write_orders(tmp_path)
    write_products(tmp_path)
    return tmp_path
