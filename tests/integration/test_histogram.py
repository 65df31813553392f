"""Spark's estimates follow histograms: against the truth, Spark's own, and anything random."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lancestat.tables.statistics.column_statistics import column_statistics_of, equi_height
from lancestat.tables.statistics.column_type import ColumnType, column_type
from lancestat.tables.statistics.kernel import analyze
from tests.examples import examples, sample
from tests.integration.catalyst import Catalyst, PlannedTable, entries_of
from tests.integration.planned import planned, with_cbo
from tests.integration.spark_predicates import spark_predicate
from tests.lake import awkward
from tests.runs.world import write_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROWS = 20_000
FIRST_DAY = date(1970, 1, 1)


@dataclass(frozen=True)
class Skewed:
    """A column, its values as Spark compares them, and how SQL spells one."""

    array: pa.Array
    values: npt.NDArray[np.float64]
    literal: str

    def spelled(self, value: float) -> str:
        if self.array.type == pa.date32():
            return self.literal.format(FIRST_DAY + timedelta(days=int(value)))
        return self.literal.format(value if "D" in self.literal else int(value))

    @property
    def type(self) -> ColumnType:
        analyzable = column_type(self.array.type)
        assert analyzable is not None
        return analyzable


def skewed_columns() -> dict[str, Skewed]:
    draw = np.random.default_rng(23)
    zipf = draw.zipf(1.5, ROWS).clip(max=1_000_000)
    amounts = draw.exponential(200, ROWS)
    cents = (draw.lognormal(5, 1.5, ROWS)).astype(np.int64)
    days = (20_000 - draw.exponential(40, ROWS)).astype(np.int32)
    micros = 1_700_000_000_000_000 - (draw.pareto(1.5, ROWS) * 1e12).astype(np.int64).clip(
        0, 10**16
    )
    decimals = pa.array([Decimal(int(c)) / 100 for c in cents], pa.decimal128(18, 2))
    singles = draw.pareto(2, ROWS).astype(np.float32)
    return {
        "clicks": Skewed(pa.array(zipf), zipf.astype(float), "{}L"),
        "amount": Skewed(pa.array(amounts), amounts, "{!r}D"),
        "price": Skewed(decimals, cents.astype(float), "cast({} / 100bd as decimal(18,2))"),
        "day": Skewed(pa.array(days).cast(pa.date32()), days.astype(float), "date'{}'"),
        "at": Skewed(
            pa.array(micros).cast(pa.timestamp("us", "UTC")),
            micros.astype(float),
            "timestamp_micros({})",
        ),
        "single": Skewed(pa.array(singles), singles.astype(float), "cast({!r}D as float)"),
    }


COLUMNS = skewed_columns()


def ranges(values: npt.NDArray[np.float64], count: int) -> Iterator[tuple[float, float]]:
    """Pairs of values with at least a tenth of the rows between them, at random ranks."""
    draw = random.Random(29)
    ordered = np.sort(values)
    for _ in range(count):
        share = draw.uniform(0.1, 0.9)
        start = draw.uniform(0, 1 - share)
        low, high = (ordered[int(rank * (len(values) - 1))] for rank in (start, start + share))
        yield float(low), float(high)


@pytest.fixture(scope="module")
def skewed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with two views of the same rows, `with_bins` and `without`."""
    folder = tmp_path_factory.mktemp("skewed")
    with_bins = {"name": "with_bins", "uri": "a.lance", "histogram": True, "publish": "none"}
    project = write_project(folder, with_bins, {"name": "without", "uri": "b.lance"})
    rows = pa.table({name: column.array for name, column in COLUMNS.items()})
    for name in ("a", "b"):
        lance.write_dataset(rows, folder / f"{name}.lance", max_rows_per_file=3_000)
    pq.write_table(rows, folder / "rows.parquet")
    session = with_cbo(spark)
    # With estimates of whole plans, Spark has no use for histograms.
    session.conf.set("spark.lancestat.estimates.enabled", "false")
    assert project.run().status.value == "success"
    assert not project.attach(session).failed
    session.read.parquet(str(folder / "rows.parquet")).createOrReplaceTempView("rows")
    yield session
    for view in ("with_bins", "without"):
        spark.catalog.dropTempView(view)


