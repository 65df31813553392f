"""Assets, checks and selections are those of the manifest."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from lancestat import Project

from dagster_lancestat import (
    DagsterLancestatTranslator,
    build_lancestat_asset_selection,
    lancestat_assets,
)
from dagster_lancestat.checks import checks_of


def assets_of(shop: Path, **options: Any) -> dg.AssetsDefinition:
    project = Project.load(shop)

    @lancestat_assets(manifest=project.manifest(), project=project, **options)
    def assets() -> Iterator[Any]:
        yield from ()

    return assets


def names(keys: Any) -> set[str]:
    return {key.to_user_string() for key in keys}


def test_an_asset_depends_on_nodes_and_on_datasets_that_no_node_writes(shop: Path) -> None:
    assets = assets_of(shop)
    depends_on = {key.to_user_string(): names(above) for key, above in assets.asset_deps.items()}
    assert depends_on == {
        "shop/orders": {"lance/orders"},
        "shop/products": {"lance/products"},
        "shop/similar_products": {"shop/products"},
    }
    assert assets.can_subset


def test_a_node_has_the_checks_of_its_kind_and_policies(shop: Path) -> None:
    assert {key.to_user_string() for key in assets_of(shop).check_keys} == {
        "shop/orders:statistics_current",
        "shop/orders:freshness",
        "shop/products:statistics_current",
        "shop/similar_products:recall",
    }


def test_a_node_of_another_kind_has_no_checks() -> None:
    node = {"resource_type": "exposure", "freshness": None, "recall": None, "checks": []}
    assert not DagsterLancestatTranslator().get_check_specs(node, dg.AssetKey("page"))


def test_recall_is_that_of_a_result_and_enough() -> None:
    node = {"resource_type": "knn_join", "freshness": None, "recall": 0.9, "checks": []}
    check = checks_of(node)["recall"]

    def passes(computed_at: str | None, recall: float | None) -> bool:
        response = {"computed_at": computed_at, "recall": recall, "strategy": None}
        source = {"adapter_response": response, "message": None}
        return check.result(dg.AssetKey("join"), node, source).passed

    moment = "2026-01-01T00:00:00Z"
    assert not passes(None, None)
    assert passes(moment, None)
    assert passes(moment, 0.9)
    assert not passes(moment, 0.89)


def test_an_asset_says_what_is_declared(shop: Path) -> None:
    translator = DagsterLancestatTranslator("https://pages.example.com")
    specs = {spec.key.path[-1]: spec for spec in assets_of(shop, translator=translator).specs}
    orders = specs["orders"]
    assert orders.description == "One row per order."
    assert orders.group_name == "shop"
    assert orders.owners == ["shop@example.com"]
    assert orders.tags["nightly"] == ""
    assert orders.kinds == {"lancestat", "lance"}
    assert orders.metadata["dagster/table_name"] == str(shop / "warehouse" / "orders.lance")
    assert orders.metadata["dagster/storage_kind"] == "lance"
    assert orders.metadata["lancestat/pages"].url == "https://pages.example.com"
    # Dagster allows addresses and teams alone.
    assert specs["products"].owners == []


def test_a_translator_changes_keys_of_dependencies_too(shop: Path) -> None:
    class Flat(DagsterLancestatTranslator):
        def get_asset_key(self, node: Any) -> dg.AssetKey:
            return dg.AssetKey(node["name"])

        def get_dataset_key(self, uri: str) -> dg.AssetKey:
            return dg.AssetKey(["raw", Path(uri).stem])

    deps = assets_of(shop, translator=Flat()).asset_deps
    assert deps[dg.AssetKey("similar_products")] == {dg.AssetKey("products")}
    assert deps[dg.AssetKey("orders")] == {dg.AssetKey(["raw", "orders"])}


def test_selectors_choose_nodes(shop: Path) -> None:
    assert names(assets_of(shop, select="tag:nightly").keys) == {"shop/orders"}
    assert names(assets_of(shop, select="products+").keys) == {
        "shop/products",
        "shop/similar_products",
    }
    assert names(assets_of(shop, exclude=["kind:knn_join"]).keys) == {
        "shop/orders",
        "shop/products",
    }


def test_a_selection_is_that_of_the_command_line(shop: Path) -> None:
    selection = build_lancestat_asset_selection(Project.load(shop), select="+similar_products")
    assert names(selection.resolve([assets_of(shop)])) == {
        "shop/products",
        "shop/similar_products",
    }


def test_a_manifest_may_be_a_file(shop: Path) -> None:
    path = shop / "manifest.json"
    with pytest.raises(dg.DagsterInvalidDefinitionError, match="lancestat plan"):
        lancestat_assets(manifest=path)
    path.write_text(json.dumps(Project.load(shop).manifest()))

    @lancestat_assets(manifest=path)
    def assets() -> Iterator[Any]:
        yield from ()

    assert len(assets.keys) == 3


def test_selectors_need_the_project(shop: Path) -> None:
    with pytest.raises(dg.DagsterInvalidDefinitionError, match="need `project`"):
        lancestat_assets(manifest=Project.load(shop).manifest(), select="orders")
