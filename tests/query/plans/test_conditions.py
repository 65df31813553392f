"""Rows that pass conditions, compared with those that polars filters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancestat.query.plans.conditions import Passing, restrict
from lancestat.query.plans.facts import ColumnFacts, Facts
from lancestat.query.plans.frequencies import Frequencies
from lancestat.query.plans.operators import Condition
from lancestat.tables.statistics.common_values import CommonValues, encode_values
from lancestat.tables.statistics.kernel import analyze
from tests.query.plans.relations import Relation, blocks_of, frame, q_error, where

RANDOM = np.random.default_rng(5)
UNIFORM = Relation(
    frame(RANDOM, 20_000, a=1_000, b=50).with_columns(
        pl.when(pl.col("b") % 5 == 0).then(None).otherwise(pl.col("a")).alias("half")
    ),
    0,
)
SKEWED = Relation(
    pl.DataFrame({"s": np.minimum(RANDOM.zipf(1.4, 20_000), 10_000).astype(np.int64)}), 0
)


def with_quantiles(relation: Relation, name: str) -> Facts:
    """The facts of a relation, with the histogram of a column by the kernel."""
    table = relation.rows.select(name).to_arrow()
    partial = analyze(table.to_batches(), table.schema, quantiles=[name])[name]
    facts = relation.facts()
    column = replace(facts.columns[name], quantiles=partial.quantiles)
    return replace(facts, columns={**facts.columns, name: column})


def compared(column: str, operator: str, value: int) -> Condition:
    made = {"op": operator, "column": column, "type": "bigint", "value": str(value)}
    return Condition((column,), made)


def among(column: str, values: Sequence[int]) -> Condition:
    made = {"op": "in", "column": column, "type": "bigint", "values": [str(v) for v in values]}
    return Condition((column,), made)


def is_null(column: str) -> Condition:
    return Condition((column,), {"op": "isnull", "column": column})


CASES: list[tuple[list[Condition], Any]] = [
    ([compared("a", "<", 250)], pl.col("a") < 250),
    ([compared("a", ">=", 900)], pl.col("a") >= 900),
    ([compared("a", ">=", 400), compared("a", "<=", 449)], pl.col("a").is_between(400, 449)),
    ([compared("b", "=", 7)], pl.col("b") == 7),
    ([among("b", [1, 2, 3, 3])], pl.col("b").is_in([1, 2, 3])),
    ([among("b", [1, 2, 99])], pl.col("b").is_in([1, 2])),
    ([compared("b", "=", 50)], pl.lit(False)),
    ([is_null("half")], pl.col("half").is_null()),
    ([compared("half", "<", 500)], pl.col("half") < 500),
    (
        [Condition(("b",), {"op": "not", "child": compared("b", "=", 3).filter})],
        pl.col("b") != 3,
    ),
    (
        [
            Condition(
                ("b",),
                {
                    "op": "or",
                    "operands": [compared("b", "=", 3).filter, compared("b", "=", 4).filter],
                },
            )
        ],
        pl.col("b").is_in([3, 4]),
    ),
]


@pytest.mark.parametrize("conditions, expression", CASES, ids=str)
def test_conditions_on_one_column(conditions: list[Condition], expression: Any) -> None:
    made = restrict(UNIFORM.facts(), conditions, None)
    true = len(UNIFORM.rows.filter(expression))
    assert q_error(made.rows, true) <= 1.2
    assert made.rows <= made.at_most <= len(UNIFORM.rows)


@given(st.integers(0, 300), st.integers(0, 300))
def test_ranges_of_a_skewed_column_by_its_histogram(one: int, other: int) -> None:
    low, high = sorted((one, other))
    made = restrict(
        with_quantiles(SKEWED, "s"), [compared("s", ">=", low), compared("s", "<=", high)], None
    )
    true = len(SKEWED.rows.filter(pl.col("s").is_between(low, high)))
    # A sketch is off by a share of all rows.
    assert abs(made.rows - true) <= 0.02 * len(SKEWED.rows)


@pytest.mark.parametrize("value", [1, 2, 3])
def test_frequent_values_by_the_histogram(value: int) -> None:
    made = restrict(with_quantiles(SKEWED, "s"), [compared("s", "=", value)], None)
    true = len(SKEWED.rows.filter(pl.col("s") == value))
    assert q_error(made.rows, true) <= 1.3


def test_a_range_and_its_column_afterwards() -> None:
    made = restrict(UNIFORM.facts(), [compared("a", "<", 100)], None)
    column = made.columns["a"]
    assert column.distinct == pytest.approx(100, rel=0.05)
    assert (column.low, column.high) == (0, 100)
    assert made.columns["b"] == UNIFORM.facts().columns["b"]
    # What is left of a column that was not filtered follows from the rows.
    assert column.among(made.rows) == pytest.approx(100, rel=0.05)


def dependent() -> Relation:
    rows = frame(RANDOM, 20_000, part=400).with_columns(
        (pl.col("part") // 20).alias("brand"), (pl.col("part") // 100).alias("category")
    )
    return Relation(rows, 0)


def sampled(relation: Relation, expression: Any, seed: int = 1) -> Passing:
    rows = relation.rows.sample(4_096, seed=seed)
    return Passing(len(rows.filter(expression)), len(rows))


def test_a_sample_knows_that_columns_depend_on_each_other() -> None:
    relation = dependent()
    conditions = [
        compared(name, "=", value) for name, value in (("part", 45), ("brand", 2), ("category", 0))
    ]
    expression = (pl.col("part") == 45) & (pl.col("brand") == 2) & (pl.col("category") == 0)
    true = len(relation.rows.filter(expression))
    alone = restrict(relation.facts(), conditions, None)
    made = restrict(relation.facts(), conditions, sampled(relation, expression))
    assert q_error(alone.rows, true) > 5
    assert q_error(made.rows, true) <= 4
    assert made.at_most >= true
    wide = pl.col("brand").is_in([2, 3]) & (pl.col("category") == 0)
    made = restrict(
        relation.facts(),
        [among("brand", [2, 3]), compared("category", "=", 0)],
        sampled(relation, wide),
    )
    assert q_error(made.rows, len(relation.rows.filter(wide))) <= 1.2
    assert made.evidence == "sample of 4,096 rows"


def test_conditions_that_compute_something_are_sampled() -> None:
    expression = pl.col("a") % 7 == 3
    made = restrict(UNIFORM.facts(), [Condition(("a",))], sampled(UNIFORM, expression))
    assert q_error(made.rows, len(UNIFORM.rows.filter(expression))) <= 1.15


def test_no_match_in_a_sample_is_not_taken_for_none() -> None:
    made = restrict(UNIFORM.facts(), [Condition(("a",))], Passing(0, 4_096))
    assert 0 < made.rows < made.at_most
    assert made.at_most >= 20_000 * 2 / 4_096


@given(st.integers(0, 4_096))
def test_the_interval_of_a_sample_holds_its_share(passing: int) -> None:
    low, high = Passing(passing, 4_096).interval()
    assert 0 <= low <= passing / 4_096 <= high <= 1


def test_an_empty_relation() -> None:
    empty = Relation(pl.DataFrame({"a": pl.Series([], dtype=pl.Int64)}), 0)
    made = restrict(empty.facts(), [compared("a", "=", 1)], None)
    assert made.rows == 0
    assert pa.int64() == empty.facts().columns["a"].field.type  # type: ignore[union-attr]


def test_rows_in_blocks_that_are_alike_tell_less() -> None:
    random = np.random.default_rng(3)
    alone = random.random(16_384) < 0.1
    assert Passing.of(alone).alike <= 2
    # One year of a sample in 64 blocks, of which most are in another one.
    blocks = np.repeat(random.random(64) < 0.1, 256)
    together = Passing.of(blocks)
    assert together.alike > 100
    low, high = together.interval()
    assert high - low > 0.1
    assert Passing.of(blocks, is_whole=True).alike == 2.0
    # Eleven fragments give six blocks each, in which one row tells as much as all.
    of_fragments = np.repeat(np.arange(66) % 2 == 0, 256)
    assert Passing.of(of_fragments, blocks=66).alike == pytest.approx(256, rel=0.02)
    assert Passing.of(of_fragments).alike < 200


def test_a_sample_in_blocks_does_not_overrule_a_count() -> None:
    days = np.ones(64_000, np.int64)
    relation = Relation(pl.DataFrame({"year": np.arange(64_000) // 320, "day": days}), 0)
    conditions = [compared("year", "=", 100), compared("day", "=", 1)]
    sampled = np.zeros(16_384, np.bool_)
    sampled[8_000:8_200] = True
    made = restrict(relation.facts(), conditions, Passing.of(sampled))
    assert q_error(made.rows, 320) <= 1.5


# As the stock of items in warehouses, day by day.
STOCK = Relation(
    pl.DataFrame({"day": np.arange(256).repeat(4_000), "item": np.arange(256 * 4_000) // 4 % 1_000})
    .with_columns(house=pl.int_range(pl.len()) % 4)
    .with_columns(stock=pl.Series(np.random.default_rng(9).integers(0, 1_000, 256 * 4_000))),
    0,
)


@pytest.mark.parametrize(
    ("values", "most"),
    [
        # Every fourth day is sampled, and of it some of the first items.
        ({"day": [33]}, 500),
        ({"day": [33, 70], "house": [1, 2]}, 900),
        ({"item": [997, 998, 999]}, 500),
        ({"item": [998, 999], "house": [3]}, 900),
    ],
)
def test_conditions_that_no_sampled_row_passes(values: dict[str, list[int]], most: int) -> None:
    sample = blocks_of(STOCK, 16_384)
    facts = replace(STOCK.facts(), samples={0: sample})
    conditions = [compared("stock", "<", most), *(among(*each) for each in values.items())]
    passing = pl.col("stock") < most
    for name, some in values.items():
        passing &= pl.col(name).is_in(some)
    rows = pl.from_arrow(sample.columns(["stock", *values]))
    assert isinstance(rows, pl.DataFrame)
    mask = rows.select(passing).to_series().to_numpy()
    assert not mask.any()
    made = restrict(facts, conditions, Passing.of(mask))
    assert q_error(made.rows, len(STOCK.rows.filter(passing))) <= 2


def test_columns_that_all_rows_have_say_nothing_of_how_others_depend() -> None:
    # A shop of a region that is not sampled; of two other columns nearly all rows pass.
    facts = replace(REGIONS.facts(), samples={0: blocks_of(REGIONS, 16_384)})
    conditions = [compared("region", "=", 7), compared("shop", "=", 77)]
    nothing = Passing.of(np.zeros(16_384, np.bool_))
    without = restrict(facts, conditions, nothing).rows
    always = Condition(("unit",), {"op": "isnotnull", "column": "unit"})
    most = compared("key", "<", 950)
    assert restrict(facts, [*conditions, always, most], nothing).rows >= 0.8 * without


REGIONS = Relation(
    pl.DataFrame({"shop": np.arange(400).repeat(2_000)}).with_columns(
        (pl.col("shop") // 10).alias("region"),
        key=pl.int_range(pl.len()) * 7919 % 1_000,
        unit=pl.int_range(pl.len()) % 3,
    ),
    0,
)


@pytest.mark.parametrize("least", ["c", "q"])
def test_a_range_of_strings_beside_a_day_that_is_not_sampled(least: str) -> None:
    letters = pl.Series("name", [f"{chr(97 + number % 26)}x" for number in range(256 * 4_000)])
    stock = Relation(STOCK.rows.with_columns(letters), 0)
    facts = replace(stock.facts(), samples={0: blocks_of(stock, 16_384)})
    named = {"op": ">=", "column": "name", "type": "string", "value": least}
    conditions = [Condition(("name",), named), compared("day", "=", 33)]
    made = restrict(facts, conditions, Passing.of(np.zeros(16_384, np.bool_)))
    true = len(stock.rows.filter((pl.col("name") >= least) & (pl.col("day") == 33)))
    assert q_error(made.rows, true) <= 3


def test_a_value_that_a_subquery_finds_is_one_of_all() -> None:
    one = Condition(("a",), compares="=", left="a")
    assert q_error(restrict(UNIFORM.facts(), [one], None).rows, 20) <= 1.1
    other = Condition(("a",), compares="not =", left="a")
    assert q_error(restrict(UNIFORM.facts(), [other], None).rows, 20_000) <= 1.1
    less = Condition(("a",), compares="<", left="a")
    assert 0.2 <= restrict(UNIFORM.facts(), [less], None).rows / 20_000 <= 0.5


def test_columns_that_are_computed_are_seldom_null() -> None:
    facts = Facts(1_000, 1_000, "", {"x": ColumnFacts(500.0), "y": ColumnFacts(500.0, nulls=0.3)})
    for name, true in (("x", 1_000), ("y", 700)):
        present = Condition((name,), {"op": "isnotnull", "column": name})
        assert restrict(facts, [present], None).rows == true
        assert restrict(facts, [is_null(name)], None).rows == 1_000 - true


@pytest.mark.parametrize("year", [101, 150])
def test_conditions_above_a_join_are_about_the_rows_that_are_left(year: int) -> None:
    relation = Relation(
        pl.DataFrame({"day": np.arange(64_000), "year": np.arange(64_000) // 320}), 0
    )
    left = where(relation.sampled(), relation, pl.col("year").is_between(100, 102))
    made = restrict(left, [compared("year", "=", year)], None)
    assert made.rows == pytest.approx(320 if year == 101 else 0, abs=1)
    assert made.evidence == "sample of rows that are left"


def listed(relation: Relation, *names: str, size: int) -> CommonValues:
    """The common values of a column or a group, by the rows themselves."""
    counted = relation.rows.select(names).drop_nulls().group_by(names).len().rows()
    ordered = sorted(counted, key=lambda each: -each[-1])
    left_out = ordered[size][-1] if len(ordered) > size else 0
    counts = {encode_values(values): (n, n) for *values, n in ordered[:size]}  # type: ignore[arg-type]
    return CommonValues(size, left_out, counts)


def with_common(relation: Relation, *, size: int, rows: int | None = 4_096) -> Facts:
    """The facts of a relation with a sample and the common values of each column, and of all."""
    facts = relation.sampled(rows)
    columns = {
        name: replace(
            column,
            frequencies=Frequencies.kept(
                listed(relation, name, size=size), relation.rows[name].count()
            ),
        )
        for name, column in facts.columns.items()
    }
    names = tuple(relation.rows.columns)
    groups = {names: listed(relation, *names, size=size)} if len(names) > 1 else {}
    return replace(facts, columns=columns, groups=groups)


@pytest.mark.parametrize("value", [1, 2, 7, 30, 60, 9_999])
def test_the_rows_of_a_common_value_are_known(value: int) -> None:
    facts = with_common(SKEWED, size=100)
    passing = pl.col("s") == value
    true = len(SKEWED.rows.filter(passing))
    sampled = where(facts, SKEWED, passing).samples[0].passing
    assert sampled is not None
    made = restrict(facts, [compared("s", "=", value)], Passing.of(sampled))
    if value <= 60:
        assert made.rows == pytest.approx(true)
        assert made.evidence.startswith("common values")
    # What is not listed has at most as many rows as those that are.
    assert made.rows <= true + listed(SKEWED, "s", size=100).unlisted


def test_values_beside_all_that_there_are_have_no_rows() -> None:
    facts = with_common(UNIFORM, size=100)
    assert restrict(facts, [among("b", [3, 77])], None).rows == pytest.approx(
        len(UNIFORM.rows.filter(pl.col("b") == 3))
    )
    whole = with_common(Relation(pl.DataFrame({"v": [1, 1, 9, None]}), 0), size=10, rows=None)
    assert restrict(whole, [among("v", [1, 5])], None).rows == pytest.approx(2)


# Of a city all rows have one country, but for those of one city.
CITIES = Relation(
    pl.DataFrame({"city": np.minimum(RANDOM.zipf(1.5, 40_000), 3_000)}).with_columns(
        pl.when(pl.col("city") == 2)
        .then(pl.int_range(pl.len()) % 50)
        .otherwise(pl.col("city") % 50)
        .alias("country")
    ),
    0,
)


@pytest.mark.parametrize(("city", "country"), [(1, 1), (2, 2), (2, 3), (9, 9), (40, 40)])
def test_common_values_of_a_group_know_columns_that_depend_on_each_other(
    city: int, country: int
) -> None:
    facts = with_common(CITIES, size=400)
    passing = (pl.col("city") == city) & (pl.col("country") == country)
    true = len(CITIES.rows.filter(passing))
    sampled = where(facts, CITIES, passing).samples[0].passing
    assert sampled is not None
    conditions = [compared("city", "=", city), compared("country", "=", country)]
    made = restrict(facts, conditions, Passing.of(sampled))
    assert q_error(made.rows, true) <= 1.01
    assert made.columns["city"].distinct == made.columns["country"].distinct == 1


def test_a_condition_that_null_fails_leaves_rows_with_a_partner_at_most() -> None:
    # As after an outer join: few rows have a value in either of two columns.
    rows = pl.DataFrame({"n": np.arange(20_000)}).with_columns(
        *(
            pl.when(pl.col("n") % 500 == at).then(pl.col("n") % 2).alias(name)
            for at, name in enumerate("lr")
        )
    )
    relation = Relation(rows, 0)
    positive = (pl.col("l").fill_null(0) > 0) | (pl.col("r").fill_null(0) > 0)
    true = len(rows.filter(positive))
    unknown, failing = Condition(("l", "r")), Condition(("l", "r"), rejects_nulls=True)
    assert restrict(relation.facts(), [unknown], None).rows > 100 * true
    made = restrict(relation.facts(), [failing], None)
    assert (
        true / 2
        <= made.rows
        <= len(rows.filter(pl.col("l").is_not_null() | pl.col("r").is_not_null()))
    )


def test_few_rows_are_between_two_values_that_only_the_query_finds_out() -> None:
    facts = UNIFORM.facts()
    ends = [Condition(("a",), compares=sign, left="a") for sign in (">=", "<=")]
    between, above = (restrict(facts, chosen, None).rows for chosen in (ends, ends[:1]))
    assert between == pytest.approx(facts.rows * 0.005)
    assert above == pytest.approx(facts.rows / 3)
