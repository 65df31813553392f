"""Runs of Dagster with the real lancestat."""

import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from lancestat import Project
from sample import write_orders, write_products

from dagster_lancestat import LancestatCliResource, lancestat_assets

TABLES = ("orders", "products")


class Shop:
    """The assets of a project, and one instance of Dagster that runs them."""

    def __init__(self, folder: Path, instance: dg.DagsterInstance, *options: str) -> None:
        self.lancestat = LancestatCliResource(project_dir=str(folder))
        self._instance = instance

        @lancestat_assets(manifest=Project.load(folder).manifest())
        def shop(
            context: dg.AssetExecutionContext, lancestat: LancestatCliResource
        ) -> Iterator[Any]:
            yield from lancestat.cli(["run", *options], context=context).stream()

        self.assets = shop

    def run(
        self, nodes: Sequence[str] = (), selection: dg.AssetSelection | None = None
    ) -> dg.ExecuteInProcessResult:
        keys = [dg.AssetKey(["shop", name]) for name in nodes]
        return dg.materialize(
            [self.assets],
            selection=selection or keys,
            resources={"lancestat": self.lancestat},
            instance=self._instance,
            raise_on_error=False,
        )


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture
def dagster(shop: Path, instance: dg.DagsterInstance) -> Shop:
    return Shop(shop, instance)


def materialized(result: dg.ExecuteInProcessResult) -> dict[str, dict[str, Any]]:
    events = result.get_asset_materialization_events()
    return {
        event.asset_key.path[-1]: {
            name: value.value for name, value in event.materialization.metadata.items()
        }
        for event in events
        if event.asset_key
    }


def checks(result: dg.ExecuteInProcessResult) -> dict[str, dg.AssetCheckEvaluation]:
    found = result.get_asset_check_evaluations()
    return {f"{each.asset_key.path[-1]}:{each.check_name}": each for each in found}


def failure(result: dg.ExecuteInProcessResult) -> Any:
    [event] = result.filter_events(lambda event: event.is_step_failure)
    return event.step_failure_data.user_failure_data


def records(result: dg.ExecuteInProcessResult, table: str) -> Sequence[dg.TableRecord]:
    value: dg.TableMetadataValue = failure(result).metadata[table]
    return value.records


def messages(instance: dg.DagsterInstance, result: dg.ExecuteInProcessResult) -> list[str]:
    return [entry.user_message for entry in instance.all_logs(result.run_id)]


def test_a_run_materializes_and_checks_the_selected_assets(dagster: Shop) -> None:
    first = dagster.run(["orders"])
    assert set(materialized(first)) == {"orders"}
    assert set(checks(first)) == {"orders:statistics_current", "orders:freshness"}

    result = dagster.run(TABLES)
    assert result.success
    made = materialized(result)
    assert set(made) == set(TABLES)
    assert made["orders"]["dagster/row_count"] == 100
    assert made["orders"]["lancestat/action"] == "skip"
    assert made["products"]["lancestat/action"] == "analyze"
    assert made["products"]["lancestat/reasons"] == "new"
    columns = {
        column.name: column.type for column in made["orders"]["dagster/column_schema"].columns
    }
    assert columns == {"order_id": "bigint", "product_id": "bigint"}
    assert {name: check.passed for name, check in checks(result).items()} == {
        "orders:statistics_current": True,
        "orders:freshness": True,
        "products:statistics_current": True,
    }


