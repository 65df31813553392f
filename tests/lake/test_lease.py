"""Running processes and their leases."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from lancestat.lake import temporary_files
from lancestat.lake.temporary_files import TAG, Lease, Process, abandoned, process_of, this_process


@pytest.fixture
def child() -> Iterator[tuple[Process, subprocess.Popen[bytes]]]:
    """Another process of this host."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as running:
        process = Process(this_process().host, running.pid, temporary_files._started(running.pid))
        yield process, running
        running.kill()


def test_this_process_is_alive() -> None:
    assert this_process().is_alive() is True
    assert this_process() == this_process()


def test_another_process_is_alive_until_it_ends(
    child: tuple[Process, subprocess.Popen[bytes]],
) -> None:
    process, running = child
    assert process.is_alive() is True
    running.kill()
    running.wait()
    assert process.is_alive() is False


def test_a_reused_process_id_is_another_process() -> None:
    mine = this_process()
    assert mine.started is not None
    assert replace(mine, started=mine.started - 1).is_alive() is False


def test_processes_of_other_hosts_are_unknown() -> None:
    assert replace(this_process(), host="elsewhere").is_alive() is None


def test_unused_process_ids_are_dead() -> None:
    mine = this_process()
    assert replace(mine, pid=2**22 + 1).is_alive() is False
    assert replace(mine, pid=2**70).is_alive() is False


def test_without_a_start_time_a_missing_process_is_unknown(
    child: tuple[Process, subprocess.Popen[bytes]],
) -> None:
    """Names of hosts are not unique."""
    process, running = child
    process = replace(process, started=None)
    assert process.is_alive() is True
    running.kill()
    running.wait()
    assert process.is_alive() is None


NOW = datetime(2030, 1, 1, tzinfo=timezone.utc)
ELSEWHERE = Process("elsewhere", 1, 1)


def test_a_lease_ends_with_its_owner() -> None:
    mine = this_process()
    assert mine.started is not None
    gone = replace(mine, started=mine.started - 1)
    assert Lease(mine, NOW - timedelta(days=100)).is_held(NOW)
    assert not Lease(gone, NOW).is_held(NOW)
    assert list(abandoned([("mine", Lease(mine)), ("gone", Lease(gone))])) == ["gone"]


@pytest.mark.parametrize("owner", [ELSEWHERE, None])
def test_a_lease_of_another_host_ends_after_a_time(owner: Process | None) -> None:
    assert Lease(owner, NOW - timedelta(days=6)).is_held(NOW)
    assert not Lease(owner, NOW - timedelta(days=8)).is_held(NOW)
    assert not Lease(owner, NOW - timedelta(minutes=2), timedelta(minutes=1)).is_held(NOW)
    assert Lease(owner).is_held(NOW), "nothing tells when it was last renewed"


def test_tags_name_the_processes_of_this_host() -> None:
    mine = this_process()
    assert re.fullmatch(TAG, mine.tag)
    assert process_of(mine.tag) == mine
    assert process_of(f"{'0' * 12}-{mine.pid}-1") is None
    assert Lease.of_tag(mine.tag) == Lease(mine)
    assert Lease.of_tag(mine.tag, 1e300) == Lease(mine), "no such time"


def test_a_process_round_trips_through_its_stored_form() -> None:
    for process in (this_process(), Process("h", 7)):
        assert Process.from_json(json.loads(json.dumps(process.to_json()))) == process
    for broken in ({}, {"host": "h"}, {"host": "h", "pid": "x", "started": None}):
        with pytest.raises((KeyError, ValueError)):
            Process.from_json(broken)
