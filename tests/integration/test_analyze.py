"""Queries that are run to be explained: `lancestat.explain(df, analyze=True)`, `sql --compare`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

import lancestat
from lancestat.cli.main import cli
from lancestat.errors import InvalidArgument, LancestatError
from lancestat.query.sql.comparison import TURNS, WITHOUT_STATISTICS, compare_query
from lancestat.query.sql.explanation import Operator, PlanExplanation
from lancestat.query.sql.statement import QueryText, parse
from lancestat.spark.session import active
from tests.examples import each
from tests.interpreted import INTERPRETED
from tests.runs.world import write_project
from tests.versions.needs import empty_relations

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ORDERS, CUSTOMERS = 30_000, 1_000
READ = "rows of the table"
ESTIMATES = "spark.lancestat.estimates.enabled"
ADAPTIVE = "spark.sql.adaptive.enabled"
QUERY = """
    select c_nation, count(*) as orders from orders join customers on o_customer = c_id
    where o_day % 7 = 3 and c_nation < 5 group by c_nation
"""


def rows_of_tables() -> dict[str, dict[str, Any]]:
    random = np.random.default_rng(27)
    return {
        "orders": {
            "o_id": np.arange(ORDERS),
            "o_customer": random.integers(0, CUSTOMERS, ORDERS),
            "o_day": random.integers(0, 365, ORDERS),
        },
        "customers": {
            "c_id": np.arange(CUSTOMERS),
            "c_nation": random.integers(0, 25, CUSTOMERS),
        },
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of two analyzed tables."""
    folder = tmp_path_factory.mktemp("analyzed")
    tables = rows_of_tables()
    for name, columns in tables.items():
        path = folder / f"{name}.lance"
        lance.write_dataset(pa.table(columns), path, max_rows_per_file=10_000)
    write_project(folder, *tables).run().raise_for_status()
    return folder


@pytest.fixture
def shop(session: SparkSession, folder: Path) -> Iterator[SparkSession]:
    """A session with both tables and the estimates of whole plans."""
    session.conf.set("spark.sql.cbo.joinReorder.enabled", "true")
    session.conf.set(ESTIMATES, "true")
    lancestat.Project.load(folder).attach(session)
    yield session
    session.catalog.clearCache()
    session.conf.unset(ADAPTIVE)
    for key, value in INTERPRETED.items():
        session.conf.set(key, value)
    session.conf.unset("spark.sql.autoBroadcastJoinThreshold")
    for name in ("orders", "customers"):
        session.catalog.dropTempView(name)


def analyzed(rows: DataFrame) -> PlanExplanation:
    return lancestat.explain(rows, analyze=True).plan


def named(plan: PlanExplanation, *begins: str) -> list[Operator]:
    return [operator for operator in plan.operators if operator.text.startswith(begins)]


def true_rows(operator: Operator) -> int | None:
    assert operator.actual is not None
    return operator.actual.rows


@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_true_rows_are_those_of_the_tables(shop: SparkSession, adaptive: str) -> None:
    shop.conf.set(ADAPTIVE, adaptive)
    for key in INTERPRETED:
        shop.conf.unset(key)
    orders, customers = rows_of_tables().values()
    is_third = orders["o_day"] % 7 == 3
    few = customers["c_id"][customers["c_nation"] < 5]
    joined = is_third & np.isin(orders["o_customer"], few)

    plan = analyzed(shop.sql(QUERY))
    filtered = {true_rows(operator) for operator in named(plan, "Filter")}
    assert filtered == {int(is_third.sum()), len(few)}
    [join] = [operator for operator in plan.operators if operator.join is not None]
    assert true_rows(join) == int(joined.sum())
    whole, partial = named(plan, "HashAggregate")
    assert true_rows(whole) == 5
    assert (partial.rows, partial.q_error) == (None, None)
    assert plan.execution is not None
    assert plan.execution.rows == 5
    assert plan.execution.seconds > 0
    assert plan.execution.planning_seconds > 0
    for operator in plan.operators:
        if operator.q_error is not None:
            estimated, true = max(1, operator.rows or 0), max(1, true_rows(operator) or 0)
            assert operator.q_error == max(estimated / true, true / estimated)
    assert any(o.actual and o.actual.pipeline_seconds is not None for o in plan.operators)
    assert any(o.actual and o.actual.seconds for o in named(plan, "Exchange"))


