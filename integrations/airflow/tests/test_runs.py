"""Runs of Airflow with the real lancestat."""

import shutil
import signal
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
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
        LancestatRunOperator(
            task_id="statistics",
            project_dir=str(shop),
            select="kind:table",
            retries=1,
            retry_delay=timedelta(seconds=1),
            on_retry_callback=lambda context: write_products(shop),
        )
    run = made.run()
    assert run.state == "success"
    assert [ti.try_number for ti in run.get_task_instances()] == [2]
    results = xcom(run, "statistics")
    actions = {name: result["action"] for name, result in results.items()}
    assert actions == {"orders": "skip", "products": "analyze"}


def test_a_task_may_be_mapped(shop: Path) -> None:
    with dag() as made:
        LancestatRunOperator.partial(
            task_id="statistics", project_dir=str(shop), docs_url="https://pages.example.com"
        ).expand(select=["orders", "products"])
    run = made.run()
    assert [str(ti.state) for ti in run.get_task_instances()] == ["success", "success"]
    assert xcom(run, "statistics", "_link_LancestatPagesLink") == "https://pages.example.com"


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
    options: dict[str, Any] = {"project_dir": str(shop), "select": "orders"}
    with dag() as made:
        plan = LancestatPlanOperator(task_id="plan", **options)
        pending = LancestatPlanOperator(task_id="pending", skip_when="pending", **options)
        plan >> LancestatRunOperator(task_id="run", **options)
        pending >> LancestatCheckOperator(task_id="check", **options)
    # Both plan before the run.
    [plan, pending] >> made.dag.get_task("run")
    made.dag.get_task("run").trigger_rule = "one_success"
    first = made.run()
    assert states(first) == {
        "plan": "success",
        "pending": "skipped",
        "run": "success",
        "check": "skipped",
    }
    assert xcom(first, "plan") == {"orders": {"action": "analyze", "reasons": ["new"]}}
    assert states(made.run()) == {
        "plan": "skipped",
        "pending": "success",
        "run": "success",
        "check": "success",
    }
    shutil.rmtree(shop / "warehouse" / "orders.lance")
    assert states(made.run())["plan"] == "failed"
    assert made.errors["plan"].startswith("orders: LS201  there is no Lance dataset")
    with pytest.raises(ValueError, match="skip_when"):
        LancestatPlanOperator(task_id="plan", skip_when="never", **options)


