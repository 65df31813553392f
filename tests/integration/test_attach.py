"""Declared tables as views of a Spark session, and single tables as DataFrames."""

from __future__ import annotations

import gc
import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest
from click.testing import CliRunner

import lancestat
from lancestat.cli.main import cli
from lancestat.errors import DatasetDamaged, LakeError, UsageError
from lancestat.query.read.relation import planning_service
from lancestat.query.sql.explain import explain_frame
from tests.discovery.catalogs import ROWS, write_catalog, write_folder
from tests.integration.planned import planned
from tests.runs.world import World, orders, write_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def project(tmp_path: Path, spark: SparkSession) -> Iterator[lancestat.Project]:
    """Two tables of three fragments, analyzed."""
    project = write_project(tmp_path, "orders", "returns")
    for name, step in (("orders", 0), ("returns", 1000)):
        for part in range(3):
            uri = tmp_path / f"{name}.lance"
            mode = "append" if uri.exists() else "create"
            lance.write_dataset(orders(step + 100 * part, 100), uri, mode=mode)
    assert project.run().status.value == "success"
    yield project
    for view in ("orders", "returns"):
        spark.catalog.dropTempView(view)


def test_declared_tables_become_views_with_their_statistics(
    session: SparkSession, project: lancestat.Project
) -> None:
    attachment = project.attach(session)
    assert attachment.views == ("orders", "returns")
    assert attachment.failed == {}
    joined = session.sql(
        "select count(*), max(o.o_total) from orders o join returns r on o.o_id + 1000 = r.o_id"
    )
    assert joined.collect()[0][:] == (300, 74.75)
    statistics = planned(session.table("orders")).columns["o_id"]
    assert (statistics.min().get(), statistics.max().get()) == (0, 299)


def test_only_selected_tables_are_attached(
    session: SparkSession, project: lancestat.Project
) -> None:
    assert project.attach(session, select="ret*").views == ("returns",)
    assert project.attach(session, exclude="returns").views == ("orders",)


