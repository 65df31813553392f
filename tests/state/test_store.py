"""The Lance store only: damage, layouts, growth, several handles at once."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import islice
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance.optimize import Compaction

from lancestat.errors import StateUnreachable
from lancestat.state.partials import partial_schema
from lancestat.state.store import LanceState, open_state
from lancestat.state.stored_table import (
    FORMAT_KEY,
    DatasetLocation,
    Kind,
    StoredTable,
    commit_order,
    row_ids,
)
from lancestat.state.values import StoredPartials
from lancestat.tables.stored import add_partials, add_summary, read_partials, table_records
from tests.examples import examples
from tests.state.conftest import files_under, fingerprint, partial, record, run, stored, summary

X = frozenset({"x"})
AT_ONCE = timedelta(0)


@pytest.fixture
def filled(folder: Path) -> Path:
    """A state with partials of table t and a run; its folder."""
    state = open_state(str(folder))
    add_partials(state, "t", [stored(number, x=number) for number in range(50)])
    state.add_run(run(1, record("t", 1)))
    return folder


def partials_dataset(folder: Path, generation: int = 1) -> Path:
    return folder / "v2" / f"partials-{generation}.lance"


def newest_manifest(dataset: Path) -> Path:
    return min(dataset.glob("_versions/*.manifest"))


def some_data_file(dataset: Path) -> Path:
    return next(iter(sorted(dataset.glob("data/*.lance"))))


def read_all(state: LanceState) -> list[StoredPartials]:
    wanted = {(fingerprint(number),): X for number in range(50)}
    return list(read_partials(state, "t", wanted))


DAMAGE: dict[str, Callable[[Path], object]] = {
    "empty manifest": lambda dataset: newest_manifest(dataset).write_bytes(b""),
    "short manifest": lambda dataset: newest_manifest(dataset).write_bytes(b"garbage"),
    "cut manifest": lambda dataset: newest_manifest(dataset).write_bytes(
        newest_manifest(dataset).read_bytes()[:-20]
    ),
    "noise for a manifest": lambda dataset: newest_manifest(dataset).write_bytes(
        bytes(range(256)) * 9
    ),
    "zeroed data": lambda dataset: some_data_file(dataset).write_bytes(bytes(4000)),
    "cut data": lambda dataset: some_data_file(dataset).write_bytes(
        some_data_file(dataset).read_bytes()[:100]
    ),
    "data gone": lambda dataset: some_data_file(dataset).unlink(),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damage_is_set_aside_and_rebuilt(
    filled: Path, damage: Callable[[Path], object], caplog: pytest.LogCaptureFixture
) -> None:
    damage(partials_dataset(filled))
    state = open_state(str(filled))
    with caplog.at_level(logging.WARNING, "lancestat.state"):
        assert read_all(state) == []
        assert read_all(state) == []
    assert [entry.name for entry in caplog.records] == ["lancestat.state"]
    assert "v2/partials-1.lance is set aside and will be rebuilt" in caplog.text
    state.expire({"t": frozenset()})
    assert table_records(state)["t"].version == 1

    add_partials(state, "t", [stored("new", x=1)])
    assert set(state.partial_index("t").singles) == {fingerprint("new")}
    assert partials_dataset(filled, 2).exists()
    assert set(open_state(str(filled)).partial_index("t").singles) == {fingerprint("new")}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damaged_runs_are_set_aside_and_rebuilt(
    filled: Path, damage: Callable[[Path], object]
) -> None:
    damage(filled / "v2" / "runs-1.lance")
    state = open_state(str(filled))
    assert table_records(state) == {}
    assert state.runs(10) == []
    state.add_run(run(2, record("t", 2)))
    assert table_records(open_state(str(filled)))["t"].version == 2
    assert len(read_all(state)) == 50


@pytest.mark.parametrize(
    "other",
    [
        partial_schema(),
        partial_schema().with_metadata({FORMAT_KEY: b"2"}),
        pa.schema([("table", pa.string())], metadata={FORMAT_KEY: b"1"}),
    ],
    ids=["no format", "newer format", "other columns"],
)
def test_a_dataset_of_another_format_is_set_aside(
    folder: Path, other: pa.Schema, caplog: pytest.LogCaptureFixture
) -> None:
    lance.write_dataset(other.empty_table(), partials_dataset(folder), schema=other)
    state = open_state(str(folder))
    assert dict(state.partial_index("t").singles) == {}
    add_partials(state, "t", [stored("a", x=1)])
    assert set(state.partial_index("t").singles) == {fingerprint("a")}
    assert "it is not of this format" in caplog.text
    assert lance.dataset(partials_dataset(folder)).count_rows() == 0


def test_partials_that_do_not_decode_are_left_out(
    filled: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dataset = lance.dataset(partials_dataset(filled))
    row = dataset.take([0, 1, 2]).to_pydict()
    row["partials"] = [[b"not a partial"], [row["partials"][1][0], b"one too many"], [None]]
    row["fingerprints"] = [fingerprint("bad 1"), fingerprint("bad 2"), fingerprint("bad 3")]
    lance.write_dataset(pa.table(row, dataset.schema), dataset.uri, mode="append")
    wanted = {(fingerprint(name),): X for name in ("bad 1", "bad 2", "bad 3", 0)}
    assert list(read_partials(open_state(str(filled)), "t", wanted)) == [stored(0, x=0)]
    assert "3 stored partials do not decode" in caplog.text


@pytest.mark.parametrize("record_json", ["{", "[]", '{"table": 7}', "null"])
def test_records_that_do_not_decode_are_left_out(filled: Path, record_json: str) -> None:
    path = filled / "v2" / "runs-1.lance"
    dataset = lance.dataset(path)
    row = dataset.to_table().to_pydict()
    row["table"], row["run_id"], row["record_json"] = ["u"], ["broken"], [record_json]
    lance.write_dataset(pa.table(row, dataset.schema), path, mode="append")
    state = open_state(str(filled))
    assert set(table_records(state)) == {"t"}
    assert [stored_run.run_id for stored_run in state.runs(10)] == ["broken", "run-1"]


def test_reading_creates_nothing(folder: Path) -> None:
    state = open_state(str(folder))
    table_records(state), state.runs(3), state.partial_index("t"), read_all(state)
    state.expire({"t": frozenset()})
    assert not folder.exists()


def test_a_folder_without_a_manifest_is_reused(folder: Path) -> None:
    (partials_dataset(folder) / "data").mkdir(parents=True)
    (partials_dataset(folder) / "data" / "1.lance").write_bytes(b"left by a killed run")
    state = open_state(str(folder))
    assert read_all(state) == []
    add_partials(state, "t", [stored(1, x=1)])
    assert read_all(state) == [stored(1, x=1)]
    assert not partials_dataset(folder, 2).exists()


def test_the_state_does_not_grow_with_the_number_of_runs(folder: Path) -> None:
    state = open_state(str(folder), retention=AT_ONCE)
    live = frozenset(map(fingerprint, range(3)))
    sizes = []
    for number in range(40):
        add_partials(state, "t", [stored(f"{number} {part}", x=number) for part in range(3)])
        add_partials(state, "t", [stored(part, x=part) for part in range(3)])
        state.add_run(run(number, record("t", number + 1)))
        state.expire({"t": live})
        files = files_under(folder)
        sizes.append((len(files), sum(file.stat().st_size for file in files)))
    most_files, most_bytes = map(max, zip(*sizes, strict=True))
    assert most_files < 200
    # After 22 runs the state holds all it ever will but for the records of the runs.
    assert most_bytes < 3 * max(size for _, size in sizes[:22])
    assert len(state.partial_index("t").singles) == 3 + 64
    assert len(state.runs(100)) == 40


def test_compaction_keeps_every_partial(folder: Path) -> None:
    state = open_state(str(folder))
    for number in range(40):
        add_partials(state, "t", [stored(number, x=number)])
        state.expire({"t": frozenset(map(fingerprint, range(50)))})
    assert len(list(partials_dataset(folder).glob("data/*.lance"))) > 40
    dataset = lance.dataset(partials_dataset(folder))
    assert len(dataset.get_fragments()) <= 17
    entries = sorted(read_all(open_state(str(folder))), key=lambda entry: entry.partials["x"].rows)
    assert entries == [stored(number, x=number) for number in range(40)]


def test_a_run_over_many_tables_leaves_few_files_to_open_for_each(folder: Path) -> None:
    """`expire` is not called; it is called once, at the end of a run."""

    def add(number: int) -> None:
        add_partials(state, f"t{number}", [stored(number, x=number)])

    state = open_state(str(folder))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, range(140)))

    assert len(lance.dataset(partials_dataset(folder)).get_fragments()) <= 64 + 17
    for number in range(0, 140, 7):
        [entry] = read_partials(state, f"t{number}", {(fingerprint(number),): X})
        assert entry == stored(number, x=number)


def test_expire_commits_nothing_when_nothing_is_superseded(filled: Path) -> None:
    before = files_under(filled)
    open_state(str(filled)).expire({"t": frozenset(map(fingerprint, range(50)))})
    assert files_under(filled) == before


def test_a_reader_of_the_previous_version_can_still_read(filled: Path) -> None:
    reader = open_state(str(filled))
    assert len(reader.partial_index("t").singles) == 50
    stream = read_partials(reader, "t", {(fingerprint(number),): X for number in range(50)})
    first = next(stream)
    writer = open_state(str(filled))
    for number in range(20):
        add_partials(writer, "t", [stored(f"new {number}", x=1)])
    writer.expire({"t": frozenset()})
    writer.expire({"t": frozenset()})
    assert len([first, *stream]) == 50
    assert len(reader.partial_index("t").singles) == 50


def test_a_reader_whose_version_was_cleaned_up_reads_the_latest(filled: Path) -> None:
    reader = open_state(str(filled))
    assert len(reader.partial_index("t").singles) == 50
    writer = open_state(str(filled), retention=AT_ONCE)
    for number in range(20):
        add_partials(writer, "t", [stored(number, x=number), stored(f"new {number}", x=1)])
        writer.expire({"t": frozenset(map(fingerprint, range(50)))})
    assert set(map(fingerprint, range(50))) <= reader.partial_index("t").singles.keys()
    assert not partials_dataset(filled, 2).exists()


def test_old_runs_are_dropped_except_the_newest_record_of_every_table(
    folder: Path, few_runs_kept: int
) -> None:
    state = open_state(str(folder))
    state.add_run(run(0, record("seldom", 1)))
    for number in range(1, 80):
        state.add_run(run(number, record("t", number)))
    state.expire({})
    run_ids = [stored_run.run_id for stored_run in state.runs(1000)]
    assert run_ids == [f"run-{number}" for number in range(79, 79 - few_runs_kept, -1)] + ["run-0"]
    assert {name: table_record.version for name, table_record in table_records(state).items()} == {
        "seldom": 1,
        "t": 79,
    }


def test_threads_share_a_state(folder: Path) -> None:
    state = open_state(str(folder))

    def work(thread: int) -> int:
        for number in range(5):
            add_partials(state, f"t{thread}", [stored((thread, number), x=number)])
            state.partial_index(f"t{thread}")
        state.add_run(run(thread, record(f"t{thread}", 1)))
        return len(state.partial_index(f"t{thread}").groups)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8))) == [5] * 8
    assert len(table_records(state)) == 8
    assert len(list((folder / "v2").iterdir())) == 2


class _Held:
    """Holds the first write of a state's partials until all others wait behind it."""

    def __init__(
        self, state: LanceState, monkeypatch: pytest.MonkeyPatch, failure: Exception | None = None
    ) -> None:
        self._table = state.partial_table
        self._write = self._table._write
        self._failure = failure
        self._begun = threading.Event()
        self._goes_on = threading.Event()
        monkeypatch.setattr(self._table, "_write", self._held)

    def add(self, state: LanceState, threads: int) -> list[Exception | None]:
        """Add partials of t0, t1 and so on; the error of each."""

        def add(number: int) -> Exception | None:
            try:
                add_partials(state, f"t{number}", [stored(number, x=number)])
            except Exception as error:
                return error
            return None

        with ThreadPoolExecutor(threads) as pool:
            first = pool.submit(add, 0)
            assert self._begun.wait(60)
            others = [pool.submit(add, number) for number in range(1, threads)]
            while len(self._table._waiting) < threads - 1:
                time.sleep(0.001)
            self._goes_on.set()
            return [added.result() for added in (first, *others)]

    def _held(
        self, dataset: lance.LanceDataset, batches: Iterable[pa.RecordBatch]
    ) -> list[lance.FragmentMetadata]:
        if self._begun.is_set() and self._failure is not None:
            raise self._failure
        self._begun.set()
        assert self._goes_on.wait(60)
        return self._write(dataset, batches)


