from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from lancestat.presentation.results import json_value, query_view
from lancestat.presentation.views import (
    ComparisonView,
    ExplanationView,
    Page,
    QueryView,
    load_format,
)
from lancestat.query.estimates import (
    ColumnEstimate,
    Explanation,
    Histogram,
    HistogramBin,
    Pruning,
    PruningReason,
    PushDown,
    PushDownReason,
)
from lancestat.query.sql.comparison import Comparison, Difference, PlanChange, Side
from lancestat.query.sql.explanation import (
    Actual,
    Execution,
    Operator,
    PhysicalJoin,
    PlanExplanation,
    ScanLine,
)
from lancestat.query.sql.query import QueryResult, ResultColumn, ResultValue, Shape
from lancestat.tables.judgement import Verdict
from lancestat.tables.wire import GuardReason
from tests.cli.conftest import Lancestat
from tests.conftest import Golden

COLUMNS = (
    ResultColumn("id", "bigint", Shape("bigint")),
    ResultColumn("price", "decimal(10,2)", Shape("decimal")),
    ResultColumn("share", "double", Shape("double")),
    ResultColumn("name | in\tfull", "string", Shape("string")),
    ResultColumn("at", "timestamp", Shape("timestamp")),
    ResultColumn("wall", "timestamp_ntz", Shape("timestamp_ntz")),
    ResultColumn("raw", "binary", Shape("binary")),
    ResultColumn("ok", "boolean", Shape("boolean")),
    ResultColumn(
        "parts",
        "array<struct<a:int,b:map<string,binary>>>",
        Shape(
            "array",
            (
                Shape(
                    "struct",
                    (Shape("int"), Shape("map", (Shape("string"), Shape("binary")))),
                    ("a", "b"),
                ),
            ),
        ),
    ),
)
ROWS: tuple[tuple[ResultValue, ...], ...] = (
    (1, "12.30", "0.1", "plain", 0, "2024-01-01 00:00:00", "00FF", True, [(1, [("k", "0A")])]),
    (-20, "-1.00", "NaN", 'a "quoted", b', -1, "1969-12-31 23:59:59.5", "", False, []),
    (None, None, "-Infinity", "", None, None, None, None, None),
    (
        3,
        "0.00",
        "1.0E10",
        "日本語 | \\ \x1b[31m\nö" + "x" * 70,
        86_400_000_000,
        None,
        "41",
        None,
        None,
    ),
)


def result(limit: int | None = None) -> QueryResult:
    return QueryResult(COLUMNS, iter(ROWS), limit)


def queried(form: str, result: QueryResult, *, verbose: bool = False) -> QueryView:
    """Print a result, and return its view."""
    view = query_view(result)
    load_format(form).print(view, Page(verbose))
    return view


def printed(form: str, show: Callable[[], object], *, verbose: bool = False) -> str:
    """Return the stdout of an output."""

    @click.command()
    def run() -> None:
        show()

    outcome = CliRunner().invoke(run, catch_exceptions=False)
    assert outcome.exit_code == 0
    return outcome.stdout


@pytest.mark.parametrize(
    ("form", "name"), [("text", "txt"), ("json", "json"), ("csv", "csv"), ("markdown", "md")]
)
def test_rows_in_every_form(form: str, name: str, golden: Golden) -> None:
    text = printed(form, lambda: queried(form, result()))
    golden(f"cli/sql.{name}", text)


def test_verbose_truncates_no_value(golden: Golden) -> None:
    views: list[QueryView] = []
    text = printed("text", lambda: views.append(queried("text", result(), verbose=True)))
    assert "x" * 70 in text
    assert [(view.printed, view.is_complete, view.is_shortened) for view in views] == [
        (4, True, False)
    ]
    printed("text", lambda: views.append(queried("text", result())))
    assert views[1].is_shortened


@pytest.mark.parametrize("form", ["text", "json", "csv", "markdown"])
@pytest.mark.parametrize(
    ("limit", "expected"), [(2, (2, False)), (4, (4, True)), (0, (0, False)), (None, (4, True))]
)
def test_a_limit_reports_whether_more_rows_exist(
    form: str, limit: int | None, expected: tuple[int, bool]
) -> None:
    views: list[QueryView] = []
    text = printed(form, lambda: views.append(queried(form, result(limit))))
    assert [(view.printed, view.is_complete) for view in views] == [expected]
    if form == "json":
        payload = json.loads(text)
        assert (payload["row_count"], payload["complete"]) == expected
        assert len(payload["rows"]) == expected[0]


