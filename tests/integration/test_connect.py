"""lancestat over Spark Connect: a real server, whose workers have lancestat from an archive."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest
import yaml

import lancestat
from lancestat.cli.debug import check_spark
from lancestat.errors import LancestatError, ScratchNotShared, SparkConnectSession, SparkNotStarted
from lancestat.joins.search.cost_model import Decision, JoinSize, Strategy, choose
from lancestat.joins.search.work import JoinRequest
from lancestat.lake.snapshot import ANALYSIS
from lancestat.spark.failure import job_error
from lancestat.spark.jobs import ConnectJobs, jobs_of
from lancestat.spark.session import connect, running_session
from lancestat.spark.versions import is_connect
from lancestat.spec.model import Target
from lancestat.tables import analyze
from lancestat.tables.analyze import SparkScanner
from lancestat.tables.statistics.partial import encode
from lancestat.tables.work_items import split
from tests.connect_client import ENVIRONMENT
from tests.examples import sample
from tests.integration.commands import lancestat as commands
from tests.integration.connect_server import ConnectServer, connect_server
from tests.integration.knn_oracle import Row, assert_same, awkward, joined
from tests.integration.scans import TARGET, scanned, spark_scanner, whole_table
from tests.runs.world import write_project
from tests.versions import needs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, needs.connect_server]

FINEST = replace(ANALYSIS, lightest=1)
OPTION = "qzoption" + "63f1a9"
ROWS = 3_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    with connect_server(tmp_path_factory.mktemp("connect")) as running:
        yield running


def test_a_session_that_the_server_refuses_is_not_used_later(server: ConnectServer) -> None:
    with pytest.raises(SparkNotStarted, match="the Spark Connect server refuses"):
        connect(server.remote.replace(server.token, "another-token"), {}, "tests")
    left = running_session()
    assert left is None or not is_connect(left)


@pytest.fixture(scope="module")
def remote(server: ConnectServer, spark: SparkSession) -> Iterator[SparkSession]:
    """A session on the server, beside the classic one, which has to be started first."""
    assert not is_connect(spark)
    session = connect(server.remote, {"spark.sql.session.timeZone": "UTC"}, "tests")
    yield session
    session.stop()


def rows(start: int, stop: int) -> pa.Table:
    numbers = np.arange(start, stop)
    return pa.table(
        {
            "n": numbers,
            "word": [None if n % 7 == 0 else f"word {n % 400}" for n in numbers.tolist()],
            "x": np.where(numbers % 11 == 0, np.nan, numbers / 3),
        }
    )


@pytest.fixture
def orders(tmp_path: Path) -> str:
    uri = str(tmp_path / "orders.lance")
    lance.write_dataset(rows(0, ROWS), uri, max_rows_per_file=500)
    return uri


def encoded(uri: str, scanner: SparkScanner) -> dict[int, dict[str, bytes]]:
    return {
        scan.fragment_id: {key: encode(part) for key, part in partials.items()}
        for scan, partials in scanned(whole_table(uri), scanner)
    }


def declare(folder: Path, spark: dict[str, Any], **more: Any) -> lancestat.Project:
    return write_project(folder, "orders", target={"state": "state", "spark": spark, **more})


def test_workers_have_lancestat_from_the_archive(
    remote: SparkSession, server: ConnectServer
) -> None:
    def places(items: Iterable[int]) -> Iterator[tuple[str, tuple[()]]]:
        import lancestat

        for _ in items:
            yield lancestat.__file__, ()

    jobs = jobs_of(remote)
    assert isinstance(jobs, ConnectJobs)
    assert jobs.cores == 2
    for place in jobs.run(places, [1, 2, 3]):
        assert ".zip/" in place
        assert Path(place.partition(".zip/")[0]).name == server.archive.stem


def test_the_partials_are_those_of_a_classic_session(
    spark: SparkSession, remote: SparkSession, orders: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(analyze, "split", partial(split, sizes=FINEST))
    progress: list[tuple[str, int, int]] = []
    far = spark_scanner(TARGET, lambda *step: progress.append(step), session=remote)

    assert encoded(orders, far) == encoded(orders, spark_scanner(TARGET, session=spark))
    assert len(progress) > 2, "told as results arrive, not when all have"
    assert progress == sorted(progress)
    assert progress[-1][1] == ROWS // 500


def test_a_failed_item_fails_its_own_table_with_the_error_of_a_worker(
    spark: SparkSession, remote: SparkSession, orders: str, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.lance"
    lance.write_dataset(rows(0, 100), bad, max_rows_per_file=50)
    whole = whole_table(str(bad))
    broken = lance.dataset(bad).get_fragments()[1].data_files()[0].path
    path = bad / "data" / broken
    path.write_bytes(path.read_bytes()[:20])
    far = spark_scanner(TARGET, session=remote)
    with ThreadPoolExecutor(2) as pool:
        failing, fine = pool.submit(scanned, whole, far), pool.submit(encoded, orders, far)
        error = failing.exception()
        assert len(fine.result()) == ROWS // 500
    assert isinstance(error, LancestatError)
    with pytest.raises(LancestatError) as classic:
        scanned(whole, spark_scanner(TARGET, session=spark))
    assert str(error) == str(classic.value)
    assert error.code == "LS204"


def run_waiting(spark: SparkSession, name: str, mark: Path) -> list[str]:
    """Run a job of one group that holds a core until the file is there."""

    def wait(items: Iterable[str]) -> Iterator[tuple[str, tuple[()]]]:
        for item in items:
            Path(item).with_suffix(".began").touch()
            while not Path(item).exists():
                time.sleep(0.02)
            yield item, ()

    jobs = jobs_of(spark)
    with jobs.group(name, "a test"):
        return jobs.run(wait, [str(mark)])


def until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        time.sleep(0.02)


@pytest.mark.thorough
def test_cancelling_ends_one_group_and_no_other(remote: SparkSession, tmp_path: Path) -> None:
    is_over = threading.Event()
    marks = {name: tmp_path / name for name in ("cancelled", "other")}
    with ThreadPoolExecutor(2) as pool:
        cancelled, other = (
            pool.submit(run_waiting, remote, name, mark) for name, mark in marks.items()
        )
        until(lambda: len([*tmp_path.glob("*.began")]) == 2)
        jobs_of(remote).cancel("cancelled", is_over.is_set)
        error = cancelled.exception()
        is_over.set()
        assert not other.done()
        marks["other"].touch()
        assert other.result() == [str(marks["other"])]
    assert isinstance(error, Exception)
    assert job_error(error, "this", ()).code == "LS512"


def test_the_session_of_the_caller_is_used(
    remote: SparkSession, tmp_path: Path, orders: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    run = ConnectJobs.run

    def recorded(self: ConnectJobs, *arguments: Any) -> Any:
        seen.append(self.spark)
        return run(self, *arguments)

    monkeypatch.setattr(ConnectJobs, "run", recorded)
    project = declare(tmp_path, {"master": "local[2]"})
    assert project.run(session=remote).status == "success"
    assert seen == [remote]
    # That of the process, which the threads that work on nodes do not see.
    assert running_session() is remote
    result = project.run(full_refresh=True)
    assert [node.runs_on for node in result.nodes] == ["spark"]
    assert seen == [remote, remote]
    assert project.plan().actions[0].verb == "skip"


def test_secrets_reach_neither_logs_nor_files(
    remote: SparkSession, server: ConnectServer, tmp_path: Path, orders: str
) -> None:
    project = declare(
        tmp_path, {"remote": server.remote}, **{"storage_options": {"qz_key": OPTION}}
    )
    assert project.run(session=remote).status == "success"
    frame = vectors(remote, [[1.0, 2.0]] * 4)
    scratch, options = str(tmp_path / "scratch"), {"qz_key": OPTION}
    near = join(frame, frame, 2, scratch=scratch, storage_options=options)
    assert near.count() == 8
    shown = [repr(project.spec), repr(project.plan())]
    written = [
        path
        for folder in (server.events, tmp_path / "state", tmp_path / "orders.lance")
        for path in folder.rglob("*")
        if path.is_file()
    ]
    texts = [*map(str.encode, shown), *map(Path.read_bytes, [*written, server.printed])]
    assert any(b"map_partitions" in text for text in texts), "jobs are in the event log"
    for secret in (OPTION, server.token, server.remote):
        assert not [text for text in texts if secret.encode() in text]


def vectors(spark: SparkSession, values: list[Any]) -> DataFrame:
    """Numbered rows in that order, in a few partitions."""
    table = pa.table({"id": range(len(values)), "emb": pa.array(values, pa.list_(pa.float32()))})
    names = pa.array([f"row {number}" for number in range(len(values))])
    return spark.createDataFrame(table.append_column("name", names))


def join(left: DataFrame, right: DataFrame, k: int | str, **options: Any) -> DataFrame:
    chosen = {"select_left": ["id"], "select_right": ["id", "name"], "rank": True} | options
    return lancestat.knn_join(left, right, left_vector="emb", right_vector="emb", k=k, **chosen)


LISTS = 5


@pytest.mark.parametrize("form", sample(["driver", "chunks", "ivf", "shuffle"], 2))
def test_dataframes_have_the_neighbours_of_brute_force(
    remote: SparkSession, tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def chosen(request: JoinRequest, size: JoinSize, cores: int) -> Decision:
        assert not size.has_nearest_by_join or size.right_rows is None
        if request.is_approximate:
            return Decision(Strategy.IVF, "asked for", lists=LISTS)
        return choose(request, size, cores)

    monkeypatch.setattr("lancestat.joins.planner.choose", chosen)
    monkeypatch.setattr(
        "lancestat.joins.spark.cells.DRIVER_LINES", 1 << 20 if form == "driver" else 0
    )
    monkeypatch.setattr("lancestat.joins.knn_join.LOCAL_BYTES", 0)
    if form != "chunks":
        monkeypatch.setattr("lancestat.joins.spark.cells.SHUFFLE_SECONDS", 0)
        monkeypatch.setattr("lancestat.joins.spark.cells.DRIVER_SECONDS", 0)
    rng = np.random.default_rng(len(form))
    left, right = awkward(rng, 60, 4), awkward(rng, 150, 4)
    approx = {"mode": "approx", "nprobes": LISTS} if form == "ivf" else {}

    neighbours = join(
        vectors(remote, left),
        vectors(remote, right),
        7,
        join="left_outer",
        scratch=str(tmp_path),
        **approx,
    )

    found: list[Row] = [
        (row.id, row.id_right, row._distance, row._rank) for row in neighbours.collect()
    ]
    assert_same(found, joined(left, right, 7, "l2", "left_outer"))


@pytest.mark.parametrize("k", sample(["all", 4], 1))
def test_rows_with_equal_keys_are_joined(
    remote: SparkSession, tmp_path: Path, k: int | str
) -> None:
    rng = np.random.default_rng(8)
    left, right = awkward(rng, 60, 4), awkward(rng, 150, 4)
    sides = [vectors(remote, side).selectExpr("*", "id % 3 as shop") for side in (left, right)]
    pairs = [
        (line[0], line[1])
        for line in joined(left, right, 150, "l2", "inner")
        if line[0] % 3 == (line[1] or 0) % 3 and (line[2] or 0) <= 2.0
    ]
    most = 150 if k == "all" else int(k)
    wanted = [pair for _, some in groupby(pairs, lambda pair: pair[0]) for pair in [*some][:most]]
    near = join(*sides, k, on=["shop"], max_distance=2.0, scratch=str(tmp_path))
    assert [(row.id, row.id_right) for row in near.collect()] == wanted
    assert len(wanted) > 60


def test_the_command_runs_tables_and_joins_on_the_server(
    server: ConnectServer, tmp_path: Path, orders: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QZ_REMOTE", server.remote)
    # Nothing starts Java here.
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    rng = np.random.default_rng(3)
    left, right = awkward(rng, 40, 4), awkward(rng, 90, 4)
    for name, values in (("left", left), ("right", right)):
        table = {"id": range(len(values)), "emb": pa.array(values, pa.list_(pa.float32(), 4))}
        lance.write_dataset(pa.table(table), tmp_path / f"{name}.lance")
    declare(tmp_path, {"remote": "{{ env_var('QZ_REMOTE') }}"}, scratch="scratch")
    side = {"vector": "emb", "select": ["id"]}
    declared = {
        "name": "near",
        "left": {"table": "left", **side},
        "right": {"table": "right", **side},
        "k": 5,
        "rank": True,
        "output": {"lance": "near.lance"},
    }
    tables = [{"name": name, "uri": f"{name}.lance"} for name in ("left", "right")]
    specs = {"tables": tables, "knn_joins": [declared]}
    (tmp_path / "specs" / "joins.yml").write_text(yaml.safe_dump(specs))

    planned, analyzed, done, refused, unknown = commands(
        tmp_path,
        ENVIRONMENT,
        ("plan",),
        ("sql", "ANALYZE TABLE Orders COMPUTE STATISTICS FOR COLUMNS N"),
        ("run",),
        ("sql", "select count(*) from orders"),
        ("sql", "analyze table elsewhere compute statistics"),
    )
    assert "Spark's nearestByJoin cannot be used here" in planned.stdout, planned.stderr
    assert (done.returncode, done.stderr.count("LS")) == (0, 0), done.stderr
    result = lance.dataset(tmp_path / "near.lance").to_table()
    found = zip(*(result[name].to_pylist() for name in result.column_names), strict=True)
    assert_same([*found], joined(left, right, 5, "l2", "inner"))
    assert (refused.returncode, refused.stderr.count("LS523")) == (1, 1)
    assert (analyzed.returncode, analyzed.stdout.count("+ analyze  orders")) == (0, 1), analyzed
    keys = " ".join(lance.dataset(orders, version=2).config())
    assert (".n." in keys, ".word." in keys) == (True, False), keys
    assert (unknown.returncode, unknown.stderr.count("LS40")) == (2, 1), unknown.stderr
    for ended in (planned, done, refused, analyzed, unknown):
        assert server.token not in ended.stdout + ended.stderr


def test_an_interrupt_ends_the_command_and_its_jobs(
    remote: SparkSession, server: ConnectServer, tmp_path: Path, orders: str
) -> None:
    declare(tmp_path, {"remote": server.remote})

    def jobs_begun() -> int:
        return next(server.events.iterdir()).read_text().count('"SparkListenerJobStart"')

    marks = [tmp_path / name for name in ("first", "second")]
    with ThreadPoolExecutor(2) as pool:
        # Others hold both cores.
        others = [pool.submit(run_waiting, remote, mark.name, mark) for mark in marks]
        try:
            until(lambda: len([*tmp_path.glob("*.began")]) == 2)
            before = jobs_begun()
            with subprocess.Popen(
                [sys.executable, "-m", "lancestat", "run"],
                cwd=tmp_path,
                env={**os.environ, **ENVIRONMENT},
                stderr=subprocess.PIPE,
                text=True,
            ) as process:
                until(lambda: jobs_begun() > before or process.poll() is not None)
                process.send_signal(signal.SIGINT)
                _, printed = process.communicate()
        finally:
            for mark in marks:
                mark.touch()
        assert process.returncode == 130, printed
        assert [other.result() for other in others] == [[str(mark)] for mark in marks]
    assert lance.dataset(orders).version == 1


def test_a_server_that_dies_ends_the_run_and_the_next_one_does_what_is_left(
    tmp_path: Path, orders: str
) -> None:
    folder = tmp_path / "server"
    folder.mkdir()
    with connect_server(folder) as mortal:
        more = {"scratch": str(tmp_path / "scratch")}
        declare(tmp_path, {"remote": mortal.remote, "connect_timeout": "3s"}, **more)
        with started_run(tmp_path, tmp_path / "began") as run:
            until(lambda: (tmp_path / "began").exists() or run.poll() is not None)
            os.kill(mortal.pid, signal.SIGKILL)
            _, printed = run.communicate(timeout=300)
    assert run.returncode == 1, printed
    assert "the Spark Connect server does not answer; it is tried for 3" in printed
    assert mortal.token not in printed
    assert lance.dataset(orders).version == 1
    project = declare(tmp_path, {"master": "local[2]"})
    [failed] = project.state.runs(9)
    assert (failed.status, failed.nodes[0].result["code"]) == ("error", "LS522")
    assert project.retry().ok
    assert lance.dataset(orders).version == 2


def test_without_a_server_one_node_fails_and_the_others_are_not_run(
    tmp_path: Path, orders: str
) -> None:
    nobody = {"remote": "sc://127.0.0.1:1", "connect_timeout": "1s"}
    names = ("orders", "parts", "items")
    target = {"state": "state", "spark": nobody, "scratch": str(tmp_path / "scratch")}
    write_project(tmp_path, *names, target=target)
    for name in names[1:]:
        shutil.copytree(orders, tmp_path / f"{name}.lance")
    run = subprocess.run(
        [sys.executable, "-m", "lancestat", "run", "--output", "json"],
        cwd=tmp_path,
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1, run.stderr
    nodes = json.loads(run.stdout)["nodes"]
    [failed] = [node for node in nodes if node["status"] == "error"]
    others = [node for node in nodes if node is not failed]
    assert failed["code"] == "LS522"
    assert [(node["status"], node["message"]) for node in others] == [
        ("skipped", f"it needs Spark, which failed '{failed['name']}'")
    ] * 2
    unfinished = lancestat.Project.load(tmp_path).unfinished()
    assert sorted(unfinished.nodes) == sorted(names)


@pytest.mark.thorough
def test_a_server_that_restarts_in_time_is_used_on(tmp_path: Path, orders: str) -> None:
    folders = tmp_path / "before", tmp_path / "after"
    for folder in folders:
        folder.mkdir()
    with connect_server(folders[0]) as mortal, ExitStack() as later:
        declare(tmp_path, {"remote": mortal.remote}, scratch=str(tmp_path / "scratch"))
        began = tmp_path / "began"
        run = later.enter_context(started_run(tmp_path, began))
        until(lambda: began.exists() or run.poll() is not None)
        os.kill(mortal.pid, signal.SIGKILL)
        began.unlink()
        later.enter_context(connect_server(folders[1], mortal))
        printed = "".join(run.communicate(timeout=300))
    assert run.returncode == 0, printed
    assert "'orders' goes on: the Spark Connect server has restarted" in printed
    assert lance.dataset(orders).version == 2
    project = declare(tmp_path, {"master": "local[2]"})
    assert project.plan().actions[0].verb == "skip"


# Runs the project, whose session has started once the file is there; workers wait while it is.
RUN_AND_WAIT = """
import sys
from pathlib import Path
from lancestat.cli.main import main
from lancestat.spark import jobs
run, mark, calls = jobs.ConnectJobs.run, sys.argv[1], []
def waiting(self, task, items, listener=None):
    if not calls:
        Path(mark).touch()
    calls.append(1)
    def slow(part):
        import time
        while Path(mark).exists():
            time.sleep(0.1)
        yield from task(part)
    return run(self, slow, items, listener)
