"""What is peculiar to results as Lance datasets."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lancestat.errors import LakeError, RunError
from lancestat.knn import output
from lancestat.knn.work import OutputFormat, OutputState, StaleBase
from lancestat.lake.process import Process, this_process
from tests.integration.object_store import SECRET_KEY, ObjectStore, object_store
from tests.knn.results import SCHEMA, add, files_below, put, rows, seen, table, write

__all__ = ["object_store"]

ROOT = Path(__file__).parents[2]
LANCE = OutputFormat.LANCE


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "similar.lance")


def now(uri: str) -> OutputState:
    state = output.current(LANCE, uri, {})
    assert state is not None
    return state


def test_each_result_is_one_commit_that_says_what_it_is(uri: str) -> None:
    put(LANCE, uri, [rows(0, 3)], [rows(3, 5)])
    add(LANCE, uri, [rows(5, 6)])
    put(LANCE, uri, [rows(0, 1)])
    dataset = lance.dataset(uri)
    assert [version["version"] for version in dataset.versions()] == [1, 2, 3]
    for version in (1, 2, 3):
        told = dataset.read_transaction(version).transaction_properties
        assert "result of a KNN join" in told["__lance_commit_message"]
        assert told["lancestat.run"] == "run"


def test_the_config_and_earlier_versions_stay(uri: str) -> None:
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
def test_what_leaves_rows_alone_leaves_the_digest_alone(
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


def compact(dataset: lance.LanceDataset) -> None:
    dataset.optimize.compact_files()


def restore(dataset: lance.LanceDataset) -> None:
    dataset.delete("true")
    lance.dataset(dataset.uri, version=1).restore()
    lance.dataset(dataset.uri).delete("id = 3")


CHANGES: dict[str, Callable[[lance.LanceDataset], object]] = {
    "delete": lambda dataset: dataset.delete("id = 3"),
    "delete all": lambda dataset: dataset.delete("true"),
    "update": lambda dataset: dataset.update({"name": "'x'"}, where="id = 3"),
    "append": lambda dataset: lance.write_dataset(table(rows(0, 1)), dataset.uri, mode="append"),
    "drop column": lambda dataset: dataset.drop_columns(["name"]),
    "rename column": lambda dataset: dataset.alter_columns({"path": "name", "name": "title"}),
    "add column": lambda dataset: dataset.add_columns({"twice": "id * 2"}),
    "compact": compact,
    "restore": restore,
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_rows_changes_the_digest(uri: str, change: str) -> None:
    before = put(LANCE, uri, [rows(0, 10)], [rows(10, 20)])
    CHANGES[change](lance.dataset(uri))
    assert now(uri).digest != before.digest
    writer = output.begin(LANCE, uri, "run", {})
    with pytest.raises(StaleBase):
        output.append(writer, SCHEMA, before, write(writer, [rows(20, 25)]))
    put(LANCE, uri, [rows(0, 4)])
    assert seen(LANCE, uri) == table(rows(0, 4))


def test_the_order_of_fragments_counts(uri: str) -> None:
    digests = []
    for order in ((0, 1), (1, 0)):
        writer = output.begin(LANCE, uri, "run", {})
        written = write(writer, [rows(0, 3)], [rows(3, 6)])
        state = output.replace(writer, SCHEMA, [written[each] for each in order])
        digests.append(state.digest)
    assert digests[0] != digests[1]


def test_rows_that_somebody_deleted_are_not_counted(uri: str) -> None:
    put(LANCE, uri, [rows(0, 10)], [rows(10, 20)])
    lance.dataset(uri).delete("id in (3, 12)")
    expected = [number for number in range(20) if number not in (3, 12)]
    found = table(*output.read_rows(now(uri), 2, 15, {}))
    assert found["id"].to_pylist() == expected[2:15]


def test_a_result_is_read_at_its_version(uri: str) -> None:
    state = put(LANCE, uri, [rows(0, 3)])
    put(LANCE, uri, [rows(3, 9)])
    assert table(*output.read_rows(state, 0, 3, {})) == table(rows(0, 3))
    lance.dataset(uri).cleanup_old_versions(older_than=timedelta(0))
    with pytest.raises(StaleBase):
        list(output.read_rows(state, 0, 3, {}))


def test_a_copy_of_a_result_elsewhere_is_one_too(uri: str, tmp_path: Path) -> None:
    state = put(LANCE, uri, [rows(0, 3)])
    moved = str(tmp_path / "moved.lance")
    Path(uri).rename(moved)
    found = output.current(LANCE, moved, {})
    assert found is not None
    assert found.digest == state.digest


def test_a_damaged_dataset_is_told_and_left(uri: str) -> None:
    put(LANCE, uri, [rows(0, 3)])
    [manifest] = Path(uri).glob("_versions/*.manifest")
    manifest.write_bytes(b"x")
    for action in (
        lambda: output.current(LANCE, uri, {}),
        lambda: output.begin(LANCE, uri, "run", {}),
    ):
        with pytest.raises(LakeError) as caught:
            action()
        assert caught.value.code == "LS204"


def test_appends_at_once_never_repeat_rows(uri: str) -> None:
    """Runs of one join that start together find the same new rows: one of them wins."""
    previous = put(LANCE, uri, [rows(0, 3)])
    for round in range(5):
        writers = [output.begin(LANCE, uri, f"run {number}", {}) for number in range(3)]
        first = previous.rows
        written = [write(writer, [rows(first, first + 2)]) for writer in writers]
        start = threading.Barrier(3)

        def commit(
            number: int,
            writers: list[output.OutputWriter] = writers,
            written: list[list[output.Written]] = written,
            previous: OutputState = previous,
            start: threading.Barrier = start,
        ) -> OutputState | None:
            start.wait()
            try:
                return output.append(writers[number], SCHEMA, previous, written[number])
            except StaleBase:
                output.discard(writers[number], written[number])
                return None

        with ThreadPoolExecutor(3) as pool:
            landed = [state for state in pool.map(commit, range(3)) if state is not None]
        assert len(landed) == 1
        [previous] = landed
        assert previous == now(uri), round
        assert seen(LANCE, uri) == table(rows(0, first + 2))


def test_first_results_at_once_end_with_one_whole_result(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each finds no dataset when it looks, and somebody else's when it writes."""
    put(LANCE, uri, [rows(0, 3)])
    with monkeypatch.context() as patch:
        patch.setattr("lancestat.knn.lance_output._opened", lambda *place: None)
        patch.setattr("lancestat.knn.lance_output._require_nothing", lambda *place: None)
        writer = output.begin(LANCE, uri, "run", {})
        written = write(writer, [rows(3, 5), rows(5, 6)], [])
    output.replace(writer, SCHEMA, written)
    assert seen(LANCE, uri) == table(rows(3, 6))


