"""The SQL by which the benchmark of estimates counts rows has the rows of Spark's operators."""

from __future__ import annotations

import datetime
import json
import sys
from collections.abc import Iterator
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.examples import sample

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
TABLES = {
    "sales": {
        "item": [1, 1, 2, 3, 3, 3, None, 5],
        "shop": ["a", "b", "a", None, "it's", "b", "a", "b"],
        "amount": [1.5, 2.0, 2.0, None, 7.25, 0.0, 3.0, 9.0],
        "price": [Decimal(n).scaleb(-2) if n % 3 else None for n in range(60, 68)],
        "day": [datetime.date(2024, 1, 1 + n % 3) for n in range(8)],
    },
    "items": {"id": [1, 2, 3, 4], "name": ["apple", "pear", "plum", "fig"], "size": [1, 2, 2, 4]},
    "returns": {"item_id": [1, 3, 3], "shop_id": ["a", "b", "c"], "back": [1.0, 2.0, 3.0]},
}
# Kinds of operators that each query's plan has, at least.
QUERIES = {
    "select * from sales where amount > 1 and shop in ('a', 'it''s')": {"filter"},
    "select * from sales where not (shop = 'a' or item is null) and day >= date '2024-01-02'": {
        "filter"
    },
    "select * from items where name like 'p%' and size % 2 = 0": {"filter"},
    "select case when size > 2 then 'big' else 'small' end, count(*) from items group by 1": {
        "aggregate"
    },
    "select * from sales join items on item = id join returns on item_id = id and shop = shop_id": {
        "join"
    },
    "select * from sales left join returns on item = item_id and shop = shop_id"
    " where item_id is null": {"filter", "join"},
    "select * from returns full join items on id = item_id and size > 1": {"join"},
    "select * from items where exists (select 1 from sales where item = id and amount > size)": {
        "join"
    },
    "select * from items where not exists (select 1 from returns where item_id = id)": {"join"},
    "select * from items where id not in (select item_id from returns)": {"join"},
    "select * from items where size = 4 or exists (select 1 from returns where item_id = id)": {
        "filter",
        "join",
    },
    "select item, shop, sum(amount) from sales group by rollup (item, shop)": {"aggregate"},
    "select shop, count(distinct item) as n from sales group by shop having n > 1": {
        "filter",
        "aggregate",
    },
    "select item from sales union all select item_id from returns where back > 1": {"filter"},
    "select distinct item from sales intersect select id from items": {"aggregate", "join"},
    "select * from sales where amount > (select avg(back) from returns)": {"filter"},
    "select a.shop from sales a join sales b on a.item = b.item and a.shop <> b.shop": {"join"},
    "select item, sum(price * (1 - price)) as s from sales where day + 1 > date '2024-01-02'"
    " group by item having s > 0.5": {"filter", "aggregate"},
    "select * from (select shop, price, avg(price) over (partition by shop) as mean from sales)"
    " where price is null or shop = 'b'": {"filter"},
    "select year(day), upper(shop), max(amount) from sales group by 1, 2": {"aggregate"},
}


@pytest.fixture
def tables(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[frozenset[str], str]]:
    """The tables as views; their names by their columns."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    for name, columns in TABLES.items():
        pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet")
        spark.read.parquet(str(tmp_path / f"{name}.parquet")).createOrReplaceTempView(name)
    yield {frozenset(columns): name for name, columns in TABLES.items()}
    for name in TABLES:
        spark.catalog.dropTempView(name)


@pytest.mark.parametrize("query", sample(list(QUERIES), 10))
def test_rows_of_every_operator_are_those_of_its_sql(
    query: str, spark: SparkSession, tables: dict[frozenset[str], str], tmp_path: Path
) -> None:
    sides, truths = sys_modules()
    plan = spark.sql(query)._jdf.queryExecution().optimizedPlan()
    nodes = list(sides.preorder(plan))
    operators = sides.translated(json.loads(plan.toJSON()), tables).operators
    dataset = spark._jvm.org.apache.spark.sql.classic.Dataset
    counted = {}
    with truths.load(tmp_path, list(TABLES)) as database:
        for operator in operators:
            assert operator.sql is not None, operator.reason
            [(rows,)] = database.execute(f"select count(*) from ({operator.sql})").fetchall()
            own = dataset.ofRows(spark._jsparkSession, nodes[operator.place]).count()
            assert rows == own, operator
            counted[operator.kind] = rows
    assert QUERIES[query] <= counted.keys()


def test_what_has_no_sql_says_why(spark: SparkSession, tables: dict[frozenset[str], str]) -> None:
    sides, _ = sys_modules()
    query = "select * from (select *, rank() over (order by amount) as n from sales) where n < 3"
    plan = spark.sql(query)._jdf.queryExecution().optimizedPlan()
    [*_, top] = sorted(
        sides.translated(json.loads(plan.toJSON()), tables).operators, key=lambda each: -each.place
    )
    assert (top.kind, top.sql) == ("filter", None)
    assert top.reason in ("the column n", "WindowGroupLimit")


def test_a_planner_that_is_told_true_rows_expects_them_and_joins_in_the_best_order(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    datasets, sides = import_module("accuracy.datasets"), import_module("accuracy.sides")
    measures, truths = import_module("accuracy.measures"), import_module("accuracy.truths")
    true_rows = import_module("accuracy.true_rows")
    columns = {
        "sold": {"a": [n % 40 for n in range(4000)], "b": [n * 7 % 90 for n in range(4000)]},
        "shops": {"shop": list(range(40)), "town": [f"t{n // 20}" for n in range(40)]},
        "goods": {"good": list(range(90)), "kind": [f"k{n * n % 7}" for n in range(90)]},
        "times": {"time": [n % 90 for n in range(300)], "part": [n % 4 for n in range(300)]},
    }
    for name, values in columns.items():
        pq.write_table(pa.table(values), tmp_path / f"{name}.parquet")
    query = (
        "select town, kind, count(*) from sold join shops on a = shop join goods on b = good"
        " join times on b = time where part < 2 and kind = 'k2' and (town = 't1' or good < 9)"
        " group by town, kind"
    )
    dataset = datasets.Dataset("sold", tmp_path, columns, {"q": query})
    (lance := tmp_path / "lance").mkdir()
    datasets.write_tables(dataset, lance)
    project = datasets.write_project(dataset, lance, 2)
    assert project.run().status == "success"
    session = sides.session(spark, project, dataset, sides.TRUE, 0)
    with (
        sides.settings(session, sides.COMPARABLE),
        truths.load(tmp_path, list(columns)) as database,
    ):
        counted = truths.Truths(tmp_path / "truths", database)
        side = true_rows.TrueRows(session, dataset)
        own = measures.compare("q", sides.estimates(session, query, dataset), counted)
        side.learn(query, counted)
        with true_rows.told(side, sides.TRUE):
            plan = sides.estimates(session, query, dataset)
        compared = measures.compare("q", plan, counted)
        assert measures.p_error([each.operator for each in plan], counted) == 1
    assert (side.ordered, side.left) == (1, 0)
    assert {each.kind for each in compared} >= {"filter", "join", "aggregate"}
    assert {each.q_error for each in compared} == {1}
    # Not because they are easy to tell.
    assert max(each.q_error for each in own) > 1


def sys_modules() -> tuple[Any, Any]:
    """The benchmark's modules, which are found once `tables` has set the path."""
    assert str(BENCHMARKS) in sys.path
    return import_module("accuracy.sides"), import_module("accuracy.truths")
