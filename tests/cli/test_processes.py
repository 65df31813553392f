"""The command line in processes of its own, with real tables and real Spark."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

import lancestat as package
from lancestat.cli.main import cli
from tests.examples import sample
from tests.interpreted import short_lived

PROJECT = """
name: shop
default_target: dev
targets:
  dev:
    spark: {master: "local[1]", min_bytes: 0}
    state: state
spec_paths: [specs]
"""
TABLES = """
tables:
  - {name: orders, uri: orders.lance}
  - {name: part, uri: part.lance, publish: none}
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # What others left on this machine is no matter of `gc` here.
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "spark"))
    for name, value in short_lived().items():
        monkeypatch.setenv(name, value)
    (tmp_path / "specs").mkdir()
    (tmp_path / "lancestat_project.yml").write_text(PROJECT)
    (tmp_path / "specs" / "shop.yml").write_text(TABLES)
    lance.write_dataset(pa.table({"o_id": range(1000)}), str(tmp_path / "orders.lance"))
    lance.write_dataset(pa.table({"p_id": range(10)}), str(tmp_path / "part.lance"))
    return tmp_path


def lancestat(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lancestat", *args]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)


def here(folder: Path, *args: str) -> Result:
    """Run a command that starts no Spark, in this process."""
    return CliRunner().invoke(cli, ["--project-dir", str(folder), *args])


def spark_is_starting(group: int) -> bool:
    """Return whether a process of the group has become Spark's JVM."""
    listing = subprocess.run(
        ["ps", "-A", "-ww", "-o", "pgid=,args="], capture_output=True, text=True, check=True
    )
    lines = (line.split(maxsplit=1) for line in listing.stdout.splitlines())
    return any(int(line[0]) == group and "SparkSubmit" in line[-1] for line in lines)


@pytest.mark.spark
def test_stdout_is_only_payload_while_tables_change(shop: Path) -> None:
    assert here(shop, "plan", "--check").exit_code == 3
    first = lancestat(shop, "run", "--output", "json")
    assert first.returncode == 0
    # Each stage and each table has a line with time and level.
    lines = re.findall(r"^\S+ \S+ UTC INFO    (orders|part): (\w+)", first.stderr, re.M)
    assert len(first.stderr.splitlines()) == len(lines)
    for name in ("orders", "part"):
        said = [what for node, what in lines if node == name]
        assert said == ["read", "merge", "publish", "analyze"]
    nodes = {node["name"]: node for node in json.loads(first.stdout)["nodes"]}
    assert nodes["orders"]["action"] == "analyze"
    assert nodes["orders"]["version_published"] == 2
    assert nodes["part"]["version_published"] is None

    # The command does not wait for Spark, whose JVM then stops and removes its files by itself.
    end = time.monotonic() + 120
    while list((shop / "spark").iterdir()) and time.monotonic() < end:
        time.sleep(0.05)
    assert not list((shop / "spark").iterdir())

    rested = here(shop, "plan", "--check")
    assert rested.exit_code == 0
    assert rested.stdout.endswith("Nothing to do: all statistics are up to date.\n")

    lance.write_dataset(
        pa.table({"o_id": range(1000, 1100)}), str(shop / "orders.lance"), mode="append"
    )
    planned = here(shop, "plan", "--check", "--output", "json")
    assert planned.exit_code == 3
    (grown,) = [n for n in json.loads(planned.stdout)["nodes"] if n["action"] != "skip"]
    assert (grown["reasons"], grown["rows_scanned"]) == (["rows_appended"], 100)

    project = shop / "lancestat_project.yml"
    project.write_text(PROJECT.replace(", min_bytes: 0", ""))
    second = lancestat(shop, "run", "--quiet")
    assert (second.returncode, second.stderr) == (0, "")
    assert second.stdout.endswith(
        "1 table brought up to date, 1 unchanged.\nRead 1 fragment, 100 rows.\n"
    )

    payload = json.loads(here(shop, "show", "orders", "--output", "json").stdout)
    assert (payload["verdict"], payload["reason"], payload["num_rows"]) == ("use", "current", 1100)
    assert payload["columns"]["o_id"]["max"] == "1099"
    assert here(shop, "gc", "--dry-run").stdout == "Nothing to remove.\n"


@pytest.mark.spark
def test_debug_starts_spark_and_checks_its_workers(shop: Path) -> None:
    looked = lancestat(shop, "debug")
    assert looked.returncode == 0, looked.stdout
    assert looked.stdout.splitlines()[-1].startswith("ok  Spark")


# A terminal interrupts the whole group; a scheduler terminates the process that it started.
INTERRUPTS = [
    (os.kill, signal.SIGTERM, 143, "terminated"),
    (os.killpg, signal.SIGINT, 130, "interrupted"),
]


@pytest.mark.spark
@pytest.mark.fault
def test_interrupted_runs_report_it_and_the_next_one_finishes(shop: Path) -> None:
    command = [sys.executable, "-m", "lancestat", "run", "--quiet"]
    for send, sent, code, message in sample(INTERRUPTS, 1):
        run = subprocess.Popen(
            command,
            cwd=shop,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        while not spark_is_starting(run.pid):
            assert run.poll() is None
            time.sleep(0.02)
        send(run.pid, sent)
        stdout, stderr = run.communicate(timeout=120)
        assert run.returncode == code
        assert stdout.endswith(
            "0 tables brought up to date, 0 unchanged, 2 stopped.\nNothing was finished.\n"
        )
        assert stderr == f"{message}; nothing was stored yet; lancestat retry begins again\n"
        assert "interrupted" in here(shop, "status").stdout
    again = lancestat(shop, "retry", "--quiet")
    assert (again.returncode, again.stderr) == (0, ""), again.stdout
    assert again.stdout.endswith(
        "2 tables brought up to date, 0 unchanged.\nRead 2 fragments, 1,010 rows.\n"
    )


# Runs the project on Spark; tasks leave a mark, and would take ten minutes.
SLOW_ON_SPARK = """
import sys
from lancestat.cli.main import main
from lancestat.spark import jobs
run, mark = jobs.ClassicJobs.run, sys.argv[1]
def waiting(self, task, items, listener=None):
    def slow(part):
        import pathlib, time
        pathlib.Path(mark).touch()
        time.sleep(600)
        yield from task(part)
    return run(self, slow, items, listener)
jobs.ClassicJobs.run = waiting
sys.argv[1:] = ["run", "--threads", "2"]
main()
"""
# Runs the project in this process, where reading never ends.
HANGING = """
import sys, threading
from lancestat.cli.main import main
from lancestat.tables.analyze import ScanTask
from pathlib import Path
mark = sys.argv[1]
def hang(task, part):
    # As reading does: it loads Polars, which handles SIGINT, too.
    import lancestat.tables.statistics.kernel
    Path(mark).touch()
    threading.Event().wait(60)
ScanTask.read = hang
sys.argv[1:] = ["run"]
main()
"""


def started(folder: Path, script: str) -> subprocess.Popen[str]:
    """Return a process once its reading has begun."""
    mark = folder / "began"
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(mark)],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while not mark.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    return process


@pytest.mark.spark
@pytest.mark.fault
def test_ctrl_c_cancels_the_jobs_of_a_local_spark(shop: Path) -> None:
    run = started(shop, SLOW_ON_SPARK)
    os.killpg(run.pid, signal.SIGINT)
    stdout, stderr = run.communicate(timeout=120)
    assert run.returncode == 130
    assert "0 tables brought up to date, 0 unchanged, 2 stopped." in stdout
    cancelling, end = stderr.splitlines()[-2:]
    assert cancelling.endswith("WARNING cancelling; interrupt again to exit immediately")
    assert end == "interrupted; nothing was stored yet; lancestat retry begins again"
    assert [node["status"] for node in last_run(shop)["nodes"]] == ["interrupted"] * 2


@pytest.mark.fault
def test_a_second_ctrl_c_ends_the_process_at_once(shop: Path) -> None:
    project = shop / "lancestat_project.yml"
    project.write_text(PROJECT.replace(", min_bytes: 0", ""))
    run = started(shop, HANGING)
    assert run.stderr is not None
    run.send_signal(signal.SIGINT)
    assert any("cancelling" in line for line in run.stderr)
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=120)
    assert run.returncode == -signal.SIGINT
    # It could record nothing any more, but it left its mark.
    assert last_run(shop)["status"] == "interrupted"


