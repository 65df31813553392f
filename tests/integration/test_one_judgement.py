"""Spark plans with the statistics that `show` reports as used, and so does the system view."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import lancestat
from lancestat.query.read.relation import planning_service
from lancestat.query.sql.query import system_views, view_schema
from lancestat.query.table import ALLOW_STALE
from lancestat.spec.model import Publish, StaleBounds
from lancestat.tables.judgement import Verdict
from tests.examples import sample
from tests.integration.planned import planned, with_cbo
from tests.report.surfaces import Surfaces, check_surfaces
from tests.tables.judged import POLICIES, STEPS, JudgedTable, policy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

HISTORIES = 4
STEPS_OF_EACH = 10
# Spark's side of a scan looks at the real time.
TIMELESS = [
    allowed
    for allowed in POLICIES
    if not (isinstance(allowed, StaleBounds) and allowed.max_age is not None)
]


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    yield with_cbo(spark)
    spark.catalog.dropTempView("orders")


@pytest.mark.parametrize("publish", Publish)
@pytest.mark.parametrize("seed", sample(range(HISTORIES), 1))
def test_spark_uses_the_statistics_that_show_reports_as_used(
    seed: int, publish: Publish, session: SparkSession, tmp_path: Path
) -> None:
    draw = random.Random(seed)
    table = JudgedTable.create(tmp_path / "t.lance", publish, seed)
    table.world.clock.now = datetime.now(timezone.utc)
    steps = [step for step in STEPS if step.__name__ != "wait"]
    for _ in range(STEPS_OF_EACH):
        allow_stale = draw.choice(TIMELESS)
        table.world.policy = policy(allow_stale)
        draw.choice(steps)(table)
        verdict = check_surfaces(table, allow_stale)
        check_view(session, table, verdict)
        check_system_view(session, table, verdict)
        if isinstance(allow_stale, bool) and publish is Publish.MANIFEST:
            options = {ALLOW_STALE: str(allow_stale).lower()}
            read = lancestat.read_table(session, str(table.world.path), options=options)
            check_planned(read, verdict)


def check_view(session: SparkSession, table: JudgedTable, verdict: Verdict) -> None:
    attached = Surfaces(table).project().attach(session)
    assert attached.views == ("orders",)
    check_planned(session.table("orders"), verdict)


def check_planned(frame: DataFrame, verdict: Verdict) -> None:
    statistics = planned(frame)
    assert planning_service().explanations()[-1].verdict == verdict
    used = verdict.statistics.columns if verdict.statistics is not None else {}
    assert set(statistics.columns) <= set(used)
    assert bool(statistics.columns) == bool(used)


def check_system_view(session: SparkSession, table: JudgedTable, verdict: Verdict) -> None:
    expected = ("use" if verdict.use else "refuse", verdict.reason.value, verdict.detail)
    with system_views(session, Surfaces(table).project().report_tables({"statistics"})):
        asked = f"select verdict, reason, detail from {view_schema(session)}.statistics"
        assert {tuple(row) for row in session.sql(asked).collect()} == {expected}
