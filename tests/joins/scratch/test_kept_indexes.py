"""Kept indexes in scratch: published in one step, held while they are read, swept."""

from __future__ import annotations

import errno
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancestat.errors import ScratchFull, ScratchUnusable
from lancestat.joins.scratch.folder import MARKER, encode
from lancestat.joins.scratch.garbage import ScratchGarbage
from lancestat.joins.scratch.kept_indexes import (
    Coverage,
    IndexedFragment,
    IndexManifest,
    IndexRecord,
    IndexStore,
    KeptDataset,
    Quality,
    StoredIndex,
    index_key,
    owner_prefix,
)
from lancestat.joins.search.cost_model import KeptIndex
from lancestat.joins.search.ivf import OFFSET_BITS, LiveRows, imbalance
from lancestat.joins.search.work import RightContent, RightFragment
from lancestat.lake.files import FolderStorage, Process, this_process

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
QUALITY = Quality(10, 1.0, 1.0)
SMALL = IndexRecord(2, 4, (IndexedFragment("a", 10),), 1, QUALITY, QUALITY, 1, 1)
CONTENT = RightContent("mine-1", (RightFragment(0, "a", 10, 10),))


def manifest(age: int = 0) -> IndexManifest:
    rows = KeptDataset("rows.lance", 1, "m", (("data/x.lance", 3),))
    arrays = KeptDataset("arrays-1.lance", 1, "m", (("data/y.lance", 4),))
    return IndexManifest(NOW - timedelta(days=age), SMALL, rows, arrays, "digest")


@pytest.fixture
def store(tmp_path: Path) -> IndexStore:
    return IndexStore(str(tmp_path / "scratch"))


def make(store: IndexStore, key: str = "mine-1", age: int = 0) -> StoredIndex:
    with store.writing(key) as draft:
        folder = Path(draft.uri)
        for path, text in (
            ("rows.lance/data/x.lance", "xxx"),
            ("arrays-1.lance/data/y.lance", "y" * 4),
        ):
            (folder / path).parent.mkdir(parents=True)
            (folder / path).write_text(text)
        return store.publish(draft, manifest(age))


def files(store: IndexStore) -> list[str]:
    root = Path(store.root)
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def sweep(
    store: IndexStore,
    *,
    usable: Mapping[str, RightContent | None] | None = None,
    dry_run: bool = False,
    has_others: bool = False,
) -> ScratchGarbage:
    usable = {"mine-1": CONTENT} if usable is None else usable
    garbage = ScratchGarbage(store, NOW, dry_run)
    return garbage.collect("mine-", usable, has_others=has_others)


def test_a_published_layout_is_found_as_it_was_written(store: IndexStore) -> None:
    assert store.find("mine-1") is None
    kept = make(store)
    assert store.find("mine-1") == kept == StoredIndex(kept.folder, manifest())
    assert store.find("mine-2") is None
    assert store.damage(kept) is None
    assert store.pin(kept, kept.manifest.rows).uri == f"{store.root}/{kept.folder}/rows.lance"


def test_a_draft_that_is_not_published_is_no_layout_and_is_removed(store: IndexStore) -> None:
    def fail() -> None:
        with store.writing("mine-1") as draft:
            assert (Path(draft.uri) / MARKER).exists()
            assert store.find("mine-1") is None
            assert sweep(store).indexes == 0, "it is being written"
            raise ValueError("killed")

    with pytest.raises(ValueError, match="killed"):
        fail()
    assert files(store) == []


def test_a_newer_layout_takes_the_place_of_an_older_one_that_nobody_reads(
    store: IndexStore,
) -> None:
    first = make(store, age=2)
    second = make(store, age=1)
    assert store.find("mine-1") == second
    assert not Path(store.root, first.folder).exists()
    with store.held(second) as held:
        assert held == second
        third = make(store)
        assert store.find("mine-1") == third
        assert Path(store.root, second.folder, "rows.lance").exists(), "it is read"
    older = make(store, age=9)
    assert store.find("mine-1") == third
    assert sweep(store).indexes == 1
    assert not Path(store.root, older.folder).exists()


def test_a_layout_that_goes_before_it_is_held_is_none(store: IndexStore) -> None:
    kept = make(store)
    assert store.remove(kept.folder)
    with store.held(kept) as held:
        assert held is None
    assert files(store) == []


