"""Results that are Lance datasets."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from lancestat.errors import LakeError, OutputOccupied, RunError, StaleBase
from lancestat.joins.output import lance_output
from lancestat.joins.output.lance_output import LanceOutput
from lancestat.joins.output.result import Output, output_at, output_of
from lancestat.joins.output.writer import OutputWriter, Written
from lancestat.joins.record import OutputFormat, OutputState
from lancestat.lake.files import Process, this_process
from tests.examples import sample
from tests.integration.object_store import SECRET_KEY, ObjectStore
from tests.joins.output.test_result import refusal
from tests.joins.search.results import (
    NO_LINES,
    SCHEMA,
    add,
    alter,
    files_below,
    put,
    rows,
    seen,
    table,
    write,
)

ROOT = Path(__file__).parents[3]
LANCE = OutputFormat.LANCE


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "similar.lance")


def now(uri: str) -> OutputState:
    state = output_at(LANCE, uri, {}).current()
    assert state is not None
    return state


def test_each_result_is_one_commit_with_a_message_and_that_of_an_update_is_marked(uri: str) -> None:
    put(LANCE, uri, [rows(0, 3)], [rows(3, 5)])
    add(LANCE, uri, [rows(5, 6)])
    put(LANCE, uri, [rows(0, 1)])
    dataset = lance.dataset(uri)
    messages, counts = [], []
    for version in (1, 2, 3, 4):
        counts.append(dataset.checkout_version(version).count_rows())
        properties = dataset.read_transaction(version).transaction_properties
        messages.append(properties["__lance_commit_message"].partition(": ")[2])
        assert properties["lancestat.run"] == "run"
    result = "result of a KNN join"
    assert messages == [result, result, "mark of the result of a KNN join", result]
    assert counts == [5, 6, 6, 1]


def test_the_config_and_earlier_versions_are_kept(uri: str) -> None:
    put(LANCE, uri, [rows(0, 3)])
    lance.dataset(uri).update_config({"owner": "shop"})
    put(LANCE, uri, [rows(3, 5)])
    assert lance.dataset(uri).config() == {"owner": "shop"}
    assert lance.dataset(uri, version=1).count_rows() == 3


def publish(dataset: lance.LanceDataset) -> None:
    dataset.update_config({"lance.stats.version": "1", "lance.stats.numRows": "20"})


def index(dataset: lance.LanceDataset) -> None:
    dataset.create_scalar_index("id", "BTREE")


@pytest.mark.parametrize("change", [publish, index])
def test_commits_that_keep_rows_keep_the_digest(
    uri: str, change: Callable[[lance.LanceDataset], object]
) -> None:
    before = put(LANCE, uri, [rows(0, 20)])
    change(lance.dataset(uri))
    after = now(uri)
    assert after.digest == before.digest
    assert after.version == 2
    add(LANCE, uri, [rows(20, 25)])
    assert seen(LANCE, uri) == table(rows(0, 25))
    assert lance.dataset(uri).to_table(filter="id = 22").num_rows == 1


def test_new_rows_are_not_in_fragments_that_an_index_covers(uri: str) -> None:
    """Those that were removed had the highest id, which the index remembers."""
    put(LANCE, uri, [rows(0, 3)], [rows(3, 5)])
    index(lance.dataset(uri))
    alter(LANCE, uri, [3, 4])
    add(LANCE, uri, [rows(5, 7)])
    dataset = lance.dataset(uri)
    found = [dataset.count_rows(filter=f"id = {id}") for id in range(7)]
    assert found == [1, 1, 1, 0, 0, 1, 1]


@pytest.mark.parametrize(
    ("live", "physical", "first"),
    [
        ([], [], 0),
        ([9], [9], 1),
        ([9, 1, 1, 1], [9, 1, 1, 1], 4),
        # Four are small and at the end.
        ([9, 1, 1, 1, 1], [9, 1, 1, 1, 1], 1),
        ([1, 1, 1, 1, 9], [1, 1, 1, 1, 9], 5),
        ([1, 1, 0, 1], [1, 1, 9, 1], 4),
        # Those before are too many rows.
        ([7] * 7, [7] * 7, 2),
        # Half of the rows are deleted, and more.
        ([9, 4, 4], [9, 4, 13], 3),
        ([9, 4, 4], [9, 5, 21], 1),
        ([0, 9, 4], [99, 9, 4], 3),
        ([0, 0], [9, 9], 2),
    ],
)
def test_small_fragments_and_deleted_rows_are_written_anew(
    monkeypatch: pytest.MonkeyPatch, live: list[int], physical: list[int], first: int
) -> None:
    bound(monkeypatch)
    found = lance_output.first_rewritten(np.array(live, np.int64), np.array(physical, np.int64))
    assert found == first


def bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to three small fragments, of fewer than 8 rows, may be at the end of a result."""
    for name, value in (("_MOST_SMALL", 3), ("_FULL_ROWS", 8), ("_MOST_REWRITTEN", 40)):
        monkeypatch.setattr(lance_output, name, value)