@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_estimates_are_those_from_before_the_query_ran(shop: SparkSession, adaptive: str) -> None:
    """Adaptive execution counts rows, plans the join again, and changes its strategy."""
    shop.conf.set(ADAPTIVE, adaptive)
    shop.conf.set(ESTIMATES, "false")
    shop.conf.set("spark.sql.autoBroadcastJoinThreshold", "10000")
    query = """
        select * from orders join customers on o_customer = c_id
        where o_day % 7 = 3 and c_nation % 5 = 1 and upper(c_nation) < '3'
    """
    plan, before = analyzed(shop.sql(query)), lancestat.explain(shop.sql(query)).plan
    for begins in (("SortMergeJoin", "BroadcastHashJoin"), ("Filter",)):
        made, expected = named(plan, *begins), named(before, *begins)
        assert sorted(o.rows or 0 for o in made) == sorted(o.rows or 0 for o in expected)
    strategies = [o.join.strategy for o in (*plan.operators, *before.operators) if o.join]
    assert strategies[-1] == "sort_merge"
    assert strategies[0] == ("broadcast_hash" if adaptive == "true" else "sort_merge")


def test_evidence_is_what_the_rows_rest_on(
    shop: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = lancestat.explain(shop.sql(QUERY)).plan
    # A table of so few rows is read whole.
    assert any(READ in str(operator.evidence) for operator in named(plan, "Filter"))
    assert {operator.evidence for operator in named(plan, "Scan")} == {"count"}
    [join] = named(plan, "BroadcastHashJoin")
    assert join.evidence not in (None, "Spark's")
    rests_on = {o.evidence for o in analyzed(shop.sql(QUERY)).operators if o.rows is not None}
    assert rests_on == {o.evidence for o in plan.operators}
    shop.conf.set(ESTIMATES, "false")
    sparks = lancestat.explain(shop.sql(QUERY)).plan.operators
    assert {operator.evidence for operator in sparks if not operator.scan} == {"Spark's"}
    shop.conf.set(ESTIMATES, "true")

    def fail(*_: object) -> None:
        raise RuntimeError("no estimates")

    monkeypatch.setattr("lancestat.query.plans.answers.PlanAnswers.estimates", fail)
    failed = lancestat.explain(shop.sql(QUERY)).plan.operators
    assert {operator.evidence for operator in failed if not operator.scan} == {"Spark's"}


def test_earlier_actions_of_a_frame_do_not_count(shop: SparkSession) -> None:
    rows = shop.sql("select * from orders where o_day < 30")
    expected = rows.count()
    assert len(rows.collect()) == expected
    for _ in range(2):
        plan = analyzed(rows)
        assert plan.execution is not None
        assert plan.execution.rows == expected
        assert {true_rows(operator) for operator in plan.operators} == {expected}


def test_rows_that_a_filter_or_a_limit_keeps_from_being_read_are_no_error(
    shop: SparkSession,
) -> None:
    [scan] = named(analyzed(shop.sql("select * from orders where o_id = 7")), "Scan")
    assert (scan.rows, true_rows(scan), scan.q_error) == (10_000, 1, None)
    plan = analyzed(shop.sql("select * from orders limit 5"))
    assert plan.execution is not None
    assert plan.execution.rows == true_rows(plan.operators[0]) == 5
    assert all(operator.q_error is None for operator in named(plan, "Scan"))
    # A sort reads all.
    plan = analyzed(shop.sql("select * from orders order by o_day limit 5"))
    [scan] = named(plan, "Scan")
    assert (true_rows(scan), scan.q_error) == (ORDERS, 1)


@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_what_had_run_before_has_not_run_again(shop: SparkSession, adaptive: str) -> None:
    shop.conf.set(ADAPTIVE, adaptive)
    cached = shop.sql("select * from orders where o_day < 30").cache()
    expected = cached.count()
    plan = analyzed(cached.groupBy("o_customer").count())
    [kept] = named(plan, "InMemoryTableScan")
    assert true_rows(kept) == expected
    below = plan.operators[plan.operators.index(kept) + 1 :]
    assert named(plan, "Scan orders")[0] in below
    assert {operator.actual for operator in below} == {None}


@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_subqueries_have_run_too(shop: SparkSession, adaptive: str) -> None:
    shop.conf.set(ADAPTIVE, adaptive)
    query = "select * from orders where o_day < (select avg(o_day) from orders where o_id < 300)"
    plan = analyzed(shop.sql(query))
    start = next(i for i, o in enumerate(plan.operators) if o.text == "Subquery")
    depth = plan.operators[start].depth
    below = [o for o in plan.operators[start + 1 :] if o.depth > depth]
    assert true_rows(below[0]) == 1
    assert 300 in {true_rows(operator) for operator in below if operator.actual}
    shown = str(lancestat.explain(shop.sql(query), analyze=True))
    assert shown.partition("\n\n")[0].count("Subquery") == 1


@empty_relations
def test_a_plan_that_is_found_to_return_nothing_has_what_ran(shop: SparkSession) -> None:
    shop.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    query = """
        select o_day, count(*) from orders join customers on o_customer = c_id
        where c_nation % 7 = 8 group by o_day
    """
    plan = analyzed(shop.sql(query))
    assert plan.operators[0].text.startswith("EmptyRelation")
    assert "customers" in {scan.table for scan in plan.scans}
    [empty] = [operator for operator in named(plan, "Filter") if "c_nation" in operator.text]
    assert true_rows(empty) == 0


@pytest.mark.parametrize(("adaptive", "partitions"), each(["true", "false"], ["4", "1"]))
def test_rows_that_spark_samples_before_it_sorts_count_once(
    shop: SparkSession, adaptive: str, partitions: str
) -> None:
    shop.conf.set(ADAPTIVE, adaptive)
    shop.conf.set("spark.sql.shuffle.partitions", partitions)
    query = f"{QUERY} order by orders, c_nation"
    grouped = analyzed(shop.sql(query))
    joined = "select o_id from orders join customers on o_customer = c_id where {} order by o_id"
    plan = analyzed(shop.sql(joined.format("o_day < 30")))
    empty = analyzed(shop.sql(joined.format("o_day + o_id < 0")))
    shop.conf.unset("spark.sql.shuffle.partitions")
    expected = int((rows_of_tables()["orders"]["o_day"] < 30).sum())
    for kind in ("Sort", "Exchange", "Project", "BroadcastHashJoin", "Filter"):
        assert {true_rows(operator) for operator in named(plan, kind)} == {expected}, kind
    assert {true_rows(operator) for operator in named(plan, "Scan customers")} == {CUSTOMERS}
    assert {true_rows(operator) for operator in named(empty, "BroadcastHashJoin")} <= {0}
    # Below the exchange by groups, nothing is sampled.
    [join] = named(grouped, "BroadcastHashJoin")
    [alone] = named(analyzed(shop.sql(QUERY)), "BroadcastHashJoin")
    assert true_rows(join) == true_rows(alone)


def test_an_exchange_that_is_used_twice_is_run_once(shop: SparkSession) -> None:
    shop.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    query = """
        with days as (select o_day, count(*) as n from orders group by o_day)
        select * from days a join days b on a.n = b.n
    """
    plan = analyzed(shop.sql(query))
    [reused] = named(plan, "ReusedExchange")
    # Both sides read the same rows, in the same groups.
    assert true_rows(reused) in {true_rows(operator) for operator in named(plan, "Exchange")}
    assert plan.execution is not None
    assert plan.execution.rows == shop.sql(query).count()


def test_no_time_is_more_than_the_query_took(shop: SparkSession) -> None:
    for key in INTERPRETED:
        shop.conf.unset(key)
    shop.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    plan = analyzed(shop.sql("select * from orders full join customers on o_id = c_id"))
    assert plan.execution is not None
    most = plan.execution.seconds * shop.sparkContext.defaultParallelism
    times = [each.actual.pipeline_seconds for each in plan.operators if each.actual]
    known = [seconds for seconds in times if seconds is not None]
    assert known and max(known) <= most


def test_it_is_text_json_and_a_table(shop: SparkSession) -> None:
    explained = lancestat.explain(shop.sql(QUERY), analyze=True)
    shown: Any = explained.to_json()["explanation"]
    assert shown["execution"]["rows"] == 5
    assert json.loads(json.dumps(shown)) == shown
    actual = next(line["actual"] for line in shown["plan"] if line["join"])
    assert set(actual) == {"rows", "is_whole", "seconds", "pipeline_seconds", "q_error"}
    assert "true rows" in str(explained)
    assert "<th" in explained._repr_html_()
    assert "true rows" in explained._repr_html_()
    with pytest.raises(InvalidArgument, match="analyze is 1; expected True or False"):
        lancestat.explain(shop.sql(QUERY), analyze=1)  # type: ignore[arg-type]


def test_a_query_that_fails_is_one_error_without_its_secrets(
    shop: SparkSession, folder: Path
) -> None:
    failing = shop.sql("select assert_true(o_id < 0) from orders")
    assert lancestat.explain(failing).plan.operators
    with pytest.raises(LancestatError, match="the query failed") as caught:
        lancestat.explain(failing, analyze=True)
    assert caught.value.code == "LS513"
    secret = "qzsecret123456"
    options = {"aws_secret_access_key": secret}
    read = lancestat.read_table(shop, str(folder / "orders.lance"), storage_options=options)
    explained = lancestat.explain(read.where(f"hex(o_id) <> '{secret}'"), analyze=True)
    shown = f"{explained} {explained._repr_html_()} {json.dumps(explained.to_json())}"
    assert "***" in shown
    assert secret not in shown


def test_commands_and_frames_without_tables_run_too(shop: SparkSession) -> None:
    for rows in (shop.sql("show tables"), shop.range(7), shop.sql("select 1")):
        plan = analyzed(rows)
        assert plan.execution is not None
        assert plan.execution.rows == rows.count()


def sql(folder: Path, *args: str) -> dict[str, Any]:
    arguments = ["sql", "--project-dir", str(folder), *args, "--output", "json"]
    ran = CliRunner().invoke(cli, arguments)
    assert ran.exit_code == 0, ran.output
    answer: dict[str, Any] = json.loads(ran.stdout)
    return answer


def test_sql_analyze_is_what_python_explains(spark: SparkSession, folder: Path) -> None:
    # How many rows pass a condition on both tables is guessed.
    query = QUERY.replace("c_nation < 5", "c_nation < 5 and o_day > 300 + c_id % 9 * c_nation")
    explanation = sql(folder, query, "--analyze")["explanation"]
    join = next(line for line in explanation["plan"] if line["join"])
    orders, customers = rows_of_tables().values()
    nation, day = customers["c_nation"][orders["o_customer"]], orders["o_day"]
    joined = (day % 7 == 3) & (nation < 5) & (day > 300 + orders["o_customer"] % 9 * nation)
    assert join["actual"]["rows"] == int(joined.sum())
    assert explanation["execution"]["rows"] == 5
    worst = explanation["plan"][explanation["worst"]]["actual"]["q_error"]
    errors = [line["actual"]["q_error"] for line in explanation["plan"] if line["actual"]]
    assert worst == max(error for error in errors if error is not None)


def test_a_comparison_is_no_part_of_the_workload(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    log = tmp_path / "queries"
    orders = {"name": "orders", "uri": str(folder / "orders.lance")}
    target = {"state": str(folder / "state"), "listen": str(log)}
    project = write_project(tmp_path, orders, target=target)
    query = "select count(*) from orders where o_day + 1 > 30"
    for look, recorded in (("--compare", 0), ("--analyze", 1)):
        sql(tmp_path, query, look)
        project.detach(spark)
        assert sum(len(path.read_bytes().splitlines()) for path in log.glob("*")) == recorded


def test_sql_compare_says_what_statistics_change(spark: SparkSession, folder: Path) -> None:
    compared = sql(folder, "select count(*), max(o_id) from orders", "--compare")["comparison"]
    assert {
        "what": "aggregates",
        "subject": "orders",
        "without_statistics": "left to Spark",
        "with_statistics": "answered without reading",
    } in compared["changes"]
    assert compared["turns"] == TURNS
    for side in ("without_statistics", "with_statistics"):
        turns = compared[side]["turns"]
        assert [turn["rows"] for turn in turns] == [1] * TURNS
        assert compared[side]["seconds"] > 0


def test_settings_are_as_before_a_comparison(shop: SparkSession) -> None:
    before = {key: shop.conf.get(key, None) for key in WITHOUT_STATISTICS}
    with active(shop):
        compared = compare_query(shop, parse(shop, QueryText(QUERY)), QueryText(QUERY))
        assert {key: shop.conf.get(key, None) for key in WITHOUT_STATISTICS} == before
        without, plan = compared.without_statistics.plan, compared.with_statistics.plan
        assert (without.is_cost_based, plan.is_cost_based) == (False, True)
        for scan in without.scans:
            assert scan.explanation is not None
            assert not scan.explanation.verdict.use
        assert {o.evidence for o in without.operators} <= {None, "count", "Spark's"}
        assert any(READ in str(operator.evidence) for operator in plan.operators)
        failing = QueryText("select assert_true(o_id < 0) from orders")
        with pytest.raises(LancestatError, match="the query failed"):
            compare_query(shop, parse(shop, failing), failing)
    assert {key: shop.conf.get(key, None) for key in WITHOUT_STATISTICS} == before


def test_sql_compare_of_a_query_that_fails_is_one_error(spark: SparkSession, folder: Path) -> None:
    query = "select assert_true(o_id < 0) from orders"
    arguments = ["sql", "--project-dir", str(folder), query, "--compare"]
    ran = CliRunner().invoke(cli, arguments)
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert ran.stderr.startswith("LS513")
