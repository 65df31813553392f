"""Behaviour of every implementation of the state."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from lancestat.state.retention import SUPERSEDED_KEPT
from lancestat.state.values import NodeRun, StateWriter, StoredPartials, quantile_key
from lancestat.tables.stored import add_partials, read_partials, table_records
from tests.state.conftest import fingerprint, partial, record, run, stored

MakeState = Callable[[], StateWriter]


def fetch(
    state: StateWriter, table: str, wanted: dict[tuple[bytes, ...], frozenset[str]]
) -> dict[tuple[bytes, ...], dict[str, object]]:
    """Return streamed partials by fingerprints, and check that no field occurs twice."""
    partials: dict[tuple[bytes, ...], dict[str, object]] = {}
    for entry in read_partials(state, table, wanted):
        fields = partials.setdefault(entry.fingerprints, {})
        assert not fields.keys() & entry.partials.keys()
        fields.update(entry.partials)
    return partials


def test_a_new_state_is_empty(state: StateWriter) -> None:
    assert table_records(state) == {}
    assert state.runs(10) == []
    index = state.partial_index("t")
    assert dict(index.singles) == {}
    assert index.groups == {}
    assert list(read_partials(state, "t", {(fingerprint("a"),): frozenset({"x"})})) == []
    state.expire({"t": frozenset({fingerprint("a")})})


def test_partials_round_trip(make_state: MakeState) -> None:
    add_partials(make_state(), "t", [stored("a", x=1, y=2), stored("b", x=3)])
    fetched = fetch(
        make_state(),
        "t",
        {
            (fingerprint("a"),): frozenset({"x", "y"}),
            (fingerprint("b"),): frozenset({"x", "never"}),
            (fingerprint("c"),): frozenset({"x"}),
        },
    )
    assert fetched == {
        (fingerprint("a"),): {"x": partial(1), "y": partial(2)},
        (fingerprint("b"),): {"x": partial(3)},
    }


def test_tables_have_separate_partials(state: StateWriter) -> None:
    add_partials(state, "t", [stored("a", x=1)])
    add_partials(state, "it's", [stored("a", y=2)])
    assert dict(state.partial_index("t").singles) == {fingerprint("a"): frozenset({"x"})}
    assert dict(state.partial_index("it's").singles) == {fingerprint("a"): frozenset({"y"})}
    assert fetch(state, "t", {(fingerprint("a"),): frozenset({"x", "y"})}) == {
        (fingerprint("a"),): {"x": partial(1)}
    }


def test_the_index_unites_the_fields_of_several_rows(state: StateWriter) -> None:
    add_partials(state, "t", [stored("a", x=1), stored("b", x=1, y=1)])
    add_partials(state, "t", [stored("a", y=2), stored("c", y=1, x=1)])
    singles = state.partial_index("t").singles
    both = frozenset({"x", "y"})
    assert dict(singles) == {fingerprint(name): both for name in "abc"}


def test_a_partial_with_quantiles_answers_for_one_without(state: StateWriter) -> None:
    rich = quantile_key("x")
    add_partials(state, "t", [stored("a", **{rich: 1, "y": 2}), stored(("a", "b"), **{rich: 3})])
    index = state.partial_index("t")
    both = tuple(sorted((fingerprint("a"), fingerprint("b"))))
    assert dict(index.singles) == {fingerprint("a"): frozenset({rich, "x", "y"})}
    assert index.groups == {both: frozenset({rich, "x"})}
    a = (fingerprint("a"),)
    assert fetch(state, "t", {a: frozenset({"x"})}) == {a: {"x": partial(1)}}
    assert fetch(state, "t", {a: frozenset({rich})}) == {a: {rich: partial(1)}}
    assert fetch(state, "t", {both: frozenset({"x"})}) == {both: {"x": partial(3)}}


def test_a_partial_without_quantiles_does_not_answer_for_one_with(state: StateWriter) -> None:
    rich = quantile_key("x")
    add_partials(state, "t", [stored("a", x=1)])
    assert dict(state.partial_index("t").singles) == {fingerprint("a"): frozenset({"x"})}
    assert fetch(state, "t", {(fingerprint("a"),): frozenset({rich})}) == {}


def test_expire_drops_partials_superseded_by_ones_with_quantiles(state: StateWriter) -> None:
    rich = quantile_key("x")
    add_partials(state, "t", [stored("a", x=1)])
    add_partials(state, "t", [stored("a", **{rich: 2})])
    state.expire({"t": frozenset({fingerprint("a")})})
    a = (fingerprint("a"),)
    assert fetch(state, "t", {a: frozenset({"x"})}) == {a: {"x": partial(2)}}
    add_partials(state, "t", [stored("b", **{rich: 3})])
    add_partials(state, "t", [stored("b", x=4)])
    state.expire({"t": frozenset({fingerprint("a"), fingerprint("b")})})
    b = (fingerprint("b"),)
    assert fetch(state, "t", {b: frozenset({rich})}) == {b: {rich: partial(3)}}


def test_groups_are_stored_separately_from_their_members(state: StateWriter) -> None:
    add_partials(state, "t", [stored(("a", "b"), x=1), stored("a", x=2), stored(("b", "a"), y=3)])
    index = state.partial_index("t")
    both = tuple(sorted((fingerprint("a"), fingerprint("b"))))
    assert dict(index.singles) == {fingerprint("a"): frozenset({"x"})}
    assert index.groups == {both: frozenset({"x", "y"})}
    assert fetch(state, "t", {both: frozenset({"x", "y"})}) == {
        both: {"x": partial(1), "y": partial(3)}
    }


def test_duplicates_of_two_runs_at_once_are_yielded_once(make_state: MakeState) -> None:
    first, second = make_state(), make_state()
    add_partials(first, "t", [stored("a", x=1, y=2)])
    add_partials(second, "t", [stored("a", x=1, y=2, z=3)])
    fetched = fetch(first, "t", {(fingerprint("a"),): frozenset({"x", "y", "z"})})
    assert fetched == {(fingerprint("a"),): {"x": partial(1), "y": partial(2), "z": partial(3)}}


def test_a_failing_source_stores_nothing(state: StateWriter) -> None:
    class BrokenError(Exception):
        pass

    def source() -> Iterator[StoredPartials]:
        for number in range(3000):
            yield stored(number, x=number)
        raise BrokenError("the scan failed")

    with pytest.raises(BrokenError, match="the scan failed"):
        add_partials(state, "t", source())
    assert dict(state.partial_index("t").singles) == {}
    add_partials(state, "t", [stored("a", x=1)])
    assert len(state.partial_index("t").singles) == 1


def test_entries_without_partials_store_nothing(state: StateWriter) -> None:
    add_partials(state, "t", [stored("a")])
    add_partials(state, "t", [])
    assert dict(state.partial_index("t").singles) == {}


def test_records_are_the_newest_of_every_table(make_state: MakeState) -> None:
    state = make_state()
    # The last commit is the newest, even if its clock is behind.
    state.add_run(run(2, record("t", 7), record("u", 1)))
    state.add_run(run(3, record("t", 8)))
    state.add_run(run(1, record("t", 9), record("v", 2)))
    assert dict(table_records(make_state())) == {
        "t": record("t", 9),
        "u": record("u", 1),
        "v": record("v", 2),
    }


def test_runs_without_records_give_none(state: StateWriter) -> None:
    failed = NodeRun("orders", "table", "d1", {"status": "error"}, None)
    state.add_run(run(1))
    state.add_run(run(2, nodes=(failed,)))
    assert dict(table_records(state)) == {}
    state.expire({"t": frozenset(), "u": frozenset()})
    assert state.runs(5) == [run(2, nodes=(failed,)), run(1)]


@pytest.mark.parametrize("minutes", [1, -1])
def test_the_newest_records_survive_compaction(state: StateWriter, minutes: int) -> None:
    """The result does not depend on the clocks of the runs."""
    numbers = [1000 + minutes * number for number in range(40)]
    for version, number in enumerate(numbers):
        state.add_run(run(number, record("t", version)))
        if version % 7 == 6:
            state.expire({"t": frozenset()})
    assert table_records(state)["t"].version == 39
    assert [run.run_id for run in state.runs(40)] == [f"run-{number}" for number in numbers[::-1]]


def test_of_runs_that_ended_together_the_later_stored_counts(state: StateWriter) -> None:
    state.add_run(run(1, record("t", 1)))
    state.add_run(run(1, record("t", 2)))
    assert table_records(state)["t"].version == 2


def test_runs_are_listed_newest_first(make_state: MakeState) -> None:
    failed = NodeRun("knn", "knn_join", "d1", {"status": "error", "elapsed_seconds": 1.5}, None)
    runs = [run(1, record("t", 1)), run(2, record("t", 2), nodes=(failed,)), run(3)]
    for number in (1, 0, 2):
        make_state().add_run(runs[number])
    assert make_state().runs(10) == [runs[2], runs[0], runs[1]]
    assert make_state().runs(2) == [runs[2], runs[0]]
    assert make_state().runs(0) == []


def test_expire_keeps_live_partials_and_the_newest_superseded(state: StateWriter) -> None:
    for number in range(SUPERSEDED_KEPT + 10):
        add_partials(state, "t", [stored(f"old {number}", x=number)])
    add_partials(state, "t", [stored("live", x=1), stored(("live", "live too"), x=2)])
    add_partials(state, "other", [stored("untouched", x=1)])
    state.expire({"t": frozenset({fingerprint("live"), fingerprint("live too")})})
    index = state.partial_index("t")
    newest = range(10, SUPERSEDED_KEPT + 10)
    assert set(index.singles) == {fingerprint("live")} | {
        fingerprint(f"old {number}") for number in newest
    }
    assert len(index.groups) == 1
    assert set(state.partial_index("other").singles) == {fingerprint("untouched")}


def test_expire_keeps_as_many_superseded_partials_as_live_ones(state: StateWriter) -> None:
    live = frozenset(fingerprint(number) for number in range(100))
    add_partials(state, "t", [stored(f"old {number}", x=1) for number in range(120)])
    add_partials(state, "t", [stored(number, x=1) for number in range(100)])
    state.expire({"t": live})
    singles = state.partial_index("t").singles
    assert live <= singles.keys()
    assert singles.keys() - live == {fingerprint(f"old {number}") for number in range(20, 120)}


def test_expire_keeps_all_fields_when_it_drops_duplicates(state: StateWriter) -> None:
    add_partials(state, "t", [stored("a", x=1, y=2), stored("b", x=1)])
    add_partials(state, "t", [stored("a", x=1), stored("b", x=1, z=4)])
    add_partials(state, "t", [stored("a", w=5), stored("b", x=1, z=4)])
    state.expire({"t": frozenset({fingerprint("a"), fingerprint("b")})})
    fetched = fetch(
        state,
        "t",
        {
            (fingerprint("a"),): frozenset("wxy"),
            (fingerprint("b"),): frozenset("xz"),
        },
    )
    assert fetched == {
        (fingerprint("a"),): {"w": partial(5), "x": partial(1), "y": partial(2)},
        (fingerprint("b"),): {"x": partial(1), "z": partial(4)},
    }


def test_digests_are_those_of_the_newest_run_of_every_node(make_state: MakeState) -> None:
    state = make_state()
    assert dict(state.digests()) == {}
    for number, digest in ((2, "old"), (1, "new")):
        node = NodeRun("orders", "table", digest, {}, None)
        state.add_run(run(number, nodes=(node,)))
    state.add_run(run(3, nodes=(NodeRun("parts", "table", "d", {}, None),)))
    assert dict(make_state().digests()) == {"orders": "new", "parts": "d"}