def test_csv_is_read_back_by_the_csv_module() -> None:
    text = printed("csv", lambda: queried("csv", result()))
    rows = list(csv.reader(io.StringIO(text)))
    assert rows[0] == [column.name for column in COLUMNS]
    assert rows[2][3] == 'a "quoted", b'
    assert rows[4][3] == ROWS[3][3]
    # Null and the empty string differ for readers that look at quotes.
    assert text.splitlines()[3] == ',,-Infinity,"",,,,,'


def test_csv_does_not_wait_for_the_last_row() -> None:
    seen: list[int] = []

    def rows() -> Iterator[tuple[ResultValue, ...]]:
        for number in range(3000):
            seen.append(number)
            yield (number,)

    lines: list[int] = []

    def echo(text: str, color: bool) -> None:
        lines.append(len(seen))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lancestat.presentation.terminal.click.echo", echo)
        queried("csv", QueryResult((COLUMNS[0],), rows(), None))
    assert lines[0] < 1001 < 3000 == lines[-1]


@pytest.mark.parametrize("form", ["text", "csv", "markdown"])
def test_a_statement_without_a_result_prints_nothing(form: str) -> None:
    text = printed(form, lambda: queried(form, QueryResult((), iter(()), None)))
    assert text.strip() == ""


@pytest.mark.parametrize(
    ("value", "kind", "json_form"),
    [
        ("1.5", "float", 1.5),
        ("-0.0", "double", -0.0),
        ("5.0E-324", "double", 5e-324),
        ("Infinity", "float", "Infinity"),
        (2**63 - 1, "bigint", 2**63 - 1),
        ("12345678901234567890.123", "decimal", "12345678901234567890.123"),
        ("2024-02-29", "date", "2024-02-29"),
        ("+10000-01-01", "date", "+10000-01-01"),
        (1_704_067_200_123_456, "timestamp", "2024-01-01T00:00:00.123456Z"),
        (-62_135_596_800_000_000, "timestamp", "0001-01-01T00:00:00.000000Z"),
        (253_402_300_800_000_000, "timestamp", "+10000-01-01T00:00:00.000000Z"),
        ("2024-01-01 00:00:00.5", "timestamp_ntz", "2024-01-01T00:00:00.500000"),
        ("10:00:00", "time", "10:00:00"),
        (True, "boolean", True),
    ],
)
def test_values_as_json(value: ResultValue, kind: str, json_form: object) -> None:
    converted = json_value(value, Shape(kind))
    assert converted == json_form
    assert type(converted) is type(json_form)
    assert str(converted) == str(json_form)


def test_fields_with_equal_names_are_all_printed() -> None:
    twins = Shape("struct", (Shape("int"), Shape("int")), ("a", "a"))
    assert json_value((1, 2), twins) == [1, 2]


