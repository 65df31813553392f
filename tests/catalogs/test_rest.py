"""Publishers at once, through a REST catalog on loopback and past it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import lance
import pyarrow.compute as pc
import pytest
from lance.namespace import RestAdapter

from tests.catalogs.shops import TRACKED, Shop, rows

REPOSITORY = Path(__file__).parents[2]
ORDERS = {"name": "orders", "table": "lake.sales.orders"}


# Runs a project, whose first commit to the table waits until others are about to make theirs.
TOGETHER = """
import os, pathlib, sys, time
import lance
from lancestat.cli.main import main

meeting, others = pathlib.Path(sys.argv.pop(1)), int(sys.argv.pop(1))
commit = lance.LanceDataset.commit

def together(uri, *args, **options):
    if str(uri).endswith("orders"):
        (meeting / str(os.getpid())).touch()
        deadline = time.monotonic() + 120
        while len(list(meeting.iterdir())) < others:
            assert time.monotonic() < deadline
            time.sleep(0.005)
    return commit(uri, *args, **options)

lance.LanceDataset.commit = staticmethod(together)
main()
"""


@pytest.fixture(params=["plain", "managed"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    """A shop whose catalog is a server over a directory catalog, which owns versions or not."""
    backend = {"root": str(tmp_path / "lake"), **(TRACKED if request.param == "managed" else {})}
    with RestAdapter("dir", backend, port=0) as server:
        shop = Shop(tmp_path, "rest", {"uri": f"http://127.0.0.1:{server.port}"})
        shop.create("sales", "orders")
        yield shop


def project(shop: Shop, name: str, table: dict[str, object], *, catalog: bool = True) -> Shop:
    """Another project over the same catalog, with a state of its own."""
    folder = shop.folder / name
    folder.mkdir()
    other = Shop(folder, shop.impl, shop.properties)
    other.declare(table, catalog=catalog)
    return other


def start(publisher: Shop, meeting: Path, others: int) -> subprocess.Popen[str]:
    command = ("--project-dir", str(publisher.folder), "run")
    return subprocess.Popen(
        [sys.executable, "-c", TOGETHER, str(meeting), str(others), *command],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def check_true(dataset: lance.LanceDataset) -> None:
    """The published statistics are those of the rows, as pyarrow counts them."""
    config, table = dataset.config(), dataset.to_table()
    assert config["lance.stats.numRows"] == str(table.num_rows)
    for name in table.column_names:
        column, prefix = table.column(name), f"lance.stats.column.{name}"
        assert config[f"{prefix}.nullCount"] == str(column.null_count), name
        if name == "id":
            assert config[f"{prefix}.min"] == str(pc.min(column).as_py())
            assert config[f"{prefix}.max"] == str(pc.max(column).as_py())


@pytest.mark.fault
def test_publishers_through_a_server_and_past_it_leave_no_hole_and_lose_nothing(
    shop: Shop,
) -> None:
    """Two publish through the server and one by the URI at one moment, while a writer appends."""
    uri = shop.location("sales", "orders")
    projects = [project(shop, f"through-{number}", ORDERS) for number in range(2)]
    past = {"name": "orders", "uri": uri}
    projects.append(project(shop, "past", past, catalog=False))
    meeting = shop.folder / "meeting"
    meeting.mkdir()
    processes = [start(publisher, meeting, len(projects)) for publisher in projects]
    while len(list(meeting.iterdir())) < len(projects):
        assert any(process.poll() is None for process in processes)
        time.sleep(0.01)
    appended = 0
    while any(process.poll() is None for process in processes) and appended < 5:
        lance.write_dataset(
            rows(10), namespace_client=shop.client, table_id=["sales", "orders"], mode="append"
        )
        appended += 1
    outputs = [process.communicate(timeout=240)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * 3, outputs
    table = shop.read("sales", "orders")
    assert table.count_rows() == 40 + 10 * appended
    for publisher in projects:
        assert publisher.lancestat("run").exit_code == 0
        assert "Nothing to do" in publisher.lancestat("plan").output
    table = shop.read("sales", "orders")
    check_true(table)
    versions = [version["version"] for version in table.versions()]
    assert versions == list(range(1, table.version + 1))
    assert lance.dataset(uri).version == table.version