@pytest.mark.fault
def test_readers_see_one_whole_result_while_it_is_replaced(uri: str) -> None:
    put(LANCE, uri, [rows(0, 40, "0-")], [rows(40, 80, "0-")])

    def whole(done: threading.Event) -> set[str]:
        seen_tags = set()
        while not done.is_set():
            found = seen(LANCE, uri)
            [tag] = {name.partition("-")[0] for name in found["name"].to_pylist()}
            assert found["id"].to_pylist() == list(range(80))
            seen_tags.add(tag)
        return seen_tags

    done = threading.Event()
    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(whole, done) for _ in range(2)]
        try:
            for number in range(1, 40):
                tag = f"{number}-"
                put(LANCE, uri, [rows(0, 40, tag)], [rows(40, 80, tag)])
        finally:
            done.set()
        assert all(len(reader.result()) > 3 for reader in readers)


WRITER = """
import sys
from lancestat.knn.work import OutputFormat
from tests.knn.results import add, put, rows

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
@pytest.mark.parametrize("seed", range(6))
def test_killed_at_a_random_moment(uri: str, seed: int) -> None:
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
    state = output.current(LANCE, uri, {})
    if state is not None:
        found = seen(LANCE, uri)
        [tag] = {name.partition("-")[0] for name in found["name"].to_pylist()}
        assert found.num_rows in (40, 60)
        assert found == table(rows(0, found.num_rows, f"{tag}-"))
    put(LANCE, uri, [rows(0, 3)])
    assert seen(LANCE, uri) == table(rows(0, 3))


def data_files(uri: str) -> set[str]:
    return {each.name for each in Path(uri, "data").glob("*")}


def test_what_a_failed_job_wrote_is_removed_though_nobody_reported_it(uri: str) -> None:
    state = put(LANCE, uri, [rows(0, 3)])
    before = files_below(Path(uri))
    writer = output.begin(LANCE, uri, "run", {})
    write(writer, [rows(3, 5)], [rows(5, 6)])
    output.discard(writer, [])
    assert files_below(Path(uri)) == before
    assert now(uri) == state


def test_files_of_attempts_that_were_not_taken_are_removed(uri: str) -> None:
    writer = output.begin(LANCE, uri, "run", {})
    writer.write(0, SCHEMA, [rows(0, 3)])
    taken = writer.write(0, SCHEMA, [rows(0, 3)])
    output.replace(writer, SCHEMA, [taken])
    assert len(data_files(uri)) == 1
    assert not Path(uri, "_lancestat").exists()


def test_what_came_to_the_place_meanwhile_keeps_none_of_our_files(uri: str) -> None:
    writer = output.begin(LANCE, uri, "run", {})
    written = write(writer, [rows(0, 3)])
    lance.write_dataset(pa.table({"x": [1]}), uri)
    output.discard(writer, written)
    assert len(data_files(uri)) == 1
    assert lance.dataset(uri).to_table() == pa.table({"x": [1]})


GONE = replace(this_process(), started=1)
ELSEWHERE = Process("another host", 1, 1)


def test_what_a_killed_run_wrote_is_removed_by_the_next(uri: str) -> None:
    state = put(LANCE, uri, [rows(0, 3)])
    before = data_files(uri)
    dead = replace(output.begin(LANCE, uri, "run", {}), owner=GONE)
    write(dead, [rows(3, 5)])
    left = data_files(uri) - before
    far = replace(output.begin(LANCE, uri, "run", {}), owner=ELSEWHERE)
    written = write(far, [rows(5, 7)])
    assert left
    assert not left & data_files(uri), "removed by the run that came after it"
    alive = output.begin(LANCE, uri, "run", {})
    assert now(uri) == state
    output.replace(alive, SCHEMA, write(alive, [rows(7, 8)]))
    output.replace(far, SCHEMA, written)
    assert seen(LANCE, uri) == table(rows(5, 7))
    assert not Path(uri, "_lancestat").exists()


KILLED_BEFORE_A_RECEIPT = """
import os, pathlib, signal, sys
from lancestat.knn import output
from lancestat.knn.work import OutputFormat
from tests.knn.results import SCHEMA, rows