TOLD = Explanation(
    table="orders",
    version=18,
    rows=2_500,
    size_bytes=70_000,
    verdict=Verdict(GuardReason.CURRENT, "the statistics describe version 18"),
    columns={
        "o_id": ColumnEstimate(
            0, 2500, "0", "2499", 8, 8, histogram=Histogram(10.0, (HistogramBin(0, 9, 9),))
        ),
        "o_note": ColumnEstimate(nulls=3, distinct=7, average_length=12, maximum_length=40),
    },
    fragments=4,
    fragment_ids=range(1),
    filters=tuple(f"o_id < {number}" for number in range(6)),
    table_rows=10_000,
    other_filters=("(upper(orders.o_note) = 'A')",),
    pruning=Pruning(PruningReason.RULED_OUT, "the filters rule out 3 of 4 fragments"),
    aggregates=PushDown(PushDownReason.FILTERED, "Spark applies filters"),
)
ANSWERED = Explanation(
    table="orders",
    version=18,
    rows=3,
    size_bytes=72,
    verdict=Verdict(GuardReason.STALE, "the policy accepts no distance"),
    fragments=4,
    fragment_ids=(),
    filters=("o_id >= 0",),
    table_rows=10_000,
    is_covered=True,
    aggregates=PushDown(
        PushDownReason.EXACT,
        "known of every fragment of version 18",
        ("count(*)", "max(o_id)"),
        (10_000, 9_999),
    ),
)
REFUSED = Explanation(
    table="part",
    version=3,
    rows=100,
    size_bytes=800,
    verdict=Verdict(GuardReason.STALE, "the policy accepts no distance"),
    fragments=1,
    fragment_ids=range(1),
    filters=("p_size < 5",),
    table_rows=100,
    pruning=Pruning(PruningReason.NO_STATISTICS, "neither a state nor a zone map knows it"),
    aggregates=PushDown(PushDownReason.UNPROVEN, "no state knows 'p_size'", ("max(p_size)",)),
)
EXPLAINED = PlanExplanation(
    operators=(
        Operator("HashAggregate(keys=[a], functions=[sum(b)])", 0, None, 36_000_000),
        Operator(
            "BroadcastHashJoin inner on a = b",
            1,
            2001,
            44_000,
            PhysicalJoin("broadcast_hash", "inner", "right", ("a = b",)),
            evidence="Spark's",
        ),
        Operator(
            "Filter " + "x" * 200, 2, 2001, 44_000, evidence="histogram, sample of 4,096 rows"
        ),
        Operator("Scan orders", 3, 2500, 70_000, scan=1, evidence="count"),
        Operator("Subquery", 2),
        Operator("Scan part", 3, 100, 800, scan=2, evidence="count"),
        Operator("Scan parquet", 3, None, 9_000, scan=3),
        Operator("Scan orders", 3, 3, 72, scan=4),
        Operator("Scan lancestat", 3, None, 9_000, scan=5),
        Operator(
            "SortMergeJoin leftouter on c = d", 2, 1, 8, PhysicalJoin("sort_merge", "leftouter")
        ),
    ),
    scans=(
        ScanLine("orders", 2500, 70_000, TOLD),
        ScanLine("part", 100, 800, REFUSED),
        ScanLine("parquet", None, 9_000),
        ScanLine("orders", 3, 72, ANSWERED),
        ScanLine("lancestat", None, 9_000, note="Spark asks it for no statistics"),
    ),
    is_cost_based=False,
)


def shown(view: object, form: str = "text", *, verbose: bool = False) -> str:
    return printed(form, lambda: load_format(form).print(view, Page(verbose)))


def test_an_explanation(golden: Golden) -> None:
    view = ExplanationView(EXPLAINED)
    text = shown(view)
    golden("cli/sql_explain.txt", text)
    golden("cli/sql_explain.json", shown(view, "json"))
    assert "o_id < 5" in shown(view, verbose=True)
    assert "o_id < 5" not in text


def test_a_plan_without_lance_tables_says_so() -> None:
    plan = PlanExplanation(EXPLAINED.operators[:1], (ScanLine("parquet", None, 9_000),), True)
    assert "No scan is lancestat's" in shown(ExplanationView(plan))


