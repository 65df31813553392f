"""Statistics that lancestat wrote are taken out of real tables; nothing else is touched."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lancestat import Project
from lancestat.errors import NodesFailed
from lancestat.tables.unpublish import UnpublishResult
from lancestat.tables.wire import published_entries
from tests.faults.disks import namespace
from tests.runs.world import orders, write_project
from tests.tables.races import during_commit

STATISTICS = "lance.stats."
USERS = {"user.key": "v", "lance.other": "9", "lancestat.note": "n"}
# What the connector's ANALYZE TABLE leaves of a table that lancestat has published: its own header
# and columns, and the marks that are lancestat's alone.
OF_OTHERS = {
    "lance.stats.version": "1",
    "lance.stats.computedAtVersion": "4",
    "lance.stats.computedAt": "2026-01-01T00:00:00Z",
    "lance.stats.numRows": "3",
    "lance.stats.column.o_id.version": "2",
    "lance.stats.column.o_id.distinctCount": "3",
}
MARKS = {"lance.stats.writer", "lance.stats.newestFragment"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project of two tables with foreign properties, whose statistics are published."""
    write_project(tmp_path, "orders", "returns")
    for name in ("orders", "returns"):
        uri = str(tmp_path / f"{name}.lance")
        lance.write_dataset(orders(0, 50), uri, max_rows_per_file=25)
        lance.dataset(uri).update_config(USERS)
    assert Project.load(tmp_path).run().status == "success"
    return tmp_path


def dataset(folder: Path, name: str = "orders") -> lance.LanceDataset:
    return lance.dataset(str(folder / f"{name}.lance"))


def entries(folder: Path, name: str = "orders") -> dict[str, str]:
    return published_entries(dataset(folder, name).config())


def unpublish(folder: Path, *select: str, dry_run: bool = False) -> UnpublishResult:
    return Project.load(folder).unpublish(list(select) or None, dry_run=dry_run)


def outcome(result: UnpublishResult) -> dict[str, tuple[str, str | None]]:
    return {node.name: (node.action, node.reason and node.reason.value) for node in result.nodes}


def set_entries(folder: Path, entries: dict[str, str | None]) -> None:
    """Replace what is published as another program would, in one commit."""
    now = dataset(folder)
    gone = {key: None for key in published_entries(now.config()) if key not in entries}
    update = lance.LanceOperation.UpdateMap({**gone, **entries}, False)
    operation = lance.LanceOperation.UpdateConfig(config_updates=update)
    lance.LanceDataset.commit(now.uri, operation, read_version=now.version)


def append(folder: Path) -> None:
    lance.write_dataset(orders(50, 5), str(folder / "orders.lance"), mode="append")


def test_entries_go_in_one_commit_that_changes_nothing_else(folder: Path) -> None:
    before = dataset(folder)
    rows, version, count = before.to_table(), before.version, len(entries(folder))
    result = unpublish(folder, "orders")
    after = dataset(folder)
    assert after.version == version + 1
    assert after.config() == USERS
    assert after.schema.equals(before.schema, check_metadata=True)
    assert after.to_table().equals(rows)
    assert [node.to_json() for node in result.nodes] == [
        {
            "name": "orders",
            "kind": "table",
            "action": "unpublish",
            "reasons": ["published"],
            "status": "success",
            "publish": "manifest",
            "columns": 3,
            "entries": count,
            "unknown_entries": [],
            "version_read": version,
            "version_committed": version + 1,
            "elapsed_seconds": result.nodes[0].elapsed_seconds,
            "message": None,
            "code": None,
            "hint": None,
            "location": None,
        }
    ]
    assert result.status == "success"
    properties = after.read_transaction(after.version).transaction_properties
    assert properties["__lance_commit_message"].endswith(": statistics removed")
    assert entries(folder, "returns"), "the other table was not selected"


def test_the_next_run_publishes_the_same_again_without_reading(folder: Path) -> None:
    published = fingerprintless(entries(folder))
    unpublish(folder)
    assert not entries(folder) and not entries(folder, "returns")
    result = Project.load(folder).run()
    assert result.status == "success"
    assert [node.reasons for node in result.nodes] == [("publish_missing",)] * 2
    assert [node.fragments_scanned for node in result.nodes] == [0, 0]
    assert fingerprintless(entries(folder)) == published


def fingerprintless(entries: dict[str, str]) -> dict[str, str]:
    """Return entries about rows."""
    return {key: text for key, text in entries.items() if ".column." in key or "Rows" in key}