writer = output.begin(OutputFormat.LANCE, sys.argv[1], "run", {})
pathlib.Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
writer.write(0, SCHEMA, [rows(3, 5)])
"""


@pytest.mark.fault
def test_what_a_run_left_that_was_killed_before_its_first_receipt_is_removed(uri: str) -> None:
    put(LANCE, uri, [rows(0, 3)])
    command = [sys.executable, "-c", KILLED_BEFORE_A_RECEIPT, uri]
    killed = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert len(list(Path(uri, "_lancestat").rglob("*.json.draft-*"))) == 1
    output.sweep(LANCE, uri, {})
    assert not Path(uri, "_lancestat").exists()
    assert seen(LANCE, uri) == table(rows(0, 3))


def test_what_a_run_committed_before_it_was_killed_stays(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in versions that are no longer the latest."""
    dead = replace(output.begin(LANCE, uri, "run", {}), owner=GONE)
    written = write(dead, [rows(0, 3)])
    with monkeypatch.context() as patch:
        patch.setattr("lancestat.knn.lance_output._settle", lambda writer: None)
        output.replace(dead, SCHEMA, written)
    with monkeypatch.context() as patch:
        patch.setattr("lancestat.knn.lance_output.all_receipts", lambda *place: ())
        put(LANCE, uri, [rows(3, 5)])
    assert Path(uri, "_lancestat").exists()
    output.begin(LANCE, uri, "run", {})
    assert not Path(uri, "_lancestat").exists()
    assert lance.dataset(uri, version=1).to_table().num_rows == 3
    assert seen(LANCE, uri) == table(rows(3, 5))


