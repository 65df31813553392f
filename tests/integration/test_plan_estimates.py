"""Estimates of whole plans, as Spark plans with them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lancestat
from lancestat.query.read.arrow_columns import encode_sample
from lancestat.query.read.planning_service import PlanningService
from tests.runs.world import write_project

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ORDERS, LINES, CUSTOMERS, PARTS = 60_000, 120_000, 3_000, 1_000
SETTING = "spark.lancestat.estimates.enabled"
CONF = {
    "spark.sql.cbo.enabled": "true",
    "spark.sql.cbo.joinReorder.enabled": "true",
    "spark.sql.adaptive.enabled": "false",
    SETTING: "true",
}
QUERY = """
    select c_nation, p_brand, count(*) as lines
    from lines join orders on l_order = o_id join customers on o_customer = c_id
      join parts on l_part = p_id
    where o_day % 7 = 3 and p_brand = 4 and l_quantity < 10
    group by c_nation, p_brand
"""


@pytest.fixture(scope="module")
def project(
    tmp_path_factory: pytest.TempPathFactory, session: SparkSession
) -> Iterator[lancestat.Project]:
    """Four tables, analyzed and attached to the module's session."""
    folder = tmp_path_factory.mktemp("shop")
    random = np.random.default_rng(1)
    tables = {
        "orders": {
            "o_id": np.arange(ORDERS),
            "o_customer": random.integers(0, CUSTOMERS, ORDERS),
            "o_day": random.integers(0, 365, ORDERS),
        },
        "lines": {
            "l_order": random.integers(0, ORDERS, LINES),
            "l_part": random.integers(0, PARTS, LINES),
            "l_quantity": random.integers(1, 50, LINES),
        },
        "customers": {
            "c_id": np.arange(CUSTOMERS),
            "c_nation": random.integers(0, 25, CUSTOMERS),
        },
        "parts": {"p_id": np.arange(PARTS), "p_brand": random.integers(0, 40, PARTS)},
    }
    for name, columns in tables.items():
        lance.write_dataset(pa.table(columns), folder / f"{name}.lance")
    project = write_project(folder, *tables)
    attach(project, session)
    yield project
    for name in tables:
        session.catalog.dropTempView(name)


def attach(project: lancestat.Project, session: SparkSession) -> None:
    """Analyze the tables of a project, and attach them to a session that has the estimates."""
    project.run().raise_for_status()
    configure(session)
    project.attach(session)


def configure(session: SparkSession) -> None:
    for key, value in CONF.items():
        session.conf.set(key, value)


@pytest.fixture
def shop(session: SparkSession, project: lancestat.Project) -> SparkSession:
    """The session with the four tables, configured as at first."""
    configure(session)
    return session


def estimates(rows: DataFrame) -> dict[str, list[float]]:
    """The rows of each kind of logical operator, as Spark's strategies have seen them."""
    found: dict[str, list[float]] = {}

    def visit(plan: Any) -> None:
        link = plan.logicalLink()
        if link.isDefined():
            counted = link.get().stats().rowCount()
            if counted.isDefined():
                found.setdefault(link.get().nodeName(), []).append(float(counted.get()))
        for index in range(plan.children().size()):
            visit(plan.children().apply(index))

    visit(rows._jdf.queryExecution().sparkPlan())  # type: ignore[operator]
    return found


def test_spark_plans_with_the_estimates(shop: SparkSession) -> None:
    rows = shop.sql(QUERY)
    true = sum(row.lines for row in rows.collect())
    made = estimates(rows)
    # Of three joins the last has the rows that are grouped.
    assert true / 2 <= min(made["Join"]) <= true * 2
    # A condition that computes something, which Spark takes to be true.
    days = shop.sql("select * from orders where o_day % 7 = 3")
    assert days.count() / 1.2 <= max(estimates(days)["Filter"]) <= days.count() * 1.2
    shop.conf.set(SETTING, "false")
    assert min(estimates(shop.sql(QUERY))["Join"]) > true * 5


