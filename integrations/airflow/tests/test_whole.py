"""What Airflow has of a run of a whole project."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from airflow.models.dagrun import DagRun
from runner import asset_events, dag, states, xcom
from sample import write_shop

from airflow_provider_lancestat import (
    LancestatTaskGroup,
    ProjectConfig,
    RenderConfig,
    TargetConfig,
)

PARENT = "{{ macros.OpenLineageProviderPlugin.lineage_parent_id(task_instance) }}"


@dataclass
class Whole:
    folder: Path
    run: DagRun
    lineage: list[Mapping[str, Any]]
    own_lineage: list[Mapping[str, Any]]

    def dataset(self, name: str) -> str:
        return str(self.folder / "warehouse" / f"{name}.lance")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, lineage: Path) -> Iterator[Whole]:
    folder = tmp_path_factory.mktemp("shop")
    write_shop(folder)
    own = folder / "lineage.json"
    env = {
        "OPENLINEAGE__TRANSPORT__TYPE": "file",
        "OPENLINEAGE__TRANSPORT__LOG_FILE_PATH": str(own),
        "OPENLINEAGE__TRANSPORT__APPEND": "true",
        "OPENLINEAGE_PARENT_ID": PARENT,
    }
    with dag() as made:
        LancestatTaskGroup(
            group_id="statistics",
            project_config=ProjectConfig(folder),
            target_config=TargetConfig(env=env),
            render_config=RenderConfig(docs_url="https://pages.example.com"),
        )
    run = made.run()
    yield Whole(folder, run, events(lineage), events(own))


def events(path: Path) -> list[Mapping[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def names(events: list[Mapping[str, Any]], job: str, kind: str) -> set[tuple[str, str]]:
    [end] = [
        event
        for event in events
        if event["eventType"] == "COMPLETE" and event["job"]["name"] == job
    ]
    return {(each["namespace"], each["name"]) for each in end[kind]}


def test_nodes_are_run_and_checked(whole: Whole) -> None:
    assert set(states(whole.run).values()) == {"success"}
    orders = xcom(whole.run, "statistics.orders.run")["orders"]
    assert orders["action"] == "analyze"
    assert orders["reasons"] == ["new"]
    assert orders["rows_total"] == 100
    join = xcom(whole.run, "statistics.similar_products.run")["similar_products"]
    assert join["left_rows"] == 50
    assert xcom(whole.run, "statistics.orders.check") == {
        "orders": {"statistics_current": "passed", "freshness": "passed"}
    }
    assert xcom(whole.run, "statistics.similar_products.check") == {
        "similar_products": {"recall": "passed"}
    }


def test_assets_are_what_changed(whole: Whole) -> None:
    found = asset_events(whole.run)
    assert set(found) == {
        "x-lancestat://shop/orders",
        "x-lancestat://shop/products",
        f"file://{whole.dataset('similar_products')}",
    }
    result = xcom(whole.run, "statistics.orders.run")
    assert found["x-lancestat://shop/orders"]["lancestat"] == result


def test_a_task_links_to_the_pages(whole: Whole) -> None:
    for task in ("run", "check"):
        link = xcom(whole.run, f"statistics.orders.{task}", "_link_LancestatPagesLink")
        assert link == "https://pages.example.com"


def test_lineage_names_datasets_as_lancestat_does(whole: Whole) -> None:
    products, similar = whole.dataset("products"), whole.dataset("similar_products")
    task, node = "shop.statistics.similar_products.run", "knn_join.shop.similar_products"
    assert names(whole.lineage, task, "inputs") == {("file", products)}
    assert names(whole.lineage, task, "outputs") == {("file", similar)}
    assert names(whole.own_lineage, node, "inputs") == {("file", products)}
    assert names(whole.own_lineage, node, "outputs") == {("file", similar)}
    # A table that is analyzed is not written.
    assert names(whole.lineage, "shop.statistics.products.run", "inputs") == {("file", products)}
    assert not names(whole.lineage, "shop.statistics.products.run", "outputs")


def test_lineage_of_lancestat_belongs_to_the_task(whole: Whole) -> None:
    parents = {
        event["run"]["facets"]["parent"]["job"]["name"]
        for event in whole.own_lineage
        if event["job"]["name"] == "lancestat-run-shop"
    }
    assert parents == {
        f"shop.statistics.{name}.run" for name in ("orders", "products", "similar_products")
    }
