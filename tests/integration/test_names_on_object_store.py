"""Names of catalogs in Spark, over an object store that soon refuses each key the catalog lends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lancestat import Project
from tests.catalogs.lender import Lender, lending
from tests.catalogs.shops import rows
from tests.catalogs.test_object_store import StoreShop, check_no_keys, lending_shop, text_of
from tests.examples import sample
from tests.integration.object_store import ObjectStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.s3]

NAME = "lake.sales.orders"


@pytest.fixture
def lender(object_store: ObjectStore) -> Iterator[Lender]:
    with lending(object_store, lease_seconds=6) as lender:
        yield lender


@pytest.fixture(params=sample(["managed", "plain"], 1))
def shop(
    request: pytest.FixtureRequest, object_store: ObjectStore, lender: Lender, tmp_path: Path
) -> StoreShop:
    is_managed = request.param == "managed"
    shop = lending_shop(object_store, lender, tmp_path, is_managed=is_managed)
    shop.create("sales", "orders")
    shop.declare({"name": "orders", "table": NAME})
    return shop


def content(frame: DataFrame) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in frame.collect())


def expected(count: int) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in rows(count).to_pylist()]


def test_names_outlive_the_keys_of_every_query(
    spark: SparkSession, shop: StoreShop, lender: Lender
) -> None:
    """Before each step all keys that were lent so far are refused by the store."""
    project = Project.load(shop.folder)
    assert project.run().status.value == "success"
    project.attach(spark)
    try:
        planned = spark.table(NAME)
        assert content(planned) == expected(40)
        text = planned._jdf.queryExecution().toString()

        lender.wait_until_refused()
        assert content(planned) == expected(40), "planned with keys that are refused since"
        lender.wait_until_refused()
        few = spark.sql(f"select id, total from {NAME} where id >= 35 and status is not null")
        wanted = [(row[0], row[2]) for row in expected(40) if row[0] >= 35 and row[1] is not None]
        assert content(few) == wanted
        lender.wait_until_refused()
        shop.write(rows(5), "sales", "orders")
        assert content(spark.table(NAME)) == sorted(expected(40) + expected(5))
        lender.wait_until_refused()
        summed = spark.sql(f"select count(*), sum(total) from {NAME} version as of 1").collect()
        assert [tuple(row) for row in summed] == [(40, sum(range(40)) / 4)]
        check_no_keys(text, text_of(shop.folder))
    finally:
        project.detach(spark)


def test_a_key_that_the_store_refuses_too_soon_is_an_error_of_the_query(
    spark: SparkSession, object_store: ObjectStore, tmp_path: Path
) -> None:
    with lending(object_store, lease_seconds=600) as lender:
        shop = lending_shop(object_store, lender, tmp_path)
        shop.create("sales", "orders")
        shop.declare({"name": "orders", "table": NAME})
        project = Project.load(tmp_path)
        project.attach_catalogs(spark)
        try:
            planned = spark.table(NAME)
            for number in range(1, len(lender.lent) + 1):
                lender.take_back(number)
            with pytest.raises(Exception, match="LS202") as raised:
                planned.collect()
            check_no_keys(str(raised.value))
        finally:
            project.detach(spark)
