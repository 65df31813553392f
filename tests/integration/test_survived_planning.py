"""Queries whose scans cannot be planned as they should be: the rows are those of Parquet."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow.parquet as pq
import pytest

from lancestat.query.fragments import FragmentStatistics
from lancestat.query.predicates import filter as predicates
from lancestat.query.read import planning_service
from lancestat.query.read.planning_service import PlanningService
from lancestat.query.sql.explain import explain_frame
from tests.examples import sample
from tests.integration.planned import executed, related
from tests.interpreted import short_lived
from tests.runs.world import World, orders

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

pytestmark = pytest.mark.spark

ROWS = 100
QUERIES = sample(
    [
        "select * from {t} where o_id < 50 order by o_id",
        "select o_id from {t} where o_id < 50 or o_id > 80 order by o_id",
        "select o_id from {t} where o_total >= 3.5 and o_status is not null order by o_id",
        "select o_id from {t} where not (o_id in (3, 4) or o_status like 'op%') order by o_id",
        "select o_id from {t} where abs(o_id) > 7 and o_id < 25 order by o_id",
        "select count(*), min(o_id), max(o_total), count(o_status) from {t}",
        "select count(*), min(o_id), max(o_total), count(o_status) from {t} where o_id < 50",
        "select count(*), min(o_id) from {t} where o_id <= 17",
        "select count(*) from {t} where o_id < 0",
        "select a.o_id from {t} a join {t} b on a.o_id = b.o_id + 1 where b.o_id < 25 order by 1",
    ],
    5,
)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same rows as Lance, in four fragments, and as Parquet."""
    folder = tmp_path_factory.mktemp("planning")
    lance.write_dataset(orders(0, ROWS), folder / "orders.lance", max_rows_per_file=25)
    pq.write_table(orders(0, ROWS), folder / "orders.parquet")
    return folder / "orders.lance", folder / "orders.parquet"


@pytest.fixture(scope="module")
def world(places: tuple[Path, Path]) -> World:
    world = World(places[0])
    world.run()
    return world


@pytest.fixture(scope="module")
def expected(session: SparkSession, places: tuple[Path, Path]) -> list[list[Row]]:
    session.read.parquet(str(places[1])).createOrReplaceTempView("parquet_rows")
    return [session.sql(query.format(t="parquet_rows")).collect() for query in QUERIES]


def check(session: SparkSession, world: World, expected: Sequence[list[Row]]) -> None:
    """Try all queries; the table is opened anew, so that nothing is known already."""
    related(session, world).createOrReplaceTempView("lance_rows")
    for query, rows in zip(QUERIES, expected, strict=True):
        assert session.sql(query.format(t="lance_rows")).collect() == rows, query


def failing(*_: object, **__: object) -> Any:
    raise ArithmeticError("a defect of the planner")


Break = Callable[[pytest.MonkeyPatch], None]


def of(target: object, name: str) -> Break:
    return lambda patch: patch.setattr(target, name, failing)


def none_known(patch: pytest.MonkeyPatch) -> None:
    """Filters have a form that this process does not know."""

    def unknown(*_: object) -> Any:
        raise predicates._Unknown

    patch.setattr(predicates, "_filter", unknown)


def some_known(patch: pytest.MonkeyPatch) -> None:
    """Comparisons are read and nothing else is, such as the connectives of them."""
    read = predicates._filter

    def partly(filter_object: Any, *others: Any) -> Any:
        if filter_object["op"] not in ("=", "<", ">", "isnotnull"):
            raise predicates._Unknown
        return read(filter_object, *others)

    patch.setattr(predicates, "_filter", partly)


def refused(*ops: str) -> Break:
    """Some questions of the JVM are answered by an error, whole."""
    answer = PlanningService.answer

    def refusing(self: PlanningService, question: str) -> str:
        if json.loads(question)["op"] in ops:
            return failing()  # type: ignore[no-any-return]
        return answer(self, question)

    return lambda patch: patch.setattr(PlanningService, "answer", refusing)


BREAKS: dict[str, Break] = {
    "reading filters": of(planning_service, "read_filters"),
    "filters of an unknown form": none_known,
    "filters of a form that is known in part": some_known,
    "covers": of(FragmentStatistics, "covers"),
    "prune": of(FragmentStatistics, "prune"),
    "partials": of(FragmentStatistics, "partial"),
    "aggregates": of(planning_service, "push_down"),
    "estimates": of(planning_service, "estimate"),
    "explanations": of(PlanningService, "_explain"),
    "fragments that are left": of(planning_service, "remaining_fragments"),
    "filters for Lance": of(planning_service, "exact_conjuncts"),
    "an exception from covers": refused("covers"),
    "an exception from aggregate": refused("aggregate"),
    "an exception from estimate": refused("estimate"),
    "exceptions from all three": refused("covers", "aggregate", "estimate"),
}


@pytest.mark.parametrize("broken", sample(list(BREAKS), 8))
def test_a_query_answers_though_planning_fails(
    session: SparkSession,
    world: World,
    expected: list[list[Row]],
    monkeypatch: pytest.MonkeyPatch,
    broken: str,
) -> None:
    BREAKS[broken](monkeypatch)
    check(session, world, expected)


@pytest.mark.parametrize("name", ["exact_conjuncts", "remaining_fragments"])
def test_a_proof_is_kept_until_the_parts_are_read(
    session: SparkSession,
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    name: str,
) -> None:
    """Spark has let go of the filters when the parts cannot be planned any more."""
    frame = related(session, world).where("o_id < 50")
    assert "Filter (" not in executed(frame)
    monkeypatch.setattr(planning_service, name, failing)
    with caplog.at_level(logging.WARNING, "lancestat.read"):
        assert sorted(row.o_id for row in frame.collect()) == list(range(50))
    assert "nothing is ruled out of a scan of 'orders': ArithmeticError" in caplog.text


def test_the_explanation_says_that_a_scan_could_not_be_planned(
    session: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning_service, "estimate", failing)
    monkeypatch.setattr("lancestat.query.plans.answers.column_estimates", failing)
    frame = related(session, world).where("o_total < 5")
    [scan] = explain_frame(frame).scans
    assert scan.note is not None
    assert "lancestat could not plan it" in scan.note
    assert scan.rows == ROWS


def test_filters_that_are_not_read_are_explained(
    session: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    some_known(monkeypatch)
    frame = related(session, world).where("o_id < 25 and (o_total < 5 or o_id > 9)")
    [scan] = explain_frame(frame).scans
    assert scan.explanation is not None
    assert scan.explanation.fragments_scanned == 1
    assert scan.explanation.other_filters == ("a filter that is not known",)
    assert not scan.explanation.is_covered


# Of 20 levels Lance applies the filter itself, and of 250 Spark does not even write it as text.
LEVELS = sample(["250", "20"], 1)


def test_deeply_nested_filters_select_what_they_select_of_parquet(
    places: tuple[Path, Path],
) -> None:
    completed = subprocess.run(
        [sys.executable, "-m", "tests.integration.deep_filters", *map(str, places), *LEVELS],
        env={**os.environ, **short_lived()},
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert completed.returncode == 0, completed.stderr[-4_000:]
    for levels, found in json.loads(completed.stdout).items():
        assert found["lance"] == found["parquet"], levels
        assert all(found["lance"][name] for name in ("chain of and", "not of or", "covered"))
