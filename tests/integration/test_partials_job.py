from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

from lancestat.errors import LakeError, LancestatError, RunError
from lancestat.lake.fingerprint import field_key
from lancestat.lake.row_ranges import ANALYSIS
from lancestat.plan.stages import Scan
from lancestat.spark.analyze import scan_task as partials_job
from lancestat.spark.analyze.in_process import ProcessScanner
from lancestat.spark.analyze.scanner import SparkScanner
from lancestat.spark.analyze.work import TableScan, jobs, split
from lancestat.statistics.kernel import analyze
from lancestat.statistics.partial import ColumnPartial, encode, merge
from tests.integration.scans import TARGET, merged, scanned, whole_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ODD = "a=b: c\\d #e!\tü"

pytestmark = pytest.mark.spark

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
    found: dict[int, dict[str, ColumnPartial]] = defaultdict(dict)
    for scan, partials in results:
        assert partials.keys() == scan.fields
        for key, column in partials.items():
            assert names[key] not in found[scan.fragment_id], "each column of a fragment once"
            found[scan.fragment_id][names[key]] = column
    return dict(found)


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
    found = by_fragment(work, scanned(work))

    assert found == of_kernel(table, work.table.version)
    assert {id: each["id"].rows for id, each in found.items()} == {
        0: 333,
        1: 334,
        2: 433,
        3: 500,
        4: 500,
        5: 1,
    }
    assert found[5]["id"].minimum == found[5]["id"].maximum == 2_999


def test_in_this_process_the_partials_are_those_of_spark_byte_for_byte(
    spark: SparkSession, table: str
) -> None:
    work = whole_table(table)
    target = replace(TARGET, spark_master="local[2]")
    with ProcessScanner(target) as scanner:
        here = dict(scanner.scan("t", work.table, work.scans))
    there = dict(scanned(work))
    assert here.keys() == there.keys()
    for scan, partials in here.items():
        assert {key: encode(partial) for key, partial in partials.items()} == {
            key: encode(partial) for key, partial in there[scan].items()
        }


@pytest.mark.parametrize(("lightest", "per_job"), [(1, 32_768), (1, 3), (200_000, 5)])
def test_however_the_work_is_cut_the_partials_are_the_same(
    spark: SparkSession,
    table: str,
    monkeypatch: pytest.MonkeyPatch,
    lightest: int,
    per_job: int,
) -> None:
    sizes = replace(ANALYSIS, per_core=40, lightest=lightest, heaviest=50_000, per_fragment=0)
    monkeypatch.setattr(partials_job, "split", partial(split, sizes=sizes))
    monkeypatch.setattr(partials_job, "jobs", partial(jobs, limit=per_job))
    work = whole_table(table)
    finest = split(work.scans, 2, replace(sizes, lightest=1))
    parts = [part.parts for item in finest for part in item.ranges]
    assert max(parts) > 1, "fragments are read in several ranges"

    assert by_fragment(work, scanned(work)) == of_kernel(table, work.table.version)


def test_the_version_stays_while_others_write(spark: SparkSession, table: str) -> None:
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


def test_some_columns_of_some_fragments(spark: SparkSession, table: str) -> None:
    whole = whole_table(table)
    twice = next(field for field in whole.table.fields if field.name == "twice")
    chosen = whole_table(table, columns=["twice", "word"])
    scans = [scan for scan in chosen.scans if field_key(twice) in scan.fields][2:4]
    results = list(SparkScanner(TARGET).scan("t", chosen.table, scans))

    assert [scan.fragment_id for scan, _ in results] == [2, 3]
    assert all(partials.keys() == {field_key(twice)} for _, partials in results)


