"""Results that are Parquet: a link, and generations beside it."""

from __future__ import annotations

import json
import os
import shutil
import signal
from datetime import datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import polars
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from lancestat.errors import RunError
from lancestat.joins.output import parquet_output
from lancestat.joins.output.result import output_at, output_of
from lancestat.joins.record import OutputFormat
from tests.forks import forks
from tests.joins.output.test_result import add_file, refusal
from tests.joins.search.results import (
    NO_LINES,
    SCHEMA,
    add,
    files_below,
    put,
    rows,
    seen,
    table,
    write,
)

ROOT = Path(__file__).parents[3]
PARQUET = OutputFormat.PARQUET


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "similar.parquet"


def generations(path: Path) -> Path:
    return path.with_name(f".{path.name}.lancestat")


OWN = {"lancestat.json", "lock", "superseded"}


def names(path: Path) -> set[str]:
    """Return the names beside the link."""
    return {entry.name for entry in generations(path).iterdir()}


def test_the_link_is_relative_so_that_folders_can_move(path: Path) -> None:
    put(PARQUET, str(path), [rows(0, 3)])
    assert path.is_symlink()
    assert not path.readlink().is_absolute()
    moved = path.parent.with_name("moved")
    path.parent.rename(moved)
    assert seen(PARQUET, str(moved / path.name)) == table(rows(0, 3))


def test_many_readers_read_a_result(path: Path) -> None:
    put(PARQUET, str(path), [rows(0, 3)], [rows(3, 5)])
    expected = table(rows(0, 5))
    assert pyarrow.dataset.dataset(str(path)).to_table() == expected
    assert polars.read_parquet(path).to_arrow().cast(SCHEMA) == expected
    assert polars.scan_parquet(path).collect().to_arrow().cast(SCHEMA) == expected


def test_no_file_name_occurs_in_two_results(path: Path) -> None:
    """A reader that lists a result while the link moves gets an error, never a mixture."""
    put(PARQUET, str(path), [rows(0, 3)], [rows(3, 5)])
    first = {file.name for file in path.iterdir()}
    put(PARQUET, str(path), [rows(0, 3)], [rows(3, 5)])
    second = {file.name for file in path.iterdir()}
    assert len(first) == len(second) == 2
    assert not first & second


def test_files_of_the_previous_result_are_shared(path: Path) -> None:
    put(PARQUET, str(path), [rows(0, 3)], [rows(3, 5)])
    before = {file.name: file.stat().st_ino for file in path.iterdir()}
    add(PARQUET, str(path), [rows(5, 6)])
    after = {file.name: file.stat().st_ino for file in path.iterdir()}
    assert before.items() <= after.items()
    assert len(after) == 3


def test_files_are_copied_where_there_are_no_hard_links(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*names: object, **options: object) -> None:
        raise OSError("no hard links here")

    put(PARQUET, str(path), [rows(0, 3)])
    monkeypatch.setattr(os, "link", refuse)
    add(PARQUET, str(path), [rows(3, 5)])
    assert seen(PARQUET, str(path)) == table(rows(0, 5))


