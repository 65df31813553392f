"""What the benchmark of estimates measures, against other ways to the same figures."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

pytestmark = pytest.mark.whole

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
A, B, C, D = ("\x02" + name + "\x03" for name in "1234")


@pytest.fixture(autouse=True)
def path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)


@pytest.fixture
def truths(tmp_path: Path) -> Iterator[Any]:
    """The rows of queries over four tables whose joins differ in size."""
    with duckdb.connect() as database:
        for name, size, step in (("a", 40, 1), ("b", 60, 2), ("c", 90, 3), ("d", 20, 5)):
            database.execute(
                f"create table {name} as select i % {step * 4} as k, i % {step + 2} as m"
                f" from range({size}) t(i)"
            )
        yield import_module("accuracy.truths").Truths(tmp_path / "truths.parquet", database)


CHAIN = {
    (A, B): f"({A}.k = {B}.k)",
    (B, C): f"({B}.m = {C}.m)",
    (C, D): f"({C}.k = {D}.k)",
}


def test_shares_of_operators_are_strictly_beyond_the_factor() -> None:
    measures = import_module("accuracy.measures")
    made = [
        measures.Compared("q", None, rows, true, 1.0)
        for rows, true in ((1, 2), (1, 3), (30, 3), (31, 3))
    ]
    assert [each.q_error for each in made] == [2, 3, 10, 31 / 3]
    assert (measures.under(made, 2), measures.over(made, 10)) == (0.25, 0.25)


@pytest.mark.parametrize("share", [0.5, 0.9, 0.95, 0.99, 1.0])
def test_percentiles_are_values_that_are_there(share: float) -> None:
    values = [float(7 * n % 101) for n in range(101)]
    measured = import_module("accuracy.measures").percentile(values, share)
    assert measured == pl.Series(values).quantile(share, interpolation="higher")


@pytest.mark.parametrize("steps", [(), (10,), (100, 1_000), (10_000, 100_000)])
def test_the_cheapest_order_is_that_of_an_exhaustive_search(
    truths: Any, steps: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    measures, plans = import_module("accuracy.measures"), import_module("accuracy.plans")
    sources = tuple(f"{name} {alias}" for name, alias in zip("abcd", (A, B, C, D), strict=True))
    block = plans.Block(sources, tuple(CHAIN.values()))
    tables = {
        alias: truths.database.execute(f"from {name}").pl().lazy()
        for name, alias in zip("abcd", (A, B, C, D), strict=True)
    }
    monkeypatch.setattr(measures, "_STEPS", (*steps, import_module("accuracy.truths").MOST))
    assert measures.cheapest(block, truths) == least_cost(frozenset(tables), tables)[0]


def least_cost(names: frozenset[str], tables: dict[str, pl.LazyFrame]) -> tuple[float, int]:
    """Try every tree of joins of some tables: the least sum of their rows, by Polars."""
    if len(names) == 1:
        return 0, 0
    inside = [pair for pair in CHAIN if set(pair) <= names]
    rows = joined(sorted(names), tables)
    costs = []
    for size in range(1, len(names)):
        for chosen in combinations(sorted(names), size):
            left, right = frozenset(chosen), names - set(chosen)
            if any(len(left & set(pair)) == 1 for pair in inside):
                costs.append(least_cost(left, tables)[0] + least_cost(right, tables)[0])
    connected = len(inside) == len(names) - 1
    return (min(costs, default=float("inf")) + rows if connected else float("inf")), rows


def joined(names: list[str], tables: dict[str, pl.LazyFrame]) -> int:
    """Count the rows of a chain of joins, from the first table to the last."""
    made = tables[names[0]].select(pl.all().name.suffix(names[0]))
    for before, after in pairwise(names):
        if (before, after) not in CHAIN:
            return 0
        key = "m" if (before, after) == (B, C) else "k"
        other = tables[after].select(pl.all().name.suffix(after))
        made = made.join(
            other.with_columns(pl.col(key + after).alias("on")),
            left_on=key + before,
            right_on="on",
        )
    return int(made.select(pl.len()).collect().item())


def test_truths_are_counted_once_and_kept(truths: Any, tmp_path: Path) -> None:
    query = "select 1 from a, b where a.k = b.k"
    expected = truths.database.execute(f"select count(*) from ({query})").fetchall()[0][0]
    with truths:
        assert [truths.rows(query), truths.rows(query), truths.counted] == [expected, expected, 1]
    again = type(truths)(tmp_path / "truths.parquet", truths.database)
    assert (again.rows(query), again.counted) == (expected, 0)
    # Counting up to a bound knows no more than that, and what is known is not counted again.
    assert [again.rows(query, 3), again.counted] == [4, 0]
    other = "select 1 from a, c where a.k = c.k"
    assert [again.rows(other, 3), again.rows(other) > 4, again.counted] == [4, True, 2]
    # Other rows have other truths.
    truths.database.execute("insert into a select * from a")
    other = type(truths)(tmp_path / "truths.parquet", truths.database)
    assert (other.rows(query), other.counted) == (2 * expected, 1)


def test_sql_that_is_refused_is_not_taken_for_a_truth(truths: Any) -> None:
    query = "select 1 from nowhere"
    assert truths.rows(query) > import_module("accuracy.truths").MOST
    assert "nowhere" in truths.refused[query]


def test_drawn_joins_have_the_rows_that_were_counted_for_them(tmp_path: Path) -> None:
    datasets, workloads = (import_module(f"accuracy.{name}") for name in ("datasets", "workloads"))
    dataset = datasets.prepare("forum", 0.002, tmp_path, share=0.05)
    joins = {name: query for name, query in dataset.queries.items() if name.startswith("join")}
    assert len(joins) == 8
    load = import_module("accuracy.truths").load
    with load(dataset.folder, list(dataset.columns)) as database:
        workload = workloads.Workload(dataset.columns, database, "seed")
        for size in (2, 3, 4):
            join = workload._join(size)
            *_, whole = join.connected()
            [(rows,)] = database.execute(join.query).fetchall()
            [(sums,)] = database.execute(f"select {join.rows(whole)}").fetchall()
            assert (sums or 0) == rows
        for query in joins.values():
            assert database.execute(query).fetchall()[0][0] > 0


def test_a_dataset_is_the_same_each_time(tmp_path: Path) -> None:
    datasets = import_module("accuracy.datasets")
    made = [
        datasets.prepare("skewh", 0.001, tmp_path / name, share=0.02) for name in ("first", "other")
    ]
    assert made[0].queries == made[1].queries
    for table in made[0].columns:
        one, other = (pl.read_parquet(each.folder / f"{table}.parquet") for each in made)
        assert one.equals(other), table