def test_a_damaged_fragment_fails_its_table_and_no_other(
    spark: SparkSession, table: str, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.lance"
    lance.write_dataset(rows(0, 2_000), bad, max_rows_per_file=500)
    break_fragment(bad, 2)
    scanner = SparkScanner(TARGET)
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


def test_a_worker_that_dies_is_named_as_such(
    spark: SparkSession, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partials_job, "ScanTask", DeadlyTask)
    with pytest.raises(RunError, match="worker exited unexpectedly") as caught:
        scanned(whole_table(table))
    assert caught.value.code == "LS511"
    assert "\n" not in caught.value.message


class DeadlyTask:
    """Stands in for a task whose process is killed, for want of memory say."""

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
    told: list[tuple[str, int, int]] = []
    scanner = SparkScanner(TARGET, lambda *progress: told.append(progress))
    work = whole_table(table)
    list(scanner.scan("orders", work.table, work.scans))

    assert len(told) > 2, "told as tasks end, not when all have"
    assert {node for node, _, _ in told} == {"orders"}
    assert told == sorted(told)
    assert told[-1][1] == 6
    total = sum(scan.size_bytes for scan in work.scans)
    assert 0.99 * total <= told[-1][2] <= total


def test_a_display_that_fails_does_not_stop_the_scan(spark: SparkSession, table: str) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("the terminal is gone")

    assert len(scanned(whole_table(table), SparkScanner(TARGET, fail))) == 12


def test_cancelling_stops_what_goes_on_and_refuses_what_comes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partials_job, "split", partial(split, sizes=FINEST))
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(rows(0, 4_000), uri, max_rows_per_file=10)
    work = whole_table(uri)
    tasks = len(split(work.scans, 2, FINEST))
    has_begun = threading.Event()
    told: list[int] = []

    def advanced(node: str, fragments: int, size_bytes: int) -> None:
        told.append(fragments)
        has_begun.set()

    scanner = SparkScanner(TARGET, advanced)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(scanned, work, scanner)
        has_begun.wait()
        scanner.cancel()
        error = reading.exception()

    assert isinstance(error, LancestatError)
    assert error.code == "LS512"
    assert len(told) < tasks
    with pytest.raises(RunError, match="was cancelled"):
        scanned(work, scanner)


def test_nothing_to_scan_starts_nothing(tmp_path: Path) -> None:
    uri = str(tmp_path / "empty.lance")
    lance.write_dataset(rows(0, 0), uri)
    scanner = SparkScanner(TARGET)
    assert scanned(whole_table(uri), scanner) == []
    assert scanner._session is None


def test_real_executor_processes(table: str, tmp_path: Path) -> None:
    bad = tmp_path / "bad.lance"
    lance.write_dataset(rows(0, 1_000), bad, max_rows_per_file=500)
    break_fragment(bad, 1)
    secret = "hunter2-hunter2-hunter2"
    events = tmp_path / "events"
    events.mkdir()
    ended = subprocess.run(
        [sys.executable, "-m", "tests.integration.local_cluster", table, bad, events],
        env={**os.environ, "SECRET": secret},
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    work = whole_table(table)
    whole = merged(work, [])
    for each in of_kernel(table, work.table.version).values():
        whole = {name: merge([whole[name], each[name]]) for name in whole}

    assert told["executors"] == 2
    assert told["columns"] == {
        name: [each.rows, each.nulls, str(each.minimum), str(each.maximum), hash_of(each)]
        for name, each in whole.items()
    }
    assert told["error"][:2] == ["DatasetDamaged", "LS204"]
    assert told["error"][2].startswith(f"fragment 1 at version 1: {bad} cannot be read")
    assert told["failed_tasks"] == 4, "the damaged fragment is tried as often as Spark allows"
    assert told["command_lines_with_secret"] == []
    assert told["odd"] == ODD
    assert {"-Xmx700m", "-XX:TieredStopAtLevel=1"} <= set(told["java_arguments"])
    assert ended.stderr == ""
    logged = b"".join(path.read_bytes() for path in events.rglob("*") if path.is_file())
    assert b"SparkListenerApplicationEnd" in logged
    assert b"lancestat: orders: 12 scans in" in logged
    assert secret.encode() not in logged


def hash_of(partial: ColumnPartial) -> str:
    return hashlib.sha256(partial.sketch.registers).hexdigest()