@pytest.mark.fault
def test_what_hangs_does_not_keep_an_interrupted_process_alive(shop: Path) -> None:
    project = shop / "lancestat_project.yml"
    project.write_text(PROJECT.replace(", min_bytes: 0", ""))
    run = started(shop, HANGING)
    run.send_signal(signal.SIGTERM)
    _, stderr = run.communicate(timeout=120)
    assert run.returncode == 143, stderr
    assert stderr.splitlines()[-1].startswith("terminated; ")
    assert last_run(shop)["status"] == "interrupted"


def last_run(folder: Path) -> dict[str, Any]:
    """Return the newest run as JSON has it."""
    listed = json.loads(here(folder, "runs", "--output", "json").stdout)["runs"]
    run = here(folder, "runs", listed[0]["run_id"], "--output", "json")
    one: dict[str, Any] = json.loads(run.stdout)["run"]
    return one


@pytest.mark.spark
def test_no_command_warns_of_code_of_its_own(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Also in the Python of Spark's workers.
    monkeypatch.setenv("PYTHONWARNINGS", "always")
    monkeypatch.setenv("PYTHONDEVMODE", "1")
    folder = str(Path(package.__file__).parent)
    for line in sample(("run", "show orders", "docs"), 1):
        done = lancestat(shop, *line.split())
        assert done.returncode == 0, (line, done.stderr)
        own = [
            warned
            for warned in done.stderr.splitlines()
            if re.search(rf"{re.escape(folder)}/\S+:\d+: \w*Warning", warned)
        ]
        assert own == [], line