def test_earlier_results_are_kept_for_their_readers(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(PARQUET, str(path), [rows(0, 3)])
    first = path.resolve()
    put(PARQUET, str(path), [rows(3, 6)])
    put(PARQUET, str(path), [rows(6, 9)])
    assert pq.read_table(first) == table(rows(0, 3))
    monkeypatch.setattr(parquet_output, "GRACE", timedelta(0))
    previous = path.resolve()
    put(PARQUET, str(path), [rows(9, 12)])
    assert pq.read_table(previous) == table(rows(6, 9))
    assert names(path) - OWN == {path.readlink().name, previous.name}


def test_the_digest_distinguishes_files(path: Path) -> None:
    state = put(PARQUET, str(path), [rows(0, 3)], [rows(3, 5)])
    files = sorted(path.iterdir())
    files[1].unlink()
    result = output_at(PARQUET, str(path), {}).current()
    assert result is not None
    assert result.digest != state.digest


@pytest.mark.parametrize("damage", ["cut", "empty", "gone"])
def test_damaged_files_are_not_a_result(path: Path, damage: str) -> None:
    put(PARQUET, str(path), [rows(0, 3)])
    [file] = path.iterdir()
    match damage:
        case "cut":
            file.write_bytes(file.read_bytes()[:-9])
        case "empty":
            file.write_bytes(b"")
        case "gone":
            file.unlink()
    parquet_output._rows_by_file.cache_clear()
    assert output_at(PARQUET, str(path), {}).current() is None
    put(PARQUET, str(path), [rows(3, 6)])
    assert seen(PARQUET, str(path)) == table(rows(3, 6))


def test_row_groups_are_not_small(path: Path) -> None:
    put(PARQUET, str(path), [rows(at, at + 100) for at in range(0, 10_000, 100)])
    [file] = path.iterdir()
    assert pq.read_metadata(file).num_row_groups == 1


def test_an_object_store_is_refused() -> None:
    for action in (
        lambda uri: output_at(PARQUET, uri, {}).begin("run"),
        lambda uri: output_at(PARQUET, uri, {}).current(),
    ):
        with pytest.raises(RunError) as caught:
            action("s3://key:secret@bucket/similar.parquet")
        assert caught.value.code == "LS572"
        assert "secret" not in str(caught.value)
        assert "lance" in (caught.value.hint or "")


@pytest.mark.parametrize("thing", ["folder", "file", "link"])
def test_a_folder_of_generations_without_a_marker_is_refused(path: Path, thing: str) -> None:
    beside = generations(path)
    match thing:
        case "folder":
            beside.mkdir()
            (beside / "notes.txt").write_text("mine")
        case "file":
            beside.write_text("mine")
        case "link":
            (path.parent / "outside").mkdir()
            beside.symlink_to(path.parent / "outside")
    before = files_below(path.parent)
    with pytest.raises(RunError) as caught:
        output_at(PARQUET, str(path), {}).begin("run")
    assert caught.value.code in ("LS570", "LS571")
    assert files_below(path.parent) == before


def test_hidden_files_do_not_change_a_result(path: Path) -> None:
    put(PARQUET, str(path), [rows(0, 3)])
    (path / ".DS_Store").write_text("x")
    put(PARQUET, str(path), [rows(3, 5)])
    assert seen(PARQUET, str(path)) == table(rows(3, 5))


def test_a_copied_folder_of_generations_is_not_changed(path: Path) -> None:
    put(PARQUET, str(path), [rows(0, 3)])
    other = path.with_name("other.parquet")
    shutil.copytree(generations(path), generations(other))
    error = refusal(PARQUET, str(other))
    assert str(generations(other)) in error.message


def test_rows_added_to_a_result_replaced_meanwhile_are_kept(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_output, "GRACE", timedelta(0))
    put(PARQUET, str(path), [rows(0, 3)])
    late = path.resolve()
    put(PARQUET, str(path), [rows(3, 5)])
    add_file(str(late))
    for start in (5, 6, 7):
        put(PARQUET, str(path), [rows(start, start + 1)])
    assert pq.read_table(late / "part-00000-mine.snappy.parquet") == table(rows(7, 8))


def owned_by(path: Path, generation: str, **owner: object) -> Path:
    """A generation that some process is writing."""
    created = owner.pop("created", datetime.now(timezone.utc))
    assert isinstance(created, datetime)
    folder = generations(path) / f"{generation}.part"
    folder.mkdir()
    (folder / "000000-abcd.parquet").write_bytes(b"half")
    text = json.dumps(
        {"host": "h", "pid": 1, "started": 1, **owner, "created": created.isoformat()}
    )
    folder.with_suffix(".json").write_text(text)
    return folder


def test_generations_of_killed_runs_are_removed(path: Path) -> None:
    from lancestat.lake.files import this_process

    put(PARQUET, str(path), [rows(0, 3)])
    here = this_process()
    host, pid = here.host, here.pid
    assert here.started is not None
    long_ago = datetime.now(timezone.utc) - timedelta(days=8)
    dead = [
        owned_by(path, "0" * 16, host=host, pid=pid, started=here.started - 1),
        owned_by(path, "1" * 16, host="elsewhere", created=long_ago),
    ]
    orphan = generations(path) / ("2" * 16)
    orphan.mkdir()
    alive = [
        owned_by(path, "3" * 16, host=host, pid=pid, started=here.started),
        owned_by(path, "4" * 16, host="elsewhere"),
    ]
    broken = owned_by(path, "5" * 16)
    broken.with_suffix(".json").write_text("{")
    foreign = generations(path) / "notes.txt"
    foreign.write_text("mine")
    output_at(PARQUET, str(path), {}).begin("run")
    assert not any(folder.exists() for folder in [*dead, orphan])
    assert all(folder.exists() for folder in [*alive, broken, foreign])
    assert seen(PARQUET, str(path)) == table(rows(0, 3))


# Dies before the step of that number that changes something below a folder.
STEPS = """
import os, signal, sys
from pathlib import Path
from tests.joins.search.results import PIECES, add, put
from lancestat.errors import StaleBase
from lancestat.joins.record import OutputFormat

events = {"os.mkdir", "os.rename", "os.link", "os.symlink", "os.remove", "os.rmdir", "open"}

def main(path, how, last):
    folder = str(Path(path).parent)
    count = 0

    def watch(event, arguments):
        nonlocal count
        if event not in events or not any(str(each).startswith(folder) for each in arguments[:2]):
            return
        if event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            return
        count += 1
        if count == last:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)
    (put if how == "replace" else add)(OutputFormat.PARQUET, path, *PIECES)
"""


@pytest.mark.fault
@pytest.mark.parametrize("how", ["replace", "append"])
def test_a_writer_killed_at_any_step_leaves_a_whole_result(
    path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_output, "GRACE", timedelta(0))
    old = table(rows(0, 5))
    new = table(rows(5, 9)) if how == "replace" else table(rows(0, 9))
    outcomes = []
    with forks(STEPS) as process:
        for step in range(1, 100):
            put(PARQUET, str(path), [rows(0, 3)], [rows(3, 5)])
            exit_code = process.call(str(path), how, step)
            visible = seen(PARQUET, str(path))
            assert visible in (old, new), step
            outcomes.append(visible == new)
            if exit_code == 0:
                break
            assert exit_code == -signal.SIGKILL
    assert exit_code == 0
    assert outcomes == sorted(outcomes), "new from some step on"
    assert outcomes.count(False) > 10
    writer = output_at(PARQUET, str(path), {}).begin("run")
    output_of(writer).discard(writer)
    assert len(names(path) - OWN) == 2, "the result and the one before"


TYPES = {
    "bool": pa.array([True, None]),
    "int8": pa.array([1, None], pa.int8()),
    "uint64": pa.array([2**64 - 1, None], pa.uint64()),
    "half": pa.array([np.float16(1.5), None], pa.float16()),
    "double": pa.array([float("nan"), None]),
    "decimal": pa.array([1, None], pa.decimal128(38, 3)),
    "large_string": pa.array(["é", None], pa.large_string()),
    "binary": pa.array([b"\0", None]),
    "fixed_binary": pa.array([b"abc", None], pa.binary(3)),
    "date": pa.array([0, None], pa.date32()),
    "time": pa.array([0, None], pa.time64("us")),
    "timestamp": pa.array([0, None], pa.timestamp("us", "UTC")),
    "timestamp_ns": pa.array([1, None], pa.timestamp("ns")),
    "duration": pa.array([1, None], pa.duration("us")),
    "list": pa.array([[1, None], None], pa.list_(pa.int32())),
    "vector": pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float32(), 2)),
    "struct": pa.array([{"a": {"b": [1]}}, None]),
    "empty_list": pa.array([[], [None]], pa.large_list(pa.string())),
}


