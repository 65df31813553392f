"""Differences of two saved plans."""

from __future__ import annotations

from dataclasses import replace

from lancestat.runs.plan_file import ObservedDataset, SavedNode, SavedPlan, drift
from tests.runs.test_saved import SAVED

NODE = SAVED.nodes[0]


def saved(*nodes: SavedNode) -> SavedPlan:
    return replace(SAVED, nodes=nodes)


def differences(then: SavedNode, now: SavedNode) -> list[str]:
    return drift(saved(then), saved(now))


def seen(**changes: object) -> SavedNode:
    return replace(NODE, inputs=(replace(NODE.inputs[0], **changes),))  # type: ignore[arg-type]


def test_equal_plans_have_no_differences() -> None:
    assert drift(SAVED, replace(SAVED, made_at=SAVED.made_at.replace(year=2027))) == []


def test_a_changed_work_digest_is_a_difference() -> None:
    assert differences(NODE, replace(NODE, work="other")) == [
        "orders: what it reads, or what the state has stored of it, has changed"
    ]


def test_the_spelling_of_a_uri_is_not_compared() -> None:
    assert differences(NODE, seen(uri="orders.lance")) == []


def test_a_changed_error_is_reported() -> None:
    failed = seen(version=None, content=None, error="LS201")
    other = seen(version=None, content=None, error="LS204")
    assert differences(failed, other) == ["orders: its dataset fails with LS204, was LS201"]


def test_an_additional_dataset_is_reported() -> None:
    more = replace(NODE, inputs=(*NODE.inputs, ObservedDataset("j", "parts.lance", 1, None, "c")))
    assert differences(NODE, more) == ["orders: it reads parts.lance"]
    assert differences(more, NODE) == ["orders: it no longer reads parts.lance"]


def test_a_replaced_dataset_is_reported() -> None:
    """A table whose URI changed: the record of the state is of the old URI."""
    moved = replace(seen(identity="j", uri="/elsewhere.lance"), record="r")
    assert differences(NODE, moved) == [
        "orders: its dataset is /elsewhere.lance, was /warehouse/orders.lance"
    ]


def test_figures_that_differ_are_named() -> None:
    then = replace(NODE, plan={**NODE.plan, "rows_scanned": 1_000, "recall": None})
    now = replace(NODE, plan={**NODE.plan, "rows_scanned": 250_000, "recall": 0.5})
    assert differences(then, now) == [
        "orders: rows scanned now 250,000, was 1,000; recall now 0.5, was unknown"
    ]


def test_messages_are_not_compared() -> None:
    """Places of errors move with every edit."""
    assert differences(NODE, replace(NODE, plan={**NODE.plan, "message": "line 3"})) == []


def test_the_order_of_nodes_is_part_of_a_plan() -> None:
    other = replace(NODE, plan={**NODE.plan, "name": "returns"})
    assert drift(saved(NODE, other), saved(other, NODE)) == ["the nodes are in another order"]


def test_a_repeated_node_of_a_file_is_reported() -> None:
    assert drift(saved(NODE, NODE), saved(NODE)) == ["the nodes are in another order"]


def test_control_characters_of_a_file_are_spelled_out() -> None:
    then = replace(NODE, plan={"name": "\x1b[2Jorders", "action": "\nskip"})
    assert drift(saved(then), saved()) == [
        "\\x1b[2Jorders: it is no longer among the planned nodes"
    ]