def estimated(session: SparkSession, view: str, condition: str) -> int:
    rows = planned(session.sql(f"select * from {view} where {condition}")).rows
    assert rows is not None
    return rows


@pytest.mark.parametrize("name", COLUMNS)
def test_ranges_of_a_skewed_column_are_estimated_within_ten_percent(
    skewed: SparkSession, name: str
) -> None:
    column = COLUMNS[name]
    worst_without = 0.0
    for low, high in ranges(column.values, examples(25)):
        condition = f"`{name}` >= {column.spelled(low)} and `{name}` <= {column.spelled(high)}"
        truth = int(((column.values >= low) & (column.values <= high)).sum())
        estimate = estimated(skewed, "with_bins", condition)
        assert abs(estimate - truth) <= 0.1 * truth, condition
        without = estimated(skewed, "without", condition)
        worst_without = max(worst_without, abs(without - truth) / truth)
    assert worst_without > 0.4, "the column is not skewed"


def test_conditions_select_the_expected_rows(skewed: SparkSession) -> None:
    for name, column in COLUMNS.items():
        low, high = next(ranges(column.values, 1))
        condition = f"`{name}` >= {column.spelled(low)} and `{name}` <= {column.spelled(high)}"
        truth = int(((column.values >= low) & (column.values <= high)).sum())
        for view in ("with_bins", "rows"):
            [[count]] = skewed.sql(f"select count(*) from {view} where {condition}").collect()
            assert count == truth, condition


def test_a_frequent_value_is_estimated_within_ten_percent(skewed: SparkSession) -> None:
    values, counts = np.unique(COLUMNS["clicks"].values, return_counts=True)
    for value, count in zip(values[:2], counts[:2], strict=True):
        condition = f"clicks = {int(value)}L"
        assert count > 0.1 * ROWS
        assert abs(estimated(skewed, "with_bins", condition) - count) <= 0.1 * count
        assert estimated(skewed, "without", condition) < 0.1 * count


def test_the_ends_of_a_histogram_are_the_bounds_of_the_column(skewed: SparkSession) -> None:
    """Spark's `FilterEstimation` asserts it of every filter."""
    statistics = planned(skewed.table("with_bins")).columns
    for name, column in COLUMNS.items():
        histogram = statistics[name].histogram().get()
        bins = histogram.bins()
        text = str(statistics[name].min().get()), str(statistics[name].max().get())
        low, high = map(float, text)
        assert bins[0].lo() <= low < high <= bins[len(bins) - 1].hi()
        assert [bins[0].lo(), bins[len(bins) - 1].hi()] == pytest.approx([low, high], rel=1e-6)
        assert histogram.height() * len(bins) == pytest.approx(len(column.values))
    assert not planned(skewed.table("without")).columns["clicks"].histogram().isDefined()


def test_a_join_on_a_skewed_column_follows_the_bins(skewed: SparkSession) -> None:
    """Each frequent value meets itself: by far more rows than an even spread would give."""
    counts = np.unique(COLUMNS["clicks"].values, return_counts=True)[1].astype(float)
    truth = (counts**2).sum()
    sizes = {}
    for view in ("with_bins", "without"):
        query = f"select * from {view} a join {view} b on a.clicks = b.clicks"
        rows = planned(skewed.sql(query)).rows
        assert rows is not None
        sizes[view] = rows
    assert sizes["without"] < 0.1 * truth
    assert 0.5 * truth <= sizes["with_bins"] <= 2 * truth


# From here on the optimizer is given histograms through its own catalog.


@pytest.fixture(scope="module")
def catalyst(spark: SparkSession) -> Iterator[Catalyst]:
    settings = {"spark.sql.cbo.enabled": "true", "spark.sql.statistics.histogram.enabled": "true"}
    for key, value in settings.items():
        spark.conf.set(key, value)
    yield Catalyst(spark)
    for key in settings:
        spark.conf.unset(key)