def test_threads_that_append_at_once_share_a_commit(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = open_state(str(folder))
    assert _Held(state, monkeypatch).add(state, 8) == [None] * 8
    # Version 1 is the empty dataset, 2 has the rows of the first thread, 3 those of all others.
    dataset = lance.dataset(partials_dataset(folder))
    assert (dataset.version, len(dataset.get_fragments())) == (3, 2)
    assert len(set(dataset.to_table(columns=["id"]).column("id").to_pylist())) == 8
    for number in range(8):
        entries = read_partials(open_state(str(folder)), f"t{number}", {(fingerprint(number),): X})
        assert list(entries) == [stored(number, x=number)]


def test_a_commit_that_fails_fails_for_all_that_share_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = open_state(str(folder))
    failure = StateUnreachable("the state cannot be reached")
    assert _Held(state, monkeypatch, failure).add(state, 4) == [None, *[failure] * 3]
    monkeypatch.undo()
    add_partials(state, "t1", [stored(1, x=1)])
    indexes = open_state(str(folder)).partial_indexes([f"t{number}" for number in range(4)])
    assert [len(index.singles) for index in indexes.values()] == [1, 1, 0, 0]


def test_runs_that_create_the_same_state_concurrently_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lance's own mode `create` does, on a busy machine: three rounds of a hundred."""
    together = threading.Barrier(8)
    waited: set[StoredTable] = set()
    location_to_create = StoredTable._next_location

    def once_all_found_no_dataset(stored: StoredTable) -> DatasetLocation:
        location = location_to_create(stored)
        if stored not in waited:
            waited.add(stored)
            together.wait(60)
        return location

    monkeypatch.setattr(StoredTable, "_next_location", once_all_found_no_dataset)
    for round in range(examples(40)):
        folder = tmp_path / str(round)

        def work(number: int, folder: Path = folder) -> None:
            add_partials(open_state(str(folder)), f"t{number}", [stored((number, 0), x=0)])

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))
        indexes = open_state(str(folder)).partial_indexes([f"t{number}" for number in range(8)])
        assert [len(index.groups) for index in indexes.values()] == [1] * 8


