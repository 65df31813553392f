"""Reports of joins: each rule of their health under exactly its own condition."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

import lance
import pyarrow as pa
import pytest

from lancestat.errors import OutputNotWritten
from lancestat.joins.search.work import JoinWork
from lancestat.report.gather import gather
from lancestat.report.joins import JoinReport
from lancestat.report.values import Health, ProjectReport
from lancestat.runs.result import Status
from lancestat.spec.model import Table
from tests.joins.joined import JoinWorld, vectors
from tests.runs.world import PLACE


def whole(joins: JoinWorld, names: Sequence[str] = ("near",)) -> ProjectReport:
    nodes = [node for node in joins.spec.nodes if node.name in names]
    return gather(joins.spec, joins.state, joins.clock, nodes)


def report(joins: JoinWorld) -> JoinReport:
    [node] = whole(joins).nodes
    assert isinstance(node, JoinReport)
    return node


def test_a_join_that_never_ran_is_an_error(joins: JoinWorld) -> None:
    node = report(joins)
    assert (node.health, node.verdict, node.reasons) == (Health.ERROR, "absent", ("new",))
    assert node.problems == ("It has no result yet.",)
    assert (node.record, node.error, node.runs) == (None, None, ())


def test_a_join_after_a_run_is_healthy(joins: JoinWorld) -> None:
    joins.run()
    node = report(joins)
    assert (node.health, node.verdict, node.problems) == (Health.OK, "current", ())
    assert node.record is not None
    assert (node.record.counts.left_rows, node.record.counts.right_rows) == (20, 30)
    [run] = node.runs
    assert run.result.status is Status.SUCCESS
    assert run.result.figures is not None
    assert run.result.figures.pairs == 600


def test_a_result_that_is_behind_is_a_warning(joins: JoinWorld) -> None:
    joins.run()
    lance.write_dataset(vectors(20, 5, name="v"), joins.uri("l"), mode="append")
    node = report(joins)
    assert (node.health, node.verdict) == (Health.WARN, "behind")
    assert node.reasons == ("rows_appended",)
    assert node.problems == ("Its result is behind: rows appended.",)
    joins.declare(k=1)
    assert report(joins).reasons == ("spec_changed",)


def test_a_result_that_is_gone_is_an_error(joins: JoinWorld) -> None:
    joins.run()
    shutil.rmtree(joins.uri("near"))
    node = report(joins)
    assert (node.health, node.verdict) == (Health.ERROR, "absent")
    assert node.problems == ("Its result is not there: output missing.",)
    assert node.record is not None


def test_a_join_that_cannot_be_planned_is_an_error(joins: JoinWorld) -> None:
    joins.run()
    shutil.rmtree(joins.uri("r"))
    node = report(joins)
    assert (node.health, node.verdict, node.reasons) == (Health.ERROR, "blocked", ())
    assert node.error is not None
    place = "LS201 specs/shop.yml:1:1: there is no Lance dataset at "
    assert node.problems[0].startswith(place)


def test_a_last_run_that_failed_is_an_error(joins: JoinWorld) -> None:
    joins.run()

    def fail(work: JoinWork) -> None:
        raise OutputNotWritten("no room is left")

    joins.before = fail
    joins.run(full_refresh=True)
    joins.clock.advance(minutes=3)
    node = report(joins)
    assert (node.health, node.verdict) == (Health.ERROR, "current")
    assert node.problems == (
        "Its last run failed 3 min ago: LS571 specs/shop.yml:1:1 no room is left.",
    )
    joins.run()
    assert report(joins).health is Health.OK


def test_dependencies_name_only_reported_nodes(joins: JoinWorld) -> None:
    joins.others = (Table("found", joins.uri("near"), PLACE),)
    every = ("l", "r", "near", "found")
    assert dict(whole(joins, every).reads) == {
        "l": (),
        "r": (),
        "near": ("l", "r"),
        "found": ("near",),
    }
    assert dict(whole(joins, ("r", "near")).reads) == {"r": (), "near": ("r",)}


def test_a_join_waits_for_an_input_that_will_be_created(joins: JoinWorld) -> None:
    joins.run("l", "r", "near")
    joins.declare(k=3)
    joins.others = (Table("found", joins.uri("near"), PLACE),)
    nodes = {node.spec.name: node for node in whole(joins, ("near", "found")).nodes}
    assert nodes["near"].verdict == "behind"
    # A table is judged by its current rows.
    assert nodes["found"].verdict == "refuse"


@pytest.mark.parametrize("health", list(Health))
def test_the_health_of_a_project_is_that_of_its_worst_node(
    joins: JoinWorld, health: Health
) -> None:
    if health is not Health.ERROR:
        joins.run("l", "r", "near")
    if health is Health.WARN:
        joins.declare(k=3)
    assert whole(joins, ("l", "r", "near")).health is health


@pytest.mark.parametrize(
    ("recall", "problems"),
    [
        (0.94999, ("Its recall is 0.9499, 0.95 is asked.",)),
        (0.95, ()),
        (None, ()),
    ],
)
def test_a_recall_under_what_was_asked_is_a_warning(
    joins: JoinWorld, recall: float | None, problems: tuple[str, ...]
) -> None:
    joins.declare(mode="approx", recall=0.95)
    joins.measured = (recall, None if recall is None else 3)
    joins.run()
    node = report(joins)
    assert node.problems == problems
    assert node.health is (Health.WARN if problems else Health.OK)


def test_ten_times_as_many_unmatched_rows_are_a_warning(joins: JoinWorld) -> None:
    def written(count: int) -> None:
        rows = vectors(0, 30, name="v").to_pylist()
        for row in rows:
            row["v"] = None if row["id"] < count else [1.0, 2.0]
        schema = vectors(0, 1, name="v").schema
        lance.write_dataset(pa.Table.from_pylist(rows, schema), joins.uri("l"), mode="overwrite")
        joins.run()

    def problems() -> tuple[str, ...]:
        return report(joins).problems

    written(0)
    assert problems() == ()
    written(9)
    assert problems() == ()
    written(0)
    written(10)
    assert problems() == ("10 left rows matched nothing, 0 in the run before.",)
    assert report(joins).health is Health.WARN
    written(2)
    assert problems() == ()
    written(19)
    assert problems() == ()
    written(2)
    written(20)
    assert problems() == ("20 left rows matched nothing, 2 in the run before.",)
    joins.run()
    assert len(problems()) == 1


def test_results_are_those_of_runs_that_wrote_one(joins: JoinWorld) -> None:
    joins.run()
    for number in range(3):
        lance.write_dataset(vectors(100 + number, 1, name="v"), joins.uri("l"), mode="append")
        joins.run("l", "r", "near")
        # The tables are analyzed, and there is nothing to do for the join.
        joins.run("l", "near", full_refresh=False)
    made = report(joins).results
    assert [run.result.figures.counts.left_rows for run in made if run.result.figures] == [
        23,
        22,
        21,
        20,
    ]
    assert all(run.result.action != "skip" for run in made)


def test_a_run_that_leaves_the_join_alone_does_not_hide_unmatched_rows(joins: JoinWorld) -> None:
    joins.run("r", "near")
    rows = vectors(0, 90, name="v")
    none = rows.set_column(2, rows.schema.field("v"), pa.nulls(90, rows.schema.field("v").type))
    lance.write_dataset(none, joins.uri("l"), mode="append")
    joins.run("near")
    before = report(joins)
    joins.run("l", "near")
    after = report(joins)
    assert after.runs[0].result.action == "skip"
    assert len(before.problems) == 1 and "matched nothing" in before.problems[0]
    assert after.problems == before.problems
    assert len(after.results) == 2