jobs.ConnectJobs.run = waiting
sys.argv[1:] = ["run"]
main()
"""


def started_run(folder: Path, began: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", RUN_AND_WAIT, str(began)],
        cwd=folder,
        env={**os.environ, **ENVIRONMENT},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_what_needs_the_jvm_is_refused_in_one_sentence(
    remote: SparkSession, tmp_path: Path, orders: str
) -> None:
    project = declare(tmp_path, {"remote": "sc://localhost"})
    refused = (
        lambda: project.attach(remote),
        lambda: lancestat.read_table(remote, orders),
        lambda: lancestat.explain(remote.range(1)),
        lambda: lancestat.explain(remote.range(1), analyze=True),
        project.spark,
    )
    for call in refused:
        with pytest.raises(
            SparkConnectSession, match=r"need the driver's JVM.*format\('lancestat'"
        ):
            call()
    frame = vectors(remote, [[1.0]])
    with pytest.raises(ScratchNotShared, match="Spark Connect"):
        join(frame, frame, 1)
    lancestat.register(remote)
    assert remote.read.format("lancestat").load(orders).where("n < 10").count() == 10


def test_debug_asks_the_workers_of_the_server(server: ConnectServer, remote: SparkSession) -> None:
    check = check_spark(Target("far", "state", spark_remote=server.remote))
    assert "Spark Connect" in check.finding or "workers have" in check.finding
    assert server.token not in check.finding
