"""Random histories, few in the profile `quick`; `python -m tests.histories` tries any number."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lancestat.spark.session import optimizer_settings
from tests.examples import sample
from tests.histories.world import SETTINGS, Counts, draw_history, run_history
from tests.integration.conftest import spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["spark"]

pytestmark = pytest.mark.spark

HISTORIES = sample(range(12), 3)


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    new_session = spark.newSession()
    for key, value in {**SETTINGS, **optimizer_settings({})}.items():
        new_session.conf.set(key, value)
    return new_session


def test_every_reader_returns_correct_rows_or_refuses(session: SparkSession) -> None:
    counts = Counts()
    for seed in HISTORIES:
        outcome = run_history(session, draw_history(seed), counts, with_join=seed == 0)
        findings = "\n".join(map(str, outcome.findings))
        assert not outcome.findings, f"seed {seed}, {outcome.steps}:\n{findings}"
    assert counts.reads > len(HISTORIES)
    assert counts.refused.total() < counts.steps.total() / 10
