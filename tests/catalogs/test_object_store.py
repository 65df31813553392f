"""Catalogs over an object store: kept, served, and with keys that the store soon refuses."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import lance
import pytest
from lance.namespace import RestAdapter

from lancestat.lake.catalog_tables import LocatedTable, locate
from lancestat.lake.files import storage_at
from lancestat.lake.open import observe_dataset
from lancestat.project import Project
from lancestat.spec.catalog import Catalog, TableName
from tests.catalogs.lender import ID, SECRET, Lender, lending
from tests.catalogs.shops import SERVING, TRACKED, Shop
from tests.examples import sample
from tests.faults.proxy import Plan, proxy
from tests.integration.commands import lancestat
from tests.integration.object_store import SECRET_KEY, ObjectStore

pytestmark = pytest.mark.s3

REPOSITORY = Path(__file__).parents[2]
ORDERS = {"name": "orders", "table": "lake.sales.orders"}
KINDS = ("flat", "managed", "manifest", "rest", "rest managed", "lending managed", "lending")


@dataclass
class StoreShop(Shop):
    """A project whose catalog lies in an object store, and whose target has `options` for it."""

    options: dict[str, str] = field(default_factory=dict)
    spark: dict[str, object] = field(default_factory=dict)
    is_flat: bool = False

    @property
    def orders(self) -> tuple[str, ...]:
        return ("orders",) if self.is_flat else ("sales", "orders")

    @property
    def opening(self) -> dict[str, str] | None:
        return self.options

    @property
    def target(self) -> dict[str, object]:
        return {"storage_options": self.options, **({"spark": self.spark} if self.spark else {})}


def owner_options(store: ObjectStore) -> dict[str, str]:
    return dict(store.storage_options)


def place_options(store: ObjectStore) -> dict[str, str]:
    """The options of the store that are no keys."""
    return {key: text for key, text in store.storage_options.items() if "key" not in key}


def lending_shop(
    store: ObjectStore, lender: Lender, folder: Path, *, is_managed: bool = False
) -> StoreShop:
    """A catalog from which the keys come; the project has none."""
    properties = {
        "root": store.fresh_uri("lake"),
        "lender": lender.address,
        "remembered": str(folder / "remembered"),
        "managed": str(is_managed).lower(),
    }
    failing = {"fails_every": "3"}
    return StoreShop(folder, SERVING, properties, failing, options=place_options(store))


@pytest.fixture(params=sample(KINDS, 4))
def shop(
    request: pytest.FixtureRequest, object_store: ObjectStore, tmp_path: Path
) -> Iterator[StoreShop]:
    kind, root = request.param, object_store.fresh_uri("lake")
    options = owner_options(object_store)
    storage = {f"storage.{key}": text for key, text in options.items()}
    tracked = TRACKED if "managed" in kind else {}
    if kind.startswith("rest"):
        backend = {"root": root, **storage, **tracked}
        with RestAdapter("dir", backend, port=0) as server:
            uri = f"http://127.0.0.1:{server.port}"
            yield StoreShop(tmp_path, "rest", {"uri": uri}, options=options)
    elif kind.startswith("lending"):
        with lending(object_store, lease_seconds=20) as lender:
            yield lending_shop(object_store, lender, tmp_path, is_managed="managed" in kind)
    else:
        properties = {"root": root, **storage, **tracked}
        is_flat = kind == "flat"
        if is_flat:
            properties["manifest_enabled"] = "false"
        yield StoreShop(tmp_path, "dir", properties, options=options, is_flat=is_flat)


def text_of(folder: Path) -> str:
    """All that is in the files of a project but its declarations."""
    declared = {"lancestat_project.yml"}
    files = (path for path in folder.rglob("*") if path.is_file() and path.name not in declared)
    return "".join(path.read_bytes().decode("latin-1") for path in files)


def check_no_keys(*texts: str) -> None:
    for text in texts:
        assert ID not in text
        assert SECRET not in text
        assert SECRET_KEY not in text


def test_statistics_are_published_and_nothing_is_left_to_do(shop: StoreShop) -> None:
    shop.create(*shop.orders)
    shop.declare({"name": "orders", "table": ".".join(("lake", *shop.orders))})
    plan = str(shop.folder / "plan.json")
    results = [
        shop.lancestat(*command)
        for command in (
            ("--verbose", "plan", "--out", plan),
            ("--verbose", "run", "--plan-file", plan),
            ("--verbose", "plan"),
            ("show", "orders"),
            ("docs",),
        )
    ]
    assert [result.exit_code for result in results] == [0] * 5, [r.output for r in results]
    assert "Nothing to do" in results[2].output
    assert shop.published(*shop.orders)["lance.stats.numRows"] == "40"
    check_no_keys(*(result.output for result in results), text_of(shop.folder))


def test_keys_that_the_store_refuses_by_then_are_renewed_in_the_driver(
    object_store: ObjectStore, tmp_path: Path
) -> None:
    """Between any two steps of one process all keys that it has had have become useless."""
    with lending(object_store, lease_seconds=4) as lender:
        shop = lending_shop(object_store, lender, tmp_path, is_managed=True)
        uri = shop.create("sales", "orders")
        shop.declare(ORDERS)
        project = Project.load(tmp_path)
        plan = project.plan()
        lender.wait_until_refused()
        result = project.run(plan)
        assert result.status == "success", result
        lent = len(lender.lent)
        lender.wait_until_refused()
        assert {action.verb for action in project.plan().actions} == {"skip"}
        assert len(lender.lent) > lent
        lender.wait_until_refused()
        used = {**shop.options, "aws_access_key_id": lender.lent[0]}
        used["aws_secret_access_key"] = SECRET + lender.lent[0].removeprefix(ID)
        with pytest.raises(ValueError, match="InvalidAccessKeyId"):
            lance.dataset(uri, storage_options=used)
        check_no_keys(text_of(tmp_path))


def test_datasets_and_files_outlive_the_keys_with_which_they_were_opened(
    object_store: ObjectStore, tmp_path: Path
) -> None:
    with lending(object_store, lease_seconds=4) as lender:
        shop = lending_shop(object_store, lender, tmp_path)
        shop.create("sales", "orders")
        table = TableName("lake", ("sales", "orders"))
        catalog = Catalog(SERVING, shop.properties)
        [place] = locate([table], {"lake": catalog}, lambda _: shop.options).values()
        assert isinstance(place, LocatedTable)
        dataset = observe_dataset(place.uri, storage_options=place.options)
        lender.wait_until_refused()
        assert dataset.to_table().num_rows == 40
        lender.wait_until_refused()
        assert len(storage_at(place.uri, place.options).files("data")) == 4


@pytest.mark.spark
def test_keys_are_renewed_in_a_long_task(object_store: ObjectStore, tmp_path: Path) -> None:
    """One task on Spark reads for longer than several leases, through a slow connection."""
    (tmp_path / "events").mkdir()
    with lending(object_store, lease_seconds=5) as lender, proxy(object_store.endpoint) as slow:
        shop = lending_shop(object_store, lender, tmp_path)
        shop.create("sales", "orders", count=400)
        shop.options["aws_endpoint"] = slow.endpoint
        events = {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": str(tmp_path / "events"),
        }
        shop.spark = {"master": "local[1]", "min_bytes": 0, "conf": events}
        shop.declare(ORDERS)
        slow.plan = Plan("slow", 0, 1_000_000, delay_seconds=0.2)
        environment = {"PYTHONPATH": str(REPOSITORY), "HOME": os.environ["HOME"]}
        lent = len(lender.lent)
        [ran] = lancestat(tmp_path, environment, ("--verbose", "run", "--output", "json"))
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert len(lender.lent) - lent >= 4
        assert shop.published("sales", "orders")["lance.stats.numRows"] == "400"
        assert "SparkListenerTaskEnd" in text_of(tmp_path / "events")
        check_no_keys(ran.stdout, ran.stderr, text_of(tmp_path))


def test_a_key_that_the_catalog_says_to_be_good_and_the_store_refuses_is_an_error(
    object_store: ObjectStore, tmp_path: Path
) -> None:
    with lending(object_store, lease_seconds=600) as lender:
        shop = lending_shop(object_store, lender, tmp_path)
        shop.create("sales", "orders")
        shop.declare(ORDERS)
        project = Project.load(tmp_path)
        plan = project.plan()
        for number in range(1, len(lender.lent) + 1):
            lender.take_back(number)
        result = project.run(plan)
        [node] = result.nodes
        assert node.status == "error"
        assert "LS202" in node.text or "permission" in node.text, node
        check_no_keys(node.text, text_of(tmp_path))
