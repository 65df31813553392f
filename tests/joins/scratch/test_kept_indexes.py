"""Kept indexes in scratch: published in one step, held while they are read, swept."""

from __future__ import annotations

import errno
import json
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from lancestat.errors import ScratchFull, ScratchUnusable
from lancestat.joins.scratch.folder import MARKER, encode
from lancestat.joins.scratch.garbage import ScratchGarbage
from lancestat.joins.scratch.kept_indexes import (
    IndexedFragment,
    IndexManifest,
    IndexRecord,
    IndexStore,
    KeptDataset,
    Quality,
    StoredIndex,
)
from lancestat.joins.search.work import RightContent, RightFragment
from lancestat.lake.files import FolderStorage, Process, this_process

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
QUALITY = Quality(10, 1.0, 1.0)
RECORD = IndexRecord(2, 4, (IndexedFragment("a", 10),), 1, QUALITY, QUALITY, 1, 1)
CONTENT = RightContent("mine-1", (RightFragment(0, "a", 10, 10),))


def manifest(age: int = 0) -> IndexManifest:
    rows = KeptDataset("rows.lance", 1, "m", (("data/x.lance", 3),))
    arrays = KeptDataset("arrays-1.lance", 1, "m", (("data/y.lance", 4),))
    return IndexManifest(NOW - timedelta(days=age), RECORD, rows, arrays, "digest")


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
) -> ScratchGarbage:
    usable = {"mine-1": CONTENT} if usable is None else usable
    return ScratchGarbage(store, NOW, dry_run).collect("mine-", usable)


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
    changed = RightContent("mine-1", (RightFragment(0, "b", 10, 10),))
    assert sweep(store, usable={"mine-1": changed}).indexes == 1
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