def test_a_dry_run_commits_nothing(folder: Path) -> None:
    version, published = dataset(folder).version, entries(folder)
    result = unpublish(folder, dry_run=True)
    assert outcome(result) == dict.fromkeys(("orders", "returns"), ("unpublish", "published"))
    assert (result.status, result.nodes[0].entries) == ("planned", len(published))
    assert result.nodes[0].version_committed is None
    assert (dataset(folder).version, entries(folder)) == (version, published)


def test_neither_the_state_nor_a_commit_is_needed_for_a_table_without_entries(folder: Path) -> None:
    shutil.rmtree(folder / "state")
    unpublish(folder)
    version = dataset(folder).version
    assert outcome(unpublish(folder)) == dict.fromkeys(("orders", "returns"), ("skip", "absent"))
    assert dataset(folder).version == version
    assert not (folder / "state").exists()


def test_what_was_published_before_publish_none_goes_for_good(folder: Path) -> None:
    yml = folder / "specs" / "shop.yml"
    yml.write_text(yml.read_text().replace("orders.lance", "orders.lance, publish: none"))
    project = Project.load(folder)
    project.run()
    assert entries(folder)
    [node, _] = project.unpublish().nodes
    assert not node.is_published_again
    project.run()
    assert not entries(folder)
    assert Project.load(folder).show("orders").use


def test_statistics_of_another_writer_stay_and_marks_beside_them_go(folder: Path) -> None:
    marks = {key: text for key, text in entries(folder).items() if key in MARKS}
    assert marks.keys() == MARKS
    set_entries(folder, OF_OTHERS)
    version = dataset(folder).version
    assert outcome(unpublish(folder, "orders")) == {"orders": ("skip", "other_writer")}
    assert (dataset(folder).version, entries(folder)) == (version, OF_OTHERS)

    set_entries(folder, {**OF_OTHERS, **marks})
    result = unpublish(folder, "orders")
    assert outcome(result) == {"orders": ("unpublish", "other_writer")}
    assert (result.nodes[0].entries, result.nodes[0].columns) == (2, 0)
    assert entries(folder) == OF_OTHERS


@pytest.mark.parametrize(
    ("altered", "reason"),
    [
        ({"lance.stats.version": "2", "lance.stats.writer": "lancestat/99@{tag}"}, "newer_release"),
        ({"lance.stats.version": "2", "lance.stats.writer": "else/1"}, "other_writer"),
    ],
)
def test_entries_in_an_unknown_format_stay(
    folder: Path, altered: dict[str, str], reason: str
) -> None:
    published = entries(folder)
    tag = published["lance.stats.computedAtVersion"]
    written = {key: text.format(tag=tag) for key, text in altered.items()}
    if reason == "other_writer":
        del published["lance.stats.newestFragment"]
        written["lance.stats.computedAtVersion"] = "77"
    set_entries(folder, {**published, **written})
    before = entries(folder)
    unpublish(folder, "orders")
    result = unpublish(folder, "orders")
    assert outcome(result) == {"orders": ("skip", reason)}
    kept = {key: text for key, text in before.items() if key not in MARKS}
    assert kept.items() <= entries(folder).items()


def test_what_a_later_revision_wrote_in_the_known_format_goes(folder: Path) -> None:
    published = entries(folder)
    tag = published["lance.stats.computedAtVersion"]
    set_entries(folder, {**published, "lance.stats.writer": f"lancestat/99@{tag}"})
    assert outcome(unpublish(folder, "orders")) == {"orders": ("unpublish", "published")}
    assert not entries(folder)


@pytest.mark.parametrize(
    "altered",
    [
        {"lance.stats.column.o_id.max": "7"},
        {"lance.stats.complete": None},
        {"lance.stats.version": "seven"},
        {"lance.stats.column.added.histogram": "h", "lance.stats.column.o_id.version": "3"},
        {"lance.stats.note": "n"},
    ],
    ids=str,
)
def test_entries_that_were_altered_since_go_with_the_rest(
    folder: Path, altered: dict[str, str | None]
) -> None:
    set_entries(folder, {**entries(folder), **altered})
    [node] = unpublish(folder, "orders", dry_run=True).nodes
    assert node.unknown == tuple(key for key in altered if key.endswith((".note", ".histogram")))
    unpublish(folder, "orders")
    assert dataset(folder).config() == USERS


def test_a_racing_append_keeps_its_rows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    during_commit(monkeypatch, lambda: append(folder))
    result = unpublish(folder, "orders")
    assert outcome(result) == {"orders": ("unpublish", "published")}
    assert result.nodes[0].version_committed == dataset(folder).version
    assert (dataset(folder).count_rows(), entries(folder)) == (55, {})