@pytest.fixture
def tables(catalyst: Catalyst, tmp_path: Path) -> Iterator[list[PlannedTable]]:
    """A list of tables that are dropped after the test."""
    made: list[PlannedTable] = []
    yield made
    for table in made:
        catalyst.spark.sql(f"drop table {table.name}")


def entries_with_histogram(catalyst: Catalyst, array: pa.Array) -> dict[str, str]:
    """A column's entries with its histogram, where it has one."""
    table = pa.table({"c": array})
    partial = analyze(table.to_batches(max_chunksize=5000), table.schema, quantiles={"c"})["c"]
    type = column_type(array.type)
    assert type is not None
    entries = entries_of("c", type, column_statistics_of(partial, type))
    histogram = equi_height(partial, type)
    if histogram is not None:
        bins = [(bin.low, bin.high, bin.distinct) for bin in histogram.bins]
        entries["c.histogram"] = catalyst.histogram(histogram.height, bins)
    return entries


@pytest.mark.parametrize("name", sample(list(COLUMNS), 3))
def test_estimates_are_as_accurate_as_with_a_histogram_of_spark(
    catalyst: Catalyst, tables: list[PlannedTable], tmp_path: Path, name: str
) -> None:
    column = COLUMNS[name]
    table = PlannedTable(catalyst, column.type, tmp_path / "t", f"near_{name}")
    tables.append(table)
    pq.write_table(pa.table({"c": column.array}), tmp_path / "rows.parquet")
    _, _, theirs = catalyst.computed(f"select * from parquet.`{tmp_path / 'rows.parquet'}`")["c"]
    assert "c.histogram" in theirs
    errors = {}
    for whose, entries in {
        "ours": entries_with_histogram(catalyst, column.array),
        "theirs": theirs,
    }.items():
        table.set(entries, ROWS)
        errors[whose] = [
            abs(table.estimate(f"c >= {column.spelled(low)} and c <= {column.spelled(high)}") - n)
            for low, high in ranges(column.values, examples(20))
            for n in [int(((column.values >= low) & (column.values <= high)).sum())]
        ]
    # Two ends of a range, each off by the sketch's error at most, and by a bin.
    allowed = 2 * ROWS * (3 * 0.0035 + 1 / 254)
    assert max(errors["ours"]) <= max(errors["theirs"]) + allowed


@pytest.mark.parametrize("name", sample(["i8", "i64", "f32", "f64", "d18", "day", "at_us"], 3))
def test_filters_and_joins_plan_with_random_histograms(
    catalyst: Catalyst, tables: list[PlannedTable], tmp_path: Path, name: str
) -> None:
    draw = random.Random(name)
    column = replace(awkward.BY_NAME[name], name="c")
    of = column_type(column.type)
    assert of is not None
    left, right = (
        PlannedTable(catalyst, of, tmp_path / side, f"random_{side}_{name}")
        for side in ("left", "right")
    )
    tables += [left, right]
    # With other floats there is no histogram, and Spark itself fails to compare them with one.
    finite = [n for n in column.stored if not isinstance(n, float) or abs(n) < 1e300]
    compared = replace(column, stored=finite)
    with_histogram = 0
    rounds = examples(20)
    for _ in range(rounds):
        for table in (left, right):
            values = draw.choice([finite, finite, finite, column.stored])
            some = replace(column, stored=draw.sample(values, draw.randint(1, len(values))))
            size = draw.choice([0, 1, 3, 40, 600])
            rows, _ = awkward.table(draw.randrange(1_000), size, [some])
            entries = entries_with_histogram(catalyst, rows["c"])
            with_histogram += "c.histogram" in entries
            table.set(entries, size)
        for _ in range(4):
            filter = awkward.predicate(draw, [compared], depth=2)
            condition = spark_predicate(filter, {"c": of.spark_type})
            assert 0 <= left.estimate(condition) <= 600, condition
        join = f"select * from {left.name} l join {right.name} r on l.c = r.c"
        rows_joined = planned(catalyst.spark.sql(join)).rows
        assert rows_joined is not None
        assert 0 <= rows_joined <= 600 * 600
    assert with_histogram > rounds // 2
