"""What a sample tells of columns together, compared with all rows."""

from __future__ import annotations

import datetime
import gc
import weakref
from collections.abc import Collection
from dataclasses import replace
from decimal import Context, Decimal
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings

from lancestat.query.plans.facts import narrowed, tuples
from lancestat.query.plans.joins import joined
from lancestat.query.plans.sampled import SampledRows, is_among
from lancestat.query.predicates.filter import Comparison, Filter, In, Not, Operator, columns_of
from lancestat.query.pruning import bound_values, literal_bound
from lancestat.query.sampler import Memo, TableSample
from lancestat.tables.statistics.column_type import column_type
from tests.examples import examples
from tests.query.plans.relations import (
    NOTHING,
    Joint,
    Relation,
    blocks_of,
    equal,
    q_error,
    true_rows,
    where,
)
from tests.query.values import FILTERS, holds, tables

RANDOM = np.random.default_rng(21)
# Two centuries of days, of which sales have five years.
DAYS = Relation(
    pl.DataFrame({"day": np.arange(73_000)}).with_columns(
        (pl.col("day") // 365).alias("year"), (pl.col("day") // 30 % 12).alias("month")
    ),
    0,
)
SALES = Relation(
    pl.DataFrame(
        {
            "sold": RANDOM.integers(35_000, 36_825, 200_000),
            "item": RANDOM.integers(0, 5_000, 200_000),
        }
    ).with_columns((pl.col("item") // 10).alias("brand"), (pl.col("item") // 500).alias("kind")),
    1,
)


@pytest.mark.parametrize("size", [8_192, None])
@pytest.mark.parametrize(
    ("condition", "limit"),
    [(pl.col("year") == 97, 1.4), (pl.col("month") == 3, 1.4), (pl.col("day") % 7 == 2, 1.4)],
)
def test_a_join_where_one_side_has_a_part_of_the_range(
    condition: pl.Expr, limit: float, size: int | None
) -> None:
    days = where(DAYS.sampled(size), DAYS, condition)
    rows = DAYS.rows.filter(condition)
    for type, how in (("INNER", "inner"), ("LEFT SEMI", "semi")):
        made = joined(SALES.sampled(8_192), days, type, [equal("sold", "day")], NOTHING)
        true = true_rows(SALES.rows, rows, {"sold": "day"}, how)
        # Without the range the domain would be all days: 40 times too few in a year.
        assert q_error(made.rows, true) <= limit


def test_groups_after_a_join_are_of_the_range_that_meets() -> None:
    made = joined(SALES.sampled(8_192), DAYS.sampled(), "INNER", [equal("sold", "day")], NOTHING)
    true = SALES.rows.join(DAYS.rows, left_on="sold", right_on="day")
    for names in (["year"], ["year", "month"]):
        # Of two centuries only five years are left.
        count, _ = tuples(made, names, NOTHING, rows=made.rows)
        assert q_error(count, true.select(names).n_unique()) <= 1.1


def test_keys_that_do_not_meet() -> None:
    early = Relation(DAYS.rows.filter(pl.col("day") < 100), 0)
    made = joined(SALES.sampled(), early.sampled(), "INNER", [equal("sold", "day")], NOTHING)
    assert made.rows <= 1
    anti = joined(SALES.sampled(), early.sampled(), "LEFT ANTI", [equal("sold", "day")], NOTHING)
    assert anti.rows >= 0.99 * len(SALES.rows)


@pytest.mark.parametrize("size", [8_192, None])
@pytest.mark.parametrize("names", [["kind"], ["brand", "kind"], ["item", "brand", "kind"]])
def test_groups_of_rows_that_a_condition_leaves(names: list[str], size: int | None) -> None:
    condition = pl.col("kind") < 2
    facts = where(SALES.sampled(size), SALES, condition)
    true = SALES.rows.filter(condition).select(names).n_unique()
    count, evidence = tuples(facts, names, NOTHING, rows=facts.rows)
    assert q_error(count, true) <= 1.25
    assert evidence == ("rows of the table" if size is None else "sample of 8,192 rows")


@pytest.mark.parametrize(
    "values",
    [
        np.arange(100_000),
        RANDOM.integers(0, 50_000, 100_000),
        RANDOM.integers(0, 100, 100_000),
        np.minimum(RANDOM.zipf(1.5, 100_000), 10**6),
        np.repeat(np.arange(20_000), 5),
    ],
    ids=["all differ", "many", "few", "skewed", "five each"],
)
def test_distinct_values_of_a_sample(values: Any) -> None:
    relation = Relation(pl.DataFrame({"v": values}), 0)
    sample = relation.sampled(8_192).samples[0]
    counted = sample.distinct(["v"])
    assert counted is not None
    # No sample shows how long a tail is.
    limit = 6 if values.max() == 10**6 else 1.5
    assert q_error(counted, len(np.unique(values))) <= limit
    assert relation.sampled().samples[0].distinct(["v"]) == len(np.unique(values))


def test_null_is_a_value_of_a_group() -> None:
    rows = Relation(pl.DataFrame({"a": [1, None, 1, None], "b": [1, 1, None, 1]}), 0)
    facts = rows.sampled()
    assert facts.samples[0].distinct(["a", "b"]) == 3
    assert tuples(facts, ["a", "b"], NOTHING, rows=4)[0] == pytest.approx(3)


def test_few_rows_of_a_sample_tell_nothing() -> None:
    condition = pl.col("day") < 5
    sample = where(DAYS.sampled(8_192), DAYS, condition).samples[0]
    type = column_type(pa.int64())
    assert type is not None
    assert sample.distinct(["year"]) is None
    assert sample.within("day", type, 0, 10) is None
    whole = where(DAYS.sampled(), DAYS, condition).samples[0]
    assert (whole.distinct(["year"]), whole.within("day", type, 0, 3)) == (1, 0.8)


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        (pa.array([1, 2, None, 3], pa.uint16()), 2, 3),
        (pa.array([0.5, None, 2.5, float("nan")]), 1, 3),
        (pa.array([datetime.date(1970, 1, 2), None, datetime.date(1970, 1, 9)]), 5, 8),
        (pa.array([datetime.datetime(1970, 1, 1, 0, 0, 1), None, None]), 10**6, 10**6),
        (pa.array([Decimal("1.50"), Decimal("2.50"), None]), 200, 300),
        (pa.array([True, False, None]), 1, 1),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_values_are_compared_in_the_form_of_bounds(
    values: pa.Array, low: float, high: float
) -> None:
    type = column_type(values.type)
    assert type is not None
    table = pa.table({"v": values})
    sample = SampledRows(lambda _: table, len(values), len(values), is_whole=True)
    expected = {"uint16": 2 / 3, "double": 1 / 2, "date32[day]": 1 / 2, "timestamp[us]": 1}
    assert sample.within("v", type, low, high) == expected.get(str(values.type), 1 / 2)
    assert sample.distinct(["v"]) == len(values.unique())


def test_groups_of_a_year_are_joined_with_that_year() -> None:
    months = pl.DataFrame({"m": np.arange(73_000) // 30, "y": np.arange(73_000) // 365})
    left, right = Relation(months, 0), Relation(months.rename({"m": "n", "y": "z"}), 1)
    one = where(left.sampled(), left, pl.col("y").is_between(90, 99))
    groups = len(months.filter(pl.col("y").is_between(90, 99))["m"].unique())
    grouped = replace(
        one.with_rows(groups, groups, ""),
        columns={"m": replace(narrowed(one, "m"), distinct=float(groups), rows_per_value=1.0)},
    )
    other = where(right.sampled(), right, pl.col("z") == 95)
    made = joined(grouped, other, "INNER", [equal("m", "n")], NOTHING)
    # Without the bounds of the ten years, the domain would be the months of two centuries.
    assert q_error(made.rows, 365) <= 1.2


@pytest.mark.parametrize("each", [1, 3, 12, 40])
def test_the_same_values_stand_side_by_side(each: int) -> None:
    tickets = Relation(pl.DataFrame({"v": np.repeat(np.arange(400_000 // each), each)}), 0)
    counted = blocks_of(tickets, 16_384).distinct(["v"])
    assert counted is not None
    # Counted by rows instead, values of 12 rows each seem to be 24 times fewer.
    assert q_error(counted, 400_000 // each) <= 1.5


def test_a_value_that_is_everywhere_hides_no_others() -> None:
    customers = np.repeat(RANDOM.permutation(40_000), 10)
    values = pl.Series("v", customers, pl.Int64).to_frame()
    everywhere = pl.Series(RANDOM.random(400_000) < 0.05)
    table = Relation(values.with_columns(pl.when(~everywhere).then(pl.col("v")).alias("v")), 0)
    counted = blocks_of(table, 16_384).distinct(["v"])
    assert counted is not None
    # With null among the values that are met more than once, they seem to be a tenth.
    assert q_error(counted, table.rows["v"].n_unique()) <= 1.5


# Of a thousand customers few buy most, and those are of one nation.
BUYERS = Relation(pl.DataFrame({"c": np.arange(1_000), "nation": np.arange(1_000) // 40}), 2)
ORDERS = Relation(pl.DataFrame({"oc": np.minimum(RANDOM.geometric(0.02, 200_000), 999)}), 3)


@pytest.mark.parametrize("nation", [0, 1, 3])
@pytest.mark.parametrize(
    ("type", "how"), [("INNER", "inner"), ("LEFT SEMI", "semi"), ("LEFT OUTER", "left")]
)
def test_keys_that_are_all_known_are_looked_for_in_the_sample(
    type: str, how: str, nation: int
) -> None:
    buyers = where(BUYERS.sampled(), BUYERS, pl.col("nation") == nation)
    rows = BUYERS.rows.filter(pl.col("nation") == nation)
    made = joined(ORDERS.sampled(8_192), buyers, type, [equal("oc", "c")], NOTHING)
    # By the distinct counts alone, 4 % of the orders are of each nation.
    assert q_error(made.rows, true_rows(ORDERS.rows, rows, {"oc": "c"}, how)) <= 1.25
    kept = made.samples[3].count
    assert (kept == 8_192) is (type == "LEFT OUTER")


@pytest.mark.parametrize("type", ["INNER", "LEFT SEMI"])
def test_what_a_subquery_chooses_is_taken_for_what_the_other_side_has(type: str) -> None:
    # `where year = (select ...)`: one of two centuries, of which sales have five.
    days = DAYS.sampled()
    chosen = replace(days.with_rows(365, 365, "guess"), chosen=frozenset((0,)))
    made = joined(SALES.sampled(8_192), chosen, type, [equal("sold", "day")], NOTHING)
    assert q_error(made.rows, len(SALES.rows) / 5) <= 1.1
    # A table that is limited by what was chosen is chosen as well.
    assert made.chosen == {"INNER": {0}, "LEFT SEMI": {1}}[type]
    # A sample that a constant limits is not.
    of_year = where(days, DAYS, pl.col("year") == 3)
    none = joined(SALES.sampled(8_192), of_year, type, [equal("sold", "day")], NOTHING)
    assert none.rows <= len(SALES.rows) / 1_000


def test_groups_by_columns_of_a_dimension_are_at_most_the_keys_that_rows_name() -> None:
    people = pl.DataFrame({"p": np.arange(100_000)}).with_columns(
        (pl.col("p") * 7 % 3_001).alias("name"), (pl.col("p") // 4).alias("home")
    )
    homes = pl.DataFrame({"h": np.arange(25_000)}).with_columns((pl.col("h") % 999).alias("city"))
    visits = pl.DataFrame({"of": RANDOM.integers(0, 500, 50_000) * 200})
    left, middle, right = Relation(visits, 0), Relation(people, 1), Relation(homes, 2)
    made = joined(left.facts(), middle.facts(), "INNER", [equal("of", "p")], NOTHING)
    made = joined(made, right.facts(), "INNER", [equal("home", "h")], NOTHING)
    rows = visits.join(people, left_on="of", right_on="p").join(
        homes, left_on="home", right_on="h", coalesce=False
    )
    for names in (["name", "home"], ["city"], ["of", "name"], ["of", "name", "city"]):
        count, _ = tuples(made, names, Joint(left, middle, right), rows=made.rows)
        true = rows.select(names).n_unique()
        assert 0.95 * true <= count <= 1.3 * true, names
    # Tables that follow from each other count once.
    mutual = {1: [made.columns["of"]], 0: [made.columns["p"]]}
    assert tuples(replace(made, determined=mutual), ["of", "p"], NOTHING, rows=50_000)[0] >= 450
    # Rows without a partner have any.
    outer = joined(left.facts(), middle.facts(), "FULL OUTER", [equal("of", "p")], NOTHING)
    count, _ = tuples(outer, ["name", "home"], Joint(left, middle), rows=outer.rows)
    assert count >= 90_000


@pytest.mark.parametrize(
    ("column", "values", "found"),
    [
        (pa.array([1, 2, None], pa.int32()), pa.array([2, 5]), [False, True, False]),
        (pa.array(["a", None, "b"]), pa.array(["b", None]), [False, False, True]),
        (pa.array([1], pa.uint64()), pa.array([1]), None),
        (pa.array([1.0]), pa.array([1]), None),
    ],
    ids=["integers", "text", "unsigned", "numbers of two kinds"],
)
def test_values_among_others(column: pa.Array, values: pa.Array, found: list[bool] | None) -> None:
    made = is_among(column, values)
    assert (None if made is None else made.tolist()) == found


def skewed(rows: int, users: int, *, by: float = 1.2) -> Any:
    """Users of some rows: of each of a Zipf distribution, cut off, in no order of their ids."""
    ranks = np.arange(1, users + 1)
    shares = ranks**-by
    order = np.random.default_rng(3).permutation(users)
    return order[RANDOM.choice(users, rows, p=shares / shares.sum())]


POSTS = Relation(pl.DataFrame({"of": skewed(40_000, 5_000), "n": RANDOM.integers(0, 9, 40_000)}), 5)
VOTES = Relation(pl.DataFrame({"by": skewed(60_000, 5_000)}), 6)
PEOPLE = Relation(pl.DataFrame({"id": np.arange(5_000)}), 7)


def test_keys_that_are_frequent_on_both_sides_are_in_many_pairs() -> None:
    made = joined(POSTS.sampled(8_192), VOTES.sampled(8_192), "INNER", [equal("of", "by")], NOTHING)
    true = true_rows(POSTS.rows, VOTES.rows, {"of": "by"}, "inner")
    # If all were equally frequent, there would be 50 times fewer.
    assert true >= 50 * len(POSTS.rows) * len(VOTES.rows) / 5_000
    assert q_error(made.rows, true) <= 1.15
    # Also among those that a condition leaves.
    some = where(POSTS.sampled(8_192), POSTS, pl.col("n") == 4)
    made = joined(some, VOTES.sampled(8_192), "INNER", [equal("of", "by")], NOTHING)
    rows = POSTS.rows.filter(pl.col("n") == 4)
    assert q_error(made.rows, true_rows(rows, VOTES.rows, {"of": "by"}, "inner")) <= 1.3


@pytest.mark.parametrize("first", ["of", "by"])
def test_keys_of_a_join_are_as_frequent_as_those_of_both_sides(first: str) -> None:
    one, other = (POSTS, VOTES) if first == "of" else (VOTES, POSTS)
    second = "by" if first == "of" else "of"
    people = PEOPLE.sampled()
    made = joined(one.sampled(8_192), people, "INNER", [equal(first, "id")], NOTHING)
    assert q_error(made.rows, len(one.rows)) <= 1.01
    # A key that identifies a person is met as often as the person has rows.
    made = joined(made, other.sampled(8_192), "INNER", [equal("id", second)], NOTHING)
    true = true_rows(one.rows, other.rows, {first: second}, "inner")
    assert q_error(made.rows, true) <= 1.15
    third = Relation(pl.DataFrame({"to": skewed(2_000, 5_000)}), 8)
    made = joined(made, third.sampled(), "INNER", [equal("id", "to")], NOTHING)
    counts = (
        relation.rows.group_by(pl.col(name).alias("k")).agg(pl.len().cast(pl.Float64).alias(name))
        for relation, name in ((one, first), (other, second), (third, "to"))
    )
    a, b, c = counts
    triples = a.join(b, on="k").join(c, on="k")
    true = triples.select(pl.col(first) * pl.col(second) * pl.col("to")).sum().item()
    assert q_error(made.rows, float(true)) <= 1.3


def test_groups_have_each_key_once() -> None:
    posts, votes = POSTS.sampled(8_192), VOTES.sampled(8_192)
    column = posts.columns["of"]
    groups = replace(
        posts.with_rows(column.distinct, column.distinct, ""),
        columns={"of": replace(column, rows_per_value=1.0, counted_in=frozenset())},
        unique=frozenset((frozenset(("of",)),)),
    )
    made = joined(groups, votes, "INNER", [equal("of", "by")], NOTHING)
    true = true_rows(POSTS.rows.unique("of"), VOTES.rows, {"of": "by"}, "inner")
    assert q_error(made.rows, true) <= 1.15
    # Of the people that half of the posts are of there are few.
    few = POSTS.rows["of"].value_counts().top_k(20, by="count")["of"]
    known = Relation(pl.DataFrame({"id": few}), 7)
    made = joined(groups, known.sampled(), "INNER", [equal("of", "id")], NOTHING)
    assert q_error(made.rows, 20) <= 1.05
    early = where(PEOPLE.sampled(), PEOPLE, pl.col("id") < 500)
    made = joined(groups, early, "INNER", [equal("of", "id")], NOTHING)
    true = true_rows(POSTS.rows.unique("of"), PEOPLE.rows[:500], {"of": "id"}, "inner")
    assert q_error(made.rows, true) <= 1.25


def test_values_in_one_block_alone_are_not_frequent() -> None:
    sorted_rows = Relation(pl.DataFrame({"v": np.repeat(np.arange(4_000), 100)}), 0)
    counted = blocks_of(sorted_rows, 16_384).frequencies("v")
    assert counted is not None and not counted.shares
    scattered = Relation(POSTS.rows.select("of").sort(pl.int_range(pl.len()) % 10), 0)
    counted = blocks_of(scattered, 16_384).frequencies("of")
    assert counted is not None
    true = POSTS.rows["of"].value_counts(normalize=True).top_k(5, by="proportion")
    for value, share in true.iter_rows():
        assert counted.shares[value] == pytest.approx(share, rel=0.2)


@pytest.mark.parametrize(
    "values", [["a", "b", "a", None, "a"], [1.5, None, 1.5, 2.5, 1.5]], ids=["text", "numbers"]
)
def test_frequencies_are_of_rows_that_have_a_value(values: list[Any]) -> None:
    table = pa.table({"v": values})
    sample = SampledRows(lambda _: table, 5, 5.0, is_whole=True)
    counted = sample.frequencies("v")
    assert counted is not None
    # In the form of bounds.
    assert dict(counted.shares) == {b"a" if values[0] == "a" else 1.5: 0.75}
    none = SampledRows(lambda _: table.slice(0, 0), 0, 0.0, is_whole=True).frequencies("v")
    assert none is None


def test_groups_by_columns_of_two_dimensions_are_at_most_pairs_of_their_keys() -> None:
    # A ticket of twelve rows is of one day and one customer.
    tickets = np.repeat(np.arange(5_000), 12)
    sales = pl.DataFrame({"day": tickets % 97, "of": tickets * 31 % 2_000})
    days = pl.DataFrame({"d": np.arange(97)}).with_columns((pl.col("d") * 3).alias("date"))
    people = pl.DataFrame({"p": np.arange(2_000)}).with_columns((pl.col("p") * 7).alias("name"))
    left, one, other = Relation(sales, 0), Relation(days, 1), Relation(people, 2)
    facts = replace(left.facts(), samples={0: blocks_of(left, 16_384)})
    made = joined(facts, one.sampled(), "INNER", [equal("day", "d")], NOTHING)
    made = joined(made, other.sampled(), "INNER", [equal("of", "p")], NOTHING)
    for names, true in ((["date", "name"], 5_000), (["day", "name"], 5_000), (["date"], 97)):
        count, _ = tuples(made, names, NOTHING, rows=made.rows)
        # The product of 97 days and 2,000 people is more than the rows.
        assert q_error(count, true) <= 1.35, names


@settings(max_examples=examples(200))
@given(tables(max_rows=8), FILTERS)
def test_sampled_rows_that_pass_a_filter_on_one_column(rows: pa.Table, filter: Filter) -> None:
    names = columns_of(filter)
    assume(len(names) == 1)
    [name] = names
    sample = SampledRows(lambda names: rows.select(list(names)), rows.num_rows, 100.0)
    mask = sample.matching(name, [filter])
    assert mask is not None
    assert mask.tolist() == [holds(filter, row) is True for row in rows.to_pylist()]


@pytest.mark.parametrize("value", [7, 1.5, float("nan"), "text", Decimal("1.00")])
def test_sampled_rows_with_one_of_some_values_are_not_without_them(value: object) -> None:
    rows = pa.table({"a": [value, None]})
    sample = SampledRows(lambda names: rows.select(list(names)), 2, 100.0)
    is_among = In("a", (value,))  # type: ignore[arg-type]
    for filter, expected in ((is_among, True), (Not(is_among), False)):
        mask = sample.matching("a", [filter])
        assert mask is not None
        assert mask.tolist() == [expected, False]


@pytest.mark.parametrize(("digits", "scale"), [(18, 2), (7, 7), (18, 0), (38, 2)])
def test_decimals_have_the_form_of_bounds(digits: int, scale: int) -> None:
    chosen = np.random.default_rng(8)
    tops = [10**digits - 1, 1 - 10**digits, 0, None, *chosen.integers(-(10**7) + 1, 10**7, 30)]
    context = Context(prec=60)
    values = [None if t is None else Decimal(int(t)).scaleb(-scale, context) for t in tops]
    arrow = pa.decimal128(digits, scale)
    chunks = [pa.array(values[:9], arrow).slice(1), pa.array([], arrow), pa.array(values, arrow)]
    column, type = pa.chunked_array(chunks), column_type(arrow)
    assert type is not None
    expected = [None if v is None else literal_bound(v, type) for v in column.to_pylist()]
    assert bound_values(column, type) == expected


def test_sampled_rows_of_a_dictionary_that_pass_a_filter() -> None:
    texts = pa.array(["a", None, "b", "c", "a"]).dictionary_encode()
    numbers = pa.DictionaryArray.from_arrays([1, 0, None, 1, 2], pa.array([7, 9, None]))
    rows = pa.table({"s": texts, "n": pa.chunked_array([numbers.slice(0, 2), numbers.slice(2)])})
    sample = SampledRows(lambda names: rows.select(list(names)), rows.num_rows, 100.0)
    for name, literal in (("s", "b"), ("n", 9)):
        filter = Comparison(name, Operator.LESS, literal)
        mask = sample.matching(name, [filter])
        assert mask is not None
        values = rows.column(name).to_pylist()
        assert mask.tolist() == [value is not None and value < literal for value in values]


def test_what_one_plan_makes_of_a_sample_others_find() -> None:
    read: list[tuple[str, ...]] = []
    rows = pa.table({"a": np.arange(4_096) % 50, "b": np.arange(4_096) % 7})

    def columns(names: Collection[str]) -> pa.Table:
        read.append(tuple(names))
        return rows.select(list(names))

    sample = TableSample(4_096, columns)

    def of_a_plan(total: float) -> SampledRows:
        made = SampledRows(sample.columns, 4_096, total, memo=sample.memo)
        return made.where(np.arange(4_096) % 3 == 0, total / 3)

    first, second, larger = map(of_a_plan, (1e5, 1e5, 1e7))
    assert first.passing is second.passing
    assert first.frequencies("a") is second.frequencies("a")
    assert first.distinct(["b"]) == second.distinct(["b"]) == 7
    assert read == [("a",), ("b",)]
    # Of few of the rows others are missed, and more of them in a larger table.
    few = [made.where(np.arange(4_096) < 600, made.rows / 7) for made in (first, larger)]
    assert (few[0].distinct(["a"]) or 0) <= (few[1].distinct(["a"]) or 0)


def test_a_memo_forgets_before_it_takes_too_much() -> None:
    memo, made = Memo(most_bytes=100_000), []

    def once(number: int) -> Any:
        def make() -> Any:
            made.append(weakref.ref(array := np.zeros(1_000)))
            return array

        return memo.once(("array", str(number)), None, make)

    assert once(0) is once(0)
    for number in range(100):
        once(number)
        assert sum(ref() is not None for ref in made) <= 100_000 // 8_000
    assert len(made) == 100


def test_pairs_with_a_sample_do_not_keep_it() -> None:
    rows = pa.table({"a": np.arange(100), "b": np.arange(100)})
    one = SampledRows(lambda names: rows.select(list(names)), 100, 1e5)
    other = replace(one, memo=Memo())
    assert one.pairs(["a", "b"], other, ["a", "b"]) == 100
    kept = weakref.ref(other.memo)
    del other
    gc.collect()
    assert kept() is None
