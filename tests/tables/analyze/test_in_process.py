"""Analysis in this process: the kernel's partials, attempts, cancelling, and when it is chosen."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lancestat.errors import Cancelled, FragmentNotAnalyzed, LancestatError
from lancestat.lake.fingerprint import field_key
from lancestat.spark.session import in_process_bytes, start_seconds
from lancestat.spec.model import LOCAL_ATTEMPTS, Target
from lancestat.tables.analyze import ProcessScanner, RangePartials, ScanRange, ScanTask
from lancestat.tables.statistics.kernel import analyze
from lancestat.tables.statistics.partial import ColumnPartial
from tests.integration.scans import whole_table

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


def test_each_fragment_is_read_once_as_the_kernel_sees_it(table: str) -> None:
    work = whole_table(table)
    names = {field_key(field): field.name for field in work.table.fields}
    progress: list[tuple[str, int, int]] = []
    with ProcessScanner(TARGET, lambda *step: progress.append(step)) as scanner:
        scanned = list(scanner.scan("orders", work.table, work.scans))

    dataset = lance.dataset(table)
    expected: dict[int, dict[str, ColumnPartial]] = {
        fragment.fragment_id: analyze(fragment.to_batches(), dataset.schema)
        for fragment in dataset.get_fragments()
    }
    assert [scan for scan, _ in scanned] == list(work.scans)
    for scan, partials in scanned:
        by_name = {names[key]: partial for key, partial in partials.items()}
        assert by_name == {name: expected[scan.fragment_id][name] for name in by_name}
    assert progress[-1][:2] == ("orders", 4)
    assert progress == sorted(progress)


class Failing:
    """Fails the first so many readings of a range."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
        self.attempts = 0
        read = ScanTask.read
        lock = threading.Lock()

        def failing(task: ScanTask, part: ScanRange) -> RangePartials:
            with lock:
                self.attempts += 1
                fails = self.attempts <= times
            if fails:
                raise FragmentNotAnalyzed("the disk was away")
            return read(task, part)

        monkeypatch.setattr(ScanTask, "read", failing)