ORDERS = ScanLine("orders", 2500, 70_000, replace(TOLD, fragment_ids=None, aggregates=None))
PART = ScanLine("part", 100, 800)
JOIN = "inner on a = b"
RAN = PlanExplanation(
    operators=(
        Operator(
            "HashAggregate(keys=[a], functions=[sum(b)])",
            *(0, 100, 800),
            evidence="distinct count",
            actual=Actual(90, seconds=0.02, pipeline_seconds=0.5),
        ),
        Operator(
            f"BroadcastHashJoin {JOIN}",
            *(1, 2000, 44_000),
            PhysicalJoin("broadcast_hash", "inner", "right", ("a = b",)),
            evidence="joint count of 2 columns and product of distinct counts",
            actual=Actual(20_000),
        ),
        Operator("Filter (a > 1)", 2, 2000, 44_000, evidence="count", actual=Actual(2000)),
        Operator(
            *("Scan orders", 3, 2500, 70_000),
            scan=1,
            evidence="count",
            actual=Actual(2000, is_whole=False, pipeline_seconds=1.25),
        ),
        Operator("BroadcastExchange", 2, actual=Actual(0, seconds=0.004)),
        Operator("Scan part", 3, 100, 800, scan=2, evidence="Spark's", actual=Actual(0)),
    ),
    scans=(ORDERS, PART),
    is_cost_based=True,
    execution=Execution(90, 0.081, 2.1),
)
SORTED = PlanExplanation(
    operators=(
        Operator(
            f"SortMergeJoin {JOIN}", 0, join=PhysicalJoin("sort_merge", "inner", None, ("b = a",))
        ),
        Operator("Sort [b ASC]", 1, actual=Actual(100)),
        Operator("Exchange hashpartitioning(b, 200)", 2, actual=Actual(100)),
        Operator("Scan part", 3, 100, 800, scan=1, evidence="Spark's", actual=Actual(100)),
        Operator("Sort [a ASC]", 1, actual=Actual(2000)),
        Operator("Exchange hashpartitioning(a, 200)", 2, actual=Actual(2000)),
        Operator("Scan orders", 3, scan=2, actual=Actual(2000)),
    ),
    scans=(PART, replace(ORDERS, explanation=replace(TOLD, fragment_ids=range(4)))),
    is_cost_based=False,
    execution=Execution(90, 0.02, 3.0),
)


def turns(plan: PlanExplanation, *seconds: float) -> Side:
    assert plan.execution is not None
    return Side([replace(plan, execution=replace(plan.execution, seconds=s)) for s in seconds])


COMPARED = Comparison(turns(SORTED, 3.0, 9.0, 2.0), turns(RAN, 0.4, 0.5, 0.1))


@pytest.mark.parametrize(
    ("name", "view"),
    [("sql_analyze", ExplanationView(RAN)), ("sql_compare", ComparisonView(COMPARED))],
)
def test_a_query_that_ran(name: str, view: object, golden: Golden) -> None:
    for form, end in (("text", "txt"), ("json", "json")):
        golden(f"cli/{name}.{end}", shown(view, form))
    assert "joint count of 2 columns and product of distinct counts" in shown(view, verbose=True)


@pytest.mark.parametrize(
    ("rows", "actual", "error"),
    [
        (100, Actual(50), 2.0),
        (50, Actual(100), 2.0),
        (0, Actual(0), 1.0),
        (0, Actual(7), 7.0),
        (7, Actual(0), 7.0),
        (None, Actual(7), None),
        (7, Actual(None), None),
        (7, Actual(1, is_whole=False), None),
        (7, None, None),
    ],
)
def test_a_q_error_is_a_factor_of_rows(
    rows: int | None, actual: Actual | None, error: float | None
) -> None:
    assert Operator("Filter", 0, rows, actual=actual).q_error == error


def test_the_worst_estimate_is_where_an_error_begins() -> None:
    assert RAN.worst == 5
    below = RAN.operators[:3]
    assert replace(RAN, operators=below).worst == 1
    # A projection has the error of its input.
    same = [replace(operator, depth=operator.depth + 1) for operator in below[1:]]
    assert replace(RAN, operators=(below[1], *same)).worst == 1
    assert EXPLAINED.worst is None
    assert replace(RAN, operators=(below[2],)).worst is None


def deep_plan() -> PlanExplanation:
    """Eight joins, the uppermost first: the fourth is far off, and the first a little more."""
    rows = ((2000, 20), (900, 10), (900, 10), (900, 10), *((100, 100),) * 4)
    joined: list[Operator] = []
    others: list[Operator] = []
    for number, (estimated, true) in enumerate(rows):
        depth, actual = 2 * number, Actual(true)
        join = PhysicalJoin("broadcast_hash", "inner", "right", (f"a = b{number}",))
        text, why = f"BroadcastHashJoin on a = b{number}", "distinct count"
        joined += (
            Operator("Project [a]", depth, estimated, 9, evidence=why, actual=actual),
            Operator(text, depth + 1, estimated, 9, join, evidence=why, actual=actual),
        )
        others.insert(0, Operator(f"Scan t{number}", depth + 2, 5, 9, actual=Actual(5)))
    first = Operator("Scan first", 2 * len(rows), 100, 9, evidence="count", actual=Actual(100))
    done = Execution(20, 0.1, 1.0)
    return PlanExplanation((*joined, first, *others), (), is_cost_based=True, execution=done)


