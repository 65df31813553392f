"""Results of either format."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate, count, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lancestat.errors import RunError, StaleBase, VectorLengthMismatch
from lancestat.joins.output.lance_output import LanceOutput
from lancestat.joins.output.parquet_output import location_of
from lancestat.joins.output.result import output_at, output_of
from lancestat.joins.record import OutputFormat, OutputState
from tests.examples import examples
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


@pytest.fixture(params=list(OutputFormat), ids=lambda form: form.value)
def form(request: pytest.FixtureRequest) -> OutputFormat:
    output_format: OutputFormat = request.param
    return output_format


@pytest.fixture
def uri(tmp_path: Path, form: OutputFormat) -> str:
    return str(tmp_path / "results" / f"similar.{form.value}")


def test_there_is_no_result_before_the_first(form: OutputFormat, uri: str) -> None:
    assert output_at(form, uri, {}).current() is None
    output_at(form, uri, {}).begin("run")
    assert output_at(form, uri, {}).current() is None
    assert not Path(uri).exists()


def test_pieces_become_a_result_in_their_order(form: OutputFormat, uri: str) -> None:
    writer = output_at(form, uri, {}).begin("run")
    pieces = [[rows(0, 3), rows(3, 5)], [], [rows(5, 9)]]
    written = [
        output_of(writer).write(writer, number, SCHEMA, pieces[number]) for number in (2, 0, 1)
    ]
    assert [piece.rows for piece in written] == [4, 5, 0]
    state = output_of(writer).replace(writer, SCHEMA, [written[1], written[2], written[0]])
    assert seen(form, uri) == table(rows(0, 9))
    assert state == output_at(form, uri, {}).current()
    assert state.rows == 9


@pytest.mark.parametrize("inside", ["", "data", "_versions", "_refs", "tree"])
def test_an_output_inside_a_dataset_is_refused(
    tmp_path: Path, form: OutputFormat, inside: str
) -> None:
    """There Lance would see a branch or a manifest, and its cleanup removes files."""
    outer = tmp_path / "orders.lance"
    lance.write_dataset(pa.table({"id": [1]}), outer)
    (tmp_path / "link").symlink_to(outer)
    before = files_below(outer)
    for folder in (outer, tmp_path / "link"):
        with pytest.raises(RunError) as caught:
            output_at(form, str(folder / inside / "similar"), {}).begin("run")
        assert caught.value.code == "LS570"
        assert f"inside the Lance dataset {outer}" in caught.value.message
    assert files_below(outer) == before


def test_no_rows_are_visible_before_the_commit(form: OutputFormat, uri: str) -> None:
    before = put(form, uri, [rows(0, 3)])
    writer = output_at(form, uri, {}).begin("run")
    write(writer, [rows(3, 9)])
    assert output_at(form, uri, {}).current() == before
    assert seen(form, uri) == table(rows(0, 3))


def test_a_result_replaces_another_of_other_columns(form: OutputFormat, uri: str) -> None:
    first = put(form, uri, [rows(0, 3)])
    other = pa.schema([("name", pa.string()), ("id", pa.list_(pa.int16()))])
    batch = pa.record_batch([["x", None], [[1], None]], schema=other)
    second = put(form, uri, [batch], schema=other)
    assert seen(form, uri) == table(batch, schema=other)
    assert first.digest != second.digest


def test_rows_are_appended_to_a_result(form: OutputFormat, uri: str) -> None:
    put(form, uri, [rows(0, 3)], [rows(3, 5)])
    state = add(form, uri, [rows(5, 7)], [], [rows(7, 8)])
    state = add(form, uri, [rows(8, 20)])
    assert seen(form, uri) == table(rows(0, 20))
    assert state == output_at(form, uri, {}).current()
    assert state.rows == 20


def test_rows_are_appended_to_a_result_that_had_other_columns(form: OutputFormat, uri: str) -> None:
    """And fields of other numbers."""
    for other in (
        pa.schema([("name", pa.string()), ("nested", pa.struct({"a": pa.list_(pa.int8())}))]),
        pa.schema([("_distance", pa.float32()), ("id", pa.int64()), ("name", pa.string())]),
    ):
        put(form, uri, [pa.RecordBatch.from_pylist([{}, {}], schema=other)], schema=other)
    put(form, uri, [rows(0, 3)])
    add(form, uri, [rows(3, 5)])
    assert seen(form, uri) == table(rows(0, 5))


@settings(max_examples=examples(30))
@given(
    pieces=st.lists(st.integers(0, 7), min_size=1, max_size=4),
    steps=st.lists(
        st.tuples(st.lists(st.integers(0, 40)), st.lists(st.integers(0, 4), max_size=2)),
        min_size=1,
        max_size=4,
    ),
    parquet=st.booleans(),
)
def test_any_rows_are_removed_while_others_follow(
    pieces: list[int], steps: list[tuple[list[int], list[int]]], parquet: bool
) -> None:
    form = OutputFormat.PARQUET if parquet else OutputFormat.LANCE
    with TemporaryDirectory() as folder:
        uri, following = f"{folder}/result", 0

        def more(counts: list[int]) -> list[list[pa.RecordBatch]]:
            nonlocal following
            edges = list(accumulate(counts, initial=following))
            following = edges[-1]
            return [[rows(*span)] for span in pairwise(edges)]

        state = put(form, uri, *more(pieces))
        expected = list(range(following))
        for removed, counts in steps:
            places = np.unique([place for place in removed if place < len(expected)]).astype("i8")
            writer = output_at(form, uri, {}).begin("run")
            first = following
            written = write(writer, *more(counts))
            state = output_of(writer).update(writer, SCHEMA, state, places, written)
            expected = [
                *(row for place, row in enumerate(expected) if place not in places),
                *range(first, following),
            ]
            assert seen(form, uri).column("id").to_pylist() == expected
            assert state == output_at(form, uri, {}).current()


def test_a_run_that_is_killed_before_it_marks_its_update_leaves_a_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = str(tmp_path / "near.lance")
    state = put(OutputFormat.LANCE, uri, [rows(0, 3)], [rows(3, 9)])
    writer = output_at(OutputFormat.LANCE, uri, {}).begin("run")
    commit = LanceOutput._commit

    def killed(self: LanceOutput, writer: Any, operation: Any, *rest: Any, **how: Any) -> Any:
        if isinstance(operation, lance.LanceOperation.Merge):
            raise KeyboardInterrupt
        return commit(self, writer, operation, *rest, **how)

    monkeypatch.setattr(LanceOutput, "_commit", killed)
    with pytest.raises(KeyboardInterrupt):
        # No row of the first fragment is left.
        output_of(writer).update(
            writer, SCHEMA, state, np.array([0, 1, 2, 5]), write(writer, [rows(9, 10)])
        )
    monkeypatch.undo()
    assert seen(OutputFormat.LANCE, uri).column("id").to_pylist() == [3, 4, 6, 7, 8, 9]
    assert put(OutputFormat.LANCE, uri, [rows(0, 2)]).rows == 2


def test_an_append_may_have_no_rows(form: OutputFormat, uri: str) -> None:
    before = put(form, uri, [rows(0, 3)])
    state = add(form, uri, [])
    assert (state.rows, state.digest) == (3, before.digest)
    assert seen(form, uri) == table(rows(0, 3))


def test_an_empty_result_has_its_columns(form: OutputFormat, uri: str) -> None:
    assert put(form, uri).rows == 0
    assert seen(form, uri) == table()
    put(form, uri, [], [])
    assert seen(form, uri) == table()
    add(form, uri, [rows(0, 2)])
    assert seen(form, uri) == table(rows(0, 2))


def test_a_result_whose_files_are_gone_is_none(form: OutputFormat, uri: str) -> None:
    put(form, uri, [rows(0, 3)])
    if form is OutputFormat.LANCE:
        shutil.rmtree(uri)
    else:
        shutil.rmtree(Path(uri).resolve())
    assert output_at(form, uri, {}).current() is None
    put(form, uri, [rows(3, 6)])
    assert seen(form, uri) == table(rows(3, 6))


@pytest.mark.parametrize("change", ["replaced", "appended", "gone"])
def test_rows_are_appended_only_to_their_base_result(
    form: OutputFormat, uri: str, change: str
) -> None:
    previous = put(form, uri, [rows(0, 3)])
    writer = output_at(form, uri, {}).begin("run")
    written = write(writer, [rows(3, 5)])
    if change == "replaced":
        put(form, uri, [rows(0, 2, "b")])
    elif change == "appended":
        add(form, uri, [rows(3, 5)])
    else:
        Path(uri).rename(Path(uri).with_name("elsewhere"))
    with pytest.raises(StaleBase) as caught:
        output_of(writer).update(writer, SCHEMA, previous, NO_LINES, written)
    assert caught.value.code == "LS569"
    output_of(writer).discard(writer)
    if change != "gone":
        expected = {"replaced": table(rows(0, 2, "b")), "appended": table(rows(0, 5))}
        assert seen(form, uri) == expected[change]


def test_rows_of_other_columns_are_not_appended(form: OutputFormat, uri: str) -> None:
    previous = put(form, uri, [rows(0, 3)])
    other = SCHEMA.append(pa.field("_rank", pa.int32()))
    writer = output_at(form, uri, {}).begin("run")
    with pytest.raises(StaleBase, match="other columns"):
        output_of(writer).update(writer, other, previous, NO_LINES, [])


def test_discarded_files_are_removed(form: OutputFormat, uri: str, tmp_path: Path) -> None:
    writer = output_at(form, uri, {}).begin("run")
    write(writer, [rows(0, 3)], [rows(3, 5)])
    assert files_below(tmp_path)
    output_of(writer).discard(writer)
    assert {Path(path).name for path in files_below(tmp_path)} <= {"lancestat.json", "lock"}
    assert not Path(uri).exists()
    state = put(form, uri, [rows(0, 3)])
    before = files_below(tmp_path)
    writer = output_at(form, uri, {}).begin("run")
    write(writer, [rows(0, 3)])
    output_of(writer).discard(writer)
    assert files_below(tmp_path) == before
    assert output_at(form, uri, {}).current() == state


def test_committed_files_are_not_discarded(form: OutputFormat, uri: str) -> None:
    """The answer of a commit may get lost."""
    writer = output_at(form, uri, {}).begin("run")
    written = write(writer, [rows(0, 3)])
    output_of(writer).replace(writer, SCHEMA, written)
    output_of(writer).discard(writer)
    assert seen(form, uri) == table(rows(0, 3))


def test_repeated_attempts_do_not_repeat_rows(form: OutputFormat, uri: str) -> None:
    writer = output_at(form, uri, {}).begin("run")
    first = output_of(writer).write(writer, 0, SCHEMA, [rows(0, 3)])
    late = output_of(writer).write(writer, 0, SCHEMA, [rows(0, 3)])
    output_of(writer).replace(writer, SCHEMA, [late])
    writer = output_at(form, uri, {}).begin("run")
    assert first != late
    assert seen(form, uri) == table(rows(0, 3))


def test_an_error_of_the_rows_is_raised_unchanged(
    form: OutputFormat, uri: str, tmp_path: Path
) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield rows(0, 3)
        raise VectorLengthMismatch("a vector is too long")

    writer = output_at(form, uri, {}).begin("run")
    before = files_below(tmp_path)
    with pytest.raises(VectorLengthMismatch):
        output_of(writer).write(writer, 0, SCHEMA, failing())
    assert files_below(tmp_path) == before


def test_an_output_that_cannot_be_written_is_an_error(form: OutputFormat, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError) as caught:
        put(form, str(tmp_path / "file" / "result"), [rows(0, 3)])
    assert caught.value.code == "LS571"
    assert str(tmp_path / "file" / "result") in caught.value.message


@pytest.mark.parametrize("thing", ["file", "folder", "empty file", "lance", "parquet", "link"])
def test_an_output_that_is_not_a_result_is_refused_and_unchanged(
    form: OutputFormat, uri: str, thing: str, tmp_path: Path
) -> None:
    place = Path(uri)
    place.parent.mkdir()
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious.txt").write_text("mine")
    match thing:
        case "file":
            place.write_text("mine")
        case "empty file":
            place.touch()
        case "folder":
            place.mkdir()
            (place / "notes.txt").write_text("mine")
        case "lance":
            lance.write_dataset(pa.table({"x": [1]}), uri)
        case "parquet":
            place.mkdir()
            pq.write_table(pa.table({"x": [1]}), place / "part-0.parquet")
        case "link":
            place.symlink_to(outside)
    before = {path: (tmp_path / path).read_bytes() for path in files_below(tmp_path)}
    with pytest.raises(RunError) as caught:
        output_at(form, uri, {}).begin("run")
    assert caught.value.code == "LS570"
    assert uri in caught.value.message
    assert {path: (tmp_path / path).read_bytes() for path in files_below(tmp_path)} == before


def test_an_output_created_meanwhile_is_refused(form: OutputFormat, uri: str) -> None:
    writer = output_at(form, uri, {}).begin("run")
    written = write(writer, [rows(0, 3)])
    place = Path(uri)
    if form is OutputFormat.LANCE:
        lance.write_dataset(pa.table({"x": [1]}), uri)
    else:
        place.write_text("mine")
    with pytest.raises(RunError) as caught:
        output_of(writer).replace(writer, SCHEMA, written)
    assert caught.value.code == "LS570"
    output_of(writer).discard(writer)
    if form is OutputFormat.LANCE:
        assert lance.dataset(uri).to_table() == pa.table({"x": [1]})
    else:
        assert place.read_text() == "mine"


def test_concurrent_runs_leave_one_whole_result(form: OutputFormat, uri: str) -> None:
    writers = [output_at(form, uri, {}).begin(run) for run in ("one", "two")]
    written = [write(writer, [rows(0, 5, tag)]) for writer, tag in zip(writers, "ab", strict=True)]
    for writer, pieces in zip(writers, written, strict=True):
        output_of(writer).replace(writer, SCHEMA, pieces)
    assert seen(form, uri) == table(rows(0, 5, "b"))


def test_a_folder_marked_by_another_run_meanwhile_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, read = location_of(str(tmp_path / "similar.parquet")), Path.read_text
    ours.root.mkdir(parents=True)

    def read_late(path: Path, *arguments: str, **options: str) -> str:
        monkeypatch.setattr(Path, "read_text", read)
        ours.prepare()
        ours.start()
        raise FileNotFoundError(path)

    monkeypatch.setattr(Path, "read_text", read_late)

    ours.check()

    assert sorted(entry.suffix for entry in ours.root.iterdir())[-1] == ".part"


def test_concurrent_replacements_leave_one_whole_result(form: OutputFormat, uri: str) -> None:
    def replace(number: int) -> OutputState:
        return put(form, uri, [rows(0, 3, f"{number}-")], [rows(3, 6, f"{number}-")])

    with ThreadPoolExecutor(4) as pool:
        states = list(pool.map(replace, range(8)))
    assert seen(form, uri) in [table(rows(0, 6, f"{number}-")) for number in range(8)]
    result = output_at(form, uri, {}).current()
    assert result is not None
    assert result.digest in {state.digest for state in states}


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in files_below(folder)}


def refusal(form: OutputFormat, uri: str) -> RunError:
    """Return the error of a join that would write there, and check that nothing has changed."""
    before = contents(Path(uri).parent)
    with pytest.raises(RunError) as caught:
        output_at(form, uri, {}).current()
    for action in (put, add):
        with pytest.raises(RunError) as again:
            action(form, uri, [rows(0, 1)])
        assert str(again.value) == str(caught.value)
    assert contents(Path(uri).parent) == before
    assert caught.value.code == "LS570"
    assert caught.value.hint == "give the join another output, or remove what is there"
    return caught.value


def restore(uri: str) -> None:
    lance.dataset(uri).delete("true")
    lance.dataset(uri, version=1).restore()
    lance.dataset(uri).delete("id = 3")


def add_file(uri: str) -> None:
    pq.write_table(table(rows(7, 8)), Path(uri) / "part-00000-mine.snappy.parquet")


def add_folder(uri: str) -> None:
    (Path(uri) / "day=1").mkdir()
    pq.write_table(table(rows(7, 8)), Path(uri) / "day=1" / "a.parquet")


def write_over_in_the_same_size(uri: str) -> None:
    file = min(Path(uri).iterdir())
    changed = file.read_bytes().replace(b"a1", b"z9")
    assert changed != file.read_bytes()
    file.write_bytes(changed)
    os.utime(file, (1, 1))


CHANGES: dict[OutputFormat, dict[str, Callable[[str], object]]] = {
    OutputFormat.LANCE: {
        "delete": lambda uri: lance.dataset(uri).delete("id = 3"),
        "delete all": lambda uri: lance.dataset(uri).delete("true"),
        "update": lambda uri: lance.dataset(uri).update({"name": "'x'"}, where="id = 3"),
        "append": lambda uri: lance.write_dataset(table(rows(0, 1)), uri, mode="append"),
        "drop column": lambda uri: lance.dataset(uri).drop_columns(["name"]),
        "rename": lambda uri: lance.dataset(uri).alter_columns({"path": "name", "name": "title"}),
        "add column": lambda uri: lance.dataset(uri).add_columns({"twice": "id * 2"}),
        "restore": restore,
    },
    OutputFormat.PARQUET: {
        "add file": add_file,
        "add folder": add_folder,
        "write over": lambda uri: pq.write_table(table(rows(7, 8)), min(Path(uri).iterdir())),
        "same size": write_over_in_the_same_size,
        "delta": lambda uri: (Path(uri) / "_delta_log").mkdir(),
    },
}


@pytest.mark.parametrize(
    ("form", "change"), [(form, change) for form in OutputFormat for change in CHANGES[form]]
)
def test_a_result_that_was_changed_since_is_refused_and_untouched(
    form: OutputFormat, uri: str, change: str
) -> None:
    previous = put(form, uri, [rows(0, 3)], [rows(3, 20)])
    running = output_at(form, uri, {}).begin("run")
    written = write(running, [rows(20, 25)])
    CHANGES[form][change](uri)
    for action in (
        lambda: output_of(running).replace(running, SCHEMA, written),
        lambda: output_of(running).update(running, SCHEMA, previous, NO_LINES, written),
    ):
        with pytest.raises(RunError, match="something else has changed since"):
            action()
    output_of(running).discard(running)
    assert "something else has changed since" in refusal(form, uri).message


def read_through_parquet(uri: str, target: str) -> None:
    pq.write_table(lance.dataset(uri).to_table(), f"{uri}.parquet")
    lance.write_dataset(pq.read_table(f"{uri}.parquet"), target)


def copy(uri: str, target: str) -> None:
    shutil.copytree(Path(uri).parent, Path(target).parent, symlinks=True)


COPIES: dict[str, Callable[[str, str], object]] = {
    "read again": lambda uri, target: lance.write_dataset(lance.dataset(uri).to_table(), target),
    "through parquet": read_through_parquet,
    "clone": lambda uri, target: lance.dataset(uri).shallow_clone(target, 1),
    "copy": copy,
    "move": lambda uri, target: Path(uri).parent.rename(Path(target).parent),
}


@pytest.mark.parametrize(
    ("form", "make"),
    [
        *((OutputFormat.LANCE, make) for make in COPIES),
        *((OutputFormat.PARQUET, make) for make in ("copy", "move")),
    ],
)
def test_a_copy_of_a_result_is_not_a_result(
    form: OutputFormat, uri: str, tmp_path: Path, make: str
) -> None:
    put(form, uri, [rows(0, 3)])
    target = str(tmp_path / "elsewhere" / Path(uri).name)
    COPIES[make](uri, target)
    assert target in refusal(form, target).message
    assert seen(form, target) == table(rows(0, 3))


def test_spellings_of_a_uri_name_one_result(
    form: OutputFormat, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, name = put(form, uri, [rows(0, 3)]), Path(uri).name
    monkeypatch.chdir(Path(uri).parent)
    for spelling in (Path(uri).as_uri(), f"x/../{name}", f"{Path(uri).parent}/x/../{name}", name):
        result = output_at(form, spelling, {}).current()
        assert result is not None and result.digest == state.digest, spelling


def listed(uri: str) -> pa.Table | None:
    """Read like most readers: all names first. None if the link moved during the listing."""
    try:
        read = pq.read_table(uri)
    except FileNotFoundError:
        return None
    return read if read.column_names else None


READERS: dict[str, tuple[OutputFormat, Callable[[str], pa.Table | None]]] = {
    "lance": (OutputFormat.LANCE, lambda uri: seen(OutputFormat.LANCE, uri)),
    "listed": (OutputFormat.PARQUET, listed),
    "resolved": (OutputFormat.PARQUET, lambda uri: pq.read_table(Path(uri).resolve())),
}


@pytest.mark.fault
@pytest.mark.parametrize("reader", READERS)
def test_readers_see_one_whole_result_while_it_is_replaced(tmp_path: Path, reader: str) -> None:
    (form, read), uri = READERS[reader], str(tmp_path / "similar")
    put(form, uri, [rows(0, 40, "0-")], [rows(40, 80, "0-")])

    def whole(done: threading.Event, seen_tags: set[str]) -> None:
        """Collect tags of the results that are seen, which all of a result's rows carry."""
        while not done.is_set():
            rows_read = read(uri)
            if rows_read is not None:
                [tag] = {name.partition("-")[0] for name in rows_read["name"].to_pylist()}
                assert rows_read["id"].to_pylist() == list(range(80))
                seen_tags.add(tag)

    done, seen = threading.Event(), [set[str](), set[str]()]
    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(whole, done, tags) for tags in seen]
        try:
            for number in count(1):
                tag = f"{number}-"
                put(form, uri, [rows(0, 40, tag)], [rows(40, 80, tag)])
                # However slow readers are, they are to see some of the results.
                is_enough = number > examples(40) + 3 and min(map(len, seen)) > 2
                if is_enough or any(ended.done() for ended in readers):
                    break
        finally:
            done.set()
        for ended in readers:
            ended.result()
    assert min(map(len, seen)) > 2


SIZES = st.lists(st.integers(0, 9), max_size=4)


@given(
    form=st.sampled_from(list(OutputFormat)),
    commits=st.lists(st.lists(SIZES, max_size=3), min_size=1, max_size=3),
)
@settings(max_examples=examples(25))
def test_any_pieces_are_read_back(form: OutputFormat, commits: list[list[list[int]]]) -> None:
    """A result and appended rows; a commit is some pieces, a piece some batches."""
    total = 0
    with TemporaryDirectory() as folder:
        for number, pieces in enumerate(commits):
            batches: list[list[pa.RecordBatch]] = []
            for piece in pieces:
                ends = [total, *(total + end for end in accumulate(piece))]
                batches.append([rows(start, stop) for start, stop in pairwise(ends)])
                total = ends[-1]
            state = (add if number else put)(form, f"{folder}/result", *batches)
        assert state.rows == total
        assert seen(form, f"{folder}/result") == table(rows(0, total))
