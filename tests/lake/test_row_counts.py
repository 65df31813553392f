from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import lancestat
from lancestat.lake.row_ranges import count_rows

COUNTING = """
import sys, threading, time
import lance
from lancestat.lake.row_ranges import count_rows

uri, until = sys.argv[1], time.monotonic() + 3

def counts():
    while time.monotonic() < until:
        for fragment in lance.dataset(uri).get_fragments():
            count_rows(fragment, "parity = 1")

def reads():
    while time.monotonic() < until:
        for fragment in lance.dataset(uri).get_fragments():
            fragment.scanner(columns=["id"]).to_table()

threads = [threading.Thread(target=target) for target in (counts, reads, reads, reads)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@pytest.fixture
def uri(tmp_path: Path) -> str:
    ids = list(range(400))
    table = pa.table({"id": ids, "parity": [id % 2 for id in ids]})
    lance.write_dataset(table, str(tmp_path / "t.lance"), max_rows_per_file=100)
    return str(tmp_path / "t.lance")


def test_live_rows_that_pass_are_counted(uri: str) -> None:
    dataset = lance.dataset(uri)
    dataset.delete("id in (0, 1, 3, 150)")
    counts = [
        (count_rows(part), count_rows(part, "parity = 1")) for part in dataset.get_fragments()
    ]
    assert counts == [(97, 48), (99, 50), (100, 50), (100, 50)]


def test_counting_does_not_block_threads_that_scan(uri: str) -> None:
    # As many threads as Lance has on two processors.
    environment = {**os.environ, "TOKIO_WORKER_THREADS": "2"}
    command = [sys.executable, "-c", COUNTING, uri]
    subprocess.run(command, check=True, timeout=60, env=environment)


def test_nothing_else_counts_the_rows_of_a_fragment() -> None:
    package = Path(lancestat.__file__).parent
    places = [
        f"{path.relative_to(package)}: {line.strip()}"
        for path in sorted(package.rglob("*.py"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"\.count_rows\(", line) and "canner(" not in line
    ]
    assert places == []
