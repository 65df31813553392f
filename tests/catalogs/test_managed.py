"""Statistics of tables whose versions a catalog owns are committed through the catalog."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import lance
import pytest

from tests.catalogs.serving import requests
from tests.catalogs.shops import SERVING, Shop, rows

REPOSITORY = Path(__file__).parents[2]
ORDERS = {"name": "orders", "table": "lake.sales.orders"}
TRACKED = {"table_version_tracking_enabled": "true", "table_version_storage_enabled": "true"}


@pytest.fixture(params=["dir", "serving"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    root = {"root": str(tmp_path / "lake")}
    if request.param == "dir":
        shop = Shop(tmp_path, "dir", {**root, **TRACKED})
    else:
        shop = Shop(tmp_path, SERVING, {**root, "managed": "true"})
    shop.create("sales", "orders")
    yield shop


def test_readers_through_the_catalog_see_what_is_published(tmp_path: Path) -> None:
    shop = Shop(tmp_path, SERVING, {"root": str(tmp_path / "lake"), "managed": "true"})
    uri = shop.create("sales", "orders")
    before = requests(shop.root)["create_table_version"]
    shop.declare(ORDERS)
    assert shop.lancestat("run").exit_code == 0
    assert requests(shop.root)["create_table_version"] == before + 1
    assert shop.published("sales", "orders")
    # This catalog does not see what is committed past it, as others would not.
    version = shop.read("sales", "orders").version
    lance.write_dataset(rows(), uri, mode="append")
    assert shop.read("sales", "orders").version == version


def test_a_commit_past_the_catalog_is_refused(shop: Shop) -> None:
    uri = shop.location("sales", "orders")
    version = shop.read("sales", "orders").version
    shop.declare({"name": "orders", "uri": uri})
    for command in ("plan", "run"):
        result = shop.lancestat(command)
        assert "LS213" in result.output, result.output
        assert "table: lake.sales.orders" in result.output
    assert shop.read("sales", "orders").version == version == lance.dataset(uri).version
    shop.declare({"name": "orders", "uri": uri, "publish": "none"})
    assert shop.lancestat("run").exit_code == 0


@pytest.mark.fault
def test_publishers_at_once_leave_no_hole_and_lose_nothing(shop: Shop, tmp_path: Path) -> None:
    """Two projects publish, each with a state of its own, while a writer appends."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    processes = []
    for number in range(2):
        folder = tmp_path / f"project-{number}"
        folder.mkdir()
        Shop(folder, shop.impl, shop.properties).declare(ORDERS)
        processes.append(
            subprocess.Popen(
                [sys.executable, "-m", "lancestat", "--project-dir", str(folder), "run"],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    appended = 0
    while any(process.poll() is None for process in processes) and appended < 5:
        lance.write_dataset(
            rows(10), namespace_client=shop.client, table_id=["sales", "orders"], mode="append"
        )
        appended += 1
    outputs = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    table = shop.read("sales", "orders")
    versions = [version["version"] for version in table.versions()]
    assert versions == list(range(1, table.version + 1))
    assert table.count_rows() == 40 + 10 * appended
    assert shop.published("sales", "orders")
