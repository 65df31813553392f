from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path

import lance
import pytest

from lancestat.state.garbage import GarbageReport, Owner, collect_state_garbage
from lancestat.state.store import LanceState, open_state
from lancestat.state.values import NodeRun
from lancestat.tables.stored import add_partials, table_records
from tests.state.conftest import files_under, fingerprint, record, run, stored

KEPT = frozenset({"kept", "never seen"})


@pytest.fixture
def state(folder: Path) -> LanceState:
    state = open_state(str(folder))
    add_partials(state, "kept", [stored(number, x=1) for number in range(10)])
    add_partials(state, "gone", [stored(number, x=1) for number in range(30)])
    join = NodeRun("join", "knn_join", "d1", {}, None)
    state.add_run(run(1, record("kept", 1), record("gone", 1), nodes=(join,)))
    return state


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in files_under(folder)}


def test_items_that_no_declared_table_needs_are_dropped(folder: Path, state: LanceState) -> None:
    report = collect_state_garbage(state, KEPT, dry_run=False)
    assert dataclasses.replace(report, bytes=0) == GarbageReport(30, 1, 0, 0)
    assert report.bytes > 0
    for seen in (state, open_state(str(folder))):
        assert set(table_records(seen)) == {"kept"}
        assert len(seen.partial_index("kept").singles) == 10
        assert dict(seen.partial_index("gone").singles) == {}
        assert [node.node for node in seen.runs(1)[0].nodes] == ["node of kept", "join"]
    assert collect_state_garbage(state, KEPT, dry_run=False) == GarbageReport(0, 0, 0, 0)


def test_runs_of_nodes_that_a_target_no_longer_has_are_dropped(state: LanceState) -> None:
    target = state.runs(1)[0].target
    kept = ["node of kept"]
    for nodes, dropped in (([*kept, "join"], 1), (kept, 2)):
        owner = Owner("shop", target, nodes)
        report = collect_state_garbage(state, KEPT, dry_run=True, owner=owner)
        assert report.runs_dropped == dropped, "that of the table anyway"
    report = collect_state_garbage(state, KEPT, dry_run=False, owner=Owner("shop", target, kept))
    assert report.runs_dropped == 2
    assert [node.node for node in state.runs(1)[0].nodes] == ["node of kept"]


@pytest.mark.parametrize(
    ("owner", "is_kept"),
    [
        (Owner("shop", "dev", ["node of gone", "join"]), False),
        (Owner("shop", "dev", []), False),
        (Owner("shop", "prod", []), True),
        (Owner("bank", "dev", []), True),
    ],
)
def test_what_other_targets_and_projects_have_recorded_stays(
    folder: Path, owner: Owner, is_kept: bool
) -> None:
    state = open_state(str(folder))
    add_partials(state, "gone", [stored(1, x=1)])
    failed = NodeRun("join", "knn_join", "d1", {}, None)
    state.add_run(dataclasses.replace(run(1, record("gone", 1), nodes=(failed,)), project="shop"))
    report = collect_state_garbage(state, frozenset({"orders"}), dry_run=False, owner=owner)
    is_join_kept = is_kept or "join" in owner.nodes
    assert set(table_records(open_state(str(folder)))) == ({"gone"} if is_kept else set())
    assert len(state.partial_index("gone").singles) == is_kept
    assert report.runs_dropped == (not is_kept) + (not is_join_kept)


def test_a_dry_run_reports_the_same_and_changes_nothing(folder: Path, state: LanceState) -> None:
    (folder / "v2" / "runs-0.lance").mkdir()
    (folder / "v2" / "runs-0.lance" / "file").write_bytes(b"12345")
    before = contents(folder)
    expected = collect_state_garbage(state, KEPT, dry_run=True)
    assert contents(folder) == before
    assert collect_state_garbage(open_state(str(folder)), KEPT, dry_run=False) == expected
    assert expected.generations_dropped == 1


def test_superseded_and_damaged_datasets_are_dropped(folder: Path, state: LanceState) -> None:
    (folder / "v0").mkdir()
    (folder / "v0" / "notes.txt").write_text("not of the state")
    older = folder / "v2" / "partials-0.lance"
    lance.write_dataset(lance.dataset(folder / "v2" / "partials-1.lance").to_table(), older)
    damaged = folder / "v2" / "runs-1.lance"
    for manifest in damaged.glob("_versions/*.manifest"):
        manifest.write_bytes(b"garbage")
    state = open_state(str(folder))
    outlived = (older, damaged)
    size = sum(path.stat().st_size for place in outlived for path in files_under(place))
    assert collect_state_garbage(
        state, frozenset({"kept", "gone"}), dry_run=False
    ) == GarbageReport(0, 0, 2, size)
    assert not any(map(files_under, outlived))
    assert (folder / "v0" / "notes.txt").exists()
    assert len(state.partial_index("kept").singles) == 10
    state.add_run(run(2, record("kept", 2)))
    assert set(table_records(open_state(str(folder)))) == {"kept"}


def test_a_dataset_that_is_being_created_is_kept(folder: Path) -> None:
    making = folder / "v2" / "partials-1.lance" / "data"
    making.mkdir(parents=True)
    (making / "1.lance").write_bytes(b"not committed yet")
    assert collect_state_garbage(open_state(str(folder)), KEPT, dry_run=False) == GarbageReport(
        0, 0, 0, 0
    )
    assert (making / "1.lance").exists()


def test_an_empty_state_has_no_garbage(folder: Path) -> None:
    assert collect_state_garbage(open_state(str(folder)), KEPT, dry_run=False) == GarbageReport(
        0, 0, 0, 0
    )
    assert not folder.exists()


def test_a_removed_table_starts_empty(state: LanceState) -> None:
    collect_state_garbage(state, KEPT, dry_run=False)
    add_partials(state, "gone", [stored("back", x=1)])
    assert set(state.partial_index("gone").singles) == {fingerprint("back")}


KILLED_WHILE_WRITING = """
import os, signal, sys
from lance import LanceDataset
from lancestat.state.store import open_state
from lancestat.tables.stored import add_partials
from tests.state.conftest import stored

state = open_state(sys.argv[1])
add_partials(state, "t", [stored("a", x=1)])
LanceDataset.commit = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
add_partials(state, "t", [stored("b", x=1)])
"""


@pytest.mark.fault
def test_uncommitted_files_of_a_killed_writer_are_removed_when_no_writer_is_active(
    folder: Path,
) -> None:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", KILLED_WHILE_WRITING, str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    killed = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    data = folder / "v2" / "partials-1.lance" / "data"
    assert len(list(data.iterdir())) == 2
    state = open_state(str(folder))
    with state.writing():
        collect_state_garbage(state, frozenset({"t"}), dry_run=False)
        assert len(list(data.iterdir())) == 2, "it may be what this writer is about to commit"
    collect_state_garbage(state, frozenset({"t"}), dry_run=True)
    assert len(list(data.iterdir())) == 2
    collect_state_garbage(state, frozenset({"t"}), dry_run=False)
    assert len(list(data.iterdir())) == 1
    assert dict(state.partial_index("t").singles) == {fingerprint("a"): frozenset({"x"})}
    assert [path.name for path in folder.iterdir()] == ["v2"]