def test_stale_statistics_and_refuted_expectations_fail_a_check(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    specs = shop / "specs" / "shop.yml"
    expect = """
    expect:
      - not_null: order_id
      - unique: product_id
      - row_count: {max: 10, severity: warn}
    monitors: [volume_anomalies]
"""
    declared = specs.read_text().replace("    tags: [nightly]", f"    tags: [nightly]{expect}", 1)
    specs.write_text(declared.replace("warn_after: 26h", "warn_after: 0s"))
    options: dict[str, Any] = {"project_dir": str(shop), "select": "orders"}
    with dag() as made:
        LancestatRunOperator(task_id="run", **options)
    assert made.run().state == "success"
    with dag() as made:
        LancestatCheckOperator(task_id="check", **options)
    assert states(made.run()) == {"check": "failed"}
    refuted = "orders: unique_product_id: refuted, "
    first, line = made.errors["check"].splitlines()
    assert first == "1 of 6 checks failed"
    assert line.startswith(refuted)
    logged = capsys.readouterr().out
    assert "orders: check unique(product_id): " in logged
    assert f"failed  {refuted}" in logged
    assert "warn    orders: row_count: refuted, there are 100 rows" in logged
    assert "warn    orders: freshness: the newest rows are " in logged
    assert "passed  orders: not_null_order_id: proved, " in logged
    assert "passed  orders: volume_anomalies: unknown, " in logged

    specs.write_text(declared.replace("      - unique: product_id\n", ""))
    write_orders(shop, mode="append")
    assert states(made.run()) == {"check": "failed"}
    [stale] = [line for line in made.errors["check"].splitlines() if "statistics_current" in line]
    assert "version" in stale

    shutil.rmtree(shop / "warehouse" / "orders.lance")
    assert states(made.run()) == {"check": "failed"}
    first, *lines = made.errors["check"].splitlines()
    assert first == "5 of 5 checks failed"
    assert all("LS201: there is no Lance dataset at" in line for line in lines)


def test_late_rows_and_missing_recall_only_warn(shop: Path) -> None:
    specs = shop / "specs" / "shop.yml"
    specs.write_text(specs.read_text().replace("warn_after: 26h", "warn_after: 0s"))
    options: dict[str, Any] = {"project_dir": str(shop), "exclude": "products"}
    with dag() as made:
        run = LancestatRunOperator(task_id="run", **{**options, "select": "orders"})
        run >> LancestatCheckOperator(task_id="check", **options)
    ran = made.run()
    assert xcom(ran, "check") == {
        "orders": {"statistics_current": "passed", "freshness": "warn"},
        "similar_products": {"recall": "warn"},
    }


def test_a_command_that_cannot_start_says_why(shop: Path) -> None:
    without = shop / "lancestat"
    without.write_text(f"#!/bin/sh\nexec {sys.executable} -m lancestat_is_not_here\n")
    without.chmod(0o755)
    with dag() as made:
        LancestatRunOperator(task_id="select", project_dir=str(shop), select="oders")
        LancestatRunOperator(task_id="python", project_dir=str(shop), executable=str(without))
        LancestatRunOperator(task_id="path", project_dir=str(shop), executable=f"{shop}/nothing")
    assert set(states(made.run()).values()) == {"failed"}
    assert made.errors["select"] == (
        "LS402  selector 'oders' matches nothing (hint: did you mean 'orders'?)"
    )
    assert made.errors["python"].endswith(": No module named lancestat_is_not_here")
    assert "No such file" in made.errors["path"]


def test_secrets_are_rendered_and_not_stored(shop: Path, capfd: pytest.CaptureFixture[str]) -> None:
    project = shop / "lancestat_project.yml"
    project.write_text(project.read_text().replace("'SHOP_KEY', 'none'", "'SHOP_KEY'"))
    with dag() as made:
        LancestatRunOperator(
            task_id="statistics",
            project_dir=str(shop),
            select="{{ params.node }}",
            params={"node": "orders"},
            env={"SHOP_KEY": "{{ params.node }}-hunter2"},
        )
        LancestatRunOperator(task_id="without", project_dir=str(shop))
    run = made.run()
    assert states(run) == {"statistics": "success", "without": "failed"}
    assert "SHOP_KEY" in made.errors["without"]
    [fields] = [each for each in rendered(run) if each["select"] == "orders"]
    assert fields["project_dir"] == str(shop)
    assert "env" not in fields
    assert "hunter2" not in str(rendered(run))
    captured = capfd.readouterr()
    assert "hunter2" not in captured.out + captured.err


def test_vars_and_the_target_reach_the_project(shop: Path) -> None:
    project = shop / "lancestat_project.yml"
    project.write_text(project.read_text() + "  prod: {}\n")
    (shop / "warehouse").rename(shop / "elsewhere")
    with dag() as made:
        LancestatTaskGroup(
            group_id="statistics",
            project_config=ProjectConfig(shop, vars={"warehouse": "elsewhere"}),
            target_config=TargetConfig("prod"),
            render_config=RenderConfig(select="orders", checks=False),
        )
    run = made.run()
    assert states(run) == {"statistics.orders": "success"}
    assert [each["target"] for each in rendered(run)] == ["prod"]


def test_sigterm_lets_lancestat_record_how_far_it_got(shop: Path) -> None:
    with dag() as made:
        LancestatRunOperator(task_id="statistics", project_dir=str(shop))
    before = signal.getsignal(signal.SIGTERM)
    killer = threading.Thread(target=terminate_once_spark_runs)
    killer.start()
    try:
        assert made.run().state == "failed"
    finally:
        killer.join()
        signal.signal(signal.SIGTERM, before)
    assert "similar_products: interrupted, " in made.errors["statistics"]
    assert not running()


def running() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if "lancestat" in child.cmdline()]


def terminate_once_spark_runs() -> None:
    me = psutil.Process()
    while not any(child.name() == "java" for child in me.children(recursive=True)):
        time.sleep(0.2)
    me.terminate()


def test_a_task_that_times_out_stops_lancestat(shop: Path) -> None:
    with dag() as made:
        LancestatRunOperator(
            task_id="statistics",
            project_dir=str(shop),
            execution_timeout=timedelta(seconds=0.5),
        )
    assert made.run().state == "failed"
    assert "Timeout" in made.errors["statistics"]
    assert not running()
