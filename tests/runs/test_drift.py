"""Differences of two saved plans."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lancestat.runs.plan_file import ObservedDataset, SavedNode, drift
from tests.runs.test_saved import SAVED

[NODE, *_] = SAVED.nodes
[SEEN] = NODE.inputs
PARTS = ObservedDataset("j", "parts.lance", 1, None, "c")


def seen(*inputs: ObservedDataset) -> SavedNode:
    return replace(NODE, inputs=inputs)


FAILED = replace(SEEN, version=None, content=None, error="LS201")


@pytest.mark.parametrize(
    ("then", "now", "expected"),
    [
        (NODE, replace(NODE, work="other"), "what it reads, or what the state has stored of it, "
         "has changed"),
        (NODE, replace(NODE, output="other"), "its result has changed"),
        (NODE, seen(replace(SEEN, uri="orders.lance")), None),
        (seen(FAILED), seen(replace(FAILED, error="LS204")),
         "its dataset cannot be opened any more (LS204)"),
        (seen(FAILED), NODE, "its dataset has changed"),
        (NODE, seen(PARTS), "its dataset is elsewhere"),
        (seen(SEEN, PARTS), NODE, "it reads other datasets"),
        (seen(SEEN, PARTS), seen(SEEN, replace(PARTS, version=2)),
         "parts.lance is at version 2, was 1"),
        (NODE, replace(NODE, plan={**NODE.plan, "message": "line 3"}), None),
    ],
)  # fmt: skip
def test_nodes_that_differ_are_named(then: SavedNode, now: SavedNode, expected: str | None) -> None:
    lines = [] if expected is None else [f"orders: {expected}"]
    assert drift(replace(SAVED, nodes=(then,)), replace(SAVED, nodes=(now,))) == lines


def test_the_order_of_nodes_is_part_of_a_plan() -> None:
    other = replace(NODE, plan={**NODE.plan, "name": "returns"})
    for then, now in (((NODE, other), (other, NODE)), ((NODE, NODE), (NODE,))):
        lines = drift(replace(SAVED, nodes=then), replace(SAVED, nodes=now))
        assert lines == ["the nodes are in another order"]


def test_control_characters_of_a_file_are_spelled_out() -> None:
    then = replace(NODE, plan={"name": "\x1b[2Jorders", "action": "\nskip"})
    assert drift(replace(SAVED, nodes=(then,)), replace(SAVED, nodes=())) == [
        "\\x1b[2Jorders: it is no longer among the planned nodes"
    ]
