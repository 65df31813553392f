"""A sample of random histories; `python -m tests.joins.histories` runs as many as one likes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.examples import sample
from tests.joins.histories import run_history

pytestmark = pytest.mark.whole


@pytest.mark.parametrize("seed", sample(range(24), 4))
def test_results_are_as_numpy_has_them_after_every_change(seed: int, tmp_path: Path) -> None:
    assert run_history(seed, tmp_path)[0] == "full"
