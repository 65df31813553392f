"""A sample of random histories; `python -m tests.joins.histories` runs as many as one likes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.examples import sample
from tests.joins.histories import every_list, run_history

pytestmark = pytest.mark.whole


@pytest.mark.parametrize("seed", sample(range(24), 4))
def test_results_are_as_numpy_has_them_after_every_change(seed: int, tmp_path: Path) -> None:
    assert run_history(seed, tmp_path)[0] == "full"


@pytest.mark.parametrize("seed", sample((9, 92, 130, *range(24, 32)), 3))
def test_those_of_all_lists_are_those_of_all_rows(seed: int, tmp_path: Path) -> None:
    with every_list():
        assert run_history(seed, tmp_path, is_approximate=True)[0] == "full"
