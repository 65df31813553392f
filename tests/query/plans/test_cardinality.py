"""Estimates of operators, as Spark's planner describes them."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

from lancestat.query.plans.cardinality import Estimator
from lancestat.query.plans.conditions import range_share
from lancestat.query.plans.facts import ColumnFacts, Facts
from lancestat.query.plans.operators import Operator, read_operators
from tests.query.plans.relations import NOTHING, Relation, blocks_of, frame, q_error

RANDOM = np.random.default_rng(9)
ORDERS = Relation(frame(RANDOM, 20_000, o=10**9, oc=1_000), 0)
CUSTOMERS = Relation(frame(RANDOM, 1_000, c=10**9, nation=25), 1)


def operator(kind: str, *inputs: int, rows: float | None = None, **details: Any) -> dict[str, Any]:
    made = {"kind": kind, "name": kind.title(), "inputs": inputs, "output": (), **details}
    return made if rows is None else {**made, "rows": rows}


def groupings(columns: dict[str, str], *sets: list[str]) -> dict[str, Any]:
    """What an operator gives of several groupings: which columns it has in which."""
    named = [
        {
            "id": id,
            "of": of,
            "in": [at for at, names in enumerate(sets) if of in names or id in names],
        }
        for id, of in columns.items()
    ]
    return {"times": len(sets), "columns": [*named, {"id": "grouping", "in": []}]}


def equality(left: str, right: str) -> dict[str, Any]:
    return {"columns": [left, right], "compares": "=", "left": left, "right": right}


def estimated(*operators: dict[str, Any], without: str = "") -> list[Facts | None]:
    """The facts of operators, of which scans read orders and customers but for one column."""

    def scan(index: int, operator: Operator) -> Facts | None:
        facts = (ORDERS, CUSTOMERS)[operator.details["scan"]].facts()
        known = {name: column for name, column in facts.columns.items() if name != without}
        return Facts(facts.rows, facts.at_most, facts.evidence, known)

    return Estimator(read_operators(operators), scan, NOTHING).facts


SCANS = operator("scan", rows=10_000, scan=0), operator("scan", rows=1_000, scan=1)


@pytest.mark.parametrize("unknown", ["oc", "c"])
def test_a_join_by_an_unknown_column_is_sparks_in_proportion(unknown: str) -> None:
    join = operator(
        "join", 0, 1, rows=300, type="INNER", conditions=[equality("oc", "c")], output=("o", "oc")
    )
    made = estimated(*SCANS, join, without=unknown)[2]
    assert made is not None
    # Twice as many orders as Spark expects, and as many customers.
    assert (made.rows, made.evidence) == (600, "Spark's")
    assert set(made.columns) == {"o", "oc"} - {unknown}
    known = estimated(*SCANS, join)[2]
    assert known is not None and known.evidence == "distinct count"


def test_groups_by_an_unknown_column_are_sparks_in_proportion() -> None:
    group = operator("aggregate", 0, rows=50, keys=[{"of": "oc"}], columns=[])
    made = estimated(SCANS[0], group, without="oc")[1]
    assert made is not None and (made.rows, made.evidence) == (100, "Spark's")


def test_a_condition_on_an_unknown_column_needs_a_sample() -> None:
    condition = [{"columns": ["oc"]}]
    sparks = operator("filter", 0, rows=10_000, conditions=condition)
    passing = np.packbits(np.arange(4_000) % 4 == 0, bitorder="little").tobytes()
    sample = {"passing": base64.b64encode(passing).decode(), "rows": 4_000}
    sampled = {**sparks, "sample": sample}
    made = [estimated(SCANS[0], filter, without="oc")[1] for filter in (sparks, sampled)]
    assert [facts and facts.rows for facts in made] == [20_000, 5_000]


def test_columns_that_are_computed_of_unknown_ones_are_unknown() -> None:
    columns = [{"id": "x", "of": "oc"}, {"id": "y", "sources": ["oc", "o"]}, {"id": "z", "of": "o"}]
    project = operator("project", 0, columns=columns)
    known, less = (estimated(SCANS[0], project, without=name)[1] for name in ("", "oc"))
    assert known is not None and set(known.columns) == {"x", "y", "z"}
    assert less is not None and set(less.columns) == {"z"}


def test_an_operator_without_any_estimate_below_is_not_known() -> None:
    other = operator("other")
    assert estimated(other, operator("project", 0, columns=[])) == [None, None]


def test_what_adaptive_execution_has_counted_is_true() -> None:
    counted = operator("other", 0, rows=7, is_exact=True)
    made = estimated(SCANS[0], counted)[1]
    assert made is not None and (made.rows, made.at_most) == (7, 7)
    assert set(made.columns) == {"o", "oc"}


def test_a_limit_a_union_and_several_groupings() -> None:
    made = estimated(
        *SCANS,
        operator("union", 0, 1, output=("a",), columns=[["o"], ["c"]]),
        operator("expand", 2, **groupings({"b": "a"}, ["b"], [], [])),
        operator("limit", 3, limit=10),
    )
    assert [facts and facts.rows for facts in made[2:]] == [21_000, 63_000, 10]


@pytest.mark.parametrize(
    ("compares", "size"), [(">", 25), ("<", 15), ("<=", 3), (">=", 2), ("=", 20), ("=", 1)]
)
@pytest.mark.parametrize("customers", [1_000, 15_000])
def test_conditions_on_the_sizes_of_groups(compares: str, size: int, customers: int) -> None:
    # Groups of very different sizes, as those of customers are.
    rows = pl.DataFrame({"oc": (RANDOM.exponential(1.0, 20_000) * customers / 7).astype(np.int64)})
    orders = Relation(rows, 0).facts()
    group = operator(
        "aggregate", 0, keys=[{"of": "oc"}], columns=[{"id": "n", "sources": [], "is_count": True}]
    )
    condition = {"op": compares, "column": "n", "type": "bigint", "value": str(size)}
    having = operator("filter", 1, conditions=[{"columns": ["n"], "filter": condition}])
    operators = read_operators([SCANS[0], group, having])
    made = Estimator(operators, lambda *_: orders, NOTHING).facts[2]
    counts = rows.group_by("oc").len()["len"]
    passes = {">": counts > size, "<": counts < size, "<=": counts <= size}
    passes |= {">=": counts >= size, "=": counts == size}
    assert made is not None and made.evidence == "sizes of groups"
    # Sizes are not quite geometric: there are more small groups, and more large ones.
    true = int(passes[compares].sum())
    assert abs(made.rows - true) < 20 or q_error(made.rows, true) <= 5


def test_a_count_of_few_rows_is_at_least_one() -> None:
    assert range_share(ColumnFacts(1.0, mean_count=1.0), 2, 9) == 0
    assert range_share(ColumnFacts(9.0, mean_count=5.0), 1, 10**9) == 1


def test_a_union_has_the_range_of_its_inputs() -> None:
    other = replace(CUSTOMERS.facts().of("c"), low=5_000.0, high=9_000.0)
    facts = CUSTOMERS.facts()
    late = replace(facts, columns={"c": other, "nation": facts.of("nation")})
    both = [operator("scan"), operator("scan")]
    union = operator("union", 0, 1, output=("a", "b"), columns=[["oc", "oc"], ["c", "nation"]])
    operators = read_operators([*both, union])
    made = Estimator(operators, lambda index, _: [ORDERS.facts(), late][index], NOTHING).facts[2]
    assert made is not None
    assert (made.columns["a"].low, made.columns["a"].high) == (0, 9_000)
    # As many values as lie between the bounds, of which there are fewer than in both together.
    assert made.columns["b"].distinct == 1_000


def test_a_join_by_two_keys_of_which_one_is_known() -> None:
    join = operator(
        "join",
        *(0, 1),
        rows=10**12,
        type="INNER",
        conditions=[equality("oc", "c"), equality("rank", "nation")],
        output=("o", "oc"),
    )
    made = estimated(*SCANS, join, without="rank")[2]
    alone = estimated(*SCANS, {**join, "conditions": [equality("oc", "c")]})[2]
    assert made is not None and alone is not None
    assert alone.rows / 4 <= made.rows <= alone.rows


def test_spark_s_estimate_is_at_most_what_keys_allow() -> None:
    all_pairs = operator(
        "join", 0, 1, rows=10**7, type="INNER", conditions=[equality("x", "y")], output=("o",)
    )
    made = estimated(*SCANS, all_pairs)[2]
    assert made is not None
    assert (made.rows, made.at_most) == (20_000, 2 * 10**7)
    group = operator("aggregate", 2, rows=10**7, keys=[{"of": "x"}], columns=[])
    groups = estimated(*SCANS, all_pairs, group)[3]
    assert groups is not None and groups.rows <= made.rows


def test_where_spark_knows_nothing_either_a_guess_is_made() -> None:
    """As above an existence join, of which Spark has no estimate."""
    unknown = [{"columns": ["x"]}]
    filter = operator("filter", 0, conditions=unknown)
    join = operator("join", 1, 2, type="INNER", conditions=[equality("x", "y")], output=("o", "oc"))
    group = operator("aggregate", 3, keys=[{"of": "x"}], columns=[])
    made = estimated(SCANS[0], filter, {**SCANS[1]}, join, group)
    assert [round(facts.rows) if facts else None for facts in made[1:]] == [6667, 1000, 6667, 6667]


def test_groups_of_several_groupings() -> None:
    rollup = operator("expand", 1, **groupings({"k": "nation"}, ["k"], []))
    keys = [{"of": "k"}, {"of": "grouping"}]
    made = estimated(*SCANS, rollup, operator("aggregate", 2, keys=keys, columns=[]))[3]
    assert made is not None and made.rows == 26


@pytest.mark.parametrize(
    "sets",
    [
        [["a", "b", "c"], ["a", "b"], ["a"], []],
        [["a"], ["b"], []],
        [[each for at, each in enumerate("abc") if number >> at & 1] for number in range(8)],
    ],
    ids=["rollup", "grouping sets", "cube"],
)
@pytest.mark.parametrize("size", [None, 8_192])
def test_each_of_several_groupings_is_counted(sets: list[list[str]], size: int | None) -> None:
    random = np.random.default_rng(4)
    rows = frame(random, 40_000, a=3, b=400).with_columns(
        c=pl.when(pl.col("b") % 3 > 0).then(pl.col("b") // 10)
    )
    table = Relation(rows, 0)
    expand = operator("expand", 0, **groupings({f"{id}'": id for id in "abc"}, *sets))
    keys = [{"of": f"{id}'"} for id in "abc"] + [{"of": "grouping"}]
    made = Estimator(
        read_operators([SCANS[0], expand, operator("aggregate", 1, keys=keys, columns=[])]),
        lambda *_: table.sampled(size),
        NOTHING,
    ).facts[2]
    true = sum(rows.select(names).n_unique() if names else 1 for names in sets)
    assert made is not None and q_error(made.rows, true) <= (1.01 if size is None else 1.2)


@pytest.mark.parametrize(
    ("type", "rows"),
    [
        ("LEFT OUTER", 20_000),
        ("RIGHT OUTER", 100),
        ("FULL OUTER", 20_000),
        ("LEFT ANTI", 20_000),
        ("EXISTENCE", 20_000),
        ("LEFT SEMI", 100),
        ("INNER", 100),
    ],
)
@pytest.mark.parametrize("is_empty", [False, True])
def test_joins_with_what_is_not_known_keep_the_rows_of_a_side(
    type: str, rows: int, is_empty: bool
) -> None:
    other = operator("other", rows=0 if is_empty else 100)
    join = operator(
        "join", 0, 1, rows=20_000, type=type, conditions=[equality("o", "x")], output=("o",)
    )
    made = Estimator(
        read_operators([SCANS[0], other, join]), lambda *_: ORDERS.facts(), NOTHING
    ).facts[2]
    empty = {"RIGHT OUTER": 0, "LEFT SEMI": 0, "INNER": 0}
    expected = empty.get(type, rows) if is_empty else rows
    assert made is not None and made.rows == expected <= made.at_most


def test_tables_without_statistics_have_spark_s_estimates() -> None:
    passing = base64.b64encode(np.packbits(np.zeros(8, np.bool_)).tobytes()).decode()
    plan = read_operators(
        [
            operator("scan", rows=100),
            operator("scan", rows=100),
            operator("filter", 0, rows=90, conditions=[], sample={"rows": 8, "passing": passing}),
            operator("join", 1, 2, rows=10**18, type="INNER", conditions=[equality("a", "b")]),
            operator("aggregate", 3, rows=10**18, keys=[{"of": "a"}], columns=[]),
        ]
    )
    made = Estimator(plan, lambda *_: None, NOTHING).facts
    assert [facts and facts.rows for facts in made] == [100, 100, 90, 10**18, 10**18]


def test_groups_of_a_union_are_those_of_its_inputs() -> None:
    # A class is of one kind: no input has as many pairs as the product of classes and kinds.
    random = np.random.default_rng(2)
    tables = [
        Relation(
            pl.DataFrame({f"class{i}": random.integers(i * 50, 400, 30_000)}).with_columns(
                (pl.col(f"class{i}") // 10).alias(f"kind{i}")
            ),
            i,
        )
        for i in range(3)
    ]
    scans = [operator("scan", scan=i) for i in range(3)]
    columns = [[f"class{i}", f"kind{i}"] for i in range(3)]
    union = operator("union", 0, 1, 2, output=("a", "b"), columns=columns)
    keys = [{"of": "a", "sources": ["a"]}, {"of": "b", "sources": ["b"]}]
    grouped = [{"id": "a", "of": "a", "key": 0}, {"id": "b", "of": "b", "key": 1}]
    groups = operator("aggregate", 3, keys=keys, columns=grouped)
    again = operator("aggregate", 4, keys=keys, columns=grouped)
    made = Estimator(
        read_operators([*scans, union, groups, again]),
        lambda index, operator: tables[operator.details["scan"]].sampled(8_192),
        NOTHING,
    ).facts
    for facts in made[4:]:
        # All inputs have the same classes, which the estimate does not know.
        assert facts is not None and 400 <= facts.rows <= 1_200


@pytest.mark.parametrize("of", [None, "year"])
def test_groups_by_values_that_spark_computes(of: str | None) -> None:
    days = Relation(pl.DataFrame({"day": RANDOM.integers(0, 2_500, 60_000)}), 0)
    sampled = days.sampled(8_192)
    rows = pl.from_arrow(sampled.samples[0].columns(["day"]))
    assert isinstance(rows, pl.DataFrame)
    codes = base64.b64encode((rows["day"] // 365).to_numpy().astype(np.uint8).tobytes()).decode()
    key = {"of": of, "sources": ["day"], "values": {"scan": 0, "codes": codes}}
    groups = operator("aggregate", 0, keys=[key], columns=[{"id": "y", "of": of, "key": 0}])
    both = operator("aggregate", 0, keys=[key, {"of": "day"}], columns=[])
    made = Estimator(
        read_operators([operator("scan", scan=0), groups, both]),
        lambda index, operator: sampled,
        NOTHING,
    ).facts
    # Of 2,500 days there are seven years; days with their years are no more than days.
    for facts, true in zip(made[1:], (7, 2_500), strict=True):
        assert facts is not None and q_error(facts.rows, true) <= 1.05


def test_other_rows_than_those_of_the_sample_say_nothing_of_a_key() -> None:
    key = {"sources": ["oc"], "values": {"scan": 0, "codes": base64.b64encode(b"ab").decode()}}
    groups = operator("aggregate", 0, keys=[key], columns=[])
    made = Estimator(
        read_operators([operator("scan", scan=0), groups]),
        lambda index, operator: ORDERS.sampled(4_096),
        NOTHING,
    ).facts[1]
    assert made is not None and q_error(made.rows, 1_000) <= 1.05


# Lines of orders stand side by side: one to seven of up to 50 pieces, and a thousand with more.
SIZES = RANDOM.integers(1, 8, 30_000)
LINES = Relation(
    pl.DataFrame(
        {
            "order": np.repeat(np.arange(30_000), SIZES),
            "pieces": RANDOM.integers(1, 51, SIZES.sum()),
        }
    ).with_columns(
        pl.when(pl.col("order") % 30 == 0).then(200).otherwise(pl.col("pieces")).alias("pieces")
    ),
    0,
)


@pytest.mark.parametrize("is_swapped", [False, True])
@pytest.mark.parametrize("share", [1.0, 0.02])
def test_the_row_with_the_least_value_of_each_group(is_swapped: bool, share: float) -> None:
    rows = pl.DataFrame(
        {"order": RANDOM.integers(0, 5_000, 40_000), "pieces": RANDOM.integers(1, 9_000, 40_000)}
    )
    least = rows.group_by("order").agg(pl.col("pieces").min())
    left = rows.filter(pl.col("order") < 5_000 * share)
    facts = (Relation(left, 0).facts(), Relation(rows, 1).facts())
    renamed = {f"{name} 2": column for name, column in facts[1].columns.items()}
    scans = (facts[0], replace(facts[1], columns=renamed, unique=frozenset()))
    columns = [
        {"id": "key", "of": "order 2", "key": 0},
        {"id": "least", "sources": ["pieces 2"], "extreme_of": "pieces 2"},
    ]
    grouped = operator("aggregate", 1, keys=[{"of": "order 2"}], columns=columns)
    conditions = [equality("order", "key"), equality("least", "pieces")]
    inputs = (2, 0) if is_swapped else (0, 2)
    join = operator("join", *inputs, type="INNER", conditions=conditions)
    made = Estimator(
        read_operators([operator("scan", scan=0), operator("scan", scan=1), grouped, join]),
        lambda index, _: scans[index],
        NOTHING,
    ).facts[3]
    true = len(left.join(least, on=["order", "pieces"]))
    assert made is not None
    assert made.evidence.endswith("one row of each group")
    assert q_error(made.rows, true) <= 1.3
    # Without a key, the values are a column like others.
    join = operator("join", *inputs, type="INNER", conditions=conditions[1:])
    made = Estimator(
        read_operators([operator("scan", scan=0), operator("scan", scan=1), grouped, join]),
        lambda index, _: scans[index],
        NOTHING,
    ).facts[3]
    true = len(left.join(least, on="pieces"))
    assert made is not None
    assert made.evidence == "distinct count"
    assert made.rows > true / 10


def test_sums_of_groups_vary_in_a_sample_as_in_all_rows() -> None:
    lines = Relation(LINES.rows.sample(fraction=1, shuffle=True, seed=1), 0)
    sums = lines.rows.group_by("order").agg(pl.col("pieces").sum())["pieces"].to_numpy()
    known = lines.facts().of("pieces").type
    assert known is not None
    for sample in (lines.sampled().samples[0], blocks_of(lines, 16_384)):
        spread = sample.spread_of_groups(["order"], "pieces", known, len(sums))
        assert spread is not None
        assert q_error(spread[0], sums.mean()) <= 1.05
        assert q_error(spread[1], sums.var()) <= 1.2
    # Groups of one size vary less than is taken for granted.
    even = Relation(pl.DataFrame({"order": np.repeat(np.arange(1_000), 4), "pieces": 5}), 0)
    spread = even.sampled().samples[0].spread_of_groups(["order"], "pieces", known, 1_000)
    assert spread == pytest.approx((20, 4 * 25))


@pytest.mark.parametrize("is_scattered", [False, True])
@pytest.mark.parametrize("size", [None, 16_384])
@pytest.mark.parametrize(("compares", "value"), [(">", 300), ("<", 60), (">", 2_000), ("=", 7)])
def test_conditions_on_sums_and_sizes_of_groups(
    compares: str, value: int, size: int | None, is_scattered: bool
) -> None:
    lines = (
        Relation(LINES.rows.sample(fraction=1, shuffle=True, seed=1), 0) if is_scattered else LINES
    )
    sample = blocks_of(lines, size) if size else lines.sampled().samples[0]
    facts = replace(lines.facts(), samples={0: sample})
    columns = [
        {"id": "n", "sources": [], "is_count": True},
        {"id": "s", "sources": ["pieces"], "sum_of": "pieces", "type": "bigint"},
    ]
    group = operator("aggregate", 0, keys=[{"of": "order"}], columns=columns)
    column = "n" if compares == "=" else "s"
    condition = {"op": compares, "column": column, "type": "bigint", "value": str(value)}
    having = operator("filter", 1, conditions=[{"columns": [column], "filter": condition}])
    made = Estimator(
        read_operators([operator("scan", scan=0), group, having]), lambda *_: facts, NOTHING
    ).facts[2]
    groups = lines.rows.group_by("order").agg(
        pl.len().alias("n"), pl.col("pieces").sum().alias("s")
    )
    passes = {
        ">": groups[column] > value,
        "<": groups[column] < value,
        "=": groups[column] == value,
    }
    true = int(passes[compares].sum())
    assert made is not None
    if size is None or not is_scattered:
        # Half a group of a sample of some thousand is the least.
        assert q_error(max(made.rows, 5), max(true, 5)) <= 1.3
        assert made.evidence == "sampled groups"
    else:
        # Parts of groups say nothing of the whole.
        assert made.evidence == ("sizes of groups" if column == "n" else "sums of groups")
        assert column == "n" or true <= made.at_most
        assert q_error(max(made.rows, 5), max(true, 5)) <= 20


def test_sizes_of_the_few_groups_that_conditions_leave() -> None:
    numbers = pl.int_range(pl.len()) * 7919 % 400
    # One row in eight of an order is of nobody, and so in a small group that no condition leaves.
    buyer = pl.when(numbers % 8 != 1).then("order")
    changed = LINES.rows.with_columns(row=numbers, number=buyer * 7919 % 400, buyer=buyer)
    lines = Relation(changed, 0)
    sample = blocks_of(lines, 4_096)
    for column, are_whole in (("number", True), ("row", False)):
        rows = sample.columns([column])
        assert rows is not None
        left = lines.rows.filter(pl.col(column) == 3)
        true = left.group_by("order", "buyer").len()["len"]
        few = sample.where(rows.column(0).to_numpy() == 3, len(left))
        sizes = few.of_groups(["order", "buyer"], None, None, float(true.mean()))
        assert (sizes is not None) is are_whole
        if sizes is not None:
            assert few.count < 20 < len(sizes)
            assert np.mean(sizes <= 2) == pytest.approx(float((true <= 2).mean()), rel=0.2)


@pytest.mark.parametrize("type", ["bigint", "double", "decimal(12,2)"])
@pytest.mark.parametrize(
    ("compares", "value"), [(">", 0), (">", 60), ("<", 40), ("<", 0), (">", 10**6)]
)
def test_conditions_on_sums_of_which_only_the_addends_are_known(
    compares: str, value: int, type: str
) -> None:
    pieces = LINES.rows["pieces"]
    moments = {"mean": pieces.mean(), "variance": pieces.var(), "least": 1, "most": pieces.max()}
    summed = {"id": "s", "sources": ["pieces"], "added": moments, "type": type}
    group = operator("aggregate", 0, keys=[{"of": "order"}], columns=[summed])
    condition = {"op": compares, "column": "s", "type": type, "value": str(value)}
    having = operator("filter", 1, conditions=[{"columns": ["s"], "filter": condition}])
    facts = replace(LINES.facts(), samples={})
    made = Estimator(
        read_operators([operator("scan", scan=0), group, having]), lambda *_: facts, NOTHING
    ).facts[2]
    sums = LINES.rows.group_by("order").agg(pl.col("pieces").sum())["pieces"]
    true = (sums > value if compares == ">" else sums < value).sum()
    assert made is not None and made.evidence == "sums of groups"
    if value == 0 and compares == ">":
        # None of the addends is below zero, and so is no sum.
        assert q_error(made.rows, true) <= 1.01
    else:
        assert q_error(max(made.rows, 5), max(true, 5)) <= (2 if true else 20)


@pytest.mark.parametrize("share", [0.03, 0.2, 1.0])
def test_groups_that_are_left_of_one_domain_meet_by_chance(share: float) -> None:
    random = np.random.default_rng(3)
    customers, scans, grouped = 4_000, list[Facts](), list[set[int]]()
    operators = [operator("scan", scan=0), operator("scan", scan=1)]
    for scan in range(2):
        rows = pl.DataFrame(
            {
                "customer": random.integers(0, customers, 20_000),
                "year": random.integers(0, 1_000, 20_000),
            }
        )
        facts = Relation(rows, scan).facts()
        renamed = {f"{name} {scan}": column for name, column in facts.columns.items()}
        scans.append(replace(facts, columns=renamed, unique=frozenset(), samples={}))
        year = f"year {scan}"
        condition = {"op": "<", "column": year, "type": "bigint", "value": str(int(1_000 * share))}
        chosen = operator("filter", scan, conditions=[{"columns": [year], "filter": condition}])
        key = {"id": f"key {scan}", "of": f"customer {scan}", "key": 0}
        operators += [
            chosen,
            operator("aggregate", 2 + 2 * scan, keys=[{"of": key["of"]}], columns=[key]),
        ]
        kept = rows.filter(pl.col("year") < 1_000 * share)
        grouped.append(set(kept["customer"]))
    join = operator("join", 3, 5, type="INNER", conditions=[equality("key 0", "key 1")])
    made = Estimator(
        read_operators([*operators, join]), lambda index, _: scans[index], NOTHING
    ).facts[6]
    assert made is not None
    assert q_error(made.rows, len(grouped[0] & grouped[1])) <= 1.4


@pytest.mark.parametrize("rows", [0.0, 0.3, 1.0, 2.5])
def test_sums_of_less_than_a_row_have_an_estimate(rows: float) -> None:
    moments = {"mean": 7.0, "variance": 0.01, "least": 1, "most": 9}
    summed = {"id": "s", "sources": ["pieces"], "added": moments, "type": "bigint"}
    group = operator("aggregate", 0, keys=[{"of": "order"}], columns=[summed])
    condition = {"op": ">", "column": "s", "type": "bigint", "value": "8"}
    having = operator("filter", 1, conditions=[{"columns": ["s"], "filter": condition}])
    facts = replace(LINES.facts().with_rows(rows, 1.0, "filter"), samples={})
    made = Estimator(
        read_operators([operator("scan", scan=0), group, having]), lambda *_: facts, NOTHING
    ).facts[2]
    assert made is not None and 0 <= made.rows <= made.at_most


@pytest.mark.parametrize("variance", [float("inf"), float("nan")])
def test_sums_of_numbers_without_squares_tell_nothing(variance: float) -> None:
    sums = ColumnFacts(9.0, spread=lambda: (1e200, variance))
    assert range_share(sums, 1, 9) == pytest.approx(1 / 3)