def test_a_receipt_that_cannot_be_understood_is_left(uri: str) -> None:
    put(LANCE, uri, [rows(0, 3)])
    broken = Path(uri, "_lancestat", "0123", "000000-0.json")
    broken.parent.mkdir(parents=True)
    broken.write_text("{")
    put(LANCE, uri, [rows(3, 5)])
    assert broken.exists()
    assert seen(LANCE, uri) == table(rows(3, 5))


def test_a_full_disk_is_told(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import lance.fragment

    def full(*arguments: object, **options: object) -> None:
        raise OSError("LanceError(IO): Generic LocalFileSystem error: No space left on device")

    state = put(LANCE, uri, [rows(0, 3)])
    writer = output.begin(LANCE, uri, "run", {})
    monkeypatch.setattr(lance.fragment, "write_fragments", full)
    with pytest.raises(RunError) as caught:
        writer.write(0, SCHEMA, [rows(0, 3)])
    assert caught.value.code == "LS571"
    assert f"no space is left at {uri}" in caught.value.message
    assert now(uri) == state


def test_writers_cross_to_workers_and_keep_secrets(uri: str) -> None:
    import pickle

    writer = output.begin(LANCE, uri, "run", {"aws_secret_access_key": "hush"})
    assert pickle.loads(pickle.dumps(writer)) == writer
    assert "hush" not in repr(writer)


@pytest.mark.s3
def test_results_in_an_object_store(object_store: ObjectStore) -> None:
    uri, options = object_store.fresh_uri("similar.lance"), object_store.storage_options

    def objects() -> list[str]:
        from pyarrow.fs import FileSelector

        selector = FileSelector(uri.removeprefix("s3://"), recursive=True, allow_not_found=True)
        found = object_store.filesystem().get_file_info(selector)
        return [each.path for each in found if each.is_file]

    def read() -> pa.Table:
        dataset = lance.dataset(uri, storage_options=dict(options))
        return dataset.to_table().replace_schema_metadata(None)

    assert output.current(LANCE, uri, options) is None
    writer = output.begin(LANCE, uri, "run", options)
    dropped = write(writer, [rows(0, 3)])
    assert output.current(LANCE, uri, options) is None
    output.discard(writer, dropped)
    assert objects() == []
    put(LANCE, uri, [rows(0, 3)], [rows(3, 5)], options=options)
    state = output.current(LANCE, uri, options)
    assert state is not None
    assert read() == table(rows(0, 5))
    assert not any("_lancestat" in path for path in objects())
    writer = output.begin(LANCE, uri, "run", options)
    state = output.append(writer, SCHEMA, state, write(writer, [rows(5, 8)]))
    assert read() == table(rows(0, 8))
    assert table(*output.read_rows(state, 4, 7, options)) == table(rows(4, 7))
    assert output.current(LANCE, uri, options) == state


@pytest.mark.s3
def test_what_is_no_result_in_an_object_store(object_store: ObjectStore) -> None:
    options = object_store.storage_options
    uri = object_store.fresh_uri("notes")
    with object_store.filesystem().open_output_stream(f"{uri[5:]}/notes.txt") as stream:
        stream.write(b"mine")
    table_uri = object_store.fresh_uri("table.lance")
    lance.write_dataset(pa.table({"x": [1]}), table_uri, storage_options=dict(options))
    for place in (uri, table_uri):
        with pytest.raises(RunError) as caught:
            output.begin(LANCE, place, "run", options)
        assert caught.value.code == "LS570"
    wrong = {**options, "aws_secret_access_key": "wrong"}
    with pytest.raises(LakeError) as denied:
        output.begin(LANCE, uri, "run", wrong)
    assert denied.value.code == "LS202"
    assert SECRET_KEY not in str(denied.value)
