"""Joins whose sides and results are tables of catalogs, plain and managed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import lance_namespace as ns
import numpy as np
import pyarrow as pa
import pytest
from lance.namespace import RestAdapter

from lancestat import Project
from lancestat.joins.output import lance_output
from tests.catalogs.lender import lending
from tests.catalogs.serving import requests
from tests.catalogs.shops import SERVING, TRACKED, Shop
from tests.catalogs.test_object_store import check_no_keys, lending_shop, text_of
from tests.examples import sample
from tests.integration.object_store import ObjectStore

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

SIDES = (("queries", "v", 20), ("parts", "w", 30))


def vectors(count: int, column: str) -> pa.Table:
    numbers = np.random.default_rng(count).normal(size=(count, 4)).astype(np.float32)
    arrays = pa.FixedSizeListArray.from_arrays(pa.array(numbers.ravel()), 4)
    keys = pa.array(range(count), pa.int64())
    return pa.table({"id": keys, "key": keys, column: arrays})


def fill(shop: Shop) -> None:
    shop.client.create_namespace(ns.CreateNamespaceRequest(id=["sales"]))
    for side, column, count in SIDES:
        shop.write(vectors(count, column), "sales", side, mode="create")


def declare(shop: Shop, **output: object) -> Project:
    """Declare both sides, a join into the catalog, and its result as a table with statistics."""
    shop.declare(*({"name": side, "table": f"lake.sales.{side}"} for side, _, _ in SIDES))
    join = {
        "name": "near",
        "left": {"table": "queries", "vector": "v", "select": ["id"]},
        "right": {"table": "parts", "vector": "w", "select": ["key"]},
        "k": 2,
        "output": {"table": "lake.sales.near", **output},
    }
    (shop.folder / "specs" / "joins.yml").write_text(json.dumps({"knn_joins": [join]}))
    return Project.load(shop.folder)


@pytest.fixture(params=sample(["rest", "plain", "serving managed", "managed"], 2))
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    root = {"root": str(tmp_path / "lake")}
    match request.param:
        case "plain":
            yield Shop(tmp_path, "dir", root)
        case "managed":
            yield Shop(tmp_path, "dir", {**root, **TRACKED})
        case "rest":
            with RestAdapter("dir", root, port=0) as server:
                yield Shop(tmp_path, "rest", {"uri": f"http://127.0.0.1:{server.port}"})
        case _:
            yield Shop(tmp_path, SERVING, {**root, "managed": "true"})


def check_join(shop: Shop) -> None:
    """Join into the catalog, again without work, and again for new rows."""
    fill(shop)
    project = declare(shop)
    result = project.run(project.plan())
    assert result.status == "success", [node.message for node in result.nodes]
    joined = shop.read("sales", "near")
    assert joined.count_rows() == 40
    assert {action.verb for action in project.plan().actions} == {"skip"}
    shop.write(vectors(5, "v"), "sales", "queries")
    again = project.run(project.plan())
    [scope] = [node.figures.scope for node in again.nodes if node.figures]
    assert (again.status, scope) == ("success", "new_left"), again
    assert shop.read("sales", "near").count_rows() == 50
    # One for the rows, and one for the mark.
    assert shop.read("sales", "near").version == joined.version + 2
    assert {action.verb for action in project.plan().actions} == {"skip"}


def test_a_join_into_a_catalog_is_seen_by_its_readers(shop: Shop) -> None:
    check_join(shop)
    if shop.properties.get("managed"):
        # One for each side's statistics, and one for each result.
        assert requests(shop.root)["create_table_version"] >= 4


# What is removed depends on who manages versions.
@pytest.mark.parametrize(
    "shop", sample(["plain", "rest", "serving managed", "managed"], 2), indirect=True
)
def test_runs_remove_older_results(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lance_output, "GRACE", timedelta(0))
    fill(shop)
    project = declare(shop, keep=2)
    for _ in range(3):
        result = project.run(project.plan(full_refresh=True))
        assert result.status == "success", [node.message for node in result.nodes]
    kept = [version["version"] for version in shop.read("sales", "near").versions()]
    # A catalog that manages versions removes them by itself.
    is_managed = shop.properties.get("managed") or TRACKED.keys() <= shop.properties.keys()
    assert kept == ([1, 2, 3] if is_managed else [2, 3])
    assert shop.read("sales", "near").count_rows() == 40
    assert {action.verb for action in project.plan().actions} == {"skip"}


@pytest.mark.parametrize(
    "shop", sample(["rest", "plain", "managed", "serving managed"], 1), indirect=True
)
def test_gc_removes_older_results(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(shop)
    project = declare(shop)
    for _ in range(3):
        project.run(project.plan(full_refresh=True))
    monkeypatch.setattr(lance_output, "GRACE", timedelta(0))
    project = declare(shop, keep=1)
    assert {action.verb for action in project.plan().actions} == {"skip"}
    project.collect_garbage(dry_run=True)
    assert len(shop.read("sales", "near").versions()) == 3
    project.collect_garbage()
    is_managed = shop.properties.get("managed") or TRACKED.keys() <= shop.properties.keys()
    assert len(shop.read("sales", "near").versions()) == (3 if is_managed else 1)
    assert {action.verb for action in project.plan().actions} == {"skip"}


@pytest.mark.s3
def test_a_join_outlives_keys_that_the_store_refuses(
    object_store: ObjectStore, tmp_path: Path
) -> None:
    with lending(object_store, lease_seconds=5) as lender:
        shop = lending_shop(object_store, lender, tmp_path, is_managed=True)
        check_join(shop)
        assert len(lender.lent) > 10
        check_no_keys(text_of(tmp_path))