def test_nodes_fail_alone_and_are_retried_alone(
    dagster: Shop, shop: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_KEY", "hunter2-hunter2")
    shutil.rmtree(shop / "warehouse" / "products.lance")
    broken = dagster.run(["orders", "products", "similar_products"])
    assert not broken.success
    assert set(materialized(broken)) == {"orders"}

    failed = {record.data["name"]: record.data for record in records(broken, "failed")}
    assert set(failed) == {"products", "similar_products"}
    assert failed["products"]["code"] == "LS201"
    assert "products.lance" in failed["products"]["message"]
    assert failed["products"]["hint"] == "did you mean 'orders.lance'?"
    assert "products: LS201  there is no Lance dataset" in failure(broken).description

    assert checks(broken)["orders:statistics_current"].passed
    check = checks(broken)["products:statistics_current"]
    assert not check.passed
    assert "products.lance" in check.description
    logged = messages(instance, broken)
    assert any(line.startswith("products: LS201  ") for line in logged)
    assert "hunter2" not in str([entry.to_json() for entry in instance.all_logs(broken.run_id)])

    write_products(shop)
    mended = dagster.run(["products"])
    assert mended.success
    assert set(materialized(mended)) == {"products"}
    assert checks(mended)["products:statistics_current"].passed


def test_nodes_that_were_not_run_say_why(shop: Path, instance: dg.DagsterInstance) -> None:
    shutil.rmtree(shop / "warehouse" / "products.lance")
    result = Shop(shop, instance, "--fail-fast", "--threads", "1").run(TABLES)
    assert materialized(result) == {}
    [left] = records(result, "not run")
    assert left.data == {"name": "orders", "message": "another node failed first"}


def test_what_the_budget_defers_is_not_materialized(
    shop: Path, instance: dg.DagsterInstance
) -> None:
    result = Shop(shop, instance, "--max-bytes", "0").run(TABLES)
    assert result.success
    assert materialized(result) == {}


def test_checks_alone_run_no_nodes(dagster: Shop, shop: Path) -> None:
    assert dagster.run(["orders"]).success
    write_orders(shop, mode="append")
    orders = dg.AssetKey(["shop", "orders"])
    result = dagster.run(selection=dg.AssetSelection.checks_for_assets(orders))
    assert materialized(result) == {}
    assert not checks(result)["orders:statistics_current"].passed
    stale = checks(result)["orders:statistics_current"]
    assert "stale" in stale.metadata["reason"].value
    assert stale.description == stale.metadata["detail"].value
    assert checks(result)["orders:freshness"].passed


def test_late_rows_warn_or_fail(shop: Path, instance: dg.DagsterInstance) -> None:
    specs = shop / "specs" / "shop.yml"
    specs.write_text(specs.read_text().replace("warn_after: 26h", "warn_after: 0s"))
    result = Shop(shop, instance).run(["orders"])
    assert result.success
    check = checks(result)["orders:freshness"]
    assert (check.passed, check.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert re.fullmatch(r"the newest rows are \d+ s old", check.description)


def test_expectations_and_monitors_are_checks(shop: Path, instance: dg.DagsterInstance) -> None:
    specs = shop / "specs" / "shop.yml"
    expect = """
    expect:
      - not_null: order_id
      - unique: product_id
      - row_count: {max: 10, severity: warn}
    monitors: [volume_anomalies]
"""
    declared = specs.read_text().replace("    tags: [nightly]", f"    tags: [nightly]{expect}", 1)
    specs.write_text(declared)
    result = Shop(shop, instance).run(["orders"])
    assert result.success
    found = {
        name.removeprefix("orders:"): (
            check.passed,
            check.severity,
            check.metadata["verdict"].value,
        )
        for name, check in checks(result).items()
        if "verdict" in check.metadata
    }
    error, warn = dg.AssetCheckSeverity.ERROR, dg.AssetCheckSeverity.WARN
    assert found == {
        "not_null_order_id": (True, error, "proved"),
        "unique_product_id": (False, error, "refuted"),
        "row_count": (False, warn, "refuted"),
        "volume_anomalies": (True, warn, "unknown"),
    }
    # Each says why it failed itself, and nothing of the others.
    assert checks(result)["orders:row_count"].description == "there are 100 rows"
    why = "100 rows, and only 50 values from the least to the greatest"
    assert checks(result)["orders:unique_product_id"].description == why
    logged = messages(instance, result)
    assert any(line.startswith("orders: check unique(product_id): ") for line in logged)
    shutil.rmtree(shop / "warehouse" / "orders.lance")
    orders = dg.AssetKey(["shop", "orders"])
    gone = Shop(shop, instance).run(selection=dg.AssetSelection.checks_for_assets(orders))
    assert not checks(gone)["orders:not_null_order_id"].passed
    assert "LS201" in checks(gone)["orders:not_null_order_id"].description


def test_a_join_has_its_recall(dagster: Shop) -> None:
    result = dagster.run(["products", "similar_products"])
    assert result.success
    assert checks(result)["similar_products:recall"].passed
    assert materialized(result)["similar_products"]["lancestat/left_rows"] == 50


def test_a_command_runs_without_assets(shop: Path) -> None:
    lancestat = LancestatCliResource(project_dir=str(shop))
    plan = lancestat.cli(["plan", "--select", "orders"]).wait()
    assert plan.is_successful()
    assert plan.get_output()["command"] == "plan"
    assert "table.shop.orders" in plan.get_artifact("manifest.json")["nodes"]
    with pytest.raises(dg.DagsterInvariantViolationError, match="context"):
        next(lancestat.cli(["run"]).stream())


def test_a_command_that_cannot_start_says_why(shop: Path, instance: dg.DagsterInstance) -> None:
    dagster = Shop(shop, instance)
    (shop / "specs" / "shop.yml").write_text("tabels: []")
    result = dagster.run(["orders"])
    assert not result.success
    [error] = records(result, "errors")
    assert "tabels" in error.data["message"]
    assert error.data["hint"] == "did you mean 'tables'?"
