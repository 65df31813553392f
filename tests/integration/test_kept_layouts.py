"""Layouts of right sides that are kept from run to run, on Spark."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import lance
import pytest

from lancestat.plan.stages import ExtendLayout, LayOut, ReuseLayout
from tests.integration.kept import Shop, always_in_lists, clustered, untouched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("always_in_lists")]

__all__ = ["always_in_lists"]


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def test_a_run_over_an_unchanged_right_side_only_searches(shop: Shop) -> None:
    assert isinstance(shop.action().stages.search[0], LayOut)
    first = shop.run()
    assert shop.stages["near"] == ["prepare", "lay out", "probe", "commit"]
    truth = shop.check()
    assert truth >= 0.9
    assert first.join is not None and first.join.accuracy.recall == pytest.approx(truth, abs=0.02)
    [layout] = shop.layouts

    shop.forget("near")
    action = shop.action()
    assert action.stages.search[0] == ReuseLayout(action.decision.lists or 0, 4000)
    assert "a kept layout of 4,000 rows is searched" in action.decision.why
    with untouched(shop):
        second = shop.run()
    assert shop.stages["near"] == ["prepare", "reuse layout", "probe", "commit"]
    assert shop.layouts == [layout]
    truth = shop.check()
    assert second.join is not None and second.join.accuracy.recall == pytest.approx(truth, abs=0.02)
    assert second.join.counts == first.join.counts
    assert not list(layout.glob("readers/*"))
