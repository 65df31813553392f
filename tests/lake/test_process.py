"""Which processes still run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from lancestat.lake import temporary_files as process
from lancestat.lake.temporary_files import Process, this_process


@pytest.fixture
def child() -> Iterator[tuple[Process, subprocess.Popen[bytes]]]:
    """Another process of this host."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as running:
        found = Process(this_process().host, running.pid, process._started(running.pid))
        yield found, running
        running.kill()


def test_this_process_is_alive() -> None:
    assert this_process().is_alive() is True
    assert this_process() == this_process()


def test_another_is_alive_until_it_ends(child: tuple[Process, subprocess.Popen[bytes]]) -> None:
    found, running = child
    assert found.is_alive() is True
    running.kill()
    running.wait()
    assert found.is_alive() is False


def test_a_number_that_was_given_again_is_another_process() -> None:
    mine = this_process()
    assert mine.started is not None
    assert replace(mine, started=mine.started - 1).is_alive() is False


def test_nothing_is_known_of_other_hosts() -> None:
    assert replace(this_process(), host="elsewhere").is_alive() is None


def test_numbers_that_no_process_has() -> None:
    mine = this_process()
    assert replace(mine, pid=2**22 + 1).is_alive() is False
    assert replace(mine, pid=2**70).is_alive() is False


def test_where_the_system_tells_little_only_life_is_certain(
    child: tuple[Process, subprocess.Popen[bytes]],
) -> None:
    """Names of hosts are not unique."""
    found, running = child
    found = replace(found, started=None)
    assert found.is_alive() is True
    running.kill()
    running.wait()
    assert found.is_alive() is None
