"""Writers, other runs and SIGKILL during a run: no reader ever accepts false statistics."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import lance
import pytest

from lancestat.lake.fingerprint import schema_hash
from lancestat.lake.open import snapshot
from lancestat.runs.actions import Skip
from lancestat.state.store import open_state
from lancestat.tables.judgement import examine
from lancestat.tables.wire import GuardReason, decode_statistics, unstamped
from tests.examples import sample
from tests.runs.world import World, orders
from tests.tables.test_history import full_values

pytestmark = pytest.mark.fault


def check_no_reader_is_misled(path: Path) -> bool:
    """Check published statistics of all versions; return whether the newest are accepted."""
    use = False
    for version in range(1, lance.dataset(str(path)).version + 1):
        dataset = lance.dataset(str(path), version=version)
        hashed = schema_hash(snapshot(dataset).fields)
        decoded = decode_statistics(dataset.config())
        finding = examine(decoded, version=version, schema_hash=hashed)
        use = finding.reason is GuardReason.CURRENT
        if use:
            assert unstamped(dataset.config()) == full_values(dataset, hashed), version
    return use


def test_runs_converge_while_rows_are_appended(world: World) -> None:
    stop = threading.Event()

    def append() -> None:
        # So few that a run catches up: with thousands of versions every commit takes longer than
        # the next append.
        for number in range(100, 1_000, 3):
            if stop.is_set():
                return
            lance.write_dataset(orders(number, 3), str(world.path), mode="append")
            time.sleep(random.uniform(0, 0.03))

    writer = threading.Thread(target=append)
    writer.start()
    try:
        outcomes = {node.status.value for _ in range(15) for node in world.run().nodes}
    finally:
        stop.set()
        writer.join()
    assert outcomes <= {"success", "error"}
    check_no_reader_is_misled(world.path)
    assert world.run().status == "success"
    assert check_no_reader_is_misled(world.path)


def test_an_append_between_plan_and_run_is_read_too(world: World) -> None:
    plan = world.plan()
    lance.write_dataset(orders(100, 10), str(world.path), mode="append")
    [node] = world.execute(plan).nodes
    assert node.status == "success"
    assert node.version_published == world.dataset.version
    assert node.rows_scanned == 110
    assert check_no_reader_is_misled(world.path)


def test_a_table_that_changes_on_every_attempt_is_reported(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a bounded number of attempts the run fails; its statistics are refused by readers."""
    from lancestat.tables import carriers

    commit = carriers.commit

    def slip_in(publication: object, **options: object) -> object:
        lance.write_dataset(orders(100, 1), str(world.path), mode="append")
        return commit(publication, **options)

    monkeypatch.setattr(carriers, "commit", slip_in)
    [node] = world.run().nodes
    assert node.status == "error"
    assert node.code == "LS604"
    assert not check_no_reader_is_misled(world.path)
    monkeypatch.setattr(carriers, "commit", commit)
    world.reads.clear()
    assert world.run().status == "success"
    assert check_no_reader_is_misled(world.path)
    assert len(world.reads) == 1, "all but the last append was remembered"


def test_two_concurrent_runs_converge(world: World, tmp_path: Path) -> None:
    state = open_state(str(tmp_path / "state"))
    worlds = [World(world.path, state=state), World(world.path, state=state)]
    for round in range(4):
        lance.write_dataset(orders(100 + round, 1), str(world.path), mode="append")
        threads = [threading.Thread(target=one.run) for one in worlds]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert check_no_reader_is_misled(world.path)
        assert isinstance(worlds[0].action(), Skip)


RUN = """
import sys
from pathlib import Path
from lancestat.state.store import open_state
from tests.runs.world import World

world = World(Path(sys.argv[1]), state=open_state(sys.argv[2]))
print("ready", flush=True)
while True:
    world.run()
    world.run(full_refresh=True)
    world.dataset.update_config({"owner": "shop"})
"""


@pytest.mark.parametrize("seed", sample(range(8), 2))
def test_a_run_killed_at_a_random_moment_is_recovered(
    world: World, tmp_path: Path, seed: int
) -> None:
    state = tmp_path / "state"
    lance.write_dataset(orders(100, 10), str(world.path), mode="append")
    command = [sys.executable, "-c", RUN, str(world.path), str(state)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(random.Random(seed).uniform(0, 0.6))
        process.send_signal(signal.SIGKILL)
    check_no_reader_is_misled(world.path)
    next_run = World(world.path, state=open_state(str(state)))
    assert next_run.run().status == "success"
    assert check_no_reader_is_misled(world.path)
    assert isinstance(next_run.action(), Skip)