@pytest.mark.parametrize("is_adaptive", ["true", "false"])
def test_rows_are_the_same_with_estimates_and_without(shop: SparkSession, is_adaptive: str) -> None:
    shop.conf.set("spark.sql.adaptive.enabled", is_adaptive)
    queries = [
        QUERY,
        "select count(*) n from lines where l_part in (select p_id from parts where p_brand < 3)",
        "select count(*) as n from orders o left join lines l on o.o_id = l.l_order and l_part < 9",
        "select o_day, count(*) as n from orders group by o_day having count(*) > 160",
        "select count(*) n from orders where o_day < 9 or o_id in (select l_part from lines)",
    ]
    for query in queries:
        results = []
        for enabled in ("true", "false"):
            shop.conf.set(SETTING, enabled)
            results.append(sorted(map(tuple, shop.sql(query).collect())))
        assert results[0] == results[1]


def test_plans_of_cached_tables_are_as_they_were(shop: SparkSession) -> None:
    cached = shop.sql("select * from lines where l_quantity < 10").cache()
    try:
        cached.createOrReplaceTempView("few")
        query = "select count(*) as n from few join parts on l_part = p_id where p_brand = 4"
        first = shop.sql(query).collect()
        assert shop.sql(query).collect() == first
        shop.conf.set(SETTING, "false")
        assert shop.sql(query).collect() == first
    finally:
        cached.unpersist()
        shop.catalog.dropTempView("few")


@pytest.mark.parametrize(
    "keys",
    [
        "o_day % 7",
        "o_day div 100, c_nation",
        "date_add(date '2020-01-31', int(o_day * 9)), c_nation % 2",
        "case when o_day < 9 then null else hex(c_nation) end",
        "year(date_add(date '2020-01-31', int(o_day * 9)))",
    ],
)
def test_groups_by_what_a_query_computes(shop: SparkSession, keys: str) -> None:
    shop.conf.set("spark.sql.cbo.joinReorder.enabled", "false")
    rows = shop.sql(
        f"select {keys}, count(*) n from orders join customers on o_customer = c_id "
        f"where o_day < 200 group by {keys}"
    )
    expected, true = max(estimates(rows)["Aggregate"]), rows.count()
    assert true / 1.25 <= expected <= 1.25 * true or "case" in keys
    # Those of two tables together are computed of neither's rows alone.
    assert expected < 60_000


def test_conditions_on_sums_of_groups(tmp_path: Path, session: SparkSession) -> None:
    orders = np.repeat(np.arange(30_000), 4)
    pieces = np.where(orders % 1_000 == 0, 500, 25)
    price = pa.array(pieces.astype(float)).cast(pa.decimal128(15, 2))
    rows = pa.table({"id": orders, "pieces": pieces, "price": price})
    lance.write_dataset(rows, tmp_path / "positions.lance")
    project = write_project(tmp_path, "positions")
    attach(project, session)
    for column in ("pieces", "price"):
        found = session.sql(f"select id from positions group by id having sum({column}) > 300")
        assert found.count() == 30
        # Without the sums of sampled groups, a third of all.
        assert 10 <= min(estimates(found)["Filter"]) <= 120
    session.catalog.dropTempView("positions")


@pytest.mark.parametrize(
    "condition",
    [
        # Of sums in cents, of what is computed, of one column: none is below zero.
        "sum(cast(l_quantity as decimal(7,2))) > 0",
        "sum(l_quantity * 2 - 1) > 0",
        "sum(l_quantity) > 0",
        "sum(l_quantity) > 900",
        "sum(0 - l_quantity) < -600",
    ],
)
def test_conditions_on_sums_of_another_table_than_that_of_their_keys(
    shop: SparkSession, condition: str
) -> None:
    rows = shop.sql(
        "select o_customer, count(*) from lines join orders on l_order = o_id"
        f" group by o_customer having {condition}"
    )
    true = rows.count()
    assert true / 1.5 <= estimates(rows)["Filter"][0] <= true * 1.5


def test_a_condition_on_what_an_outer_join_may_not_find(shop: SparkSession) -> None:
    rows = shop.sql(
        "select * from customers left join (select p_id, p_brand from parts where p_id < 20) a"
        " on c_id = a.p_id left join (select p_id, p_brand from parts where p_id > 980) b"
        " on c_id = b.p_id where coalesce(a.p_brand, 0) > 0 or coalesce(b.p_brand, 0) > 0"
    )
    true = rows.count()
    assert true / 5 <= estimates(rows)["Filter"][0] <= true * 5


def test_groups_of_a_union_are_not_those_of_its_first_input(shop: SparkSession) -> None:
    rows = shop.sql("""
        select n % 50 as k, count(*) from (
          select l_quantity % 2 as n from lines union all select o_day from orders
        ) group by n % 50
    """)
    assert max(estimates(rows)["Aggregate"]) >= rows.count() == 50


