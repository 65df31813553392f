from __future__ import annotations

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lancestat.nodes import NODE_TYPES
from lancestat.review.diff import Comparison
from lancestat.review.values import Change, Diff, Mask, node_properties
from lancestat.spec.model import ProjectSpec, node_digest
from tests.examples import examples
from tests.review.conftest import NOW
from tests.review.rewriting import Edit, Node, edits, loaded, projects, rewritten, written

# Keys that a digest omits: they affect neither runs nor readers.
_SAID_ONLY = {"description", "owner", "tags", "freshness.warn_after", "freshness.error_after"}

few = settings(max_examples=examples(40))


def compared(base: ProjectSpec, head: ProjectSpec) -> Diff:
    names = frozenset(node.name for node in (*base.nodes, *head.nodes))
    return Comparison(base, head, NODE_TYPES, ("base", "head")).diff(names, None, NOW)


@few
@given(st.data())
def test_equivalent_spellings_of_a_project_are_not_a_change(data: st.DataObject) -> None:
    nodes = data.draw(projects())
    diff = compared(loaded(written(nodes)), loaded(data.draw(rewritten(nodes))))
    assert diff.nodes == ()
    assert diff.is_empty
    assert diff.unchanged == len(nodes)


@few
@given(st.data())
def test_one_change_is_found_in_a_rewritten_project(data: st.DataObject) -> None:
    nodes = data.draw(projects())
    changed = copy.deepcopy(nodes)
    node = data.draw(st.sampled_from(changed))
    edit = data.draw(st.sampled_from(edits(node)))
    edit.change(node)
    base, head = loaded(written(nodes)), loaded(data.draw(rewritten(changed)))
    [node_diff] = compared(base, head).nodes
    assert (node_diff.name, node_diff.change) == (node["name"], Change.CHANGED)
    assert edit.name in {change.name for change in node_diff.properties}
    assert {change.name for change in node_diff.properties} - {edit.name} <= {
        "freshness.error_after"
    }


TABLE: Node = {"name": "t", "uri": "s3://lake/t.lance", "freshness": {"error_after": "24h"}}
JOIN: Node = {
    "name": "j",
    "left": {"lance": "s3://lake/l", "vector": "v"},
    "right": {"lance": "s3://lake/r", "vector": "v"},
    "k": 3,
    "output": {"lance": "s3://lake/j.lance"},
}
EDITS = [(node, edit) for node in (TABLE, JOIN) for edit in edits(node)]


@pytest.mark.parametrize(
    ("node", "edit"), EDITS, ids=[f"{node['name']}.{edit.name}" for node, edit in EDITS]
)
def test_every_property_counts(node: Node, edit: Edit) -> None:
    changed = copy.deepcopy(node)
    edit.change(changed)
    [node_diff] = compared(loaded(written([node])), loaded(written([changed]))).nodes
    assert edit.name in {change.name for change in node_diff.properties}


@few
@given(st.data())
def test_an_added_or_removed_node_is_the_only_change(data: st.DataObject) -> None:
    nodes = data.draw(projects())
    gone = data.draw(st.sampled_from(nodes))
    rest: list[Node] = [node for node in nodes if node is not gone]
    with_it, without = loaded(written(nodes)), loaded(data.draw(rewritten(rest)))
    [removed] = compared(with_it, without).nodes
    [added] = compared(without, with_it).nodes
    assert (removed.name, removed.change) == (gone["name"], Change.REMOVED)
    assert (added.name, added.change) == (gone["name"], Change.ADDED)


@few
@given(projects(), projects())
def test_nodes_differ_where_their_digests_do(left: list[Node], right: list[Node]) -> None:
    """The digest does not merge a table's own `exclude` with that of its column set."""
    base, head = loaded(written(left)), loaded(written(right))
    for old in base.nodes:
        new = head.node(old.name)
        if new is not None and new.kind is old.kind:
            before, after = (node_properties(node, {}, Mask()) for node in (old, new))
            differ = {
                name
                for name in before.keys() | after.keys()
                if name not in _SAID_ONLY and before.get(name) != after.get(name)
            }
            assert bool(differ) == (node_digest(old) != node_digest(new))
