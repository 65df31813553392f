"""Statistics of tables whose versions a catalog owns are committed through the catalog."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import lance
import lance_namespace as ns
import pytest

from tests.catalogs.serving import requests
from tests.catalogs.shops import SERVING, TRACKED, Shop, rows
from tests.examples import each, sample
from tests.forks import forks

ORDERS = {"name": "orders", "table": "lake.sales.orders"}


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


def test_statistics_are_removed_through_the_catalog_alone(shop: Shop) -> None:
    uri = shop.location("sales", "orders")
    shop.declare(ORDERS)
    assert shop.lancestat("run").exit_code == 0
    published = shop.read("sales", "orders")
    for publish in ("manifest", "none"):
        shop.declare({"name": "orders", "uri": uri, "publish": publish})
        result = shop.lancestat("unpublish")
        assert result.exit_code == 1
        assert "LS213 specs/shop.yml:2" in result.output, result.output
        assert lance.dataset(uri).version == published.version
    shop.declare(ORDERS)
    result = shop.lancestat("unpublish", "orders")
    assert result.exit_code == 0, result.output
    assert shop.published("sales", "orders") == {}
    assert shop.read("sales", "orders").version == published.version + 1


def test_a_result_past_the_catalog_is_refused(shop: Shop) -> None:
    shop.declare_joins(nearest={"lance": shop.announce("sales", "nearest")})
    result = shop.lancestat("plan")
    assert result.exit_code == 1
    assert "LS213" in result.output, result.output
    assert "table: lake.sales.nearest" in result.output
    shop.declare_joins(nearest={"table": "lake.sales.nearest"})
    result = shop.lancestat("plan")
    assert result.exit_code == 0, result.output


def test_a_folder_of_another_name_is_known_to_be_managed(shop: Shop) -> None:
    """The folder says nothing of its table, nor does any other table of the catalog."""
    shop.create("sales", "parts")
    inner = ns.connect("dir", {"root": str(shop.root), **(TRACKED if shop.impl == "dir" else {})})
    moved = shop.root / "0a1b2c"
    lance.write_dataset(rows(), moved)
    inner.register_table(ns.RegisterTableRequest(id=["sales", "moved"], location=moved.name))
    outside = shop.folder / "outside.lance"
    lance.write_dataset(rows(), outside)
    shop.declare({"name": "moved", "uri": str(moved)}, {"name": "outside", "uri": str(outside)})
    result = shop.lancestat("run")
    assert "LS213" in result.output and "table: lake.sales.moved" in result.output
    assert lance.dataset(moved).version == 1
    assert lance.dataset(outside).version == 2


def test_what_is_committed_past_the_catalog_stays_past_it(shop: Shop) -> None:
    """A run through the catalog publishes what the catalog's readers see, with no hole."""
    uri = shop.location("sales", "orders")
    lance.write_dataset(rows(5), uri, mode="append")
    shop.declare(ORDERS)
    result = shop.lancestat("run")
    assert result.exit_code == 0, result.output
    table = shop.read("sales", "orders")
    assert shop.published("sales", "orders")["lance.stats.numRows"] == str(table.count_rows())
    assert "Nothing to do" in shop.lancestat("plan").output


# What it prints is not for the process that counts exit codes.
KILLED = """
import os, signal, sys
import lance
from lancestat.cli import main as program

commit = lance.LanceDataset.commit

def main(folder, when, table):
    def killed(uri, *args, **options):
        ours = str(uri).endswith(table)
        if ours and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        committed = commit(uri, *args, **options)
        if ours and when == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return committed

    lance.LanceDataset.commit = staticmethod(killed)
    sys.stdout = sys.stderr
    sys.argv = ["lancestat", "--project-dir", folder, "run"]
    program.main()
"""
Kill = Callable[..., None]


@pytest.fixture(scope="module")
def kill() -> Iterator[Kill]:
    """Run a project in a process that is killed around a commit, else by the catalog."""
    with forks(KILLED) as process:

        def kill(shop: Shop, when: str = "", table: str = "orders") -> None:
            assert process.call(str(shop.folder), when, table) == -signal.SIGKILL

        yield kill


def check_mended(shop: Shop) -> None:
    """The next run leaves a table without holes, whose statistics are those of its rows."""
    result = shop.lancestat("run")
    assert result.exit_code == 0, result.output
    table = shop.read("sales", "orders")
    versions = [version["version"] for version in table.versions()]
    assert versions == list(range(1, table.version + 1))
    assert table.count_rows() == 40
    assert shop.published("sales", "orders")["lance.stats.numRows"] == "40"
    assert "Nothing to do" in shop.lancestat("plan").output
    lance.write_dataset(
        rows(3), namespace_client=shop.client, table_id=["sales", "orders"], mode="append"
    )
    assert shop.lancestat("run").exit_code == 0
    assert shop.published("sales", "orders")["lance.stats.numRows"] == "43"


@pytest.mark.fault
@pytest.mark.parametrize(
    ("shop", "when"), each(["dir", "serving"], ["before", "after"]), indirect=["shop"]
)
def test_a_run_killed_around_its_commit_is_mended_by_the_next(
    kill: Kill, shop: Shop, when: str
) -> None:
    shop.declare(ORDERS)
    kill(shop, when)
    check_mended(shop)


@pytest.mark.fault
@pytest.mark.parametrize("dies", sample(["before", "within", "after"], 2))
def test_a_run_killed_between_commit_and_announcement_is_mended_by_the_next(
    kill: Kill, tmp_path: Path, dies: str
) -> None:
    """The manifest is written, and the catalog has not, has half or has wholly taken it on.

    Over a version that is in its place and that the catalog does not know Lance commits nothing.
    """
    properties = {"root": str(tmp_path / "lake"), "managed": "true"}
    shop = Shop(tmp_path, SERVING, properties, {"dies": dies})
    shop.create("sales", "orders")
    version = shop.read("sales", "orders").version
    shop.declare(ORDERS)
    kill(shop)
    assert shop.read("sales", "orders").version == version + (dies == "after")
    if dies == "within":
        result = shop.lancestat("run")
        assert result.exit_code == 1
        at = "specs/shop.yml:2:14"
        lies = f"LS216 {at}  statistics were not published: version {version + 1} lies"
        assert lies in result.output
        [unknown] = shop.root.glob(f"*orders/_versions/{2**64 - 1 - version - 1}.manifest")
        unknown.unlink()
    check_mended(shop)
