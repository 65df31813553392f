"""Nodes that read the result of a join of the same run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import pytest

from lancestat.joins.action import JoinAction
from lancestat.joins.search.work import JoinWork
from lancestat.runs.actions import Deferred, Plan, Reason, Skip
from lancestat.runs.result import RunResult, Status
from lancestat.spec.model import KnnJoin, KnnSide, Table
from tests.joins.joined import JoinWorld, vectors
from tests.runs.world import PLACE

ALL = ("before", "near", "made")


@pytest.fixture
def world(tmp_path: Path) -> JoinWorld:
    """`near` reads the result of `before` by another spelling; `made` is a table over it."""
    lance.write_dataset(vectors(0, 20, name="v"), str(tmp_path / "l.lance"))
    lance.write_dataset(vectors(0, 30, name="w"), str(tmp_path / "r.lance"))
    world = JoinWorld(tmp_path)
    world.others = (
        before(world),
        Table("made", f"{world.join.output_uri}/", PLACE),
    )
    world.declare(left=KnnSide("v", ("id",), (), format="lance", uri=f"file://{world.uri('b')}/"))
    return world


def before(world: JoinWorld, **changes: Any) -> KnnJoin:
    left = KnnSide("v", ("id", "v"), ("l",), table="l")
    made = replace(world.join, name="before", output_uri=world.uri("b"), left=left, k=1)
    return replace(made, **changes)


def statuses(result: RunResult) -> dict[str, Status]:
    return {node.name: node.status for node in result.nodes}


def kinds(plan: Plan) -> dict[str, type]:
    return {action.node: type(action) for action in plan.actions}


def ran(world: JoinWorld) -> list[tuple[str, str]]:
    return [(work.node, work.scope.value) for work in world.works]


def test_readers_of_a_result_are_deferred_after_it(world: JoinWorld) -> None:
    plan = world.plan(*ALL)
    assert [action.node for action in plan.actions] == ["near", "before", "made"]
    assert kinds(plan) == {"near": Deferred, "before": JoinAction, "made": Deferred}
    near, _, made = plan.actions
    assert isinstance(near, Deferred)
    assert isinstance(made, Deferred)
    assert (near.dependencies, near.verb, near.reasons) == (("before",), "analyze", (Reason.NEW,))
    assert (made.dependencies, made.kind) == (("near",), "table")


def test_awaited_nodes_run_one_after_the_other(world: JoinWorld) -> None:
    result = world.run(*ALL)
    assert statuses(result) == dict.fromkeys(ALL, Status.SUCCESS)
    assert ran(world) == [("before", "full"), ("near", "full")]
    assert {type(action) for action in world.plan(*ALL).actions} == {Skip}
    assert world.rows() == world.expected()
    assert lance.dataset(world.join.output_uri).config()["lance.stats.numRows"]


def test_a_deferred_node_reports_the_reasons_of_its_new_plan(world: JoinWorld) -> None:
    world.run(*ALL)
    lance.write_dataset(vectors(50, 5, name="v"), world.uri("l"), mode="append")
    plan = world.plan(*ALL)
    assert [action.verb for action in plan.actions] == ["refresh"] * 3
    result = world.execute(plan)
    near, first, made = result.nodes
    assert near.reasons == first.reasons == ("rows_appended",)
    assert (made.fragments_scanned, made.fragments_total) == (1, 2)
    assert ran(world)[2:] == [("before", "new_left"), ("near", "new_left")]
    assert world.rows() == world.expected()


def test_a_full_refresh_applies_to_deferred_nodes(world: JoinWorld) -> None:
    world.run(*ALL)
    world.works.clear()
    result = world.run(*ALL, full_refresh=True)
    assert [node.reasons for node in result.nodes] == [("full_refresh",)] * 3
    assert ran(world) == [("before", "full"), ("near", "full")]


def test_without_the_first_join_others_read_the_existing_result(world: JoinWorld) -> None:
    world.run(*ALL)
    lance.write_dataset(vectors(50, 5, name="v"), world.uri("l"), mode="append")
    assert kinds(world.plan("near", "made")) == {"near": Skip, "made": Skip}


def test_nodes_that_depend_on_a_failed_join_are_skipped(world: JoinWorld) -> None:
    def fail(work: JoinWork) -> None:
        raise ValueError("no")

    world.before = fail
    result = world.run(*ALL)
    assert statuses(result) == {
        "before": Status.ERROR,
        "near": Status.SKIPPED,
        "made": Status.SKIPPED,
    }
    messages = {node.name: node.message for node in result.nodes}
    assert messages["near"] == "it reads the result of 'before', which failed"
    assert messages["made"] == "it reads the result of 'near', which failed"
    world.before = None
    assert statuses(world.run(*ALL)) == dict.fromkeys(ALL, Status.SUCCESS)


def test_a_blocked_join_does_not_block_readers_of_its_last_result(world: JoinWorld) -> None:
    world.run(*ALL)
    broken = KnnSide("nope", ("id",), ("l",), table="l")
    world.others = (before(world, left=broken), world.others[1])
    lance.write_dataset(vectors(50, 5, name="w"), world.uri("r"), mode="append")
    result = world.run(*ALL)
    assert statuses(result) == {
        "before": Status.ERROR,
        "near": Status.SUCCESS,
        "made": Status.SUCCESS,
    }
    assert world.rows() == world.expected()


def test_joins_that_read_each_other_terminate(world: JoinWorld) -> None:
    """Their specification is refused if they spell the URIs alike."""
    circle = KnnSide("v", ("id", "v"), (), format="lance", uri=f"{world.join.output_uri}/.")
    world.others = (before(world, left=circle), world.others[1])
    result = world.run(*ALL)
    assert set(statuses(result)) == set(ALL)
    assert Status.ERROR in statuses(result).values()
