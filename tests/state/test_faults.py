"""Real processes that race each other, and that are killed."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lancestat.state.store import open_state
from lancestat.tables.stored import read_partials, table_records
from tests.examples import sample
from tests.state.conftest import fingerprint, stored

pytestmark = pytest.mark.fault

ROOT = Path(__file__).parents[2]
MINUTES = "900"


def start(folder: Path, name: str, rounds: int, retention: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            sys.executable,
            str(ROOT / "tests/state/writer.py"),
            str(folder),
            name,
            str(rounds),
            retention,
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def whole_rounds(folder: Path, name: str) -> int:
    """Rounds of a writer that are stored; fails unless each is stored wholly and truly."""
    state = open_state(str(folder))
    singles = state.partial_index("shared").singles
    numbers = range(1000)
    held = [
        [fingerprint(f"{name}/{number}/{part}") in singles for part in range(3)]
        for number in numbers
    ]
    assert all(all(parts) or not any(parts) for parts in held)
    stored_rounds = [number for number in numbers if held[number][0]]
    wanted = {
        (fingerprint(f"{name}/{number}/{part}"),): frozenset({"x", "y"})
        for number in stored_rounds
        for part in range(3)
    }
    expected = {
        entry.fingerprints: entry
        for number in stored_rounds
        for part in range(3)
        for entry in [stored(f"{name}/{number}/{part}", x=number, y=number)]
    }
    assert {
        entry.fingerprints: entry for entry in read_partials(state, "shared", wanted)
    } == expected
    assert stored_rounds == list(range(len(stored_rounds)))
    return len(stored_rounds)


def generations(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "v2").iterdir())


@pytest.mark.parametrize("retention", [MINUTES, "2"])
def test_concurrent_runs_lose_nothing(folder: Path, retention: str) -> None:
    """All start on an empty state, so that they also race to create it."""
    names = [f"w{number}" for number in range(4)]
    writers = [start(folder, name, 12, retention) for name in names]
    for writer in writers:
        _, errors = writer.communicate(timeout=300)
        assert writer.returncode == 0, errors
        assert "set aside" not in errors
    assert [whole_rounds(folder, name) for name in names] == [12] * 4
    state = open_state(str(folder))
    for name in names:
        assert set(state.partial_index(name).singles) == set(map(fingerprint, range(12)))
    assert {
        name: table_record.version for name, table_record in table_records(state).items()
    } == dict.fromkeys(names, 12)
    assert generations(folder) == ["partials-1.lance", "runs-1.lance"]


def test_a_killed_writer_leaves_whole_rows(folder: Path) -> None:
    moments = random.Random(7)
    for attempt in sample(range(8), 3):
        name = f"killed{attempt}"
        writer = start(folder, name, 1000, "0")
        assert writer.stdout
        for number in range(moments.randint(1, 20)):
            assert writer.stdout.readline() == f"{number}\n"
        time.sleep(moments.uniform(0, 0.1))
        writer.kill()
        reported, errors = writer.communicate(timeout=60)
        assert "Traceback" not in errors
        assert "set aside" not in errors
        rounds = number + 1 + len(reported.splitlines())
        assert whole_rounds(folder, name) in (rounds, rounds + 1)
    assert generations(folder) == ["partials-1.lance", "runs-1.lance"]
    after = start(folder, "after", 3, MINUTES)
    after.communicate(timeout=60)
    assert whole_rounds(folder, "after") == 3
