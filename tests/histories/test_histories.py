"""A few random histories; `python -m tests.histories` tries as many as one likes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.histories.history import Counts, draw_history, run_history
from tests.integration.conftest import spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["spark"]

pytestmark = pytest.mark.spark

HISTORIES = 12


def test_every_reader_tells_the_truth_or_refuses(spark: SparkSession) -> None:
    counts = Counts()
    for seed in range(HISTORIES):
        outcome = run_history(spark, draw_history(seed), counts, with_join=seed == 0)
        told = "\n".join(map(str, outcome.findings))
        assert not outcome.findings, f"seed {seed}, {outcome.steps}:\n{told}"
    assert counts.reads > HISTORIES
    assert counts.refused.total() < counts.steps.total() / 10