def assert_equal(actual: pa.Array, expected: pa.Array) -> None:
    """Equal in type and values, where NaN equals itself."""
    assert actual.type == expected.type
    plain = [
        [repr(value.as_py() if not pa.types.is_temporal(value.type) else value) for value in array]
        for array in (actual, expected)
    ]
    assert plain[0] == plain[1]


@pytest.mark.parametrize("form", list(OutputFormat))
@pytest.mark.parametrize("type", TYPES)
def test_types_round_trip(form: OutputFormat, type: str, path: Path) -> None:
    values = TYPES[type]
    schema = pa.schema([pa.field("x", values.type)])
    batch = pa.RecordBatch.from_arrays([values], schema=schema)
    state = put(form, str(path), [batch], schema=schema)
    read = seen(form, str(path))
    assert read.schema.equals(schema)
    assert_equal(read.column(0).combine_chunks(), values)
    writer = output_at(form, str(path), {}).begin("run")
    written = write(writer, [batch], schema=schema)
    output_of(writer).update(writer, schema, state, NO_LINES, written)
    column = seen(form, str(path)).column(0).combine_chunks()
    for start in (0, 2):
        assert_equal(column[start : start + 2], values)


def test_marks_of_a_run_killed_after_publication_are_removed(path: Path) -> None:
    """The published files are kept."""
    from lancestat.lake.files import this_process

    put(PARQUET, str(path), [rows(0, 3)])
    here = this_process()
    assert here.started is not None
    generation = path.readlink().name
    killed = owned_by(path, generation, host=here.host, pid=here.pid, started=here.started - 1)
    assert killed.exists()
    output_at(PARQUET, str(path), {}).collect_garbage()
    assert not killed.exists()
    assert not killed.with_suffix(".json").exists()
    assert seen(PARQUET, str(path)) == table(rows(0, 3))