def test_a_long_stream_commits_once(folder: Path) -> None:
    def source() -> Iterator[StoredPartials]:
        for number in range(3000):
            yield stored(number, x=number)

    state = open_state(str(folder))
    add_partials(state, "t", source())
    dataset = lance.dataset(partials_dataset(folder))
    assert dataset.version == 2
    assert dataset.count_rows() == 3000
    several = {(fingerprint(number),): X for number in range(0, 3000, 7)}
    partials = {entry.fingerprints: entry.partials for entry in read_partials(state, "t", several)}
    assert partials.keys() == several.keys()
    assert partials[(fingerprint(700),)] == {"x": partial(700)}


def test_many_requested_fingerprints_are_found(folder: Path) -> None:
    state = open_state(str(folder))
    add_partials(state, "t", [stored(number, x=1) for number in range(5000)])
    wanted = {(fingerprint(number),): X for number in range(100, 5100)}
    assert len({entry.fingerprints for entry in read_partials(state, "t", wanted)}) == 4900


def test_equal_field_sets_of_the_index_are_one_object(folder: Path) -> None:
    state = open_state(str(folder))
    for number in range(4):
        add_partials(state, "t", [stored(number, x=1, y=2)])
    add_partials(state, "t", [stored(9, x=1)])
    add_partials(state, "t", [stored(9, y=1)])
    assert len({id(fields) for fields in state.partial_index("t").singles.values()}) == 1


