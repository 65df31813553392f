"""The component, as `defs.yaml` declares it and as a subclass changes it."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import yaml
from dagster.components.testing import create_defs_folder_sandbox
from dagster.components.testing.utils import component_defs
from lancestat import Project
from sample import write_products

from dagster_lancestat import LancestatCliResource, LancestatProjectComponent

EXAMPLE = Path(__file__).parents[1] / "example"


class Mending(LancestatProjectComponent):
    """Brings a table back before the step is tried again."""

    def execute(
        self, context: dg.AssetExecutionContext, lancestat: LancestatCliResource
    ) -> Iterator[Any]:
        if context.retry_number == 1:
            write_products(Path(self.project))
        yield from super().execute(context, lancestat)


def scaffolded_attributes(**params: str) -> dict[str, Any]:
    with create_defs_folder_sandbox() as sandbox:
        params = {"project": str(sandbox.project_root / "statistics"), **params}
        path = sandbox.scaffold_component(LancestatProjectComponent, scaffold_params=params)
        attributes: dict[str, Any] = yaml.safe_load((path / "defs.yaml").read_text())["attributes"]
        return attributes


def test_a_scaffold_names_the_project_relative_to_that_of_dagster() -> None:
    project = "{{ context.project_root }}/statistics"
    assert scaffolded_attributes() == {"project": project}
    assert scaffolded_attributes(target="prod") == {"project": project, "target": "prod"}


def test_defs_yaml_selects_and_translates(shop: Path) -> None:
    attributes = {
        "project": str(shop),
        "select": ["kind:table"],
        "op": {"name": "statistics", "pool": "spark"},
        "translation": {
            "group_name": "statistics",
            "key": "{{ node.resource_type }}/{{ node.name }}",
        },
    }
    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(
            LancestatProjectComponent,
            defs_yaml_contents={
                "type": "dagster_lancestat.LancestatProjectComponent",
                "attributes": attributes,
            },
            scaffold_params={"project": str(shop)},
        )
        with sandbox.load_component_and_build_defs(path) as (_, defs):
            specs = {spec.key.to_user_string(): spec for spec in defs.resolve_all_asset_specs()}
            assets = defs.resolve_assets_def(dg.AssetKey(["table", "orders"]))
    assert {key for key in specs if not key.startswith("lance/")} == {
        "table/orders",
        "table/products",
    }
    assert specs["table/orders"].group_name == "statistics"
    assert assets.op.name == "statistics"
    assert assets.op.pool == "spark"


def test_a_step_is_retried(shop: Path) -> None:
    shutil.rmtree(shop / "warehouse" / "products.lance")
    component = Mending(project=str(shop), select="kind:table", retries=1)
    defs = component_defs(component=component)
    result = defs.resolve_implicit_global_asset_job_def().execute_in_process(raise_on_error=False)
    assert result.success
    assert result.retry_attempts_for_node("shop") == 1
    last = {event.asset_key.path[-1]: event for event in result.get_asset_materialization_events()}
    actions = {
        name: event.materialization.metadata["lancestat/action"].value
        for name, event in last.items()
    }
    assert actions == {"orders": "skip", "products": "analyze"}


def test_the_example_is_valid(tmp_path: Path) -> None:
    copy = tmp_path / "example"
    shutil.copytree(EXAMPLE, copy, ignore=shutil.ignore_patterns("warehouse", ".lancestat"))
    ended = subprocess.run(
        [Path(sys.executable).with_name("dg"), "check", "defs"],
        cwd=copy,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "All definitions loaded successfully." in ended.stdout + ended.stderr
    assert set(Project.load(copy / "statistics").manifest()["nodes"]) == {
        "table.shop.orders",
        "table.shop.products",
        "knn_join.shop.similar_products",
    }
