"""Rows of joins, compared with those that polars joins."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from lancestat.query.plans.facts import Facts
from lancestat.query.plans.joins import joined
from lancestat.query.plans.operators import Condition
from tests.query.plans.relations import (
    NOTHING,
    Contained,
    Joint,
    Relation,
    blocks_of,
    equal,
    frame,
    q_error,
    true_rows,
    where,
)

RANDOM = np.random.default_rng(7)
CUSTOMERS = Relation(pl.DataFrame({"c": np.arange(2_000), "nation": np.arange(2_000) % 25}), 0)
ORDERS = Relation(frame(RANDOM, 30_000, o=10**9, oc=2_000), 1)
# Each order of an item is in one row: the two columns together are a key, and neither is alone.
SALES = Relation(
    frame(RANDOM, 40_000, ticket=8_000, item=300).unique(["ticket", "item"], maintain_order=True), 2
)
RETURNS = Relation(
    SALES.rows.sample(4_000, seed=3).rename({"ticket": "r_ticket", "item": "r_item"}), 3
)

TYPES = {
    "INNER": "inner",
    "LEFT OUTER": "left",
    "FULL OUTER": "full",
    "LEFT SEMI": "semi",
    "LEFT ANTI": "anti",
}


@pytest.mark.parametrize("type", TYPES)
def test_a_join_by_a_foreign_key(type: str) -> None:
    made = joined(ORDERS.facts(), CUSTOMERS.facts(), type, [equal("oc", "c")], NOTHING)
    true = true_rows(ORDERS.rows, CUSTOMERS.rows, {"oc": "c"}, TYPES[type])
    # Of rows without a partner there may be some, whatever is known.
    limit = 1.05 if type != "LEFT ANTI" else 0.02 * len(ORDERS.rows)
    assert q_error(made.rows, true) <= limit
    assert made.rows <= made.at_most


@pytest.mark.parametrize("type", TYPES)
def test_a_join_in_which_half_of_the_keys_have_partners(type: str) -> None:
    some = Relation(CUSTOMERS.rows.filter(pl.col("c") % 2 == 0), 0)
    # As a filter on another column leaves it: the domain is still that of all customers.
    facts = CUSTOMERS.facts().with_rows(1_000, 1_000, "filter")
    made = joined(ORDERS.facts(), facts, type, [equal("oc", "c")], NOTHING)
    true = true_rows(ORDERS.rows, some.rows, {"oc": "c"}, TYPES[type])
    assert q_error(made.rows, true) <= 1.1


def test_two_keys_of_one_table_have_their_joint_count() -> None:
    conditions = [equal("ticket", "r_ticket"), equal("item", "r_item")]
    joint = Joint(SALES, RETURNS)
    true = true_rows(SALES.rows, RETURNS.rows, {"ticket": "r_ticket", "item": "r_item"}, "inner")
    made = joined(SALES.facts(), RETURNS.facts(), "INNER", conditions, joint)
    assert true == 4_000
    assert q_error(made.rows, true) <= 1.01
    assert made.evidence == "joint count of 2 columns"
    assert frozenset(("ticket", "item")) in joint.asked


def test_two_keys_without_a_joint_count_are_at_most_the_rows_of_the_table() -> None:
    conditions = [equal("ticket", "r_ticket"), equal("item", "r_item")]
    made = joined(SALES.facts(), RETURNS.facts(), "INNER", conditions, NOTHING)
    # Spark takes the most selective key alone, which gives 60 times as many.
    assert q_error(made.rows, 4_000) <= 1.01


def test_two_keys_without_a_joint_count_are_counted_in_a_sample() -> None:
    # Of each part there are ten sizes, in which the part's number says the first digits.
    parts = pl.DataFrame({"part": np.arange(5_000) % 500, "size": np.arange(5_000) % 500 * 10})
    sizes = parts.with_columns(pl.col("size") + pl.Series(np.arange(5_000) // 500))
    stock = sizes[RANDOM.integers(0, 5_000, 20_000)].rename({"part": "p", "size": "s"})
    left, right = Relation(sizes, 0).sampled(), Relation(stock, 1).sampled(4_000)
    made = joined(left, right, "INNER", [equal("part", "p"), equal("size", "s")], NOTHING)
    assert q_error(made.rows, 20_000) <= 1.2


@pytest.mark.parametrize("type", ["INNER", "LEFT SEMI"])
def test_days_are_no_more_than_those_of_the_year_that_is_left(type: str) -> None:
    def visits(scan: int, *names: str) -> tuple[pl.DataFrame, Facts]:
        rows = frame(RANDOM, 20_000, customer=2_000, day=365).unique(maintain_order=True)
        rows = rows.rename(dict(zip(rows.columns, names, strict=True)))
        facts = Relation(rows, scan).facts()
        customer, day = (facts.of(name) for name in names)
        # The day is of a calendar of a century, of which a condition has left a year.
        of_century = replace(day, origin=(scan + 1, "d"), distinct=36_525.0, rows_per_value=1.0)
        return rows, replace(facts, columns={names[0]: customer, names[1]: of_century})

    (left, one), (right, other) = visits(0, "c", "d"), visits(2, "e", "f")
    conditions = [equal("c", "e"), equal("d", "f")]
    made = joined(one, other, type, conditions, NOTHING)
    true = true_rows(left, right, {"c": "e", "d": "f"}, TYPES[type])
    assert q_error(made.rows, true) <= 1.2


def test_null_keys_have_no_partners() -> None:
    rows = ORDERS.rows.with_columns(
        pl.when(pl.col("o") % 3 == 0).then(None).otherwise(pl.col("oc")).alias("oc")
    )
    facts = Relation(rows, 1).facts()
    for type, how in TYPES.items():
        made = joined(facts, CUSTOMERS.facts(), type, [equal("oc", "c")], NOTHING)
        assert q_error(made.rows, true_rows(rows, CUSTOMERS.rows, {"oc": "c"}, how)) <= 1.05


@pytest.mark.parametrize("type", ["LEFT SEMI", "LEFT ANTI"])
@pytest.mark.parametrize("is_grouped", [False, True])
def test_rows_with_null_keys_have_those_as_partners_where_null_equals_null(
    type: str, is_grouped: bool
) -> None:
    """As in `INTERSECT` and `EXCEPT` over names of customers, which differ or are not known."""

    def visits(scan: int) -> tuple[pl.DataFrame, Facts]:
        rows = frame(np.random.default_rng(scan), 20_000, first=10**6, last=10**6, day=365)
        names = [
            pl.when(pl.col("first") % 20 > 0).then(pl.col(name) + 10**7 * scan).alias(name)
            for name in ("first", "last")
        ]
        rows = rows.with_columns(names)
        rows = rows.unique(maintain_order=True) if is_grouped else rows
        rows = rows.rename({name: f"{name}{scan}" for name in rows.columns})
        facts = Relation(rows, scan).facts()
        return rows, replace(
            facts, unique=frozenset({frozenset(rows.columns)} if is_grouped else ())
        )

    (rows, left), (others, right) = visits(0), visits(1)
    keys = {f"{name}0": f"{name}1" for name in ("first", "last", "day")}
    conditions = [replace(equal(a, b), compares="<=>") for a, b in keys.items()]
    made = joined(left, right, type, conditions, NOTHING)
    true = rows.join(
        others, left_on=list(keys), right_on=list(keys.values()), how=TYPES[type], nulls_equal=True
    )
    assert q_error(made.rows, len(true)) <= 1.1
    # Another one finds them, too.
    again = joined(made, right, type, conditions, NOTHING)
    assert q_error(again.rows, len(true)) <= 1.1


def test_rows_whose_partner_is_unique_find_one_at_most() -> None:
    made = joined(ORDERS.facts(), CUSTOMERS.facts(), "INNER", [equal("oc", "c")], NOTHING)
    assert made.at_most == len(ORDERS.rows)
    other = joined(CUSTOMERS.facts(), ORDERS.facts(), "INNER", [equal("c", "oc")], NOTHING)
    assert other.at_most == len(ORDERS.rows)
    assert (made.rows, made.columns["c"]) == (other.rows, other.columns["c"])


def test_a_self_join_with_an_inequality() -> None:
    left = Relation(frame(RANDOM, 20_000, a=5_000, w=5), 0)
    right = Relation(left.rows.rename({"a": "b", "w": "v"}), 1)
    differ = Condition(("w", "v"), compares="not =", left="w", right="v")
    for type in ("INNER", "LEFT SEMI"):
        made = joined(left.facts(), right.facts(), type, [equal("a", "b"), differ], NOTHING)
        pairs = (
            left.rows.with_row_index()
            .join(right.rows, left_on="a", right_on="b")
            .filter(pl.col("w") != pl.col("v"))
        )
        true = len(pairs) if type == "INNER" else pairs["index"].n_unique()
        assert q_error(made.rows, true) <= 1.35


def test_columns_after_a_join_are_those_that_both_sides_may_have() -> None:
    few = Relation(CUSTOMERS.rows.filter(pl.col("c") < 100), 0)
    made = joined(ORDERS.facts(), few.facts(), "INNER", [equal("oc", "c")], NOTHING)
    assert made.columns["oc"].distinct == made.columns["c"].distinct == 100
    semi = joined(ORDERS.facts(), few.facts(), "LEFT SEMI", [equal("oc", "c")], NOTHING)
    assert set(semi.columns) == {"o", "oc"}


@pytest.mark.parametrize("type", ["LEFT OUTER", "FULL OUTER"])
def test_rows_without_a_partner_have_nulls_for_it(type: str) -> None:
    made = joined(
        SALES.facts(),
        RETURNS.facts(),
        type,
        [equal("ticket", "r_ticket"), equal("item", "r_item")],
        Joint(SALES, RETURNS),
    )
    # A tenth of the sales has a return.
    assert made.columns["r_item"].nulls == pytest.approx(0.9, abs=0.01)
    assert made.columns["item"].nulls == pytest.approx(0, abs=0.01)
    assert made.columns["item"].distinct == SALES.facts().of("item").distinct


def test_a_condition_with_a_value_that_is_not_known_yet() -> None:
    value = Condition(("oc",), compares="=", left="oc")
    assert not value.is_equality
    made = joined(ORDERS.facts(), CUSTOMERS.facts(), "INNER", [equal("oc", "c"), value], NOTHING)
    assert q_error(made.rows, len(ORDERS.rows) / 2_000) <= 1.1


def test_a_semi_join_whose_condition_never_holds() -> None:
    left = Relation(frame(RANDOM, 1_000, a=50).with_columns(w=pl.lit(1)), 0)
    right = Relation(left.rows.rename({"a": "b", "w": "v"}), 1)
    differ = Condition(("w", "v"), compares="not =", left="w", right="v")
    for type in ("LEFT SEMI", "LEFT ANTI"):
        made = joined(left.facts(), right.facts(), type, [equal("a", "b"), differ], NOTHING)
        assert q_error(made.rows, 0 if type == "LEFT SEMI" else 1_000) <= 1.01


def test_keys_to_which_a_constant_is_added() -> None:
    shifted = Condition(("oc", "c"), compares="=", left="oc", right="c", is_shifted=True)
    assert not shifted.is_equality
    made = joined(ORDERS.facts(), CUSTOMERS.facts(), "INNER", [shifted], NOTHING)
    rows = CUSTOMERS.rows.with_columns(pl.col("c") + 5)
    assert q_error(made.rows, true_rows(ORDERS.rows, rows, {"oc": "c"}, "inner")) <= 1.1


@pytest.mark.parametrize("is_proven", [True, False])
@pytest.mark.parametrize("is_filtered", [True, False])
def test_rows_of_a_proven_reference_have_partners(is_proven: bool, is_filtered: bool) -> None:
    people = Relation(pl.DataFrame({"id": np.arange(1_000)}), 0)
    keys = np.random.default_rng(4).integers(0, 1_000, 20_000)
    letters = Relation(
        pl.DataFrame({"to": keys}).with_columns(
            pl.when(pl.int_range(pl.len()) % 100 > 0).then(pl.col("to"))
        ),
        1,
    )
    kept = Contained((((1, "to"), (0, "id")),)) if is_proven else NOTHING
    right = people.sampled()
    if is_filtered:
        right = where(right, people, pl.col("id") % 2 == 0)
    rest = joined(letters.sampled(4_096), right, "LEFT ANTI", [equal("to", "id")], kept)
    if is_filtered:
        assert q_error(rest.rows, len(letters.rows) / 2) <= 1.1
    elif is_proven:
        # Those of nobody.
        assert rest.rows == pytest.approx(200)
    else:
        assert rest.rows > 200
    outer = joined(letters.sampled(4_096), right, "LEFT OUTER", [equal("to", "id")], kept)
    assert outer.rows == pytest.approx(len(letters.rows), rel=0.01)


def test_rows_that_a_semi_join_leaves_have_fewer_pairs_of_keys() -> None:
    # Both sides have the items of one kind: of their pairs, not of all, one is looked for.
    items = Relation(pl.DataFrame({"i": np.arange(300)}).with_columns(kind=pl.col("i") % 20), 4)
    kind = where(items.sampled(), items, pl.col("kind") == 3)
    kept = Joint(SALES, RETURNS, items)
    left = joined(RETURNS.sampled(2_048), kind, "LEFT SEMI", [equal("r_item", "i")], kept)
    right = joined(SALES.sampled(8_192), kind, "LEFT SEMI", [equal("item", "i")], kept)
    pairs = [equal("r_item", "item"), equal("r_ticket", "ticket")]
    made = joined(left, right, "INNER", pairs, kept)
    true = len(RETURNS.rows.filter(pl.col("r_item") % 20 == 3))
    assert q_error(made.rows, true) <= 1.5


def test_groups_that_are_joined_by_keys_of_which_nothing_is_known_together() -> None:
    # Brands of classes of categories in two years: groups that are not known to be of one table.
    brands = pl.DataFrame({"a": np.arange(600)}).with_columns(
        b=pl.col("a") // 5 % 40, c=pl.col("a") // 100
    )
    sides = []
    for scan, rows in enumerate(
        (brands[:400], brands[200:].rename({"a": "d", "b": "e", "c": "f"}))
    ):
        facts = Relation(rows, scan).facts()
        columns = {id: replace(column, origin=None) for id, column in facts.columns.items()}
        sides.append(replace(facts, columns=columns, unique=frozenset([frozenset(columns)])))
    conditions = [equal("a", "d"), equal("b", "e"), equal("c", "f")]
    made = joined(*sides, "INNER", conditions, NOTHING)
    assert q_error(made.rows, 200) <= 2
    # Those that conditions on groups leave meet by chance alone.
    few = [side.with_rows(20, 20, "sizes of groups") for side in sides]
    assert joined(*few, "INNER", conditions, NOTHING).rows <= 5


def with_blocks(relation: Relation, size: int) -> Facts:
    return replace(relation.facts(), samples={relation.scan: blocks_of(relation, size)})


@pytest.mark.parametrize("type", ["INNER", "LEFT SEMI", "LEFT OUTER"])
def test_tables_that_refer_to_the_same_others_have_few_pairs_in_common(type: str) -> None:
    random = np.random.default_rng(11)
    bought = Relation(frame(random, 60_000, a=3_000, b=400), 0)
    returned = Relation(frame(random, 40_000, c=3_000, d=400), 1)
    conditions = [equal("a", "c"), equal("b", "d")]
    true = true_rows(bought.rows, returned.rows, {"a": "c", "b": "d"}, TYPES[type])
    without, sampled = (
        joined(side(bought), side(returned), type, conditions, NOTHING)
        for side in (Relation.facts, lambda relation: with_blocks(relation, 16_384))
    )
    assert q_error(sampled.rows, true) <= 1.3
    assert type == "LEFT OUTER" or without.rows > 10 * true
    assert sampled.evidence.endswith("samples of both tables")
    # It is no proof: nothing is broadcast on the strength of it.
    assert type != "INNER" or sampled.at_most > 10 * true


def test_samples_without_a_pair_tell_how_few_there_are() -> None:
    random = np.random.default_rng(17)
    bought = Relation(frame(random, 300_000, a=20_000, b=5_000), 0)
    returned = Relation(frame(random, 60_000, c=20_000, d=5_000), 1)
    true = true_rows(bought.rows, returned.rows, {"a": "c", "b": "d"}, "inner")
    left, right = with_blocks(bought, 8_192), with_blocks(returned, 8_192)
    assert left.samples[0].pairs(["a", "b"], right.samples[1], ["c", "d"]) == 0
    made = joined(left, right, "INNER", [equal("a", "c"), equal("b", "d")], NOTHING)
    assert true / 2 <= made.rows <= 3 * true


def test_samples_of_sorted_tables_may_miss_the_pairs_there_are() -> None:
    numbers = np.arange(400_000)
    # Nearly each block of one table is between two of the other.
    some = numbers[3_400::8]
    one = Relation(pl.DataFrame({"a": numbers // 4, "b": numbers % 4}), 0)
    other = Relation(pl.DataFrame({"c": some // 4, "d": some % 4}), 1)
    left, right = with_blocks(one, 7_296), with_blocks(other, 7_296)
    assert left.samples[0].pairs(["a", "b"], right.samples[1], ["c", "d"]) == 10
    made = joined(left, right, "INNER", [equal("a", "c"), equal("b", "d")], NOTHING)
    assert len(some) / 10 <= made.rows <= len(some)


@pytest.mark.parametrize("is_sorted", [True, False])
def test_pairs_of_a_reference_are_found_in_samples_of_both_tables(is_sorted: bool) -> None:
    sides = [
        Relation(
            relation.rows.sort(relation.rows.columns)
            if is_sorted
            else relation.rows.sample(fraction=1, shuffle=True, seed=2),
            relation.scan,
        )
        for relation in (SALES, RETURNS)
    ]
    facts = with_blocks(sides[0], 16_384), with_blocks(sides[1], 2_048)
    conditions = [equal("ticket", "r_ticket"), equal("item", "r_item")]
    made = joined(*facts, "INNER", conditions, NOTHING)
    assert q_error(made.rows, len(RETURNS.rows)) <= 1.5


def test_samples_of_other_types_have_no_pairs_that_are_known() -> None:
    numbers = Relation(pl.DataFrame({"n": [1, 2], "m": [1, 2]}), 0).sampled().samples[0]
    texts = Relation(pl.DataFrame({"s": ["1", None], "t": ["1", "2"]}), 1).sampled().samples[1]
    assert numbers.pairs(["n", "m"], numbers, ["n", "m"]) == 2
    assert texts.pairs(["s", "t"], texts, ["s", "t"]) == 1
    assert numbers.pairs(["n", "m"], texts, ["s", "t"]) is None


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_conditions_leave_fewer_rows_of_a_reference_as_well(share: float) -> None:
    # Neither the key nor its joint count is declared; all rows of returns are sampled.
    sales = Relation(SALES.rows.with_columns(price=pl.int_range(pl.len()) * 7 % 1_000), 2)
    kept = pl.col("price") < 1_000 * share
    left = where(with_blocks(sales, 16_384), sales, kept)
    left = left.with_rows(len(sales.rows.filter(kept)), len(sales.rows), "filter")
    pairs = [equal("ticket", "r_ticket"), equal("item", "r_item")]
    made = joined(left, RETURNS.sampled(), "INNER", pairs, NOTHING)
    names = {"ticket": "r_ticket", "item": "r_item"}
    true = true_rows(sales.rows.filter(kept), RETURNS.rows, names, "inner")
    assert q_error(made.rows, true) <= 1.3


def power_law(random: np.random.Generator, size: int, values: int) -> np.ndarray:
    """Values of which the n-th most common is in a share of rows in proportion to 1 / n."""
    shares = 1 / np.arange(1, values + 1)
    return random.permutation(values)[random.choice(values, size, p=shares / shares.sum())]


VOTES = Relation(
    pl.DataFrame(
        {
            "post": power_law(np.random.default_rng(1), 300_000, 20_000),
            "day": np.random.default_rng(2).integers(0, 500, 300_000),
        }
    ),
    0,
)
LINKS = Relation(
    pl.DataFrame({"linked": power_law(np.random.default_rng(1), 2_000, 20_000)}),
    1,
)


@pytest.mark.parametrize("is_text", [False, True])
def test_common_keys_are_those_of_all_rows_where_conditions_leave_few(is_text: bool) -> None:
    key = pl.String if is_text else pl.Int64
    votes = Relation(VOTES.rows.with_columns(pl.col("post").cast(key)), 0)
    links = Relation(LINKS.rows.with_columns(pl.col("linked").cast(key)), 1)
    left = where(with_blocks(votes, 16_384), votes, pl.col("day") == 7)
    true = true_rows(votes.rows.filter(pl.col("day") == 7), links.rows, {"post": "linked"}, "inner")
    made = joined(left, links.sampled(), "INNER", [equal("post", "linked")], NOTHING)
    # As if each post had as many votes, it would be hundreds of times too few.
    assert q_error(made.rows, true) <= 2


@pytest.mark.parametrize("rank", [20, 60, 150])
def test_the_rows_of_one_key_are_as_many_as_it_has_in_the_sample(rank: int) -> None:
    counts = VOTES.rows["post"].value_counts(sort=True)
    one = Relation(pl.DataFrame({"linked": [counts["post"][rank]], "n": [1]}), 1)
    left = with_blocks(VOTES, 16_384)
    made = joined(left, one.sampled(), "INNER", [equal("post", "linked")], NOTHING)
    assert q_error(made.rows, counts["count"][rank]) <= 2


def test_common_keys_are_none_that_another_table_has_not() -> None:
    counts = VOTES.rows["post"].value_counts(sort=True)
    posts = Relation(pl.DataFrame({"id": counts["post"][2_000:2_400].sort()}), 2)
    some = joined(
        with_blocks(VOTES, 16_384), posts.sampled(), "INNER", [equal("post", "id")], NOTHING
    )
    rows = VOTES.rows.join(posts.rows, left_on="post", right_on="id")
    assert some.samples[0].is_thin
    true = true_rows(rows, LINKS.rows, {"post": "linked"}, "inner")
    made = joined(some, LINKS.sampled(), "INNER", [equal("post", "linked")], NOTHING)
    assert q_error(made.rows, true) <= 4


def test_rows_with_keys_that_a_condition_leaves_are_counted_once() -> None:
    counts = VOTES.rows["post"].value_counts(sort=True)
    posts = Relation(pl.DataFrame({"id": counts["post"], "kind": np.arange(len(counts)) % 600}), 1)
    # Fewer posts than there are common ones, and one of these.
    is_left = pl.col("kind") == 30
    right = where(posts.sampled(), posts, is_left)
    true = true_rows(VOTES.rows, posts.rows.filter(is_left), {"post": "id"}, "inner")
    made = joined(with_blocks(VOTES, 16_384), right, "INNER", [equal("post", "id")], NOTHING)
    assert q_error(made.rows, true) <= 1.5
