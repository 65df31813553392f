"""Catalogs of a target as catalogs of a Spark session: tables by their names, with statistics."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import lance_namespace as ns
import pytest
from lance.namespace import RestAdapter
from pyspark.errors import AnalysisException

import lancestat
from lancestat.errors import CatalogNotAttached
from lancestat.query.read.session_catalogs import NamedTables
from lancestat.spark.failure import carried_by
from tests.catalogs.serving import requests
from tests.catalogs.shops import SERVING, Shop, rows
from tests.integration.planned import executed, planned, with_cbo

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ORDERS = {"name": "orders", "table": "lake.sales.orders"}


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    """A session of its own for every test, which no other test has attached anything to."""
    return with_cbo(spark)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """A folder with a declared table of four fragments, and one that is not declared."""
    shop = Shop(tmp_path, "dir", {"root": str(tmp_path / "lake")})
    shop.create("sales", "orders")
    shop.create("sales", "returns", count=30)
    shop.declare(ORDERS)
    return shop


def project(shop: Shop, *, run: bool = True) -> lancestat.Project:
    loaded = lancestat.Project.load(shop.folder)
    if run:
        assert loaded.run().status.value == "success"
    return loaded


def bounds(frame: DataFrame, column: str = "id") -> tuple[int, int] | None:
    """Return the least and the greatest value that Spark's optimizer knows of a column."""
    known = planned(frame).columns.get(column)
    return None if known is None else (known.min().get(), known.max().get())


def failed(session: SparkSession, query: str) -> Exception:
    with pytest.raises(Exception) as raised:
        session.sql(query).collect()
    return raised.value


def failure(session: SparkSession, query: str) -> str:
    return str(failed(session, query))


def test_a_name_is_the_latest_version_with_its_statistics(
    shop: Shop, session: SparkSession
) -> None:
    loaded = project(shop)
    attachment = loaded.attach(session)
    assert attachment.catalogs == ("lake",)
    assert bounds(session.table("lake.sales.orders")) == (0, 39)
    shop.write(rows(50), "sales", "orders")
    # Stale statistics are not used, and the new rows are there.
    assert session.table("lake.sales.orders").count() == 90
    assert bounds(session.table("lake.sales.orders")) is None
    assert loaded.run().status.value == "success"
    assert bounds(session.table("lake.sales.orders")) == (0, 49)
    assert session.sql("select sum(id) from lake.sales.orders").collect()[0][0] == sum(
        [*range(40), *range(50)]
    )
    # The view was made once, and stays.
    assert session.table("orders").count() == 40


def test_a_policy_may_accept_the_statistics_of_a_stale_name(
    shop: Shop, session: SparkSession
) -> None:
    shop.declare({**ORDERS, "policy": {"allow.stale": True}})
    project(shop).attach(session)
    shop.write(rows(50), "sales", "orders")
    frame = session.table("lake.sales.orders")
    assert bounds(frame) == (0, 39)
    assert "stale" in str(lancestat.explain(frame))


@pytest.mark.parametrize("by", ["name", "uri"])
def test_statistics_of_the_state_alone_are_seen_without_attaching_again(
    shop: Shop, session: SparkSession, by: str
) -> None:
    at = {"table": ORDERS["table"]} if by == "name" else {"uri": shop.location("sales", "orders")}
    shop.declare({"name": "orders", **at, "publish": "none"})
    loaded = project(shop, run=False)
    loaded.attach(session)
    assert bounds(session.table("lake.sales.orders")) is None
    assert loaded.run().status.value == "success"
    assert bounds(session.table("lake.sales.orders")) == (0, 39)


def test_tables_that_are_not_declared_are_read_with_their_manifests(
    shop: Shop, session: SparkSession
) -> None:
    shop.declare({"name": "returns", "table": "lake.sales.returns"})
    project(shop)
    shop.declare(ORDERS)
    project(shop).attach(session)
    assert bounds(session.table("lake.sales.returns")) == (0, 29)
    shop.write(rows(10), "sales", "returns")
    assert bounds(session.table("lake.sales.returns")) is None
    assert session.table("lake.sales.returns").count() == 40


