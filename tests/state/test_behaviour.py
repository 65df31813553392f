"""Behaviour of the state."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lancestat.state.retention import SUPERSEDED_KEPT, expired_rows
from lancestat.state.store import LanceState, open_state
from lancestat.state.values import NodeRun, PartialKey, StoredPartials
from lancestat.tables.node import TableNodes
from lancestat.tables.stored import (
    TableRecord,
    add_partials,
    decode_record,
    read_partials,
    table_records,
)
from tests.examples import examples
from tests.state.conftest import EPOCH, fingerprint, partial, record, run, stored

MakeState = Callable[[], LanceState]


def fetch(
    state: LanceState, table: str, wanted: dict[tuple[bytes, ...], frozenset[str]]
) -> dict[tuple[bytes, ...], dict[str, object]]:
    """Return streamed partials by fingerprints, and check that no field occurs twice."""
    partials: dict[tuple[bytes, ...], dict[str, object]] = {}
    for entry in read_partials(state, table, wanted):
        fields = partials.setdefault(entry.fingerprints, {})
        assert not fields.keys() & entry.partials.keys()
        fields.update(entry.partials)
    return partials


def test_a_new_state_is_empty(state: LanceState) -> None:
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


def test_a_partial_with_quantiles_answers_for_one_without(state: LanceState) -> None:
    rich = str(PartialKey(("x",), quantiles=True))
    add_partials(state, "t", [stored("a", **{rich: 1, "y": 2}), stored(("a", "b"), **{rich: 3})])
    index = state.partial_index("t")
    both = tuple(sorted((fingerprint("a"), fingerprint("b"))))
    assert dict(index.singles) == {fingerprint("a"): frozenset({rich, "x", "y"})}
    assert index.groups == {both: frozenset({rich, "x"})}
    a = (fingerprint("a"),)
    assert fetch(state, "t", {a: frozenset({"x"})}) == {a: {"x": partial(1)}}
    assert fetch(state, "t", {a: frozenset({rich})}) == {a: {rich: partial(1)}}
    assert fetch(state, "t", {both: frozenset({"x"})}) == {both: {"x": partial(3)}}


def test_a_partial_without_quantiles_does_not_answer_for_one_with(state: LanceState) -> None:
    rich = str(PartialKey(("x",), quantiles=True))
    add_partials(state, "t", [stored("a", x=1)])
    assert dict(state.partial_index("t").singles) == {fingerprint("a"): frozenset({"x"})}
    assert fetch(state, "t", {(fingerprint("a"),): frozenset({rich})}) == {}


def test_expire_drops_partials_superseded_by_ones_with_quantiles(state: LanceState) -> None:
    rich = str(PartialKey(("x",), quantiles=True))
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


def test_duplicates_of_two_runs_at_once_are_yielded_once(make_state: MakeState) -> None:
    first, second = make_state(), make_state()
    add_partials(first, "t", [stored("a", x=1, y=2)])
    add_partials(second, "t", [stored("a", x=1, y=2, z=3)])
    fetched = fetch(first, "t", {(fingerprint("a"),): frozenset({"x", "y", "z"})})
    assert fetched == {(fingerprint("a"),): {"x": partial(1), "y": partial(2), "z": partial(3)}}


def test_a_failing_source_stores_nothing(state: LanceState) -> None:
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


def test_entries_without_partials_store_nothing(state: LanceState) -> None:
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


def test_records_are_kept_once_whoever_asks(make_state: MakeState) -> None:
    state = make_state()
    state.add_run(run(1, record("t", 7)))
    known = [state.records("table", TableNodes(n).decode_record) for n in range(3)]
    assert known[0] is known[1] is known[2]
    state.add_run(run(2, record("t", 8)))
    assert table_records(state) == {"t": record("t", 8)}


def test_runs_without_records_give_none(state: LanceState) -> None:
    failed = NodeRun("orders", "table", "d1", {"status": "error"}, None)
    state.add_run(run(1))
    state.add_run(run(2, nodes=(failed,)))
    assert dict(table_records(state)) == {}
    state.expire({"t": frozenset(), "u": frozenset()})
    assert state.runs(5) == [run(2, nodes=(failed,)), run(1)]


@pytest.mark.parametrize("minutes", [1, -1])
def test_the_newest_records_survive_compaction(state: LanceState, minutes: int) -> None:
    """The result does not depend on the clocks of the runs."""
    numbers = [1000 + minutes * number for number in range(40)]
    for version, number in enumerate(numbers):
        state.add_run(run(number, record("t", version)))
        if version % 7 == 6:
            state.expire({"t": frozenset()})
    assert table_records(state)["t"].version == 39
    assert [run.run_id for run in state.runs(40)] == [f"run-{number}" for number in numbers[::-1]]


def test_of_runs_that_ended_together_the_later_stored_counts(state: LanceState) -> None:
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


def test_expire_keeps_live_partials_and_the_newest_superseded(state: LanceState) -> None:
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


def test_expire_keeps_as_many_superseded_partials_as_live_ones(state: LanceState) -> None:
    live = frozenset(fingerprint(number) for number in range(100))
    add_partials(state, "t", [stored(f"old {number}", x=1) for number in range(120)])
    add_partials(state, "t", [stored(number, x=1) for number in range(100)])
    state.expire({"t": live})
    singles = state.partial_index("t").singles
    assert live <= singles.keys()
    assert singles.keys() - live == {fingerprint(f"old {number}") for number in range(20, 120)}


def test_expire_keeps_as_many_superseded_sums_as_live_ones(state: LanceState) -> None:
    fold, sums = 4, SUPERSEDED_KEPT + 10

    def generation(name: str) -> list[tuple[str, ...]]:
        return [tuple(f"{name} {number} {n}" for n in range(fold)) for number in range(sums)]

    for name in ("older", "old", "new"):
        add_partials(state, "t", [stored(members, x=1) for members in generation(name)])
    state.expire({"t": frozenset(map(fingerprint, chain.from_iterable(generation("new"))))})
    assert set(state.partial_index("t").groups) == {
        tuple(sorted(map(fingerprint, members)))
        for members in (*generation("old"), *generation("new"))
    }


def test_expire_keeps_all_fields_when_it_drops_duplicates(state: LanceState) -> None:
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
    assert dict(state.digests("shop", "dev")) == {}
    for number, digest in ((2, "old"), (1, "new")):
        node = NodeRun("orders", "table", digest, {}, None)
        state.add_run(run(number, nodes=(node,)))
    state.add_run(run(3, nodes=(NodeRun("parts", "table", "d", {}, None),)))
    state.add_run(replace(run(0), target="prod", nodes=(replace(node, digest="other"),)))
    assert dict(make_state().digests("shop", "dev")) == {"orders": "new", "parts": "d"}
    assert dict(make_state().digests("shop", "prod")) == {"orders": "other"}


class Model:
    """What a table's partials are to be, in memory."""

    def __init__(self) -> None:
        self.rows: list[StoredPartials] = []

    def expire(self, live: frozenset[bytes]) -> None:
        numbered = [(n, b"".join(row.fingerprints)) for n, row in enumerate(self.rows)]
        dropped = expired_rows(
            numbered[::-1], live, lambda ids: {n: frozenset(self.rows[n].partials) for n in ids}
        )
        self.rows = [row for n, row in enumerate(self.rows) if n not in dropped]

    def content(self) -> dict[tuple[bytes, ...], dict[str, object]]:
        by_key: dict[tuple[bytes, ...], dict[str, object]] = {}
        for row in self.rows:
            by_key.setdefault(row.fingerprints, {}).update(row.partials)
        return by_key