def test_an_unreadable_table_does_not_stop_others(
    session: SparkSession,
    project: lancestat.Project,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (tmp_path / "returns.lance").rename(tmp_path / "gone.lance")
    with caplog.at_level(logging.WARNING, "lancestat.project"):
        attachment = project.attach(session)
    assert attachment.views == ("orders",)
    assert attachment.failed["returns"].code == "LS201"
    assert "table 'returns' is not attached" in caplog.text
    assert session.table("orders").count() == 300


def test_a_view_stays_at_its_version_until_attached_again(
    session: SparkSession, project: lancestat.Project, tmp_path: Path
) -> None:
    project.attach(session)
    before = session.table("orders")
    lance.write_dataset(orders(300, 50), tmp_path / "orders.lance", mode="append")
    assert session.table("orders").count() == 300
    project.attach(session)
    assert session.table("orders").count() == 350
    assert before.count() == 300


def test_a_view_attached_again_is_not_served_from_the_cache(
    session: SparkSession, project: lancestat.Project, tmp_path: Path
) -> None:
    project.attach(session)
    session.catalog.cacheTable("orders")
    session.catalog.cacheTable("returns")
    assert session.table("orders").count() == 300
    lance.write_dataset(orders(300, 50), tmp_path / "orders.lance", mode="append")
    try:
        project.attach(session, select="orders")
        assert session.table("orders").count() == 350
        assert not session.catalog.isCached("orders")
        assert session.catalog.isCached("returns")
    finally:
        session.catalog.clearCache()


def test_attached_views_are_ordinary_temporary_views(
    session: SparkSession, project: lancestat.Project
) -> None:
    session.range(5).createOrReplaceTempView("orders")
    project.attach(session)
    listed = {row.viewName: row.isTemporary for row in session.sql("show views").collect()}
    assert listed["orders"] and listed["returns"]
    assert session.sql("select max(O_ID) from ORDERS").collect() == [(299,)]
    described = [row.col_name for row in session.sql("describe table orders").collect()]
    assert described == session.table("orders").columns
    session.sql("create or replace temporary view few as select * from orders where o_id < 10")
    joined = "select count(*) from few join orders using (o_id) join orders o using (o_id)"
    assert session.sql(joined).collect() == [(10,)]
    assert session.catalog.dropTempView("few")
    assert session.catalog.dropTempView("orders")
    assert "orders" not in {row.viewName for row in session.sql("show views").collect()}


def test_a_table_is_read_at_a_version_or_a_tag(session: SparkSession, tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(orders(0, 10), uri)
    dataset = lance.write_dataset(orders(10, 10), uri, mode="append")
    dataset.tags.create("first", 1)
    assert lancestat.read_table(session, uri).count() == 20
    assert lancestat.read_table(session, uri, version=1).count() == 10
    assert lancestat.read_table(session, uri, tag="first").count() == 10
    with pytest.raises(UsageError, match="both version 1 and tag 'first'"):
        lancestat.read_table(session, uri, version=1, tag="first")
    with pytest.raises(LakeError, match="no tag 'frist'"):
        lancestat.read_table(session, uri, tag="frist")
    with pytest.raises(LakeError, match="version 9"):
        lancestat.read_table(session, uri, version=9)


def test_with_a_project_statistics_come_from_the_state(
    session: SparkSession, tmp_path: Path
) -> None:
    uri = tmp_path / "orders.lance"
    lance.write_dataset(orders(0, 100), uri)
    table = {"name": "orders", "uri": "orders.lance", "publish": "none"}
    project = write_project(tmp_path, table)
    project.run()
    project.attach(session)
    assert planned(session.table("orders")).columns["o_id"].max().get() == 99
    assert planned(lancestat.read_table(session, str(uri))).columns == {}


def test_with_an_unreachable_state_statistics_come_from_the_manifest(
    session: SparkSession,
    project: lancestat.Project,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (tmp_path / "elsewhere").write_text("a file where a folder belongs")
    without = write_project(tmp_path, "orders", target={"state": "elsewhere"})
    with caplog.at_level(logging.WARNING, "lancestat"):
        without.attach(session)
    assert "without the state" in caplog.text
    assert planned(session.table("orders")).columns["o_id"].max().get() == 299


def test_without_a_state_zone_maps_narrow_a_range(
    session: SparkSession, project: lancestat.Project, tmp_path: Path
) -> None:
    uri = str(tmp_path / "orders.lance")
    dataset = lance.dataset(uri)
    dataset.create_scalar_index("o_id", "ZONEMAP")
    project.run()
    rows = lancestat.read_table(session, uri).where("o_id >= 250")
    assert planned(rows).rows == pytest.approx(50, rel=0.1)
    assert rows.count() == 50
    explanation = planning_service().explanations()[-1]
    assert (explanation.verdict.reason.value, explanation.rows, explanation.fragments_scanned) == (
        "current",
        100,
        1,
    )
    assert (explanation.columns["o_id"].minimum, explanation.columns["o_id"].distinct) == (
        "200",
        99,
    )


def test_a_scan_that_cannot_be_planned_fails_its_query_with_one_error(
    session: SparkSession, project: lancestat.Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise DatasetDamaged("the manifest is damaged", hint="restore it")

    project.attach(session)
    monkeypatch.setattr("lancestat.query.read.planning_service.split_fragments", fail)
    with pytest.raises(Exception, match=r"LS204  the manifest is damaged\n.*hint: restore it"):
        session.table("orders").collect()


def test_a_garbage_collected_relation_is_released(session: SparkSession, tmp_path: Path) -> None:
    lance.write_dataset(orders(0, 10), tmp_path / "t.lance")
    before = set(planning_service().handles())
    rows = lancestat.read_table(session, str(tmp_path / "t.lance"))
    assert rows.count() == 10
    [handle] = set(planning_service().handles()) - before
    del rows
    deadline = time.monotonic() + 60
    while handle in planning_service().handles() and time.monotonic() < deadline:
        gc.collect()
        session._jvm.System.gc()  # type: ignore[union-attr]
        time.sleep(0.2)
    assert handle not in planning_service().handles()


def test_a_filter_that_spark_does_not_estimate_is_counted_in_a_sample(
    session: SparkSession, tmp_path: Path
) -> None:
    names = pa.array(["dark green tea" if n % 20 == 0 else "red wine" for n in range(40_000)])
    uri = str(tmp_path / "names.lance")
    lance.write_dataset(pa.table({"name": names}), uri)
    refused = lancestat.read_table(session, uri).where("name like '%green%'")
    assert planned(refused).rows == 40_000
    assert World(tmp_path / "names.lance").run().status == "success"
    rows = lancestat.read_table(session, uri).where("name like '%green%'")
    assert planned(rows).rows == pytest.approx(2_000, rel=0.5)
    assert rows.count() == 2_000
    session.conf.set("spark.lance.cbo.column.stats.enabled", "false")
    try:
        off = lancestat.read_table(session, uri).where("name like '%green%'")
        assert planned(off).rows == 40_000
    finally:
        session.conf.unset("spark.lance.cbo.column.stats.enabled")


def test_tables_that_sources_find_are_attached(session: SparkSession, tmp_path: Path) -> None:
    write_catalog(tmp_path / "lake", "sales.orders", "crm.customers")
    write_folder(tmp_path / "flat", "parts")
    lake = {"impl": "dir", "properties": {"root": str(tmp_path / "lake")}}
    target = {"spark": {"master": "local[1]"}, "catalogs": {"lake": lake}}
    sources = [{"catalog": "lake", "include": ["sales.*"]}, {"uri": "flat"}]
    project = write_project(tmp_path, target=target, sources=sources)
    assert project.run().status == "success"
    attachment = project.attach(session)
    assert (set(attachment.views), attachment.failed) == ({"sales_orders", "parts"}, {})
    for name in attachment.views:
        rows = {tuple(row) for row in session.table(name).select("id", "name").collect()}
        assert rows == {tuple(row.values()) for row in ROWS.to_pylist()}
        [scan] = explain_frame(session.table(name)).scans
        assert scan.explanation is not None
        assert scan.explanation.verdict.reason.value == "current"
    command = ["--project-dir", str(tmp_path), "--output", "json", "sql"]
    query = "select o.name from sales_orders o join parts p on o.id = p.id where p.id = 2"
    queried = CliRunner().invoke(cli, [*command, query])
    assert json.loads(queried.stdout)["rows"] == [["b"]]
    explained = CliRunner().invoke(cli, [*command, "--explain", "select id from sales_orders"])
    [scan] = json.loads(explained.stdout)["explanation"]["scans"]
    assert scan["statistics"]["verdict"] == "use"
    for name in attachment.views:
        session.catalog.dropTempView(name)
