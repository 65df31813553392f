from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

from lancestat.errors import LakeError, LancestatError, RunError
from lancestat.lake.fingerprint import field_key
from lancestat.lake.snapshot import ANALYSIS
from lancestat.tables import analyze as partials_job
from lancestat.tables.action import Scan
from lancestat.tables.analyze import ProcessScanner
from lancestat.tables.statistics.kernel import analyze
from lancestat.tables.statistics.partial import ColumnPartial, encode, merge
from lancestat.tables.work_items import split
from tests.examples import sample
from tests.histories.world import REFUSED, STEPS, HistoryWorld, draw_history
from tests.integration.executors import ODD, described
from tests.integration.scans import (
    TARGET,
    TableScan,
    merged,
    scanned,
    scans_of,
    spark_scanner,
    whole_table,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

HISTORIES = sample(range(12), 4)

FINEST = replace(ANALYSIS, lightest=1)
Results = Sequence[tuple[Scan, dict[str, ColumnPartial]]]


def rows(start: int, stop: int) -> pa.Table:
    words = [f"word {id % 101}" if id % 7 else None for id in range(start, stop)]
    return pa.table(
        {
            "id": range(start, stop),
            "word": words,
            "half": pa.array([id / 2 for id in range(start, stop)], pa.float64()),
        }
    )


def of_kernel(uri: str, version: int) -> dict[int, dict[str, ColumnPartial]]:
    """Every fragment's partials by column name, from the kernel over whole fragments."""
    dataset = lance.dataset(uri, version=version)
    return {
        fragment.fragment_id: analyze(fragment.to_batches(), dataset.schema)
        for fragment in dataset.get_fragments()
    }


def by_fragment(work: TableScan, results: Results) -> dict[int, dict[str, ColumnPartial]]:
    names = {field_key(field): field.name for field in work.table.fields}
    by_id: dict[int, dict[str, ColumnPartial]] = defaultdict(dict)
    for scan, partials in results:
        assert partials.keys() == scan.fields
        for key, column in partials.items():
            assert names[key] not in by_id[scan.fragment_id], "each column of a fragment once"
            by_id[scan.fragment_id][names[key]] = column
    return dict(by_id)


def break_fragment(uri: Path, number: int) -> None:
    fragment = lance.dataset(uri).get_fragments()[number]
    path = uri / "data" / fragment.metadata.files[0].path
    path.write_bytes(b"\0" * path.stat().st_size)


@pytest.fixture
def table(tmp_path: Path) -> str:
    """Six fragments of 500 rows; rows deleted in some; a column in files of its own."""
    uri = str(tmp_path / "t.lance")
    dataset = lance.write_dataset(rows(0, 3_000), uri, max_rows_per_file=500)
    dataset.delete("id % 3 = 1 and id < 1200")
    dataset.delete("id >= 2500 and id < 2999")
    dataset.add_columns({"twice": "id * 2"})
    return uri


def test_each_fragment_and_column_is_scanned_once_as_the_kernel_sees_it(
    spark: SparkSession, table: str
) -> None:
    work = whole_table(table)
    partials = by_fragment(work, scanned(work))

    assert partials == of_kernel(table, work.table.version)
    assert {id: columns["id"].rows for id, columns in partials.items()} == {
        0: 333,
        1: 334,
        2: 433,
        3: 500,
        4: 500,
        5: 1,
    }
    assert partials[5]["id"].minimum == partials[5]["id"].maximum == 2_999


def assert_same_here(work: TableScan, there: Results) -> None:
    """Compare the encoded partials of this process with those of Spark."""
    with ProcessScanner(replace(TARGET, spark_master="local[2]")) as scanner:
        here = dict(scans_of(scanner.scan("t", work.table, work.scans)))
    assert here.keys() == dict(there).keys()
    for scan, partials in there:
        assert {key: encode(partial) for key, partial in partials.items()} == here[scan]


def test_in_this_process_the_partials_of_random_histories_are_those_of_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Deleted and updated rows, compactions, columns that were added, dropped, renamed, retyped."""
    compared = 0
    for seed in HISTORIES:
        world = HistoryWorld(tmp_path / str(seed))
        steps = draw_history(seed)
        world.create(Random(steps[0][1]))
        for name, choices in steps[1:]:
            if name != "run":
                with suppress(*REFUSED):
                    STEPS[name][0](world, Random(choices))
        work = whole_table(world.uri)
        assert_same_here(work, scanned(work))
        compared += len(work.scans)
    assert compared > len(HISTORIES)


@pytest.mark.parametrize(("lightest", "per_job"), sample([(200_000, 5), (1, 32_768), (1, 3)], 1))
def test_partials_do_not_depend_on_how_work_is_split(
    spark: SparkSession,
    table: str,
    monkeypatch: pytest.MonkeyPatch,
    lightest: int,
    per_job: int,
) -> None:
    sizes = replace(ANALYSIS, per_core=40, lightest=lightest, heaviest=50_000, per_fragment=0)
    monkeypatch.setattr(partials_job, "split", partial(split, sizes=sizes))
    monkeypatch.setattr(partials_job, "PARTIALS_PER_JOB", per_job)
    work = whole_table(table)
    finest = split(work.scans, 2, replace(sizes, lightest=1))
    parts = Counter(part.scan for item in finest for part in item)
    assert max(parts.values()) > 1, "fragments are read in several ranges"

    assert by_fragment(work, scanned(work)) == of_kernel(table, work.table.version)


def test_a_scan_reads_its_version_while_others_write(spark: SparkSession, table: str) -> None:
    work = whole_table(table)
    expected = of_kernel(table, work.table.version)
    is_over = threading.Event()

    def disturb() -> None:
        start = 10_000
        while not is_over.is_set():
            lance.write_dataset(rows(start, start + 10), table, mode="append")
            lance.dataset(table).delete(f"id = {start % 3_000}")
            start += 10

    with ThreadPoolExecutor(1) as pool:
        disturbance = pool.submit(disturb)
        try:
            for _ in range(3):
                assert by_fragment(work, scanned(work)) == expected
        finally:
            is_over.set()
        disturbance.result()
    assert lance.dataset(table).version > work.table.version


def test_selected_columns_of_selected_fragments_are_scanned(
    spark: SparkSession, table: str
) -> None:
    whole = whole_table(table)
    twice = next(field for field in whole.table.fields if field.name == "twice")
    chosen = whole_table(table, columns=["twice", "word"])
    scans = [scan for scan in chosen.scans if field_key(twice) in scan.fields][2:4]
    results = scans_of(spark_scanner(TARGET).scan("t", chosen.table, scans))

    assert [scan.fragment_id for scan, _ in results] == [2, 3]
    assert all(partials.keys() == {field_key(twice)} for _, partials in results)


def test_a_damaged_fragment_fails_only_its_table(
    spark: SparkSession, table: str, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.lance"
    lance.write_dataset(rows(0, 2_000), bad, max_rows_per_file=500)
    break_fragment(bad, 2)
    scanner = spark_scanner(TARGET)
    with ThreadPoolExecutor(2) as pool:
        failing = pool.submit(scanned, whole_table(str(bad)), scanner)
        fine = pool.submit(scanned, whole_table(table), scanner)
        error = failing.exception()
        results = fine.result()

    assert isinstance(error, LakeError)
    assert error.code == "LS204"
    assert error.message.startswith(f"fragment 2 at version 1: {bad} cannot be read")
    assert "org.apache" not in str(error)
    assert len(results) == 12


def test_a_dead_worker_is_reported(
    spark: SparkSession, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partials_job, "ScanTask", DeadlyTask)
    with pytest.raises(RunError, match="worker exited unexpectedly") as caught:
        scanned(whole_table(table))
    assert caught.value.code == "LS511"
    assert "\n" not in caught.value.message


class DeadlyTask:
    """Simulate a task whose process is killed, for example by lack of memory."""

    def __init__(self, **_: Any) -> None:
        pass

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        return _deadly, ()


def _deadly() -> Any:
    def die(_: object) -> object:
        os.kill(os.getpid(), signal.SIGKILL)
        return []

    return die


def test_progress_grows_to_all_fragments_and_bytes(
    spark: SparkSession, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partials_job, "split", partial(split, sizes=FINEST))
    reports: list[tuple[str, int, int]] = []
    scanner = spark_scanner(TARGET, lambda *progress: reports.append(progress))
    work = whole_table(table)
    list(scanner.scan("orders", work.table, work.scans))

    assert len(reports) > 2, "told as tasks end, not when all have"
    assert {node for node, _, _ in reports} == {"orders"}
    assert reports == sorted(reports)
    assert reports[-1][1] == 6
    total = sum(scan.size_bytes for scan in work.scans)
    assert 0.99 * total <= reports[-1][2] <= total


def test_a_display_that_fails_does_not_stop_the_scan(spark: SparkSession, table: str) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("the terminal is gone")

    assert len(scanned(whole_table(table), spark_scanner(TARGET, fail))) == 12


def test_cancelling_stops_running_scans_and_refuses_new_ones(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partials_job, "split", partial(split, sizes=FINEST))
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(rows(0, 4_000), uri, max_rows_per_file=10)
    work = whole_table(uri)
    tasks = len(split(work.scans, 2, FINEST))
    has_begun = threading.Event()
    progress: list[int] = []

    def advanced(node: str, fragments: int, size_bytes: int) -> None:
        progress.append(fragments)
        has_begun.set()

    scanner = spark_scanner(TARGET, advanced)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(scanned, work, scanner)
        has_begun.wait()
        scanner.spark.cancel()
        error = reading.exception()

    assert isinstance(error, LancestatError)
    assert error.code == "LS512"
    assert len(progress) < tasks
    with pytest.raises(RunError, match="was cancelled"):
        scanned(work, scanner)


def test_without_fragments_no_job_is_started(tmp_path: Path) -> None:
    uri = str(tmp_path / "empty.lance")
    lance.write_dataset(rows(0, 0), uri)
    scanner = spark_scanner(TARGET)
    assert scanned(whole_table(uri), scanner) == []
    assert scanner.spark._session is None


@pytest.mark.parametrize("pinned", sample(["true", "false"], 1))
def test_scans_and_queries_run_on_executor_processes(
    table: str, tmp_path: Path, pinned: str
) -> None:
    """And after Spark has restarted in the same process."""
    bad = tmp_path / "bad.lance"
    lance.write_dataset(rows(0, 1_000), bad, max_rows_per_file=500)
    break_fragment(bad, 1)
    secret = "hunter2-hunter2-hunter2"
    events = tmp_path / "events"
    events.mkdir()
    completed = subprocess.run(
        [sys.executable, "-m", "tests.integration.executors", table, bad, events],
        env={**os.environ, "SECRET": secret, "PYSPARK_PIN_THREAD": pinned},
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert completed.returncode == 0, completed.stderr
    report = json.loads(completed.stdout)
    work = whole_table(table)
    whole = merged(work, [])
    for columns in of_kernel(table, work.table.version).values():
        whole = {name: merge([whole[name], columns[name]]) for name in whole}

    assert report["executors"] == 2
    assert report["columns"] == {name: described(column) for name, column in whole.items()}
    assert report["scan error"][:2] == ["DatasetDamaged", "LS204"]
    assert report["scan error"][2].startswith(f"fragment 1 at version 1: {bad} cannot be read")
    assert report["failed_tasks"] == 4, "the damaged fragment is tried as often as Spark allows"
    code, message, secrets = report["read error"]
    assert (code, secrets) == ("LS204", "no secret")
    assert message.startswith("fragment 1 at version 1: ")

    ids = lance.dataset(table).to_table(columns=["id"])["id"].to_pylist()
    wordless = [id for id in ids if id % 7 == 0]
    expected = [
        [[len(ids), sum(ids), sum(ids) / 2]],
        [[sum(id + 1 in ids for id in wordless)]],
        [[id, 2 * id] for id in wordless[:2]],
    ]
    assert report["first"] == report["second"] == expected
    assert report["is_loaded_again"]

    assert report["command_lines_with_secret"] == []
    assert report["odd"] == ODD
    assert {"-Xmx700m", "-XX:TieredStopAtLevel=1"} <= set(report["java_arguments"])
    assert completed.stderr == ""
    logged = b"".join(path.read_bytes() for path in events.rglob("*") if path.is_file())
    assert b"SparkListenerApplicationEnd" in logged
    assert b"lancestat: orders: 12 scans in" in logged
    assert secret.encode() not in logged