def test_places_sort_by_generation(folder: Path) -> None:
    state = open_state(str(folder))
    for generation in (2, 10, 9):
        partials_dataset(folder, generation).mkdir(parents=True)
    (folder / "v2" / "partials-x.lance").mkdir()
    (folder / "v2" / "notes").mkdir()
    assert state.folder.locations() == [
        DatasetLocation(Kind.PARTIALS, number) for number in (2, 9, 10)
    ]


def test_rows_moved_by_a_compaction_stay_older(folder: Path) -> None:
    state = open_state(str(folder))
    for number in range(1, 4):
        state.add_run(run(number, record("t", number)))
        add_summary(state, "t", summary(number, number, 0), [])
    tables = [folder / "v2" / f"{kind}-1.lance" for kind in ("runs", "summaries")]
    compactions = []
    for table in tables:
        dataset = lance.dataset(table)
        plan = Compaction.plan(dataset, {})
        compactions.append((dataset, [task.execute(dataset) for task in plan.tasks]))
    state.add_run(run(4, record("t", 4)))
    add_summary(state, "t", summary(4, 4, 0), [])
    for dataset, rewritten in compactions:
        Compaction.commit(dataset, rewritten)
    runs, summaries = map(lance.dataset, tables)
    assert runs.to_table().column("run_id").to_pylist() == ["run-4", "run-1", "run-2", "run-3"]
    assert len(summaries.get_fragments()) == 2
    after = open_state(str(folder))
    assert table_records(after)["t"].version == 4
    assert [stored_run.run_id for stored_run in after.runs(2)] == ["run-4", "run-3"]
    assert [outcome.run_id for outcome in after.outcomes("shop", "dev", 2)["node of t"]] == [
        "run-4",
        "run-3",
    ]
    newest = after.summary("t")
    assert newest is not None
    assert newest.version == 4


def test_ids_of_one_append_differ() -> None:
    ids = list(islice(row_ids(7), 100_000))
    assert len({*ids, *islice(row_ids(8), 100_000)}) == 200_000
    assert commit_order(pa.chunked_array([[-1, *ids[:3]]])).tolist() == [1, 2, 3, 0]
