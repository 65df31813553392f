from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lancestat.presentation.site.graph import HEIGHT, arrange, draw
from tests.presentation.site.reports import project, table_report

Reads = dict[str, list[str]]


@st.composite
def graphs(draw_value: st.DrawFn) -> Reads:
    """Nodes that read some of those before them."""
    size = draw_value(st.integers(1, 25))
    names = [f"n{at}" for at in range(size)]
    return {
        name: draw_value(st.lists(st.sampled_from(names[:at]), unique=True, max_size=4))
        if at
        else []
        for at, name in enumerate(names)
    }


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graphs())
def test_a_node_is_right_of_its_inputs_in_its_own_place(reads: Reads) -> None:
    places = arrange(reads)
    assert set(places) == set(reads)
    assert all(
        places[dependency][0] < places[name][0] for name in reads for dependency in reads[name]
    )
    assert len({*places.values()}) == len(reads)


def test_edges_do_not_cross_without_need() -> None:
    places = arrange({"a": [], "b": [], "c": [], "x": ["c"], "y": ["b"], "z": ["a"]})
    left = sorted("abc", key=lambda name: places[name][1])
    right = sorted("zyx", key=lambda name: places[name][1])
    assert [{"a": "z", "b": "y", "c": "x"}[name] for name in left] == right


def test_a_long_chain_needs_no_recursion() -> None:
    chain = {f"n{at}": [f"n{at - 1}"] if at else [] for at in range(3000)}
    assert arrange(dict(reversed(chain.items())))["n2999"][0] == 2999


def test_only_nodes_with_edges_are_drawn_in_parts_that_do_not_overlap() -> None:
    names = ["a", "b", "c", "d", "lone"]
    report = project(*map(table_report, names), reads={"b": ("a",), "d": ("c",), "a": ("gone",)})
    boxes, edges, _, height = draw(report)
    assert sorted(node.spec.name for node, _, _ in boxes) == ["a", "b", "c", "d"]
    assert [edge[:2] for edge in edges] == [("a", "b"), ("c", "d")]
    assert len({(x, y) for _, x, y in boxes}) == 4
    assert all(y + HEIGHT < height for _, _, y in boxes)
