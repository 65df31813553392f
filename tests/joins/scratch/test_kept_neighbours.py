"""Kept neighbours in scratch: which pairs are read, what is damaged, and what is swept."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancestat.errors import StaleBase
from lancestat.joins.node import JoinNodes
from lancestat.joins.scratch import kept_neighbours
from lancestat.joins.scratch.garbage import ScratchGarbage
from lancestat.joins.scratch.kept_indexes import IndexStore, owner_prefix
from lancestat.joins.scratch.kept_neighbours import (
    NEIGHBOURS_MANIFEST,
    KeptArrays,
    KeptNeighbours,
    NeighboursManifest,
    NeighbourStore,
    Piece,
    neighbours_prefix,
)
from lancestat.runs.events import Event, NodeFinished
from lancestat.state.garbage import GarbageReport
from lancestat.state.values import canonical_uri
from tests.joins.joined import JoinWorld
from tests.joins.local import LocalWorld
from tests.joins.records import join_records


@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=80), st.integers(0, 60), st.integers(0, 60)
)
def test_a_span_has_all_pairs_of_its_left_rows(lefts: list[int], one: int, other: int) -> None:
    left, (low, high) = sorted(lefts), sorted((one, other))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept_neighbours, "STEP", 8)
        piece = Piece(0, len(left), tuple(left[::8]), left[-1], 0)
        start, stop = piece.span(low, high)
    wanted = [at for at, row in enumerate(left) if low <= row < high]
    assert set(wanted) <= set(range(start, stop))
    assert stop - start <= len(wanted) + 16


def folders(world: JoinWorld) -> set[str]:
    root = Path(world.scratch)
    return {str(path.relative_to(root)) for path in root.glob("neighbours/*/*")}


def collected(
    world: LocalWorld,
    minutes: int,
    *,
    since: datetime | None = None,
    dry_run: bool = False,
    kind: str = "join",
) -> int:
    now = (since or datetime.now(timezone.utc)) + timedelta(minutes=minutes)
    garbage = ScratchGarbage(IndexStore(world.scratch), now, dry_run)
    prefix = neighbours_prefix(owner_prefix(canonical_uri(world.spec.target.state)), kind)
    garbage.collect_neighbours(prefix, lambda: set(join_records(world.state)["near"].neighbours))
    return len(garbage.folders)


def test_neighbours_that_no_record_names_are_swept_after_a_while(local: LocalWorld) -> None:
    began = datetime.now(timezone.utc)
    local.settle()
    for number in (1, 4):
        lance.dataset(local.uri("r")).delete(f"id = {number}")
        local.converge()
    local.append("l", 100, 3)
    local.converge()
    named = set(join_records(local.state)["near"].neighbours)
    assert (len(named), len(folders(local)), local.scopes[-1]) == (2, 4, "new_left")
    assert collected(local, 9, since=began) == 0
    assert collected(local, 11, kind="pairs") == 0
    assert collected(local, 11, dry_run=True) == 2
    assert len(folders(local)) == 4
    assert collected(local, 11) == 2
    assert folders(local) == named
    local.append("r", 100, 3)
    local.converge()
    assert local.scopes[-1] == "new_right"


def test_what_a_run_is_writing_stays(local: LocalWorld) -> None:
    local.settle()
    [folder] = folders(local)
    with NeighbourStore(local.scratch).writing(folder.split("/")[1]):
        assert collected(local, 60) == 0
        assert len(folders(local)) == 2
    assert folders(local) == {folder}


def test_what_a_run_has_made_stays_until_it_is_recorded(local: LocalWorld) -> None:
    """A join that ends early in a long run is recorded with it, at the end."""
    left: list[int] = []

    def collect(event: Event) -> None:
        if isinstance(event, NodeFinished):
            later = datetime.now(timezone.utc) + timedelta(minutes=15)
            target = replace(
                local.spec.target,
                scratch=local.scratch,
                spark_conf={"spark.local.dir": local.scratch},
            )
            spec, nothing = replace(local.spec, target=target), GarbageReport(0, 0, 0, 0)
            JoinNodes().collect_garbage(spec, local.state, nothing, later)
            left.append(len(folders(local)))

    local.listeners = (collect,)
    local.settle()
    assert left == [1]


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format_version": 2}', None])
def test_a_manifest_that_is_damaged_is_none(local: LocalWorld, text: str | None) -> None:
    local.settle()
    [folder] = folders(local)
    path = Path(local.scratch, folder, NEIGHBOURS_MANIFEST)
    path.unlink() if text is None else path.write_text(text)
    assert NeighbourStore(local.scratch).find([folder]) is None
    lance.dataset(local.uri("r")).delete("id = 4")
    local.converge()
    assert local.scopes == ["full"]


def test_lost_files_join_in_full(local: LocalWorld) -> None:
    local.settle()
    [folder] = folders(local)
    store = NeighbourStore(local.scratch)
    kept = store.find([folder])
    assert kept is not None
    [one] = kept
    assert list(one.array("removed")) == []
    for path in Path(local.scratch, folder, "pairs.lance", "data").iterdir():
        path.unlink()
    with pytest.raises(StaleBase, match="cannot be read"):
        one.pairs(one.manifest.pieces[0], 0, 1)
    lance.dataset(local.uri("r")).delete("id = 4")
    local.converge()
    assert local.scopes == ["changed", "full"]
    assert np.all([row["_distance"] is not None for row in local.rows()])


def test_an_array_is_read_without_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = np.random.default_rng(0).integers(0, 1 << 50, 100_000)
    arrays, opened = KeptArrays(np.arange(5), many, many[:10]), []
    store = NeighbourStore(str(tmp_path))
    with store.writing("key") as draft:
        manifest = NeighboursManifest(store.clock(), (), (), (), store.write_arrays(draft, arrays))
        one = KeptNeighbours(draft.uri, manifest, {})
        plain = KeptNeighbours._opened

        def noted(*arguments: Any) -> lance.LanceDataset:
            opened.append(plain(*arguments))
            return opened[-1]

        monkeypatch.setattr(KeptNeighbours, "_opened", noted)
        read = []
        for name in KeptArrays.__slots__:
            assert np.array_equal(one.array(name), getattr(arrays, name))
            read.append(opened[-1].io_stats_incremental().read_bytes)
        with pytest.raises(StaleBase, match="cannot be read"):
            one.array("another")
    assert 0 < max(read[0], read[2]) < many.nbytes / 4 < read[1]
