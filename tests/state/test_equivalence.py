"""Any sequence of changes leaves the Lance store and the one in memory with the same content."""

from __future__ import annotations

import tempfile
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from lancestat.state.store import open_state
from lancestat.state.values import StateWriter, StoredPartials
from lancestat.tables.stored import (
    TableRecord,
    add_partials,
    decode_record,
    read_partials,
    stored_record,
    table_records,
)
from tests.examples import examples
from tests.state.conftest import EPOCH, fingerprint, partial
from tests.state.memory import MemoryState

NAMES = st.integers(0, 7)
TABLES = st.sampled_from(["t", "u"])
FIELDS = st.sets(st.sampled_from(["0:int", "1:decimal(12,2)", "2:string"]), min_size=1)


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
TEXT = st.text(st.characters(codec="utf-8"))


def content(state: StateWriter, table: str) -> tuple[object, object, object]:
    table_records(state)
    index = state.partial_index(table)
    wanted = {(single,): fields for single, fields in index.singles.items()}
    wanted |= index.groups
    partials: dict[tuple[bytes, ...], dict[str, object]] = {}
    for entry in read_partials(state, table, wanted):
        partials.setdefault(entry.fingerprints, {}).update(entry.partials)
    return dict(index.singles), dict(index.groups), partials


@settings(max_examples=examples(25))
@given(st.lists(st.one_of(ADDITIONS, TIDYINGS), max_size=12))
def test_both_stores_hold_the_same_content(
    changes: list[tuple[str, list[StoredPartials] | frozenset[bytes]]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        memory, stored = MemoryState(), open_state(folder, retention=timedelta(0))
        for table, subject in changes:
            for state in (memory, stored):
                if isinstance(subject, frozenset):
                    state.expire({table: subject})
                else:
                    add_partials(state, table, subject)
        for table in ("t", "u"):
            assert content(stored, table) == content(memory, table)
        assert {place.generation for place in stored.folder.locations()} <= {1}
        assert not any(map(stored.partial_table.is_aside, stored.folder.locations()))


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
    assert decode_record(stored_record(record).json) == record
