"""The tasks of a project are those of its manifest."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.providers_manager import ProvidersManager
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowException
from lancestat import Project
from lancestat.errors import LancestatError
from runner import dag, states

from airflow_provider_lancestat import (
    LancestatTaskGroup,
    ProjectConfig,
    RenderConfig,
    TargetConfig,
    get_provider_info,
)
from airflow_provider_lancestat.assets import brought_up_to_date_by, read_by
from airflow_provider_lancestat.checks import answers
from airflow_provider_lancestat.lineage import lineage_of

EXAMPLE = Path(__file__).parents[1] / "example"
LANCESTAT = str(Path(sys.executable).with_name("lancestat"))


def tasks(
    project: ProjectConfig,
    render: RenderConfig | None = None,
    target: TargetConfig | None = None,
    **options: Any,
) -> dict[str, set[str]]:
    with DAG("shop", schedule=None) as made:
        LancestatTaskGroup(
            group_id="all",
            project_config=project,
            render_config=render,
            target_config=target,
            **options,
        )
    return {task.task_id: set(task.upstream_task_ids) for task in made.tasks}


def test_a_task_runs_after_those_whose_results_it_reads(shop: Path) -> None:
    assert tasks(ProjectConfig(shop)) == {
        "all.orders.run": set(),
        "all.orders.check": {"all.orders.run"},
        "all.products.run": set(),
        "all.products.check": {"all.products.run"},
        "all.similar_products.run": {"all.products.run"},
        "all.similar_products.check": {"all.similar_products.run"},
    }
    assert tasks(ProjectConfig(shop), RenderConfig(checks=False)) == {
        "all.orders": set(),
        "all.products": set(),
        "all.similar_products": {"all.products"},
    }


def test_selectors_choose_nodes(shop: Path) -> None:
    def names(select: Any = None, exclude: Any = None, **target: Any) -> set[str]:
        render = RenderConfig(select=select, exclude=exclude, checks=False)
        return {
            name.removeprefix("all.")
            for name in tasks(ProjectConfig(shop), render, TargetConfig(**target))
        }

    for target in ({}, {"executable": LANCESTAT}):
        assert names("tag:nightly", **target) == {"orders"}
        assert names("products+", **target) == {"products", "similar_products"}
        assert names(exclude=["kind:knn_join"], **target) == {"orders", "products"}
    with pytest.raises(LancestatError, match="matches nothing"):
        names("nothing")
    with pytest.raises(AirflowException, match="matches nothing"):
        names("nothing", executable=LANCESTAT)


def test_a_task_takes_the_defaults_of_the_group(shop: Path) -> None:
    with DAG("shop", schedule=None, default_args={"retries": 1}) as made:
        LancestatTaskGroup(
            group_id="all",
            project_config=ProjectConfig(shop),
            run_options=["--threads", "1"],
            default_args={"pool": "spark"},
        )
    task = made.get_task("all.orders.run")
    assert (task.retries, task.pool) == (1, "spark")
    assert task.options == ["--threads", "1"]
    assert task.doc_md == "One row per order."
    assert made.get_task("all.orders.check").options == ()


def test_lancestat_may_be_installed_elsewhere(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = shop / "manifest.json"
    with pytest.raises(FileNotFoundError, match="lancestat plan"):
        tasks(ProjectConfig(shop, manifest))
    manifest.write_text(json.dumps(Project.load(shop).manifest()))
    monkeypatch.setitem(sys.modules, "lancestat", None)
    with pytest.raises(ModuleNotFoundError, match="not installed beside Airflow"):
        tasks(ProjectConfig(shop))
    with dag() as made:
        LancestatTaskGroup(
            group_id="all",
            project_config=ProjectConfig(shop, manifest),
            target_config=TargetConfig(executable=LANCESTAT),
            render_config=RenderConfig(select="orders"),
        )
    assert states(made.run()) == {"all.orders.run": "success", "all.orders.check": "success"}


def test_assets_have_uris_of_airflow() -> None:
    def node(uri: str | None, kind: str = "knn_join") -> dict[str, Any]:
        return {
            "name": "similar",
            "resource_type": kind,
            "uri": uri,
            "inputs": [],
            "depends_on": {"nodes": []},
        }

    def written(uri: str | None) -> list[str]:
        return [asset.uri for asset in brought_up_to_date_by("shop", node(uri))]

    assert written("s3://bucket/similar.lance") == ["s3://bucket/similar.lance"]
    assert written("/srv/the shop/similar.lance") == ["file:///srv/the%20shop/similar.lance"]
    assert written("lake.shop.similar") == ["lake.shop.similar"]
    assert written("s3://{{ env_var('BUCKET') }}/similar.lance") == []
    assert written(None) == []
    assert [asset.uri for asset in brought_up_to_date_by("shop", node(None, "table"))] == [
        "x-lancestat://shop/similar"
    ]
    reads = {
        **node("/similar.lance"),
        "inputs": ["s3://bucket/more.lance"],
        "depends_on": {"nodes": ["table.shop.orders"]},
    }
    nodes = {"table.shop.orders": node("/orders.lance", "table")}
    assert [asset.uri for asset in read_by(reads, nodes)] == [
        "file:///orders.lance",
        "s3://bucket/more.lance",
    ]


def test_lineage_has_no_names_for_secrets_and_catalogs() -> None:
    uris = [
        *("s3://bucket/a/b.lance", "hdfs://host:1/a.lance", "/srv/a.lance"),
        *("lake.shop.orders", "s3://{{ env_var('BUCKET') }}/a.lance"),
    ]
    node = {
        "resource_type": "table",
        "uri": uris[0],
        "inputs": uris,
        "depends_on": {"nodes": []},
    }
    lineage = lineage_of(
        {
            "manifest.json": {"nodes": {"table.shop.orders": node}},
            "run_results.json": {"results": [{"unique_id": "table.shop.orders"}]},
        }
    )
    assert [(dataset.namespace, dataset.name) for dataset in lineage.inputs] == [
        ("s3://bucket", "a/b.lance"),
        ("hdfs://host:1", "/a.lance"),
        ("file", "/srv/a.lance"),
    ]
    assert lineage.outputs == []
    assert lineage_of({}).inputs == []


def test_recall_is_that_of_a_result_and_enough() -> None:
    node = {"resource_type": "knn_join", "freshness": None, "recall": 0.9, "checks": []}

    def passes(computed_at: str | None, recall: float | None) -> bool:
        response = {"computed_at": computed_at, "recall": recall, "strategy": None}
        [answer] = answers(node, {"adapter_response": response, "message": None})
        assert answer.severity == "warn"
        return answer.passed

    moment = "2026-01-01T00:00:00Z"
    assert not passes(None, None)
    assert passes(moment, None)
    assert passes(moment, 0.9)
    assert not passes(moment, 0.89)


def test_airflow_knows_the_provider() -> None:
    manager = ProvidersManager()
    info = get_provider_info()
    known = manager.providers["airflow-provider-lancestat"].data
    assert {name: known[name] for name in info} == info
    assert "airflow_provider_lancestat.links.LancestatPagesLink" in manager.extra_links_class_names


def test_the_example_is_valid() -> None:
    bag = DagBag(dag_folder=str(EXAMPLE / "dags"))
    assert bag.import_errors == {}
    assert set(bag.dags) == {"shop_tables", "shop_statistics"}
    written = {asset.uri for task in bag.dags["shop_tables"].tasks for asset in task.outlets}
    statistics = bag.dags["shop_statistics"]
    assert {asset.uri for task in statistics.tasks for asset in task.inlets} == written
    # It does not trigger itself.
    changed = {asset.uri for task in statistics.tasks for asset in task.outlets}
    assert not changed & written
