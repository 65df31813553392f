"""Conditions over every type's extremes; `python -m tests.filters` tries any number."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import pytest

from tests.examples import examples, sample
from tests.filters.trial import WAYS, ZONES, Rows, drawn, java_zone, trial
from tests.integration.conftest import spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["spark"]

pytestmark = pytest.mark.spark

CALENDAR = ("date", "timestamp", "timestamp_ntz", "mid date", "mid timestamp", "mid timestamp_ntz")


@pytest.fixture(scope="module")
def rows(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Rows:
    return Rows(spark, tmp_path_factory.mktemp("filters"))


def check(spark: SparkSession, rows: Rows, zone: str, conditions: list[str], *ways: str) -> None:
    findings = trial(spark, rows, zone, conditions, ways)
    assert not findings, "\n".join(map(str, findings))


@pytest.mark.parametrize("way", WAYS)
def test_filters_agree_for_every_type_at_its_extremes(
    spark: SparkSession, rows: Rows, way: str
) -> None:
    check(spark, rows, "UTC", list(islice(drawn(WAYS.index(way)), examples(80))), way)


@pytest.mark.parametrize("zone", sample(ZONES[1:], 2))
def test_filters_agree_for_dates_and_instants_in_odd_zones(
    spark: SparkSession, rows: Rows, zone: str
) -> None:
    seed = ZONES.index(zone)
    conditions = list(islice(drawn(seed, CALENDAR), examples(60)))
    check(spark, rows, zone, conditions, WAYS[seed % len(WAYS)])


@pytest.mark.parametrize("zone", sample(["Pacific/Apia", "Africa/Monrovia"], 1))
def test_the_zone_of_the_jvm_does_not_matter(spark: SparkSession, rows: Rows, zone: str) -> None:
    """Apia skipped 2011-12-30, which is no day to its calendar."""
    skipped = "`day_mid` = DATE'2011-12-30'"
    conditions = [skipped, *islice(drawn(8, ("mid date", "mid timestamp")), 8)]
    with java_zone(spark, zone):
        check(spark, rows, "UTC", conditions, WAYS[0])
