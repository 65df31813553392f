"""Distinct counts among some rows, compared with those of samples."""

from __future__ import annotations

from statistics import fmean

import numpy as np
import polars as pl
import pytest

from lancestat.query.plans.facts import tuples
from tests.query.plans.relations import NOTHING, Joint, Relation, frame, q_error

RANDOM = np.random.default_rng(11)
ROWS = Relation(
    frame(RANDOM, 50_000, few=40, many=20_000, part=900).with_columns(
        (pl.col("part") // 9).alias("brand"), pl.int_range(pl.len()).alias("id")
    ),
    0,
)


@pytest.mark.parametrize("name", ROWS.rows.columns)
@pytest.mark.parametrize("rows", [10, 1_000, 20_000, 50_000])
def test_values_among_some_rows(name: str, rows: int) -> None:
    samples = [ROWS.rows[name].sample(rows, seed=seed).n_unique() for seed in range(20)]
    assert q_error(ROWS.facts().of(name).among(rows), fmean(samples)) <= 1.1


def test_tuples_of_columns_that_depend_on_each_other_need_their_joint_count() -> None:
    facts, names = ROWS.facts(), ["brand", "part"]
    assert tuples(facts, names, Joint(ROWS)) == (900.0, "joint count of 2 columns")
    count, evidence = tuples(facts, names, NOTHING)
    assert (count, evidence) == (50_000.0, "product of distinct counts")
    damped, evidence = tuples(facts, names, NOTHING, rows=50_000)
    assert 900 <= damped < 10_000
    assert evidence == "distinct counts, damped"


@pytest.mark.parametrize("rows", [200, 5_000])
def test_tuples_among_some_rows(rows: int) -> None:
    true = ROWS.rows.select("brand", "part").sample(rows, seed=2).n_unique()
    count, _ = tuples(ROWS.facts(), ["brand", "part"], Joint(ROWS), rows=rows)
    assert q_error(count, true) <= 1.08


def test_tuples_of_two_tables_are_independent() -> None:
    other = Relation(frame(RANDOM, 1_000, flag=3), 1)
    facts = ROWS.facts()
    both = type(facts)(1e6, 1e6, "", {**facts.columns, **other.facts().columns})
    assert tuples(both, ["few", "flag"], NOTHING)[0] == 120


@pytest.mark.parametrize("nulls", [0.0, 0.02, 0.5])
def test_groups_with_a_null_are_no_more_than_the_rows_with_one(nulls: float) -> None:
    random = np.random.default_rng(2)
    rows = frame(random, 60_000, shop=2, promo=60, buyer=7_000).with_columns(
        pl.when(pl.lit(random.random(60_000)) >= nulls).then(pl.col(name)).alias(name)
        for name in ("shop", "promo")
    )
    relation = Relation(rows, 0)
    made, how = tuples(relation.facts(), rows.columns, Joint(relation), rows=60_000)
    assert how == "joint count of 3 columns"
    # As if no tuple with a null were more frequent than others.
    assert q_error(made, rows.n_unique()) <= 1.3