def test_one_query_sees_one_version_while_another_commits(
    shop: Shop, session: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After every look at the table there is one more row, before Spark goes on."""
    project(shop).attach(session)
    look = NamedTables.open

    def look_and_commit(self: NamedTables, identifier: tuple[str, ...]) -> object:
        opened = look(self, identifier)
        shop.write(rows(2), "sales", "orders")
        return opened

    monkeypatch.setattr(NamedTables, "open", look_and_commit)
    query = (
        "with t as (select id from lake.sales.orders) select "
        "(select count(*) from lake.sales.orders where total >= 0), "
        "(select count(*) from t where id >= 0), "
        "(select count(*) from (select * from lake.sales.orders union all "
        "select * from lake.sales.orders) where id >= 0) / 2"
    )
    seen = [session.sql(query).collect()[0] for _ in range(2)]
    assert all(len(set(counted)) == 1 for counted in seen), seen
    assert 40 <= seen[0][0] < seen[1][0]


def test_frames_made_at_different_times_are_one_version_in_one_query(
    shop: Shop, session: SparkSession
) -> None:
    project(shop).attach(session)
    before = session.table("lake.sales.orders").select("id")
    shop.write(rows(50), "sales", "orders")
    after = session.table("lake.sales.orders").select("id")
    together = before.unionAll(after).count()
    if tuple(map(int, session.version.split(".")[:2])) >= (4, 1):
        assert together == 180
        assert before.count() == 90
    else:
        # A DataFrame of these versions stays at what it was made of.
        assert together == 130
        assert before.count() == 40


def test_a_cached_table_is_served_from_the_cache(shop: Shop, session: SparkSession) -> None:
    project(shop).attach(session)
    session.sql("cache table lake.sales.orders")
    try:
        plan = session.table("lake.sales.orders").filter("id > 3")
        assert "InMemoryRelation" in executed(plan)
        assert plan.count() == 36
    finally:
        session.catalog.clearCache()


def test_versions_and_instants(shop: Shop, session: SparkSession) -> None:
    loaded = project(shop)
    analyzed = shop.read("sales", "orders")
    analyzed.tags.create("audit", analyzed.version)
    shop.write(rows(50), "sales", "orders")
    loaded.attach(session)
    name = "lake.sales.orders"
    for version in (str(analyzed.version), "'audit'"):
        frame = session.sql(f"select id from {name} version as of {version}")
        assert frame.count() == 40
        assert bounds(frame) == (0, 39)
    assert session.sql(f"select id from {name} version as of 1").count() == 40
    assert bounds(session.sql(f"select id from {name} version as of 1")) is None
    instant = shop.read("sales", "orders").versions()[-1]["timestamp"].astimezone()
    at = f"timestamp as of timestamp_micros({int(instant.timestamp() * 1e6)})"
    assert session.sql(f"select id from {name} {at}").count() == 90
    earlier = f"timestamp as of timestamp_micros({int(instant.timestamp() * 1e6) - 1000})"
    assert session.sql(f"select id from {name} {earlier}").count() == 40


@pytest.mark.parametrize(
    ("at", "code"),
    [
        ("version as of 9999", "LS206"),
        ("version as of 'nope'", "LS208"),
        ("timestamp as of '2001-01-01'", "LS206"),
    ],
)
def test_a_version_that_is_not_there_is_an_error_of_the_analysis(
    shop: Shop, session: SparkSession, at: str, code: str
) -> None:
    project(shop).attach(session)
    with pytest.raises(AnalysisException) as raised:
        session.sql(f"select * from lake.sales.orders {at}")
    assert str(raised.value).startswith(f"{code}  ")
    carried = carried_by(raised.value)
    assert carried is not None
    assert carried.code == code
    assert f"{code}  {carried.message}" in str(raised.value)
    lost = shop.lancestat("sql", f"select * from lake.sales.orders {at}")
    assert lost.exit_code == 1
    assert f"{code}  {carried.message}" in lost.output


@pytest.mark.parametrize(
    "identifier",
    [
        ("sales", "a.b"),
        ("sales", "with space"),
        ("sales", "ünïcode"),
        ("sales", "back`tick"),
        ("sales", "dollar$sign"),
        ("sales", "UPPER"),
        ("sales", 'quo"te'),
        ("top",),
        ("one", "two", "three", "deep"),
    ],
)
def test_names_of_every_kind(
    identifier: tuple[str, ...], tmp_path: Path, session: SparkSession
) -> None:
    shop = Shop(tmp_path, "dir", {"root": str(tmp_path / "lake")})
    for depth in range(1, len(identifier) - 1):
        shop.client.create_namespace(ns.CreateNamespaceRequest(id=list(identifier[:depth])))
    shop.create(*identifier)
    quoted = ".".join(f"`{part.replace('`', '``')}`" for part in ("lake", *identifier))
    shop.declare({"name": "t", "table": quoted})
    project(shop).attach(session)
    assert bounds(session.sql(f"select id from {quoted}")) == (0, 39)
    assert session.catalog.tableExists(quoted)
    parent = quoted.rpartition(".`")[0]
    listed = [row.tableName for row in session.sql(f"show tables in {parent}").collect()]
    asked = ns.ListTablesRequest(id=list(identifier[:-1]))
    assert listed == shop.client.list_tables(asked).tables


def test_names_that_are_not_there_are_sparks_own_errors(shop: Shop, session: SparkSession) -> None:
    project(shop).attach(session)
    for name in ("lake.sales.nope", "lake.nope.orders", "lake.a.b.c.d", "lake.nope"):
        assert "TABLE_OR_VIEW_NOT_FOUND" in failure(session, f"select * from {name}")
        assert not session.catalog.tableExists(name)
    for statement in ("use lake.nope", "show tables in lake.nope"):
        assert "SCHEMA_NOT_FOUND" in failure(session, statement)
    # It is there, but not as that.
    assert "TABLE_OR_VIEW_NOT_FOUND" in failure(session, "select * from lake.SALES.orders")


def test_namespaces_and_the_current_catalog(shop: Shop, session: SparkSession) -> None:
    shop.create("root")
    loaded = project(shop)
    loaded.attach(session)
    assert [row[0] for row in session.sql("show namespaces in lake").collect()] == ["sales"]
    assert session.sql("describe namespace lake.sales").collect()
    session.sql("use lake.sales")
    assert session.table("returns").count() == 30
    assert session.table("lake.root").count() == 40
    loaded.attach(session)
    assert session.catalog.currentCatalog() == "lake"
    assert session.table("returns").count() == 30
    loaded.detach(session)
    assert session.catalog.currentCatalog() == "spark_catalog"


def test_nothing_can_be_written(shop: Shop, session: SparkSession) -> None:
    project(shop).attach(session)
    before = shop.read("sales", "orders").version
    statements = (
        "insert into lake.sales.orders select * from lake.sales.returns",
        "insert overwrite lake.sales.orders select * from lake.sales.returns",
        "delete from lake.sales.orders where id = 1",
        "update lake.sales.orders set id = 1",
        "merge into lake.sales.orders o using lake.sales.returns r on o.id = r.id "
        "when matched then delete",
        "create table lake.sales.fresh as select 1 as a",
        "create table lake.sales.fresh (a int)",
        "drop table lake.sales.orders",
        "alter table lake.sales.orders add column z int",
        "alter table lake.sales.orders rename to lake.sales.moved",
        "create namespace lake.fresh",
        "drop namespace lake.sales cascade",
        "truncate table lake.sales.orders",
        "create or replace table lake.sales.orders (a int)",
        "alter table lake.sales.orders set tblproperties (a = 1)",
        "comment on table lake.sales.orders is 'orders'",
        "comment on namespace lake.sales is 'sales'",
    )
    for statement in statements:
        assert "the catalog 'lake' only reads" in failure(session, statement), statement
    frame = session.range(3)
    with pytest.raises(Exception, match="only reads"):
        frame.writeTo("lake.sales.fresh").create()
    with pytest.raises(Exception, match="only reads"):
        session.table("lake.sales.returns").writeTo("lake.sales.orders").append()
    assert shop.read("sales", "orders").version == before
    assert session.sql("drop table if exists lake.sales.nope").collect() == []


def test_lancestat_sql_has_the_names(shop: Shop) -> None:
    project(shop)
    query = "select count(*) as n from lake.sales.returns"
    result = shop.lancestat("sql", query, "--output", "json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["rows"] == [[30]]
    explained = shop.lancestat("sql", "--explain", "select id from lake.sales.orders where id < 5")
    assert "Scan lake.sales.orders [1]" in explained.output
    missing = shop.lancestat("sql", "select * from lake.sales.nope")
    assert missing.exit_code != 0
    assert "nope" in missing.output
    refused = shop.lancestat("sql", "insert into lake.sales.orders values (1, 'a', 2.0)")
    assert "LS421 query:1:1  this statement is no query" in refused.output


def test_analyze_of_a_name_is_a_run_of_its_table(shop: Shop) -> None:
    shop.declare(ORDERS)
    result = shop.lancestat("sql", "analyze table lake.sales.orders compute statistics")
    assert result.exit_code == 0, result.output
    assert shop.published("sales", "orders")


def test_a_session_of_the_project_has_the_names(
    shop: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = project(shop)
    session = loaded.spark()
    try:
        assert bounds(session.table("lake.sales.orders")) == (0, 39)
    finally:
        loaded.detach(session)


def test_a_new_session_has_nothing_attached_and_is_attached_to_by_itself(
    shop: Shop, session: SparkSession
) -> None:
    loaded = project(shop)
    loaded.attach(session)
    other = session.newSession()
    for name in ("lake.sales.orders", "orders"):
        assert session.table(name).count() == 40
        # Spark's own catalog has no such table, or no namespaces of several parts.
        assert failure(other, f"select * from {name}")
    loaded.attach(other)
    for name in ("lake.sales.orders", "orders"):
        assert other.table(name).count() == 40
    loaded.detach(other)
    assert failure(other, "select * from lake.sales.orders")
    assert session.table("lake.sales.orders").count() == 40


def test_detaching_takes_away_what_was_attached_and_nothing_else(
    shop: Shop, session: SparkSession
) -> None:
    loaded = project(shop)
    loaded.attach(session)
    held = session.table("lake.sales.orders")
    session.range(3).createOrReplaceTempView("mine")
    loaded.detach(session)
    assert not session.catalog.tableExists("orders")
    assert session.table("mine").count() == 3
    failure(session, "select * from lake.sales.orders")
    if tuple(map(int, session.version.split(".")[:2])) < (4, 1):
        assert held.filter("id >= 0").count() == 40
    # Nothing is left to take away; what is somebody else's stays.
    session.range(7).createOrReplaceTempView("orders")
    loaded.detach(session)
    assert session.table("orders").count() == 7


def test_attaching_opens_no_table_and_asks_no_catalog(
    tmp_path: Path, session: SparkSession
) -> None:
    root = tmp_path / "lake"
    shop = Shop(tmp_path, SERVING, {"root": str(root)})
    shop.create("sales", "orders")
    shop.declare({"name": "other", "uri": shop.location("sales", "orders")})
    before = requests(root)
    assert lancestat.Project.load(tmp_path).attach(session).catalogs == ("lake",)
    assert requests(root) == before
    assert session.table("lake.sales.orders").count() == 40
    assert requests(root)["describe_table"] > before["describe_table"]


def test_a_catalog_that_does_not_answer_is_an_error_of_the_queries_that_name_it(
    tmp_path: Path, session: SparkSession
) -> None:
    root = str(tmp_path / "lake")
    with RestAdapter("dir", {"root": root}, port=0) as server:
        shop = Shop(tmp_path, "rest", {"uri": f"http://127.0.0.1:{server.port}"})
        shop.create("sales", "orders")
        shop.declare(ORDERS)
        loaded = project(shop)
        loaded.attach(session)
        assert bounds(session.table("lake.sales.orders")) == (0, 39)
    error = carried_by(failed(session, "select * from lake.sales.orders"))
    assert error is not None and error.code == "LS211"
    error = carried_by(failed(session, "show tables in lake.sales"))
    assert error is not None and error.code == "LS211"
    assert session.table("orders").count() == 40


def test_a_managed_catalog_that_lends_credentials(tmp_path: Path, session: SparkSession) -> None:
    properties = {"root": str(tmp_path / "lake"), "lease_seconds": "3600", "managed": "true"}
    shop = Shop(tmp_path, SERVING, properties)
    shop.create("sales", "orders")
    shop.declare(ORDERS)
    project(shop).attach(session)
    assert bounds(session.table("lake.sales.orders")) == (0, 39)
    shop.write(rows(5), "sales", "orders")
    assert session.sql("select * from lake.sales.orders where id >= 0").count() == 45
    texts = [
        str(session.sql(f"{statement} lake.sales.orders").collect())
        for statement in ("describe extended", "show create table", "show tblproperties")
    ]
    frame = session.table("lake.sales.orders").filter("id > 7")
    execution = frame._jdf.queryExecution()
    texts += [execution.toString(), execution.analyzed().toJSON(), str(lancestat.explain(frame))]
    assert not any("lent-" in text for text in texts)


def test_a_dataset_that_is_gone_is_an_error_with_its_code(
    shop: Shop, session: SparkSession
) -> None:
    project(shop).attach(session)
    shutil.rmtree(shop.location("sales", "returns").removeprefix("file://"))
    error = carried_by(failed(session, "select * from lake.sales.returns"))
    assert error is not None and error.code == "LS201"


def test_a_table_that_is_dropped_and_created_again_is_the_new_one(
    shop: Shop, session: SparkSession
) -> None:
    project(shop).attach(session)
    assert session.table("lake.sales.orders").count() == 40
    shop.client.drop_table(ns.DropTableRequest(id=["sales", "orders"]))
    assert "TABLE_OR_VIEW_NOT_FOUND" in failure(session, "select * from lake.sales.orders")
    shop.create("sales", "orders", count=20)
    assert session.table("lake.sales.orders").count() == 20


def test_sparks_own_names_are_refused_and_the_rest_goes_on(
    shop: Shop, session: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    path = shop.folder / "lancestat_project.yml"
    path.write_text(path.read_text().replace('"lake": {', '"spark_catalog": {'))
    (shop.folder / "specs" / "shop.yml").write_text(
        f'tables: [{{"name": "orders", "uri": "{shop.location("sales", "orders")}"}}]\n'
    )
    with caplog.at_level(logging.WARNING, "lancestat.project"):
        attachment = lancestat.Project.load(shop.folder).attach(session)
    assert isinstance(attachment.failed_catalogs["spark_catalog"], CatalogNotAttached)
    assert attachment.catalogs == ()
    assert "cannot be attached" in caplog.text
    assert session.table("orders").count() == 40