NAMES = st.integers(0, 7)
TABLES = st.sampled_from(["t", "it's"])
FIELDS = st.sets(st.sampled_from(["0:int", "1:decimal(12,2)", "2:string"]), min_size=1)
TEXT = st.text(st.characters(codec="utf-8"))


@st.composite
def entries(draw: st.DrawFn) -> StoredPartials:
    fingerprints = sorted(map(fingerprint, draw(st.sets(NAMES, min_size=1, max_size=2))))
    # A fingerprint and a field determine the same partial in every process.
    return StoredPartials(
        tuple(fingerprints),
        {field: partial(fingerprints[0][0] + int(field[0])) for field in draw(FIELDS)},
    )


ADDITIONS = st.tuples(TABLES, st.lists(entries(), max_size=5))
TIDYINGS = st.tuples(TABLES, st.frozensets(NAMES.map(fingerprint)))


@settings(max_examples=examples(25))
@given(st.lists(st.one_of(ADDITIONS, TIDYINGS), max_size=12))
def test_any_changes_leave_what_a_model_in_memory_holds(
    changes: list[tuple[str, list[StoredPartials] | frozenset[bytes]]],
) -> None:
    models = {"t": Model(), "it's": Model()}
    with tempfile.TemporaryDirectory() as folder:
        state = open_state(folder, retention=timedelta(0))
        for table, subject in changes:
            if isinstance(subject, frozenset):
                state.expire({table: subject})
                models[table].expire(subject)
            else:
                add_partials(state, table, subject)
                models[table].rows += subject
        table_records(state)
        for table, model in models.items():
            index, held = state.partial_index(table), model.content()
            fields = {key: frozenset(partials) for key, partials in held.items()}
            assert {(key,): keys for key, keys in index.singles.items()} | index.groups == fields
            assert fetch(state, table, fields) == held
        assert {place.generation for place in state.folder.locations()} <= {1}
        assert not any(map(state.partial_table.is_aside, state.folder.locations()))


@given(
    st.builds(
        TableRecord,
        table=TEXT,
        node=TEXT,
        version=st.integers(0, 2**64),
        published=st.booleans(),
        content_digest=TEXT,
        schema_hash=TEXT,
        rows=st.integers(0, 2**64),
        fragments=st.integers(0, 2**32),
        computed_at=st.timedeltas(timedelta(0), timedelta(days=9000)).map(EPOCH.__add__),
        columns=st.lists(TEXT).map(tuple),
        values=st.dictionaries(TEXT, TEXT),
        bounds=st.dictionaries(TEXT, st.tuples(TEXT, TEXT)),
    )
)
def test_records_round_trip_through_their_stored_form(record: TableRecord) -> None:
    assert decode_record(record.stored()[1]) == record
