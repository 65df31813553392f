"""Summaries in every state: added ones are returned, and superseded ones are dropped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancestat.state.garbage import collect_state_garbage
from lancestat.state.partials import block_keys, decode_summary, encode_summary
from lancestat.state.store import LanceState, open_state
from lancestat.state.values import BlockKey, SummaryBlock, TableSummary
from lancestat.tables.stored import add_summary, read_blocks
from tests.state.conftest import blocks, files_under, fingerprint, summary

MakeState = Callable[[], LanceState]
EMPTY = (b"", b"")


def by_key(stored_blocks: list[SummaryBlock]) -> dict[BlockKey, object]:
    assert len({key for key, _ in stored_blocks}) == len(stored_blocks)
    return dict(stored_blocks)


def test_a_new_state_has_no_summaries(state: LanceState) -> None:
    assert state.summary("t") is None
    assert list(read_blocks(state, "t", [("x", fingerprint("a"))])) == []
    state.expire({"t": frozenset()})


def test_summaries_round_trip(make_state: MakeState) -> None:
    first = summary(7, "a", "b")
    add_summary(make_state(), "t", first, blocks(first, "x", "y"))
    assert make_state().summary("t") == first
    assert make_state().summary("it's") is None
    wanted = [*block_keys(first), ("x", fingerprint("never"))]
    returned = by_key(list(read_blocks(make_state(), "t", wanted)))
    assert returned == by_key(blocks(first, "x", "y"))
    assert list(read_blocks(make_state(), "t", [])) == []
    assert list(read_blocks(make_state(), "it's", wanted)) == []


def test_only_requested_blocks_are_returned(state: LanceState) -> None:
    first = summary(7, "a", "b")
    add_summary(state, "t", first, blocks(first, "x", "y"))
    [wanted, *_] = blocks(first, "y")
    assert list(read_blocks(state, "t", [wanted[0]])) == [wanted]


def test_the_newest_summary_counts_and_shares_blocks(make_state: MakeState) -> None:
    first, second = summary(7, "a", "b"), summary(8, "a", "c")
    add_summary(make_state(), "t", first, blocks(first, "x", "y"))
    add_summary(make_state(), "t", second, blocks(second, "x", "y")[1::2])
    assert make_state().summary("t") == second
    assert len(list(read_blocks(make_state(), "t", block_keys(second)))) == 4


def test_missing_blocks_have_no_content(state: LanceState) -> None:
    first = summary(7, "a", "b", "c", blocks=(2, 1))
    add_summary(state, "t", first, [*blocks(first, "x"), blocks(first, "y")[1]])
    newest = state.summary("t")
    assert newest is not None
    assert newest.contents["x"] == first.contents["x"]
    assert newest.contents["y"] == (*EMPTY, fingerprint("c"))


def test_expire_keeps_the_blocks_of_the_newest_summary(make_state: MakeState) -> None:
    first, second = summary(7, "a", "b"), summary(8, "a", "c")
    state = make_state()
    for table in ("t", "other"):
        add_summary(state, table, first, blocks(first, "x", "y"))
        add_summary(state, table, second, blocks(second, "x", "y")[1::2])
        # Two runs at once store the same.
        add_summary(state, table, second, blocks(second, "x"))
    state.expire({"t": frozenset()})
    for seen in (state, make_state()):
        assert seen.summary("t") == second
        every = [*block_keys(first), *block_keys(second)]
        assert by_key(list(read_blocks(seen, "t", every))) == by_key(blocks(second, "x", "y"))
        assert len(by_key(list(read_blocks(seen, "other", every)))) == 6


def test_a_failing_source_stores_nothing(state: LanceState) -> None:
    first = summary(7, "a", "b")

    class BrokenError(Exception):
        pass

    def source() -> Iterator[SummaryBlock]:
        yield from blocks(first, "x")
        raise BrokenError("gone")

    with pytest.raises(BrokenError):
        add_summary(state, "t", first, source())
    assert state.summary("t") is None


def test_summaries_do_not_grow_with_the_number_of_runs(folder: Path) -> None:
    state = open_state(str(folder), retention=timedelta(0))
    sizes = []
    for number in range(40):
        newest = summary(number, "a", number)
        add_summary(state, "t", newest, blocks(newest, "x", "y"))
        state.expire({"t": frozenset()})
        sizes.append(sum(file.stat().st_size for file in files_under(folder)))
    assert max(sizes) < 3 * max(sizes[:20])
    [place] = state.folder.locations()
    assert lance.dataset(state.folder.dataset_uri(place)).count_rows() == 5


def test_summaries_that_do_not_decode_are_not_used(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = summary(7, "a", "b")
    state = open_state(str(folder))
    add_summary(state, "t", first, blocks(first, "x", "y"))
    path = folder / "v2" / "summaries-1.lance"
    lance.dataset(path).update({"body": "[X'00']"}, where="field = 'x'")
    assert {field for (field, _), _ in read_blocks(state, "t", block_keys(first))} == {"y"}
    assert "2 stored summaries do not decode" in caplog.text
    lance.dataset(path).update({"body": "[X'00']"}, where="field = ''")
    assert state.summary("t") is None
    assert "a stored summary does not decode" in caplog.text
    state.expire({"t": frozenset()})
    assert state.summary("t") is None


def test_a_reader_whose_version_was_cleaned_up_reads_the_latest(folder: Path) -> None:
    first = summary(0, "a", "b")
    reader = open_state(str(folder))
    add_summary(reader, "t", first, blocks(first, "x", "y"))
    assert reader.summary("t") == first
    stream = read_blocks(reader, "t", block_keys(first))
    writer = open_state(str(folder), retention=timedelta(0))
    for number in range(1, 20):
        add_summary(writer, "t", summary(number, "a", number), [])
        writer.expire({"t": frozenset()})
    assert {key for key, _ in stream} == {key for key, _ in blocks(first, "x", "y")[::2]}
    assert not (folder / "v2" / "summaries-2.lance").exists()


def test_gc_drops_the_summaries_of_tables_that_are_not_declared(folder: Path) -> None:
    state = open_state(str(folder))
    first = summary(7, "a", "b")
    for table in ("kept", "gone"):
        add_summary(state, table, first, blocks(first, "x", "y"))
    report = collect_state_garbage(state, frozenset({"kept"}), dry_run=True)
    assert (report.partials_dropped, report.bytes > 0) == (5, True)
    assert collect_state_garbage(state, frozenset({"kept"}), dry_run=False) == report
    assert state.summary("gone") is None
    assert state.summary("kept") == first
    assert len(list(read_blocks(state, "kept", block_keys(first)))) == 4
    old = folder / "v2" / "summaries-0.lance"
    lance.write_dataset(pa.table({"a": [1]}), old)
    assert collect_state_garbage(state, frozenset({"kept"}), dry_run=False).generations_dropped == 1
    assert not files_under(old)


@st.composite
def summaries(draw: st.DrawFn) -> TableSummary:
    counts = tuple(draw(st.lists(st.integers(1, 4), max_size=4)))
    ids = st.sets(st.integers(0, 60), min_size=1).map(sorted).map(tuple)
    size = sum(counts)
    digests = st.lists(st.binary(max_size=16), min_size=size, max_size=size).map(tuple)
    return TableSummary(
        version=draw(st.integers(0, 2**64)),
        manifest=draw(st.none() | st.text("0123456789abcdef")),
        groups=tuple(draw(st.lists(ids, min_size=size, max_size=size))),
        blocks=counts,
        contents=draw(st.dictionaries(st.text(st.characters(codec="utf-8")), digests)),
    )


@given(summaries())
def test_summaries_round_trip_through_their_stored_form(table_summary: TableSummary) -> None:
    assert decode_summary(encode_summary(table_summary)) == table_summary


@given(st.binary(max_size=40))
def test_random_bytes_are_not_a_summary(noise: bytes) -> None:
    with pytest.raises(ValueError):
        decode_summary(noise)


@pytest.mark.parametrize(
    "wrong",
    [{"blocks": (1,)}, {"groups": ((0,),)}, {"contents": {"x": EMPTY[:1]}}, {"blocks": (2, 0)}],
    ids=str,
)
def test_a_summary_whose_parts_disagree_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="groups"):
        decode_summary(encode_summary(replace(summary(1, "a", "b"), **wrong)))  # type: ignore[arg-type]