def test_whoever_holds_a_layout_keeps_its_files(store: IndexStore) -> None:
    kept = make(store)
    with store.held(kept) as held, store.held(kept):
        assert held == kept
        assert not store.remove(kept.folder)
        assert store.find("mine-1") is None
        assert store.damage(kept) is None
        with store.held(kept) as late:
            assert late is None, "it is withdrawn"
    assert not store.has_readers(kept.folder)
    assert sweep(store).indexes == 0, "its process has not ended"


def test_files_of_readers_that_were_killed_do_not_count(store: IndexStore) -> None:
    kept = make(store)
    dead = Process(this_process().host, 2**22 + 1, 5)
    readers = Path(store.root, kept.folder, "readers")
    readers.mkdir()
    (readers / f"{dead.tag}-1700000000-{'a' * 12}").touch()
    assert not store.has_readers(kept.folder)
    assert sweep(store).indexes == 0
    assert not readers.exists()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format_version": 1}', '"x"', "\0"])
def test_what_cannot_be_understood_is_no_layout(store: IndexStore, text: str) -> None:
    kept = make(store)
    Path(store.root, kept.folder, "index.json").write_text(text)
    assert store.find("mine-1") is None


def test_missing_and_changed_files_are_seen(store: IndexStore) -> None:
    kept = make(store)
    path = Path(store.root, kept.folder, "rows.lance/data/x.lance")
    path.write_text("xx")
    assert store.damage(kept) == "rows.lance/data/x.lance is missing or of another size"
    path.unlink()
    assert store.damage(kept) is not None
    path.symlink_to(Path(store.root, kept.folder, "index.json"))
    assert store.damage(kept) is not None


def test_a_root_that_cannot_be_used_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = IndexStore(str(tmp_path / "file"))
    with pytest.raises(ScratchUnusable, match="LS583"):
        store.find("mine-1")
    with pytest.raises(ScratchUnusable), store.writing("mine-1"):
        pass


def test_what_no_join_can_use_is_swept(store: IndexStore) -> None:
    make(store)
    make(store, "mine-2")
    other = make(store, "theirs-1")
    dry = sweep(store, dry_run=True)
    assert (dry.indexes, dry.left) == (1, []) and dry.size_bytes > 7
    assert len(list(Path(store.root).rglob("index.json"))) == 3
    done = sweep(store)
    assert (done.indexes, done.size_bytes, done.left) == (1, dry.size_bytes, [])
    assert (sweep(store).indexes, sweep(store).size_bytes) == (0, 0)
    assert sweep(store, usable={"mine-1": None}).indexes == 0, "its table cannot be read"
    assert sweep(store, usable={}, has_others=True).indexes == 0, "it may be that of another target"
    assert sweep(store, usable={}, dry_run=True).indexes == 1
    changed = RightContent("mine-1", (RightFragment(0, "b", 10, 10),))
    assert sweep(store, usable={"mine-1": changed}, has_others=True).indexes == 1
    assert [kept.folder for kept in store.all_of("theirs-1")] == [other.folder]


def test_a_later_format_is_left_alone(store: IndexStore) -> None:
    kept = make(store)
    path = Path(store.root, kept.folder, "index.json")
    path.write_text(json.dumps({"format_version": 2, "more": 1}))
    assert store.find("mine-1") is None
    swept = sweep(store, usable={})
    assert (swept.indexes, [reason for _, reason in swept.left]) == (0, ["it has format 2"])
    assert path.exists()


@pytest.mark.parametrize("is_marked", [True, False])
def test_what_a_killed_writer_has_left_is_swept(store: IndexStore, is_marked: bool) -> None:
    dead = Process(this_process().host, 2**22 + 1, 5)
    folder = Path(store.root, "indexes", "theirs-1", f"{dead.tag}-{'0' * 16}")
    folder.mkdir(parents=True)
    if is_marked:
        (folder / MARKER).write_text(encode("indexes", dead, NOW))
        (folder / "rows.lance").mkdir()
    assert sweep(store).indexes == 1
    assert files(store) == [] and not folder.exists()