def test_an_error_is_marked_where_most_of_it_arises() -> None:
    plan = deep_plan()
    assert (plan.worst, plan.origin, EXPLAINED.origin) == (1, 7, None)
    text = shown(ExplanationView(plan))
    [marked] = [line for line in text.splitlines() if "* 90 over" in line]
    assert "BroadcastHashJoin on a = b3" in marked
    assert (
        "* most of the error arises here: 90 over (distinct count), "
        "BroadcastHashJoin on a = b3, broadcasts its right\n\n"
        "The worst estimate is 100 over, BroadcastHashJoin on a = b0, broadcasts its right\n"
    ) in text


def test_a_deep_plan_is_indented_where_it_branches() -> None:
    text = shown(ExplanationView(deep_plan()))
    start = text.index("operator")
    lines = [line[start:].rstrip() for line in text.partition("\n\n")[0].splitlines()[1:]]
    margins = [len(line) - len(line.lstrip()) for line in lines]
    assert margins == [*sorted([*range(0, 16, 2)] * 2), 16, *range(16, 0, -2)]
    assert all(" on a = b" in line for line in lines[1:16:2])


def test_a_comparison_names_what_changed_whichever_side_a_key_is_on() -> None:
    assert COMPARED.changes == (
        PlanChange(Difference.ORDER, None, "part, orders", "orders, part"),
        PlanChange(Difference.JOIN, "a = b", "sort merge", "broadcast hash, broadcasts part"),
        PlanChange(Difference.EXCHANGES, None, "2", "1"),
    )
    assert Comparison(turns(RAN, 1.0), turns(RAN, 2.0)).changes == ()
    pruned = replace(ORDERS, explanation=replace(TOLD, aggregates=ANSWERED.aggregates))
    fewer = replace(RAN, scans=(pruned, PART))
    assert Comparison(turns(RAN, 1.0), turns(fewer, 1.0)).changes == (
        PlanChange(Difference.FRAGMENTS, "orders", "4 of 4 read", "1 of 4 read"),
        PlanChange(Difference.AGGREGATES, "orders", "left to Spark", "answered without reading"),
    )
    # Of a table that only one of the plans reads no aggregates have changed.
    unread = replace(RAN, scans=(replace(ORDERS, explanation=None), PART))
    changes = Comparison(turns(RAN, 1.0), turns(unread, 1.0)).changes
    assert [change.what for change in changes] == [Difference.FRAGMENTS]


def test_times_are_medians_of_whole_turns() -> None:
    assert COMPARED.without_statistics.seconds == pytest.approx(3.02)
    assert COMPARED.with_statistics.planning_seconds == pytest.approx(0.081)
    assert COMPARED.time_ratio == pytest.approx(0.481 / 3.02)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "Give a query or --file; neither was given."),
        (("select 1", "--file", "q.sql"), "Give a query or --file; both were given."),
        (("select 1", "--limit", "-1"), "'-1' is neither a number of rows nor 'all'."),
        (("select 1", "--limit", "²"), "'²' is neither a number of rows nor 'all'."),
        (("select 1", "--explain", "--output", "csv"), "--explain prints text or json, not csv."),
        (("select 1", "--compare", "--output", "csv"), "--compare prints text or json, not csv."),
        (("select 1", "--explain", "--analyze"), "Give one of --explain and --analyze."),
        (("--file", "missing.sql"), "cannot read missing.sql"),
    ],
)
def test_wrong_usage_is_reported_before_spark_starts(
    args: tuple[str, ...], message: str, lancestat: Lancestat
) -> None:
    outcome = lancestat("sql", *args)
    assert outcome.exit_code == 2
    assert message in outcome.stderr
    assert outcome.stdout == ""


def test_a_query_that_is_not_utf_8_is_named_with_its_place(
    lancestat: Lancestat, tmp_path: Path
) -> None:
    (tmp_path / "q.sql").write_bytes(b"select 1,\n  '\xff'")
    outcome = lancestat("sql", "--file", "q.sql")
    assert (outcome.exit_code, outcome.stdout) == (2, "")
    assert outcome.stderr.startswith("LS420 q.sql:2:4  byte 0xff is not UTF-8")
