"""Runs of Airflow with the real lancestat."""

import shutil
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import BaseOperator
from runner import asset_events, dag, rendered, states, xcom
from sample import write_orders, write_products

from airflow_provider_lancestat import (
    LancestatCheckOperator,
    LancestatPlanOperator,
    LancestatRunOperator,
    LancestatTaskGroup,
    ProjectConfig,
    RenderConfig,
    TargetConfig,
)


class Mend(BaseOperator):
    """Brings the products back."""

    def __init__(self, *, folder: Path, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.folder = folder

    def execute(self, context: Any) -> None:
        write_products(self.folder)


def test_nodes_run_in_their_order_and_are_checked(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with dag() as made:
        LancestatTaskGroup(
            group_id="statistics",
            project_config=ProjectConfig(shop),
            render_config=RenderConfig(docs_url="https://pages.example.com"),
        )
    run = made.run()
    assert set(states(run).values()) == {"success"}
    assert len(states(run)) == 6
    orders = xcom(run, "statistics.orders.run")["orders"]
    assert orders["action"] == "analyze"
    assert orders["reasons"] == ["new"]
    assert orders["rows_total"] == 100
    assert xcom(run, "statistics.similar_products.run")["similar_products"]["left_rows"] == 50
    assert xcom(run, "statistics.orders.check") == {
        "orders": {"statistics_current": "passed", "freshness": "passed"}
    }
    assert xcom(run, "statistics.similar_products.check") == {
        "similar_products": {"recall": "passed"}
    }
    link = xcom(run, "statistics.orders.run", "_link_LancestatPagesLink")
    assert link == "https://pages.example.com"
    logged = capsys.readouterr().out
    assert "orders: read" in logged
    assert "orders: analyze, new" in logged
    assert "passed  orders: statistics_current: the statistics describe version 2" in logged

    events = asset_events(run)
    assert set(events) == {
        "x-lancestat://shop/orders",
        "x-lancestat://shop/products",
        (shop / "warehouse" / "similar_products.lance").as_uri(),
    }
    changed = events["x-lancestat://shop/orders"]["lancestat"]
    assert changed == {"orders": orders}


def test_nodes_fail_alone_and_are_retried_alone(
    shop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SHOP_KEY", "hunter2-hunter2")
    shutil.rmtree(shop / "warehouse" / "products.lance")
    with dag() as made:
        LancestatTaskGroup(group_id="statistics", project_config=ProjectConfig(shop))
    run = made.run()
    assert run.state == "failed"
    assert states(run) == {
        "statistics.orders.run": "success",
        "statistics.orders.check": "success",
        "statistics.products.run": "failed",
        "statistics.products.check": "upstream_failed",
        "statistics.similar_products.run": "upstream_failed",
        "statistics.similar_products.check": "upstream_failed",
    }
    error = made.errors["statistics.products.run"]
    assert error.startswith("products: LS201  there is no Lance dataset at ")
    assert "products.lance (hint: did you mean 'orders.lance'?)" in error
    assert "x-lancestat://shop/products" not in asset_events(run)
    logged = capsys.readouterr().out
    assert "products: LS201  there is no Lance dataset at " in logged
    assert "hunter2" not in logged


def test_a_retry_runs_what_failed(shop: Path) -> None:
    shutil.rmtree(shop / "warehouse" / "products.lance")
    with dag() as made:
        statistics = LancestatRunOperator(
            task_id="statistics",
            project_dir=str(shop),
            select="kind:table",
            retries=1,
            retry_delay=timedelta(seconds=2),
        )

        def mend(context: Any) -> None:
            write_products(shop)

        statistics.on_retry_callback = [mend]
    run = made.run()
    assert run.state == "success"
    assert [ti.try_number for ti in run.get_task_instances()] == [2]
    results = xcom(run, "statistics")
    actions = {name: result["action"] for name, result in results.items()}
    assert actions == {"orders": "skip", "products": "analyze"}


def test_nodes_that_were_not_run_say_why(shop: Path) -> None:
    shutil.rmtree(shop / "warehouse" / "products.lance")
    with dag() as made:
        LancestatRunOperator(
            task_id="statistics",
            project_dir=str(shop),
            exclude="kind:knn_join",
            options=["--fail-fast", "--threads", "{{ params.threads }}", "{{ '' }}"],
            params={"threads": "1"},
        )
    assert made.run().state == "failed"
    assert "orders: skipped, another node failed first" in made.errors["statistics"]
    assert "products: LS201" in made.errors["statistics"]


def test_a_plan_skips_what_is_downstream(shop: Path) -> None:
    with dag() as made:
        options = {"project_dir": str(shop), "select": "orders"}
        plan = LancestatPlanOperator(task_id="plan", **options)
        pending = LancestatPlanOperator(task_id="pending", skip_when="pending", **options)
        always = LancestatPlanOperator(task_id="always", skip_when=None, **options)
        run = LancestatRunOperator(task_id="run", **options)
        plan >> run
        pending >> LancestatCheckOperator(task_id="current", **options)
        [pending, always] >> LancestatCheckOperator(
            task_id="check", trigger_rule="none_failed", **options
        )
        [plan, pending, always] >> run
        run.trigger_rule = "all_done"
    first = made.run()
    assert states(first)["plan"] == "success"
    assert xcom(first, "plan") == {"orders": {"action": "analyze", "reasons": ["new"]}}
    assert states(first)["pending"] == "skipped"
    assert states(first)["current"] == "skipped"

    with dag() as made:
        LancestatPlanOperator(task_id="plan", **options) >> LancestatRunOperator(
            task_id="run", **options
        )
        LancestatPlanOperator(task_id="pending", skip_when="pending", **options)
    second = made.run()
    assert states(second) == {"plan": "skipped", "run": "skipped", "pending": "success"}

    shutil.rmtree(shop / "warehouse" / "orders.lance")
    broken = made.run()
    assert states(broken)["plan"] == "failed"
    assert "orders: LS201" in made.errors["plan"]
    with pytest.raises(ValueError, match="skip_when"):
        LancestatPlanOperator(task_id="plan", skip_when="never", **options)  # type: ignore