def test_sampled_rows_reach_spark_once(
    shop: SparkSession, project: lancestat.Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Views that no test has asked yet.
    project.attach(shop)
    sent: list[list[str]] = []

    def encode(rows: pa.Table) -> str:
        sent.append(rows.column_names)
        return encode_sample(rows)

    monkeypatch.setattr("lancestat.query.read.planning_service.encode_sample", encode)
    for days in (3, 4):
        rows = shop.sql(f"select * from orders where (o_day + o_id) % 7 = {days}")
        assert max(estimates(rows)["Filter"]) == rows.count()
    assert sent == [["o_day", "o_id"]]
    estimates(shop.sql("select * from orders where (o_day + o_customer) % 7 = 1"))
    assert sent[1:] == [["o_customer"]]


def first_joined(rows: DataFrame) -> set[str]:
    """The tables of the join that reads no other join."""

    def visit(plan: Any) -> set[str] | None:
        children = [plan.children().apply(index) for index in range(plan.children().size())]
        below = [found for child in children if (found := visit(child))]
        if below or plan.nodeName() != "Join":
            return below[0] if below else None
        leaves = plan.collectLeaves()
        return {leaves.apply(index).relation().name() for index in range(leaves.size())}

    return visit(rows._jdf.queryExecution().optimizedPlan()) or set()  # type: ignore[operator]


def test_what_a_sample_tells_is_of_the_same_condition_in_the_same_session(
    shop: SparkSession,
) -> None:
    morning = "hour(timestamp_seconds(o_day * 3600)) < 12 and o_day < {}"
    for zone, day in [("UTC", 12), ("Asia/Tokyo", 12), ("Asia/Tokyo", 24), ("UTC", 12)]:
        shop.conf.set("spark.sql.session.timeZone", zone)
        rows = shop.sql(f"select * from orders where {morning.format(day)}")
        assert max(estimates(rows)["Filter"]) == rows.count()


def test_joins_are_in_the_order_of_the_estimates(shop: SparkSession) -> None:
    # One order of 365 passes, which Spark does not see, and half of the parts, which it does.
    query = """
        select l_quantity, p_brand from lines
          join parts on l_part = p_id join orders on l_order = o_id
        where o_day % 365 = 3 and p_brand < 20
    """
    rows = shop.sql(query)
    assert first_joined(rows) == {"lines", "orders"}
    found = sorted(rows.collect())
    shop.conf.set(SETTING, "false")
    other = shop.sql(query)
    assert first_joined(other) == {"lines", "parts"}
    assert found == sorted(other.collect()) and found


def test_a_hint_keeps_joins_in_their_order(shop: SparkSession) -> None:
    rows = shop.sql("""
        select /*+ merge(parts) */ l_quantity from lines
          join parts on l_part = p_id join orders on l_order = o_id
        where o_day % 365 = 3 and p_brand < 20
    """)
    assert first_joined(rows) == {"lines", "parts"}


def test_columns_without_statistics_have_spark_s_estimates(
    shop: SparkSession,
) -> None:
    # Of the numbers only Spark knows how many differ.
    rows = shop.sql("select * from lines join range(0, 100) on l_order = id")
    [made], true = estimates(rows)["Join"], rows.count()
    assert true / 1.5 <= made <= true * 1.5


def test_a_plan_of_which_the_estimates_fail_is_spark_s(
    shop: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no estimates")

    monkeypatch.setattr("lancestat.query.plans.answers.PlanAnswers.estimates", fail)
    monkeypatch.setattr("lancestat.query.plans.answers.PlanAnswers.orders", fail)
    made = shop.sql(QUERY)
    assert made.collect()
    shop.conf.set(SETTING, "false")
    assert estimates(made) == estimates(shop.sql(QUERY))


def test_a_value_beyond_spark_s_type_is_an_error_of_its_reading_alone(
    tmp_path: Path, session: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    numbers = pa.array([2**63 + number for number in range(10)], pa.uint64())
    lance.write_dataset(pa.table({"id": range(10), "n": numbers}), tmp_path / "large.lance")
    attach(write_project(tmp_path, "large"), session)
    rows = session.sql("select id from large where n > 5")
    assert estimates(rows)
    assert not caplog.records
    with pytest.raises(Exception, match=r"LS514 .*'n': .* does not fit Spark's bigint"):
        rows.collect()
    session.catalog.dropTempView("large")


def test_a_condition_with_a_subquery_or_another_one_is_estimated(shop: SparkSession) -> None:
    either = "o_day < 9 or o_customer in (select c_id from customers where c_nation = 3)"
    rows = shop.sql(f"select * from orders where {either}")
    assert "ExistenceJoin" in str(rows._jdf.queryExecution().optimizedPlan().toString())
    assert max(estimates(rows)["Join"]) == ORDERS


@pytest.mark.parametrize(
    ("query", "within"),
    [
        (
            "select * from lines where l_part not in (select p_id from parts where p_brand < 3)",
            1.05,
        ),
        (
            "select * from orders where (o_customer, o_day % 25) not in"
            " (select c_id, c_nation from customers where c_id < 20)",
            1.05,
        ),
        # Statistics prove that no line is of so many.
        (
            "select * from orders left join (select * from lines where l_quantity > 60)"
            " on o_id = l_order",
            1.0,
        ),
        ("select * from lines full join range(100) on l_part = id", 1.05),
        ("select * from lines left anti join range(100) on l_part = id", 1.15),
    ],
)
def test_joins_that_keep_rows_without_partner(
    shop: SparkSession, query: str, within: float
) -> None:
    rows = shop.sql(query)
    true = rows.count()
    [made] = estimates(rows)["Join"]
    assert true / within <= made <= true * within


@pytest.mark.parametrize(
    ("orders", "broadcast", "is_asked_again"),
    [
        ("orders", "-1", False),
        # A hundredth, in place of the third that is guessed.
        ("(select * from orders where rand(1) < 0.01) orders", "-1", True),
        # One side of each join is broadcast already, whatever the other has.
        ("(select * from orders where rand(1) < 0.01) orders", "10MB", False),
    ],
)
def test_adaptive_execution_asks_again_where_rows_are_others_than_expected(
    shop: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    orders: str,
    broadcast: str,
    is_asked_again: bool,
) -> None:
    asked: list[str] = []
    answer = PlanningService._answer

    def answered(service: PlanningService, message: dict[str, Any]) -> dict[str, Any]:
        asked.append(message["op"])
        return answer(service, message)

    monkeypatch.setattr(PlanningService, "_answer", answered)
    shop.conf.set("spark.sql.adaptive.enabled", "true")
    shop.conf.set("spark.sql.autoBroadcastJoinThreshold", broadcast)
    shop.sql(QUERY.replace("join orders", f"join {orders}")).collect()
    assert (asked.count("plan") > 1) is is_asked_again
    assert "plan" in asked


@pytest.mark.parametrize(
    "grouping",
    ["rollup(c_nation, o_day)", "cube(c_nation, o_day)", "grouping sets (c_nation, o_day, ())"],
)
def test_each_of_several_groupings_is_counted(shop: SparkSession, grouping: str) -> None:
    rows = shop.sql(f"""
        select c_nation, o_day, count(*) from orders join customers on o_customer = c_id
        group by {grouping}
    """)
    true = rows.count()
    assert true / 1.1 <= min(estimates(rows)["Aggregate"]) <= true * 1.1


LEAST, MOST = (f"(select {name}(c_nation) from customers)" for name in ("min", "max"))


@pytest.mark.parametrize(
    ("condition", "share"),
    [
        (f"o_day >= {LEAST} and o_day <= {MOST}", 0.005),
        (f"{LEAST} <= o_day and {MOST} >= o_day", 0.005),
        (f"{LEAST} < o_day and o_day < {MOST}", 0.005),
        # Two bounds on one side are no range, whichever side they stand on.
        (f"{LEAST} <= o_day and o_day >= {MOST}", 0.1),
        (f"not o_day < {LEAST} and {MOST} > o_day", 0.005),
    ],
)
def test_ranges_between_two_values_of_subqueries(
    shop: SparkSession, condition: str, share: float
) -> None:
    rows = shop.sql(f"select * from orders where {condition}")
    assert share / 2 <= estimates(rows)["Filter"][0] / ORDERS <= share * 2


def test_joins_by_two_keys_rest_on_their_joint_count(tmp_path: Path, session: SparkSession) -> None:
    random = np.random.default_rng(2)
    # An item is on a ticket once, and its returns too: neither column alone is a key.
    pairs = np.unique(random.integers(0, [4_000, 300], (150_000, 2)), axis=0)
    sales = pa.table({"s_ticket": pairs[:, 0], "s_item": pairs[:, 1]})
    some = pairs[random.random(len(pairs)) < 0.5]
    returns = pa.table({"r_ticket": some[:, 0], "r_item": some[:, 1], "r_copy": some[:, 0]})
    lance.write_dataset(sales, tmp_path / "sales.lance")
    lance.write_dataset(returns, tmp_path / "returns.lance")
    tables = {
        "sales": {"keys": [["s_ticket", "s_item"]]},
        "returns": {"groups": [["r_ticket", "r_item"], ["r_ticket", "r_copy"]]},
    }
    project = write_project(
        tmp_path, *({"name": name, "uri": f"{name}.lance", **more} for name, more in tables.items())
    )
    attach(project, session)
    try:
        joined = session.sql(
            "select * from sales join returns on s_ticket = r_ticket and s_item = r_item"
        )
        assert len(some) / 1.05 <= min(estimates(joined)["Join"]) <= len(some) * 1.05
        groups = session.sql("select r_ticket, r_copy from returns group by r_ticket, r_copy")
        assert 3_900 <= min(estimates(groups)["Aggregate"]) <= 4_100
    finally:
        for name in tables:
            session.catalog.dropTempView(name)


def test_declared_common_values_say_how_often_values_occur(
    tmp_path: Path, session: SparkSession
) -> None:
    # Rows of which a sample of 16,384 has a few at most.
    random = np.random.default_rng(9)
    kind = np.where(np.arange(400_000) % 8_000 == 0, 7, random.integers(100, 40_000, 400_000))
    rows = pa.table({"kind": kind, "place": np.where(kind == 7, 3, kind % 11)})
    lance.write_dataset(rows, tmp_path / "events.lance")
    kept = {"groups": [["kind", "place"]], "common_values": 1000}
    project = write_project(tmp_path, {"name": "events", "uri": "events.lance", **kept})
    attach(project, session)
    for condition in ("kind = 7", "kind = 7 and place = 3"):
        found = session.sql(f"select * from events where {condition}")
        assert max(estimates(found)["Filter"]) == found.count() == 50
    session.catalog.dropTempView("events")


@pytest.mark.parametrize("condition", ["day in (101, 130)", "day between 110 and 112"])
def test_common_values_and_histograms_of_the_fragments_that_are_read(
    tmp_path: Path, session: SparkSession, condition: str
) -> None:
    # Of 260 equally frequent days no 100 are common; the sample has few rows of any.
    days = pa.table({"day": np.arange(260).repeat(3_000)})
    lance.write_dataset(days, tmp_path / "stock.lance", max_rows_per_file=3_000 * 65)
    declared = {"name": "stock", "uri": "stock.lance", "histogram": True, "common_values": 100}
    project = write_project(tmp_path, declared)
    attach(project, session)
    rows = session.sql(f"select * from stock where {condition}")
    true = rows.count()
    assert true / 1.5 <= max(estimates(rows)["Filter"]) <= true * 1.5
    session.catalog.dropTempView("stock")


def test_a_proven_reference_leaves_no_row_without_partner(
    tmp_path: Path, session: SparkSession
) -> None:
    tables = {"people": {"id": np.arange(5_000)}, "letters": {"to": np.arange(20_000) % 5_000}}
    for name, columns in tables.items():
        lance.write_dataset(pa.table(columns), tmp_path / f"{name}.lance")
    reference = {"columns": ["to"], "table": "people", "to": ["id"]}
    project = write_project(
        tmp_path,
        {"name": "people", "uri": "people.lance", "keys": [["id"]]},
        {"name": "letters", "uri": "letters.lance", "references": [reference]},
    )
    attach(project, session)
    query = "select * from letters where not exists (select 1 from people where id = to)"
    assert max(estimates(session.sql(query))["Join"]) == 1
    # One letter to nobody refutes it.
    lance.write_dataset(pa.table({"to": [9_999]}), tmp_path / "letters.lance", mode="append")
    attach(project, session)
    found = session.sql(query)
    assert found.count() == 1 < max(estimates(found)["Join"])
    for name in tables:
        session.catalog.dropTempView(name)