def test_entries_that_a_racing_restore_brings_back_go_too(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = dataset(folder).version
    append(folder)

    def restore() -> None:
        lance.dataset(str(folder / "orders.lance"), version=version).restore()

    during_commit(monkeypatch, restore)
    assert unpublish(folder, "orders").status == "success"
    assert (dataset(folder).count_rows(), entries(folder)) == (50, {})


def test_another_writer_that_publishes_meanwhile_keeps_its_statistics(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def analyze() -> None:
        monkeypatch.undo()
        set_entries(folder, OF_OTHERS)

    during_commit(monkeypatch, analyze)
    assert outcome(unpublish(folder, "orders")) == {"orders": ("skip", "other_writer")}
    assert entries(folder) == OF_OTHERS


@pytest.mark.parametrize("appends", [0, 1, 5])
def test_a_table_made_anew_meanwhile_keeps_its_entries(
    folder: Path, monkeypatch: pytest.MonkeyPatch, appends: int
) -> None:
    """With one append the new table is at the version that was read: the removal lands in it.

    Without any that version is missing, which Lance refuses.
    """
    uri = str(folder / "orders.lance")
    read = dataset(folder).version

    def make_anew() -> None:
        monkeypatch.undo()
        shutil.rmtree(uri)
        lance.write_dataset(pa.table({"o_id": [1, 2, 3]}), uri)
        set_entries(folder, {**OF_OTHERS, **USERS})
        for _ in range(appends):
            lance.write_dataset(pa.table({"o_id": [1, 2, 3]}), uri, mode="append")
        assert (dataset(folder).version == read) == (appends == 1)

    during_commit(monkeypatch, make_anew)
    result = unpublish(folder, "orders")
    if appends:
        assert outcome(result) == {"orders": ("skip", "other_writer")}
    else:
        assert result.nodes[0].error is not None
        assert result.nodes[0].error.code == "LS603"
    assert dataset(folder).config() == {**OF_OTHERS, **USERS}


def test_a_table_that_changes_at_every_attempt_is_a_failure_that_changes_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = entries(folder)
    commit = lance.LanceDataset.commit

    def late(*args: object, **options: object) -> object:
        raise OSError("Retryable commit conflict for version 9: another writer was faster")

    monkeypatch.setattr(lance.LanceDataset, "commit", staticmethod(late))
    result = unpublish(folder, "orders")
    monkeypatch.setattr(lance.LanceDataset, "commit", staticmethod(commit))
    assert result.status == "error"
    assert result.nodes[0].to_json()["code"] == "LS604"
    assert entries(folder) == published


def test_a_missing_table_does_not_stop_others(folder: Path) -> None:
    lance.LanceDataset.drop(str(folder / "returns.lance"), {})
    result = unpublish(folder)
    assert result.status == "error"
    assert outcome(result) == {"orders": ("unpublish", "published"), "returns": ("blocked", None)}
    failed = result.nodes[1].to_json()
    place = {"file": "specs/shop.yml", "line": 3, "column": 12}
    assert (failed["status"], failed["code"], failed["location"]) == ("error", "LS201", place)
    [failure] = result.failures
    assert (failure.node, failure.code, str(failure.location)) == (
        "returns",
        "LS201",
        "specs/shop.yml:3:12",
    )
    assert not result.ok
    with pytest.raises(NodesFailed, match=r"1 of 2 nodes failed\n +returns: LS201  there is no"):
        result.raise_for_status()
    assert not entries(folder)


@pytest.mark.fault
def test_a_table_on_a_read_only_disk_keeps_its_entries(folder: Path) -> None:
    command = namespace()
    assert command is not None, "this system lets nobody mount in a namespace of his own"
    script = (
        f"mount --bind {folder}/orders.lance {folder}/orders.lance && "
        f"mount -o remount,bind,ro {folder}/orders.lance && "
        f"exec {sys.executable} -m lancestat --project-dir {folder} unpublish --output json"
    )
    ended = subprocess.run(
        [*command, "sh", "-c", script], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1, ended.stderr
    failed, done = json.loads(ended.stdout)["nodes"]
    assert (failed["name"], failed["code"], done["status"]) == ("orders", "LS603", "success")
    assert "statistics were not removed from" in failed["message"]
    assert "Read-only file system" in failed["message"]
    assert entries(folder) and not entries(folder, "returns")


def test_a_join_is_left_as_it_is(folder: Path) -> None:
    text = (
        "knn_joins: [{name: near, left: {lance: a.lance, vector: v, select: [id]},"
        " right: {lance: b.lance, vector: v, select: [id]}, k: 1, output: {lance: o.lance}}]\n"
    )
    (folder / "specs" / "joins.yml").write_text(text)
    result = unpublish(folder)
    assert outcome(result)["near"] == ("skip", "not_a_table")
    assert result.status == "success"
    assert not (folder / "o.lance").exists()