def test_what_fails_is_tried_as_often_as_on_spark(
    table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = whole_table(table)
    target = replace(TARGET, spark_master="local[1]")
    failing = Failing(monkeypatch, LOCAL_ATTEMPTS - 1)
    with ProcessScanner(target) as scanner:
        assert len(list(scanner.scan("orders", work.table, work.scans))) == 4
    assert failing.attempts > LOCAL_ATTEMPTS


def test_what_always_fails_is_its_own_error(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    work = whole_table(table)
    Failing(monkeypatch, 1_000)
    with (
        ProcessScanner(TARGET) as scanner,
        pytest.raises(FragmentNotAnalyzed, match="the disk was away"),
    ):
        list(scanner.scan("orders", work.table, work.scans))


def test_a_cancelled_scan_ends_and_further_ones_are_refused(
    table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = whole_table(table)
    with ProcessScanner(TARGET) as scanner:
        read = ScanTask.read

        def cancelling(task: ScanTask, part: ScanRange) -> RangePartials:
            scanner.cancel()
            return read(task, part)

        monkeypatch.setattr(ScanTask, "read", cancelling)
        for _ in range(2):
            with pytest.raises(Cancelled, match=f"reading {table} was cancelled"):
                list(scanner.scan("orders", work.table, work.scans))


def test_nothing_that_waits_is_read_once_a_scan_is_cancelled(
    table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = whole_table(table)
    target = replace(TARGET, spark_master="local[1]")
    started: list[int] = []
    with ProcessScanner(target) as scanner:
        read = ScanTask.read

        def cancelling(task: ScanTask, part: ScanRange) -> RangePartials:
            started.append(part.rows.fragment_id)
            scanner.cancel()
            return read(task, part)

        monkeypatch.setattr(ScanTask, "read", cancelling)
        with pytest.raises(Cancelled):
            list(scanner.scan("orders", work.table, work.scans))
    assert len(started) == 1


def test_scans_end_when_the_scanner_is_left_by_an_exception(
    table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = whole_table(table)
    read, reading, left = ScanTask.read, threading.Event(), threading.Event()

    def slow(task: ScanTask, part: ScanRange) -> RangePartials:
        reading.set()
        assert left.wait(60)
        return read(task, part)

    class Interrupted(ProcessScanner):
        def cancel(self) -> None:
            super().cancel()
            left.set()

    monkeypatch.setattr(ScanTask, "read", slow)
    with ThreadPoolExecutor(1) as node:
        with pytest.raises(KeyboardInterrupt), Interrupted(TARGET) as scanner:
            scan = node.submit(lambda: list(scanner.scan("orders", work.table, work.scans)))
            assert reading.wait(60)
            raise KeyboardInterrupt
        with pytest.raises(Cancelled):
            scan.result()


def test_the_first_error_keeps_fragments_that_wait_from_being_read(
    table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = whole_table(table)
    scans = [replace(scan, size_bytes=1 << 30) for scan in work.scans]
    parts: list[ScanRange] = []
    raised = threading.Event()

    def failing(task: ScanTask, part: ScanRange) -> RangePartials:
        parts.append(part)
        if part != parts[0]:
            assert raised.wait(60)
        raise FragmentNotAnalyzed("the disk was away")

    monkeypatch.setattr(ScanTask, "read", failing)
    with ProcessScanner(replace(TARGET, spark_master="local[1]")) as scanner:
        with pytest.raises(FragmentNotAnalyzed):
            list(scanner.scan("orders", work.table, scans))
        raised.set()
    others = [part for part in parts if part != parts[0]]
    # One may have begun before the others were taken out of the queue.
    assert len(set(others)) <= 1
    assert len(parts) - len(others) == LOCAL_ATTEMPTS


def test_a_fragment_counts_once_in_the_progress_however_often_it_is_read(
    table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = whole_table(table)
    Failing(monkeypatch, LOCAL_ATTEMPTS - 1)
    progress: list[tuple[str, int, int]] = []
    target = replace(TARGET, spark_master="local[1]")
    with ProcessScanner(target, lambda *step: progress.append(step)) as scanner:
        list(scanner.scan("orders", work.table, work.scans))
    assert progress[-1] == ("orders", 4, sum(scan.size_bytes for scan in work.scans))


def test_a_display_that_fails_does_not_end_the_scan(table: str) -> None:
    work = whole_table(table)
    reports = []

    def fail(node: str, fragments: int, size_bytes: int) -> None:
        reports.append(fragments)
        raise OSError("the terminal is gone")

    with ProcessScanner(TARGET, fail) as scanner:
        assert len(list(scanner.scan("orders", work.table, work.scans))) == 4
    assert len(reports) == 1


def test_tables_share_the_cores(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    work = whole_table(table)
    scans = [replace(scan, size_bytes=1 << 30) for scan in work.scans]
    read, lock = ScanTask.read, threading.Lock()
    busy = most = 0

    def counted(task: ScanTask, part: ScanRange) -> RangePartials:
        nonlocal busy, most
        with lock:
            busy += 1
            most = max(most, busy)
        try:
            return read(task, part)
        finally:
            with lock:
                busy -= 1

    monkeypatch.setattr(ScanTask, "read", counted)
    with ProcessScanner(TARGET) as scanner, ThreadPoolExecutor(4) as nodes:
        tables = [
            nodes.submit(lambda: list(scanner.scan("orders", work.table, scans))) for _ in range(4)
        ]
        assert [len(scanned.result()) for scanned in tables] == [4] * 4
    assert most <= 2


def test_a_damaged_fragment_is_named(table: str) -> None:
    work = whole_table(table)
    path = Path(table) / "data" / lance.dataset(table).get_fragments()[2].metadata.files[0].path
    path.write_bytes(b"\0" * path.stat().st_size)
    with ProcessScanner(TARGET) as scanner, pytest.raises(LancestatError, match="fragment 2"):
        list(scanner.scan("orders", work.table, work.scans))


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
    monkeypatch.setattr("lancestat.spark.session.running_session", lambda: None)
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
    monkeypatch.setattr("lancestat.spark.session.running_session", lambda: None)
    assert start_seconds(Target("dev", "state", spark_master=master)) == expected