def test_a_full_disk_has_an_error_of_its_own(
    store: IndexStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = make(store)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(FolderStorage, "write", full)
    with pytest.raises(ScratchFull, match="LS581"):
        store.update(kept, manifest())
    with pytest.raises(ScratchFull, match="LS581"), store.writing("mine-1"):
        pass
    assert store.find("mine-1") == kept


RECORD = IndexRecord(
    dimension=4,
    lists=10,
    sources=tuple(IndexedFragment(name, 100) for name in "abc"),
    first_sources=3,
    trained=Quality(300, 30.0, 1.5),
    now=Quality(300, 30.0, 1.5),
    first_pieces=1,
    pieces=1,
)


def content(**rows: int) -> RightContent:
    """Fragments of those contents with so many live rows of 100."""
    fragments = (
        RightFragment(number, name, 100, count) for number, (name, count) in enumerate(rows.items())
    )
    return RightContent("key", tuple(fragments))


def test_unchanged_content_is_covered() -> None:
    assert RECORD.cover(content(a=100, b=100, c=100)) == Coverage((0, 1, 2), (), 300, 0, 0, 0)


def test_new_and_gone_fragments_and_deleted_rows_are_told_apart() -> None:
    covered = RECORD.cover(content(c=90, d=7, a=100))
    assert covered == Coverage((2, -1, 0), (1,), 190, 0, 7, 110)
    assert RECORD.kept(replace(covered, deleted_rows=0)) == KeptIndex(10, 190, 7)


def test_rows_that_came_back_or_are_distrusted_are_put_in_again() -> None:
    record = replace(RECORD, sources=(IndexedFragment("a", 60), *RECORD.sources[1:]))
    assert record.cover(content(a=61, b=100)).missing == (0,)
    assert record.cover(content(a=60, b=100)).missing == ()
    assert record.cover(content(a=60, b=100), frozenset({0})).missing == (0,)


def test_a_fragment_that_was_put_in_twice_is_in_the_later_slot() -> None:
    record = replace(RECORD, sources=(*RECORD.sources, IndexedFragment("a", 100)))
    assert record.cover(content(a=80, b=100, c=100)) == Coverage((-1, 1, 2, 0), (), 280, 80, 0, 120)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, None),
        ({"sources": (*RECORD.sources, IndexedFragment("d", 100))}, None),
        ({"first_sources": 1}, "67 % of its rows came after it was trained"),
        (
            {"sources": (*RECORD.sources, IndexedFragment("x", 200))},
            "40 % of the rows in its lists",
        ),
        ({"now": Quality(310, 31.4, 1.5)}, None),
        ({"now": Quality(310, 32.0, 1.5)}, "added rows are 2.0 times as far"),
        ({"now": Quality(309, 60.0, 1.5)}, None),
        ({"now": Quality(300, 30.0, 3.1)}, "its lists are 2.1 times as unequal as they were"),
        ({"pieces": 65}, None),
        ({"pieces": 66}, "it is in 66 pieces"),
    ],
)
def test_drift_is_told_with_its_number(changes: dict[str, object], why: str | None) -> None:
    record = replace(RECORD, **changes)  # type: ignore[arg-type]
    rows = {"a": 100, "b": 100, "c": 100}
    if any(laid.content == "d" for laid in record.sources):
        rows["d"] = 100
    reason = record.drift(record.cover(content(**rows)))
    assert (reason is None) if why is None else (reason or "").startswith(why)


def test_keys_differ_in_all_that_a_layout_depends_on() -> None:
    arguments = ("state", "table", "emb", "l2", None)
    keys = {index_key(*arguments)}
    for number, other in enumerate(("state2", "table2", "emb2", "cosine", "x = 1")):
        changed = [*arguments]
        changed[number] = other
        keys.add(index_key(*changed))  # type: ignore[arg-type]
    assert len(keys) == 6
    assert sum(key.startswith(owner_prefix("state")) for key in keys) == 5


@given(
    st.lists(st.integers(-1, 5), min_size=1, max_size=6, unique=True),
    st.dictionaries(st.integers(0, 5), st.frozensets(st.integers(0, 9))),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9))),
)
def test_live_rows_are_those_whose_fragment_is_there_and_that_are_not_deleted(
    fragments: list[int], deleted: dict[int, frozenset[int]], rows: list[tuple[int, int]]
) -> None:
    rows = [(slot % len(fragments), offset) for slot, offset in rows]
    offsets = {number: np.array(sorted(gone), np.uint32) for number, gone in deleted.items()}
    live = LiveRows.of(fragments, offsets)
    places = np.array([slot << OFFSET_BITS | offset for slot, offset in rows], np.int64)
    assert live.keys(places).tolist() == [
        -1
        if fragments[slot] < 0 or offset in deleted.get(fragments[slot], ())
        else fragments[slot] << OFFSET_BITS | offset
        for slot, offset in rows
    ]


def test_equal_lists_have_no_imbalance() -> None:
    assert imbalance(np.array([5, 5, 5])) == 1.0
    assert imbalance(np.array([15, 0, 0])) == pytest.approx(3.0)
    assert imbalance(np.array([0, 0])) == 1.0
