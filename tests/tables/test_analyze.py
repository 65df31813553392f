"""What scans read, and reading them in this process."""

from __future__ import annotations

import heapq
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lancestat.tables.work_items
from lancestat.errors import Cancelled, FragmentNotAnalyzed, LakeError, LancestatError
from lancestat.lake.fingerprint import field_key
from lancestat.lake.snapshot import ANALYSIS, RowRange
from lancestat.spark.session import in_process_bytes, start_seconds
from lancestat.spec.model import LOCAL_ATTEMPTS, Target
from lancestat.state.values import PartialKey
from lancestat.tables.action import Scan
from lancestat.tables.analyze import ProcessScanner, RangePartials, ScanTask
from lancestat.tables.statistics.kernel import analyze
from lancestat.tables.statistics.partial import ColumnPartial
from lancestat.tables.work_items import ScanRange, WorkItem, jobs, split, together, weigh
from tests.integration.scans import TableScan, decoded, whole_table
from tests.runs.world import World

FIELDS = [frozenset(f"{i}:int" for i in range(count)) for count in (1, 2, 16, 200)]
MIB = 1 << 20


@st.composite
def scan_lists(draw: st.DrawFn) -> list[Scan]:
    sizes = st.one_of(st.integers(0, 50_000), st.integers(0, 400 * MIB))
    rows = st.one_of(st.integers(0, 5), st.integers(0, 10_000_000))
    drawn = draw(st.lists(st.tuples(rows, sizes, st.sampled_from(FIELDS)), max_size=40))
    return [
        # Two scans of one fragment: its columns lie in different files.
        Scan(index // 2, bytes([index]) * 16, fields, rows, size)
        for index, (rows, size, fields) in enumerate(drawn)
    ]


def scan(rows: int, size: int) -> Scan:
    return Scan(0, b"", FIELDS[0], rows, size)


def weight(item: WorkItem) -> float:
    return sum(part.weight for part in item)


def ranges(items: Sequence[WorkItem]) -> list[ScanRange]:
    return [part for item in items for part in item]


@given(scan_lists(), st.integers(0, 64))
@settings(deadline=None)
def test_every_row_of_every_scan_is_read_exactly_once(scans: list[Scan], cores: int) -> None:
    by_scan: dict[int, list[ScanRange]] = defaultdict(list)
    for part in ranges(split(scans, cores)):
        by_scan[part.scan].append(part)

    assert by_scan.keys() == set(range(len(scans)))
    for index, parts in by_scan.items():
        position = 0
        for part in sorted(parts, key=lambda part: part.rows.offset):
            rows = part.rows
            assert rows.fragment_id == scans[index].fragment_id
            assert rows.offset == position
            assert rows.count is None or rows.count > 0
            position = scans[index].rows if rows.count is None else position + rows.count
        assert position == scans[index].rows
        assert sum(part.rows.count is None for part in parts) == 1, "the last reads to the end"


@given(scan_lists(), st.integers(1, 64))
@settings(deadline=None)
def test_no_item_is_heavier_than_its_share(scans: list[Scan], cores: int) -> None:
    sizes = replace(ANALYSIS, lightest=MIB, heaviest=64 * MIB)
    items = split(scans, cores, sizes)
    total = sum(map(weigh, scans))
    share = min(sizes.heaviest, max(2 * sizes.lightest, -(-total // (cores * sizes.per_core))))
    row = max(
        (-(-weigh(fragment_scan) // max(1, fragment_scan.rows)) for fragment_scan in scans),
        default=0,
    )

    assert all(weight(item) <= share * (1 + 2 * sizes.slack) + row for item in items)
    assert [*map(weight, items)] == sorted(map(weight, items), reverse=True)


@given(scan_lists(), st.integers(1, 64))
@settings(deadline=None)
def test_idle_cores_taking_the_next_item_end_close_to_the_ideal(
    scans: list[Scan], cores: int
) -> None:
    items = split(scans, cores)
    busy_until = [0] * cores
    for item in items:
        heapq.heapreplace(busy_until, busy_until[0] + weight(item))
    total = sum(weight(item) for item in items)
    heaviest = max((weight(item) for item in items), default=0)

    assert max(busy_until) <= total / cores + heaviest


@given(scan_lists(), st.integers(1, 8))
@settings(deadline=None)
def test_light_scans_share_items(scans: list[Scan], cores: int) -> None:
    light = [fragment_scan for fragment_scan in scans if weigh(fragment_scan) < 4 * MIB]
    items = split(light, cores)
    total = sum(map(weigh, light))
    # Of two neighbours in the order of filling, the second did not fit into the first.
    share = max(4 * MIB, total // (cores * ANALYSIS.per_core))
    assert len(items) <= 2 * total / share + 1


def test_one_huge_fragment_keeps_every_core_busy() -> None:
    items = split([scan(1_000_000, 1 << 30)], cores=4)
    assert len(items) == 4 * ANALYSIS.per_core
    assert max(weight(i) for i in items) <= 1.001 * min(weight(i) for i in items)


def test_fragments_of_nearly_one_size_are_read_whole() -> None:
    scans = [scan(375_000, size) for size in (14_600_000, 14_650_000, 14_580_000, 14_610_000)]
    items = split(scans * 4, cores=2)
    assert [len(item) for item in items] == [2] * 8
    assert all(part.is_whole for part in ranges(items))


def test_a_fragment_of_a_few_huge_rows_is_cut_into_no_more_items_than_rows() -> None:
    assert len(split([scan(3, 8 << 30)], cores=16)) == 3


def test_a_thousand_tiny_fragments_share_few_tasks() -> None:
    assert len(split([scan(10, 1_000)] * 1_000, cores=2)) <= 40


@given(scan_lists(), st.integers(1, 500))
@settings(deadline=None)
def test_jobs_hold_all_scans_in_order_and_a_bounded_number_of_partials(
    scans: list[Scan], limit: int
) -> None:
    scan_jobs = list(jobs(scans, limit))

    assert [fragment_scan for job in scan_jobs for fragment_scan in job] == scans
    for job in scan_jobs:
        assert len(job) == 1 or sum(len(fragment_scan.fields) for fragment_scan in job) <= limit


@given(scan_lists(), st.integers(1, 1 << 30))
@settings(deadline=None)
def test_jobs_of_a_run_that_has_to_end_in_time_read_a_bounded_number_of_bytes(
    scans: list[Scan], most: int
) -> None:
    scan_jobs = list(jobs(scans, most_bytes=most))

    assert [each for job in scan_jobs for each in job] == scans
    for job in scan_jobs:
        assert len(job) == 1 or sum(each.size_bytes for each in job) <= most


def test_a_job_holds_fewer_partials_with_quantiles() -> None:
    plain = [scan(10, 1_000)] * 12
    rich = [
        replace(
            fragment_scan,
            fields=frozenset(str(PartialKey((f,), quantiles=True)) for f in fragment_scan.fields),
        )
        for fragment_scan in plain
    ]
    limit = 6 * len(plain[0].fields)
    assert [len(job) for job in jobs(plain, limit)] == [6, 6]
    assert [len(job) for job in jobs(rich, limit)] == [1] * 12


def test_a_job_holds_more_fragments_where_tasks_fold_them() -> None:
    small, large = [scan(8_192, 1_000)] * 12, [scan(8_193, 1_000)] * 12
    limit = 3 * len(small[0].fields)
    assert [len(job) for job in jobs(small, limit, fold=2)] == [6, 6]
    assert [len(job) for job in jobs(large, limit, fold=2)] == [3] * 4


def test_a_key_is_read_whole_however_its_scan_is_split() -> None:
    key, column = "1:bigint+unique", "2:string"
    heavy = replace(scan(10**6, 64 << 20), fields=frozenset({key, column}))
    parts = [part for item in split([heavy], cores=4) for part in item]
    [whole] = (part for part in parts if key in part.fields)
    assert (whole.rows, whole.fields) == (RowRange(heavy.fragment_id), {key})
    assert len(parts) > 2
    assert sum(part.rows.count or 0 for part in parts if column in part.fields) <= 10**6
    [light] = split([replace(heavy, rows=10, size_bytes=1_000)], cores=4)
    assert [part.fields for part in light] == [{key, column}], "nothing is read twice"


@pytest.mark.parametrize("limit", [1, 32_768])
def test_no_scans_need_no_job(limit: int) -> None:
    assert list(jobs([], limit)) == []
    assert split([], 2) == ()


TARGET = Target("dev", "state", spark_master="local[2]")
SPARK_VARIABLES = (
    "PYSPARK_GATEWAY_PORT",
    "PYSPARK_SUBMIT_ARGS",
    "SPARK_CONF_DIR",
    "SPARK_HOME",
    "MASTER",
    "SPARK_REMOTE",
)


@pytest.fixture
def table(tmp_path: Path) -> str:
    """Four fragments of 50 rows, some of them deleted."""
    uri = str(tmp_path / "t.lance")
    rows = pa.table(
        {"id": range(200), "s": [f"word {n % 7}" if n % 5 else None for n in range(200)]}
    )
    lance.write_dataset(rows, uri, max_rows_per_file=50).delete("id % 3 = 1 and id < 120")
    return uri


@pytest.fixture
def work(table: str) -> TableScan:
    return whole_table(table)


ONE_CORE = replace(TARGET, spark_master="local[1]")
Results = list[tuple[Scan, Mapping[str, ColumnPartial]]]


def scanned(scanner: ProcessScanner, work: TableScan, size_bytes: int = 0) -> Results:
    """Return the results of a scan, of ranges of their own where fragments are said to be large."""
    scans = [replace(scan, size_bytes=size_bytes or scan.size_bytes) for scan in work.scans]
    return decoded(scanner.scan("orders", work.table, scans))


def before_reading(monkeypatch: pytest.MonkeyPatch, act: Callable[[ScanRange], object]) -> None:
    """Act in the thread that reads, before each range is read."""
    read = ScanTask.read

    def late(task: ScanTask, part: ScanRange) -> RangePartials:
        act(part)
        return read(task, part)

    monkeypatch.setattr(ScanTask, "read", late)


def fail_at_first(monkeypatch: pytest.MonkeyPatch, times: int) -> list[ScanRange]:
    """Fail the first readings; returns what is read, as it is."""
    attempts: list[ScanRange] = []
    lock = threading.Lock()

    def fail(part: ScanRange) -> None:
        with lock:
            attempts.append(part)
            fails = len(attempts) <= times
        if fails:
            raise FragmentNotAnalyzed("the disk was away")

    before_reading(monkeypatch, fail)
    return attempts


def test_each_fragment_is_read_once_as_the_kernel_sees_it(table: str, work: TableScan) -> None:
    names = {field_key(field): field.name for field in work.table.fields}
    progress: list[tuple[str, int, int]] = []
    with ProcessScanner(TARGET, lambda *step: progress.append(step)) as scanner:
        results = scanned(scanner, work)

    dataset = lance.dataset(table)
    expected: dict[int, dict[str, ColumnPartial]] = {
        fragment.fragment_id: analyze(fragment.to_batches(), dataset.schema)
        for fragment in dataset.get_fragments()
    }
    assert [scan for scan, _ in results] == list(work.scans)
    for scan, partials in results:
        by_name = {names[key]: partial for key, partial in partials.items()}
        assert by_name == {name: expected[scan.fragment_id][name] for name in by_name}
    assert progress[-1][:2] == ("orders", 4)
    assert progress == sorted(progress)


@given(scan_lists(), st.integers(1, 8))
@settings(deadline=None)
def test_runs_have_small_whole_fragments_with_the_same_columns(
    scans: list[Scan], cores: int
) -> None:
    for item in split(scans, cores):
        runs = list(together(item))
        assert ranges(runs) == list(item)
        for run in runs:
            assert len(run) == 1 or len({part.fields for part in run}) == 1
            assert len(run) == 1 or all(part.is_small for part in run)
            assert len(run) == 1 or sum(part.count for part in run) <= 65_536


def test_many_small_fragments_are_read_at_once(tmp_path: Path) -> None:
    """With deletions, fragments that lost all rows, and a column that some lack."""
    uri = str(tmp_path / "many.lance")
    rows = pa.table({"id": range(300), "word": [f"w{id % 7}" for id in range(300)]})
    dataset = lance.write_dataset(rows, uri, max_rows_per_file=10)
    dataset.delete("id % 3 = 0 OR (id >= 50 AND id < 70)")
    dataset.add_columns({"twice": "id * 2"})
    lance.write_dataset(rows.append_column("twice", rows["id"]), uri, mode="append")
    many = whole_table(uri)
    read: list[int] = []
    with pytest.MonkeyPatch.context() as patch, ProcessScanner(ONE_CORE) as scanner:
        before_reading(patch, lambda part: read.append(part.rows.fragment_id))
        at_once = scanned(scanner, many)
        assert read == [30], "all but the large one are read together"
        patch.setattr(lancestat.tables.work_items, "_FEW", 1_000)
        one_by_one = scanned(scanner, many)
        assert len(read) == 1 + len(many.scans)
    assert at_once == one_by_one


def test_a_damaged_one_of_many_small_fragments_is_an_error(tmp_path: Path) -> None:
    uri = tmp_path / "many.lance"
    lance.write_dataset(pa.table({"id": range(100)}), str(uri), max_rows_per_file=5)
    many = whole_table(str(uri))
    sorted((uri / "data").iterdir())[3].unlink()
    with (
        ProcessScanner(ONE_CORE) as scanner,
        pytest.raises(LakeError, match="fragments 0 to 19 at version 1"),
    ):
        scanned(scanner, many)


def test_what_fails_is_tried_as_often_as_on_spark(
    work: TableScan, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = fail_at_first(monkeypatch, LOCAL_ATTEMPTS - 1)
    progress: list[tuple[str, int, int]] = []
    with ProcessScanner(ONE_CORE, lambda *step: progress.append(step)) as scanner:
        assert len(scanned(scanner, work)) == 4
    assert len(attempts) > LOCAL_ATTEMPTS
    # A fragment counts once, however often it is read.
    assert progress[-1] == ("orders", 4, sum(scan.size_bytes for scan in work.scans))


def test_what_always_fails_is_its_own_error(
    work: TableScan, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_at_first(monkeypatch, 1_000)
    with (
        ProcessScanner(TARGET) as scanner,
        pytest.raises(FragmentNotAnalyzed, match="the disk was away"),
    ):
        scanned(scanner, work)


def test_a_cancelled_scan_ends_and_further_ones_are_refused(
    table: str, work: TableScan, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[ScanRange] = []
    with ProcessScanner(ONE_CORE) as scanner:
        before_reading(monkeypatch, lambda part: (started.append(part), scanner.cancel()))
        for _ in range(2):
            with pytest.raises(Cancelled, match=f"reading {table} was cancelled"):
                scanned(scanner, work)
    assert len(started) == 1, "nothing that waits is read"


def test_scans_end_when_the_scanner_is_left_by_an_exception(
    work: TableScan, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, left = threading.Event(), threading.Event()

    def slow(part: ScanRange) -> None:
        reading.set()
        assert left.wait(60)

    class Interrupted(ProcessScanner):
        def cancel(self) -> None:
            super().cancel()
            left.set()

    before_reading(monkeypatch, slow)
    with ThreadPoolExecutor(1) as node:
        with pytest.raises(KeyboardInterrupt), Interrupted(TARGET) as scanner:
            scan = node.submit(scanned, scanner, work)
            assert reading.wait(60)
            raise KeyboardInterrupt
        with pytest.raises(Cancelled):
            scan.result()


def test_the_first_error_keeps_fragments_that_wait_from_being_read(
    work: TableScan, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts: list[ScanRange] = []
    raised = threading.Event()

    def fail(part: ScanRange) -> None:
        parts.append(part)
        if part != parts[0]:
            assert raised.wait(60)
        raise FragmentNotAnalyzed("the disk was away")

    before_reading(monkeypatch, fail)
    with ProcessScanner(ONE_CORE) as scanner:
        with pytest.raises(FragmentNotAnalyzed):
            scanned(scanner, work, 1 << 30)
        raised.set()
    others = [part for part in parts if part != parts[0]]
    # One may have begun before the others were taken out of the queue.
    assert len(set(others)) <= 1
    assert len(parts) - len(others) == LOCAL_ATTEMPTS


def test_a_display_that_fails_does_not_end_the_scan(work: TableScan) -> None:
    reports = []

    def fail(node: str, fragments: int, size_bytes: int) -> None:
        reports.append(fragments)
        raise OSError("the terminal is gone")

    with ProcessScanner(TARGET, fail) as scanner:
        assert len(scanned(scanner, work)) == 4
    assert len(reports) == 1


def test_tables_share_the_cores(work: TableScan, monkeypatch: pytest.MonkeyPatch) -> None:
    readers: set[int] = set()
    before_reading(monkeypatch, lambda part: readers.add(threading.get_ident()))
    with ProcessScanner(TARGET) as scanner, ThreadPoolExecutor(4) as nodes:
        tables = [nodes.submit(scanned, scanner, work, 1 << 30) for _ in range(4)]
        assert [len(results.result()) for results in tables] == [4] * 4
    assert len(readers) <= 2


def test_a_damaged_fragment_is_named(table: str, work: TableScan) -> None:
    path = Path(table) / "data" / lance.dataset(table).get_fragments()[2].metadata.files[0].path
    path.write_bytes(b"\0" * path.stat().st_size)
    with ProcessScanner(TARGET) as scanner, pytest.raises(LancestatError, match="fragment 2"):
        scanned(scanner, work)


@pytest.mark.parametrize(
    ("master", "environment", "expected"),
    [
        (None, {}, 7),
        ("local", {}, 7),
        ("local[*]", {}, 7),
        ("local[4, 2]", {}, 7),
        ("local-cluster[2,1,1024]", {}, 0),
        ("yarn", {}, 0),
        ("spark://host:7077", {}, 0),
        ("local[*]", {"PYSPARK_GATEWAY_PORT": "1"}, 0),
        (None, {"PYSPARK_SUBMIT_ARGS": "--master yarn pyspark-shell"}, 0),
        (None, {"PYSPARK_SUBMIT_ARGS": "--conf spark.master=yarn pyspark-shell"}, 0),
        (None, {"PYSPARK_SUBMIT_ARGS": "--properties-file of.conf pyspark-shell"}, 0),
        (None, {"MASTER": "spark://host:7077"}, 0),
        ("local[*]", {"MASTER": "spark://host:7077"}, 7),
        (None, {"SPARK_CONF_DIR": "conf"}, 0),
        (None, {"SPARK_HOME": "home"}, 0),
        (None, {"SPARK_REMOTE": "sc://host"}, 0),
        ("local[*]", {"SPARK_REMOTE": "sc://host"}, 7),
        ("local[*]", {"SPARK_HOME": "home"}, 7),
    ],
)
def test_only_a_local_spark_that_is_not_running_is_spared(
    master: str | None,
    environment: dict[str, str],
    expected: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for folder in ("conf", "home/conf"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "spark-defaults.conf").write_text("# of ours\nspark.master  yarn\n")
    monkeypatch.chdir(tmp_path)
    for name in SPARK_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    target = Target("dev", "state", spark_master=master, spark_min_bytes=7)
    assert in_process_bytes(target) == expected


@pytest.mark.parametrize(
    ("master", "environment", "expected"),
    [
        ("local[*]", {}, 9.0),
        ("local[*]", {"PYSPARK_GATEWAY_PORT": "1"}, 0.0),
        ("yarn", {}, None),
        (None, {"SPARK_REMOTE": "sc://host"}, 0.0),
    ],
)
def test_only_a_local_spark_has_an_estimated_start(
    master: str | None,
    environment: dict[str, str],
    expected: float | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in SPARK_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert start_seconds(Target("dev", "state", spark_master=master)) == expected


def test_small_fragments_with_dictionaries_of_their_own_are_read_at_once(tmp_path: Path) -> None:
    type = pa.dictionary(pa.int8(), pa.string())
    for part in range(9):
        values = [*(f"{part}-{number}" for number in range(30)), None]
        rows = pa.table({"d": pa.array(values).dictionary_encode().cast(type)})
        lance.write_dataset(rows, tmp_path / "t.lance", mode="append", data_storage_version="2.0")
    world = World(tmp_path / "t.lance")
    assert world.run().status == "success"
    assert world.published()["lance.stats.column.d.nullCount"] == "9"
    assert abs(int(world.published()["lance.stats.column.d.distinctCount"]) - 270) < 10
