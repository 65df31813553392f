"""Real Spark, shared by the tests of a process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from lancestat.query.read.planning_service import PlanningService
from lancestat.spark.session import session_class, start_session
from lancestat.spec.model import Target
from tests.integration.planned import values, with_cbo
from tests.interpreted import INTERPRETED, remember_names

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Spark 3.5 refuses to guess which calendar the dates of old years in Parquet are of.
PROLEPTIC = {
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    remember_names()
    warehouse = tmp_path_factory.mktemp("warehouse")
    target = Target(
        name="test",
        state=str(tmp_path_factory.mktemp("state")),
        spark_master="local[2]",
        spark_conf={
            **INTERPRETED,
            "spark.sql.warehouse.dir": str(warehouse),
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "2",
            **PROLEPTIC,
        },
    )
    # A test process ends before code that the second compiler has optimised pays off.
    session = start_session(target, "lancestat tests", is_short_lived=True)
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def _shared_session(request: pytest.FixtureRequest) -> Iterator[None]:
    """Make the shared session the active one of the thread, and leave it configured as it was.

    Spark makes active what DataFrames are created with, and reads its configuration elsewhere; what
    the product does with a session of the process, it does with this one.
    """
    if "spark" not in request.fixturenames:
        yield
        return
    spark = request.getfixturevalue("spark")
    session_class(spark).setActiveSession(spark._jsparkSession)
    conf = spark._jsparkSession.conf()
    before = conf.getAll()
    yield
    if conf.getAll().equals(before):
        return
    was = {pair._1(): pair._2() for pair in values(before)}
    for key in {pair._1() for pair in values(conf.getAll())} - was.keys():
        conf.unset(key)
    for key, value in was.items():
        if conf.get(key) != value:
            conf.set(key, value)


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    """A session of the module's own, whose optimizer uses column statistics."""
    return with_cbo(spark)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The requests of the JVM, but for those to forget what other tests have left."""
    requests: list[dict[str, Any]] = []
    answer = PlanningService.answer

    def spy(self: PlanningService, question: str) -> str:
        request = json.loads(question)
        if request["op"] != "forget":
            requests.append(request)
        return answer(self, question)

    monkeypatch.setattr(PlanningService, "answer", spy)
    return requests
