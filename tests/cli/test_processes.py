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

import lance
import pyarrow as pa
import pytest

PROJECT = """
name: shop
default-target: dev
targets:
  dev:
    spark: {master: "local[1]", min-bytes: 0}
    state: state
spec-paths: [specs]
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
    (tmp_path / "specs").mkdir()
    (tmp_path / "lancestat_project.yml").write_text(PROJECT)
    (tmp_path / "specs" / "shop.yml").write_text(TABLES)
    lance.write_dataset(pa.table({"o_id": range(1000)}), str(tmp_path / "orders.lance"))
    lance.write_dataset(pa.table({"p_id": range(10)}), str(tmp_path / "part.lance"))
    return tmp_path


def lancestat(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lancestat", *args]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)


def spark_is_starting(group: int) -> bool:
    """Return whether a process of the group has become Spark's JVM."""
    listing = subprocess.run(
        ["ps", "-A", "-ww", "-o", "pgid=,args="], capture_output=True, text=True, check=True
    )
    lines = (line.split(maxsplit=1) for line in listing.stdout.splitlines())
    return any(int(line[0]) == group and "SparkSubmit" in line[-1] for line in lines)


@pytest.mark.spark
def test_stdout_is_only_payload_while_tables_change(shop: Path) -> None:
    assert lancestat(shop, "plan", "--check").returncode == 3
    first = lancestat(shop, "run", "--output", "json")
    assert first.returncode == 0
    # Each table has a line with time and level.
    levels = re.findall(r"^\S+ \S+ UTC (\w+) +(orders|part): analyze, ", first.stderr, re.M)
    assert sorted(levels) == [("INFO", "orders"), ("INFO", "part")]
    assert len(first.stderr.splitlines()) == 2
    nodes = {node["name"]: node for node in json.loads(first.stdout)["nodes"]}
    assert nodes["orders"]["action"] == "analyze"
    assert nodes["orders"]["version_published"] == 2
    assert nodes["part"]["version_published"] is None

    # The command does not wait for Spark, whose JVM then stops and removes its files by itself.
    end = time.monotonic() + 120
    while list((shop / "spark").iterdir()) and time.monotonic() < end:
        time.sleep(0.05)
    assert not list((shop / "spark").iterdir())

    rested = lancestat(shop, "plan", "--check")
    assert rested.returncode == 0
    assert rested.stdout.endswith("Nothing to do: all statistics are up to date.\n")

    lance.write_dataset(
        pa.table({"o_id": range(1000, 1100)}), str(shop / "orders.lance"), mode="append"
    )
    planned = lancestat(shop, "plan", "--check", "--output", "json")
    assert planned.returncode == 3
    (grown,) = [n for n in json.loads(planned.stdout)["nodes"] if n["action"] != "skip"]
    assert (grown["reasons"], grown["rows_scanned"]) == (["rows_appended"], 100)

    project = shop / "lancestat_project.yml"
    project.write_text(PROJECT.replace(", min-bytes: 0", ""))
    second = lancestat(shop, "run", "--quiet")
    assert (second.returncode, second.stderr) == (0, "")
    assert second.stdout.endswith(
        "1 table brought up to date, 1 unchanged.\nRead 1 fragment, 100 rows.\n"
    )

    payload = json.loads(lancestat(shop, "show", "orders", "--output", "json").stdout)
    assert (payload["verdict"], payload["reason"], payload["numRows"]) == ("use", "current", 1100)
    assert payload["columns"]["o_id"]["max"] == "1099"
    assert lancestat(shop, "gc", "--dry-run").stdout == "Nothing to remove.\n"


@pytest.mark.spark
def test_debug_starts_spark_and_checks_its_workers(shop: Path) -> None:
    looked = lancestat(shop, "debug")
    assert looked.returncode == 0, looked.stdout
    assert looked.stdout.splitlines()[-1].startswith("ok  Spark")


@pytest.mark.spark
@pytest.mark.fault
def test_interrupted_runs_report_it_and_the_next_one_finishes(shop: Path) -> None:
    command = [sys.executable, "-m", "lancestat", "run", "--quiet"]
    # A terminal interrupts the whole group; a scheduler terminates the process that it started.
    for send, sent, code, message in (
        (os.killpg, signal.SIGINT, 130, "interrupted"),
        (os.kill, signal.SIGTERM, 143, "terminated"),
    ):
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
            "0 tables brought up to date, 0 unchanged, 2 stopped.\nNo data was read.\n"
        )
        assert stderr == f"{message}; nothing was stored yet; lancestat retry begins again\n"
        assert "interrupted" in lancestat(shop, "status").stdout
    again = lancestat(shop, "retry", "--quiet")
    assert (again.returncode, again.stderr) == (0, ""), again.stdout
    assert again.stdout.endswith(
        "2 tables brought up to date, 0 unchanged.\nRead 2 fragments, 1,010 rows.\n"
    )