@pytest.mark.parametrize("seed", sample(range(6), 2))
def test_a_result_does_not_grow_with_its_updates(
    uri: str, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    bound(monkeypatch)
    chosen, ids = random.Random(seed), list(range(40))
    put(LANCE, uri, [rows(0, 20)], [rows(20, 40)])
    for step in range(1, 40):
        lines = sorted(chosen.sample(range(len(ids)), chosen.randrange(0, 3)))
        firsts = [100 * step + part for part in range(chosen.choice([1, 1, 2]))]
        new = [rows(id, id + 1) for id in firsts]
        state = alter(LANCE, uri, lines, *([part] for part in new))
        ids = [id for line, id in enumerate(ids) if line not in lines]
        ids += firsts
        assert seen(LANCE, uri)["id"].to_pylist() == ids
        assert state == now(uri) and state.rows == len(ids)
        parts = lance.dataset(uri).get_fragments()
        physical = sum(part.physical_rows for part in parts)
        assert physical <= 2 * len(ids), step
        assert len(parts) <= physical // 8 + 3 + len(new), step


def compact(dataset: lance.LanceDataset) -> None:
    dataset.optimize.compact_files()


def move(dataset: lance.LanceDataset) -> None:
    """Lance puts what it compacts behind the other fragments."""
    dataset.optimize.compact_files(target_rows_per_fragment=4)
    moved = lance.dataset(dataset.uri).to_table()["id"].to_pylist()
    assert moved == [*range(10), *range(14, 20), *range(10, 14)]


def forget_history(dataset: lance.LanceDataset) -> None:
    dataset.cleanup_old_versions(older_than=timedelta(0))


def restore(dataset: lance.LanceDataset) -> None:
    put(LANCE, dataset.uri, [rows(30, 35)])
    lance.dataset(dataset.uri, version=1).restore()


@pytest.mark.parametrize(
    ("changes", "is_same"),
    [
        ([publish, forget_history], True),
        ([restore], True),
        ([compact], True),
        ([publish, compact, index, publish], True),
        ([move], False),
        ([publish, move, compact], False),
    ],
)
def test_a_result_is_recognized_after_what_keeps_its_rows_in_order(
    uri: str, changes: list[Callable[[lance.LanceDataset], object]], is_same: bool
) -> None:
    before = put(LANCE, uri, [rows(0, 10)], [rows(10, 12)], [rows(12, 14)], [rows(14, 20)])
    for change in changes:
        change(lance.dataset(uri))
    assert (now(uri).digest == before.digest) == is_same
    writer = output_at(LANCE, uri, {}).begin("run")
    written = write(writer, [rows(20, 25)])
    if is_same:
        output_of(writer).update(writer, SCHEMA, before, np.array([3, 19]), written)
        assert seen(LANCE, uri)["id"].to_pylist() == [0, 1, 2, *range(4, 19), *range(20, 25)]
    else:
        with pytest.raises(StaleBase):
            output_of(writer).update(writer, SCHEMA, before, NO_LINES, written)
    put(LANCE, uri, [rows(0, 4)])
    assert seen(LANCE, uri) == table(rows(0, 4))


def test_a_compacted_result_without_history_proves_nothing(uri: str) -> None:
    put(LANCE, uri, [rows(0, 10)], [rows(10, 20)])
    compact(lance.dataset(uri))
    forget_history(lance.dataset(uri))
    assert refusal(LANCE, uri).code == "LS570"
    assert seen(LANCE, uri) == table(rows(0, 20))


@pytest.mark.parametrize("mode", ["create", "overwrite", "append"])
def test_a_table_that_replaced_a_result_is_not_a_result(uri: str, mode: str) -> None:
    put(LANCE, uri, [rows(0, 3)])
    mine = lance.dataset(uri).to_table()
    if mode == "create":
        shutil.rmtree(uri)
    lance.write_dataset(mine, uri, mode=mode)
    assert refusal(LANCE, uri).code == "LS570"


def test_a_commit_during_the_replacement_of_a_result_is_detected(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lance rebases an Overwrite over all commits in between."""
    put(LANCE, uri, [rows(0, 3)])
    writer = output_at(LANCE, uri, {}).begin("run")
    written = write(writer, [rows(3, 5)])
    look = LanceOutput.opened

    def look_and_be_late(self: LanceOutput) -> lance.LanceDataset | None:
        outcome = look(self)
        lance.write_dataset(table(rows(7, 8)), uri, mode="append")
        monkeypatch.undo()
        return outcome

    monkeypatch.setattr(LanceOutput, "opened", look_and_be_late)
    with pytest.raises(RunError) as caught:
        output_of(writer).replace(writer, SCHEMA, written)
    assert caught.value.code == "LS570"
    assert seen(LANCE, uri)["id"].to_pylist() == [0, 1, 2, 7]


@pytest.mark.parametrize("how", ["replace", "append"])
def test_a_table_that_replaced_a_result_before_the_commit_is_restored(
    uri: str, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """It has the expected version number, or the rows that Lance requires of a Merge."""
    previous = put(LANCE, uri, [rows(0, 3)])
    writer = output_at(LANCE, uri, {}).begin("run")
    written = write(writer, [rows(3, 5)])
    mine = table(rows(90, 93))
    commit = lance.LanceDataset.commit

    def commit_too_late(*arguments: Any, **options: Any) -> lance.LanceDataset:
        monkeypatch.undo()
        shutil.rmtree(uri)
        lance.write_dataset(mine, uri)
        return commit(*arguments, **options)

    monkeypatch.setattr(lance.LanceDataset, "commit", commit_too_late)
    with pytest.raises(RunError) as caught:
        if how == "replace":
            output_of(writer).replace(writer, SCHEMA, written)
        else:
            output_of(writer).update(writer, SCHEMA, previous, NO_LINES, written)
    assert caught.value.code == "LS570"
    assert lance.dataset(uri).to_table() == mine


def test_the_order_of_fragments_affects_the_digest(uri: str) -> None:
    digests = []
    for order in ((0, 1), (1, 0)):
        writer = output_at(LANCE, uri, {}).begin("run")
        written = write(writer, [rows(0, 3)], [rows(3, 6)])
        state = output_of(writer).replace(writer, SCHEMA, [written[position] for position in order])
        digests.append(state.digest)
    assert digests[0] != digests[1]


def test_a_damaged_dataset_is_reported_and_not_changed(uri: str) -> None:
    put(LANCE, uri, [rows(0, 3)])
    [manifest] = Path(uri).glob("_versions/*.manifest")
    manifest.write_bytes(b"x")
    for action in (
        lambda: output_at(LANCE, uri, {}).current(),
        lambda: output_at(LANCE, uri, {}).begin("run"),
    ):
        with pytest.raises(LakeError) as caught:
            action()
        assert caught.value.code == "LS204"


def test_concurrent_appends_never_repeat_rows(uri: str) -> None:
    """Runs of one join that start together find the same new rows: one of them wins."""
    previous = put(LANCE, uri, [rows(0, 3)])
    for round in range(5):
        output = output_at(LANCE, uri, {})
        writers = [output.begin(f"run {number}") for number in range(3)]
        first = previous.rows
        written = [write(writer, [rows(first, first + 2)]) for writer in writers]
        start = threading.Barrier(3)

        def commit(
            number: int,
            writers: list[OutputWriter] = writers,
            written: list[list[Written]] = written,
            previous: OutputState = previous,
            start: threading.Barrier = start,
            output: Output = output,
        ) -> OutputState | None:
            start.wait()
            try:
                return output.update(writers[number], SCHEMA, previous, NO_LINES, written[number])
            except StaleBase:
                output.discard(writers[number])
                return None

        with ThreadPoolExecutor(3) as pool:
            landed = [state for state in pool.map(commit, range(3)) if state is not None]
        assert len(landed) == 1
        [previous] = landed
        assert previous == now(uri), round
        assert seen(LANCE, uri) == table(rows(0, first + 2))


def test_concurrent_first_results_leave_one_whole_result(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each finds no dataset when it begins, and one of another process when it writes."""
    put(LANCE, uri, [rows(0, 3)])
    with monkeypatch.context() as patch:
        patch.setattr(LanceOutput, "opened", lambda self: None)
        patch.setattr(LanceOutput, "require_nothing", lambda self: None)
        writer = output_at(LANCE, uri, {}).begin("run")
        written = write(writer, [rows(3, 5), rows(5, 6)], [])
    output_of(writer).replace(writer, SCHEMA, written)
    assert seen(LANCE, uri) == table(rows(3, 6))


WRITER = """
import sys
from lancestat.joins.record import OutputFormat
from tests.joins.search.results import add, put, rows

uri = sys.argv[1]
print("ready", flush=True)
number = 0
while True:
    tag = f"{number}-"
    put(OutputFormat.LANCE, uri, [rows(0, 20, tag)], [rows(20, 40, tag)])
    add(OutputFormat.LANCE, uri, [rows(40, 50, tag)], [rows(50, 60, tag)])
    number += 1
"""


@pytest.mark.fault
@pytest.mark.parametrize("seed", sample(range(6), 2))
def test_a_writer_killed_at_a_random_moment_leaves_a_whole_result(uri: str, seed: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, uri],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(random.Random(seed).uniform(0, 0.5))
        process.send_signal(signal.SIGKILL)
    state = output_at(LANCE, uri, {}).current()
    if state is not None:
        visible = seen(LANCE, uri)
        [tag] = {name.partition("-")[0] for name in visible["name"].to_pylist()}
        assert visible.num_rows in (40, 60)
        assert visible == table(rows(0, visible.num_rows, f"{tag}-"))
    put(LANCE, uri, [rows(0, 3)])
    assert seen(LANCE, uri) == table(rows(0, 3))


def data_files(uri: str) -> set[str]:
    return {path.name for path in Path(uri, "data").glob("*")}


def test_unreported_files_of_a_failed_job_are_removed(uri: str) -> None:
    state = put(LANCE, uri, [rows(0, 3)])
    before = files_below(Path(uri))
    writer = output_at(LANCE, uri, {}).begin("run")
    write(writer, [rows(3, 5)], [rows(5, 6)])
    output_of(writer).discard(writer)
    assert files_below(Path(uri)) == before
    assert now(uri) == state


def test_files_of_unused_attempts_are_removed(uri: str) -> None:
    writer = output_at(LANCE, uri, {}).begin("run")
    output_of(writer).write(writer, 0, SCHEMA, [rows(0, 3)])
    taken = output_of(writer).write(writer, 0, SCHEMA, [rows(0, 3)])
    output_of(writer).replace(writer, SCHEMA, [taken])
    assert len(data_files(uri)) == 1
    assert not Path(uri, "_lancestat").exists()


def test_a_dataset_created_meanwhile_keeps_none_of_the_files(uri: str) -> None:
    writer = output_at(LANCE, uri, {}).begin("run")
    write(writer, [rows(0, 3)])
    lance.write_dataset(pa.table({"x": [1]}), uri)
    output_of(writer).discard(writer)
    assert len(data_files(uri)) == 1
    assert lance.dataset(uri).to_table() == pa.table({"x": [1]})


GONE = replace(this_process(), started=1)
ELSEWHERE = Process("another host", 1, 1)


def test_files_of_a_killed_run_are_removed_by_the_next(uri: str) -> None:
    state = put(LANCE, uri, [rows(0, 3)])
    before = data_files(uri)
    dead = replace(output_at(LANCE, uri, {}).begin("run"), owner=GONE)
    write(dead, [rows(3, 5)])
    left = data_files(uri) - before
    far = replace(output_at(LANCE, uri, {}).begin("run"), owner=ELSEWHERE)
    written = write(far, [rows(5, 7)])
    assert left
    assert not left & data_files(uri), "removed by the run that came after it"
    alive = output_at(LANCE, uri, {}).begin("run")
    assert now(uri) == state
    output_of(alive).replace(alive, SCHEMA, write(alive, [rows(7, 8)]))
    output_of(far).replace(far, SCHEMA, written)
    assert seen(LANCE, uri) == table(rows(5, 7))
    assert not Path(uri, "_lancestat").exists()


KILLED_BEFORE_AN_INTENT = """
import os, pathlib, signal, sys
from lancestat.joins.record import OutputFormat
from lancestat.joins.output import lance_output
from tests.joins.search.results import SCHEMA, rows

output = lance_output.LanceOutput(sys.argv[1], {})
writer = output.begin("run")
pathlib.Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
output.write(writer, 0, SCHEMA, [rows(3, 5)])
"""


@pytest.mark.fault
def test_drafts_of_a_run_killed_before_its_first_intent_are_removed(uri: str) -> None:
    put(LANCE, uri, [rows(0, 3)])
    command = [sys.executable, "-c", KILLED_BEFORE_AN_INTENT, uri]
    killed = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert len(list(Path(uri, "_lancestat").rglob("*.json.draft-*"))) == 1
    output_at(LANCE, uri, {}).collect_garbage()
    assert not Path(uri, "_lancestat").exists()
    assert seen(LANCE, uri) == table(rows(0, 3))


def test_committed_files_of_a_killed_run_are_kept(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in versions that are no longer the latest."""
    dead = replace(output_at(LANCE, uri, {}).begin("run"), owner=GONE)
    written = write(dead, [rows(0, 3)])
    with monkeypatch.context() as patch:
        patch.setattr(LanceOutput, "discard", lambda self, writer: None)
        output_of(dead).replace(dead, SCHEMA, written)
    with monkeypatch.context() as patch:
        patch.setattr(LanceOutput, "all_intents", lambda self: ())
        put(LANCE, uri, [rows(3, 5)])
    assert Path(uri, "_lancestat").exists()
    output_at(LANCE, uri, {}).begin("run")
    assert not Path(uri, "_lancestat").exists()
    assert lance.dataset(uri, version=1).to_table().num_rows == 3
    assert seen(LANCE, uri) == table(rows(3, 5))


def test_an_unreadable_intent_is_kept(uri: str) -> None:
    put(LANCE, uri, [rows(0, 3)])
    broken = Path(uri, "_lancestat", "0123", "000000-0.json")
    broken.parent.mkdir(parents=True)
    broken.write_text("{")
    put(LANCE, uri, [rows(3, 5)])
    assert broken.exists()
    assert seen(LANCE, uri) == table(rows(3, 5))


def test_a_full_disk_is_reported(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import lance.fragment

    def full(*arguments: object, **options: object) -> None:
        raise OSError("LanceError(IO): Generic LocalFileSystem error: No space left on device")

    state = put(LANCE, uri, [rows(0, 3)])
    writer = output_at(LANCE, uri, {}).begin("run")
    monkeypatch.setattr(lance.fragment, "write_fragments", full)
    with pytest.raises(RunError) as caught:
        output_of(writer).write(writer, 0, SCHEMA, [rows(0, 3)])
    assert caught.value.code == "LS571"
    assert f"no space is left at {uri}" in caught.value.message
    assert now(uri) == state


def test_pickled_writers_show_no_secrets(uri: str) -> None:
    import pickle

    writer = output_at(LANCE, uri, {"aws_secret_access_key": "hush"}).begin("run")
    assert pickle.loads(pickle.dumps(writer)) == writer
    assert "hush" not in repr(writer)


@pytest.mark.s3
def test_results_are_written_to_an_object_store(object_store: ObjectStore) -> None:
    uri, options = object_store.fresh_uri("similar.lance"), object_store.storage_options

    def objects() -> list[str]:
        from pyarrow.fs import FileSelector

        selector = FileSelector(uri.removeprefix("s3://"), recursive=True, allow_not_found=True)
        files = object_store.filesystem().get_file_info(selector)
        return [file.path for file in files if file.is_file]

    def read() -> pa.Table:
        dataset = lance.dataset(uri, storage_options=dict(options))
        return dataset.to_table().replace_schema_metadata(None)

    assert output_at(LANCE, uri, options).current() is None
    writer = output_at(LANCE, uri, options).begin("run")
    write(writer, [rows(0, 3)])
    assert output_at(LANCE, uri, options).current() is None
    output_of(writer).discard(writer)
    assert objects() == []
    put(LANCE, uri, [rows(0, 3)], [rows(3, 5)], options=options)
    state = output_at(LANCE, uri, options).current()
    assert state is not None
    assert read() == table(rows(0, 5))
    assert not any("_lancestat" in path for path in objects())
    writer = output_at(LANCE, uri, options).begin("run")
    state = output_of(writer).update(writer, SCHEMA, state, NO_LINES, write(writer, [rows(5, 8)]))
    assert read() == table(rows(0, 8))
    assert output_at(LANCE, uri, options).current() == state


@pytest.mark.s3
def test_a_table_in_an_object_store_that_is_not_a_result_is_refused(
    object_store: ObjectStore,
) -> None:
    options = object_store.storage_options
    uri = object_store.fresh_uri("notes")
    with object_store.filesystem().open_output_stream(f"{uri[5:]}/notes.txt") as stream:
        stream.write(b"mine")
    table_uri = object_store.fresh_uri("table.lance")
    lance.write_dataset(pa.table({"x": [1]}), table_uri, storage_options=dict(options))
    for place in (uri, table_uri):
        with pytest.raises(RunError) as caught:
            output_at(LANCE, place, options).begin("run")
        assert caught.value.code == "LS570"
    wrong = {**options, "aws_secret_access_key": "wrong"}
    with pytest.raises(LakeError) as denied:
        output_at(LANCE, uri, wrong).begin("run")
    assert denied.value.code == "LS202"
    assert SECRET_KEY not in str(denied.value)


HOUR = timedelta(hours=1)


def remove(uri: str, keep: int | timedelta, *, later: timedelta = HOUR) -> int:
    return LanceOutput(uri, {}).remove_past(keep, datetime.now(timezone.utc) + later)


def versions(uri: str) -> list[int]:
    return [version["version"] for version in lance.dataset(uri).versions()]


def test_the_newest_results_are_kept_with_their_files(uri: str) -> None:
    for number in range(5):
        put(LANCE, uri, [rows(number, number + 1)])
    assert remove(uri, 6) == remove(uri, 5) == 0
    assert remove(uri, 2) == 3
    assert versions(uri) == [4, 5]
    assert seen(LANCE, uri).equals(table(rows(4, 5)))
    assert lance.dataset(uri, version=4).count_rows() == 1
    data = [name for name in files_below(Path(uri)) if name.startswith("data/")]
    assert len(data) == 2


def test_versions_since_a_kept_result_are_kept(uri: str) -> None:
    """Published statistics are versions, too, which prove that the result is still the join's."""
    put(LANCE, uri, [rows(0, 1)])
    put(LANCE, uri, [rows(1, 2)])
    lance.dataset(uri).update_config({"lance.stats.x": "1"})
    lance.dataset(uri).update_config({"lance.stats.x": "2"})
    assert remove(uri, 1) == 1
    assert versions(uri) == [2, 3, 4]
    assert output_at(LANCE, uri, {}).current() is not None
    assert remove(uri, 1) == 0


def test_an_appended_result_counts_as_one(uri: str) -> None:
    put(LANCE, uri, [rows(0, 1)])
    add(LANCE, uri, [rows(1, 2)])
    add(LANCE, uri, [rows(2, 3)])
    assert remove(uri, 2) == 1
    assert seen(LANCE, uri).equals(table(rows(0, 1), rows(1, 2), rows(2, 3)).combine_chunks())


def test_tagged_versions_are_kept(uri: str) -> None:
    for number in range(4):
        put(LANCE, uri, [rows(number, number + 1)])
    lance.dataset(uri).tags.create("audited", 2)
    assert remove(uri, 1) == 2
    assert versions(uri) == [2, 4]
    assert lance.dataset(uri, version="audited").to_table()["id"].to_pylist() == [1]


def test_results_are_kept_for_a_time_and_the_newest_for_ever(uri: str) -> None:
    for number in range(3):
        put(LANCE, uri, [rows(number, number + 1)])
    assert remove(uri, timedelta(days=7), later=timedelta(days=6)) == 0
    assert remove(uri, timedelta(days=7), later=timedelta(days=8)) == 2
    assert versions(uri) == [3]
    assert remove(uri, timedelta(days=7), later=timedelta(days=800)) == 0


def test_readers_of_what_was_just_replaced_can_finish(uri: str) -> None:
    put(LANCE, uri, [rows(0, 1)])
    put(LANCE, uri, [rows(1, 2)])
    assert remove(uri, 1, later=timedelta(minutes=14)) == 0
    assert remove(uri, 1, later=timedelta(minutes=16)) == 1


def test_a_table_that_no_join_has_written_is_left_alone(uri: str) -> None:
    for _ in range(3):
        lance.write_dataset(table(rows(0, 1)), uri, mode="overwrite")
    with pytest.raises(OutputOccupied, match="no join has written"):
        remove(uri, 1)
    assert versions(uri) == [1, 2, 3]


def test_versions_of_a_table_that_took_the_place_are_left_alone(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other table comes once the result is known to be the join's, with versions of its own."""
    for number in range(3):
        put(LANCE, uri, [rows(number, number + 1)])
    judge = lance_output.objection

    def judged_and_replaced(*arguments: Any) -> str | None:
        reason = judge(*arguments)
        shutil.rmtree(uri)
        for _ in range(4):
            lance.write_dataset(table(rows(0, 1)), uri, mode="overwrite")
        return reason

    monkeypatch.setattr(lance_output, "objection", judged_and_replaced)
    monkeypatch.setattr(lance_output, "is_result", lambda commit: True)
    with pytest.raises(LakeError):
        remove(uri, 1)
    assert versions(uri) == [1, 2, 3, 4]


def test_where_nothing_was_written_nothing_is_removed(uri: str) -> None:
    assert remove(uri, 1) == 0
