"""Columns with NaN, infinities and zeros of both signs: their statistics, against Spark's own."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lancestat
from lancestat.tables.manifest.wire import COLUMN_PREFIX
from tests.examples import sample
from tests.integration.catalyst import Catalyst
from tests.integration.odd_numbers import CONDITIONS
from tests.integration.planned import planned, with_cbo
from tests.runs.world import World

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ROWS = 400
FRAGMENT_ROWS = 90
NAN, INFINITY = math.nan, math.inf

Draw = Callable[[random.Random], float | None]


def number(draw: random.Random) -> float:
    return draw.choice([draw.uniform(-100, 100), float(draw.randint(-5, 5)), 0.0, -0.0])


def some(share: float, special: Sequence[float | None], otherwise: Draw = number) -> Draw:
    """Return what gives one of some special values now and then."""
    return lambda draw: draw.choice(special) if draw.random() < share else otherwise(draw)


SHAPES: dict[str, Draw] = {
    "numbers": number,
    "numbers_and_nulls": some(0.3, [None]),
    "a_few_nan": some(0.02, [NAN]),
    "half_nan": some(0.5, [NAN]),
    "nan_and_nulls": some(0.4, [NAN, None]),
    "all_nan": lambda draw: NAN,
    "nan_or_null": lambda draw: draw.choice([NAN, None]),
    "infinity": some(0.1, [INFINITY]),
    "both_infinities": some(0.1, [INFINITY, -INFINITY]),
    "all_infinite": lambda draw: INFINITY,
    "infinities_and_nan": some(0.2, [INFINITY, -INFINITY, NAN]),
    "zeros": lambda draw: draw.choice([0.0, -0.0]),
    "negative_zeros": lambda draw: -0.0,
    "zeros_and_nan": lambda draw: draw.choice([0.0, -0.0, NAN]),
    "nulls": lambda draw: None,
}
TYPES = {"float": pa.float32(), "double": pa.float64()}


def rows_of(seed: int, count: int = ROWS, shapes: dict[str, Draw] = SHAPES) -> pa.Table:
    draw = random.Random(seed)
    columns = {
        f"{shape}_{name}": pa.array([value(draw) for _ in range(count)], type)
        for shape, value in shapes.items()
        for name, type in TYPES.items()
    }
    return pa.table({"id": range(count), **columns})


COLUMNS = rows_of(0, 1).column_names[1:]


@dataclass
class Compared:
    """A published table, the entries of each of its columns, and Spark's own of the same rows."""

    path: Path
    session: SparkSession
    plain: DataFrame
    ours: dict[str, dict[str, str]]
    theirs: dict[str, dict[str, str]]

    def read(self) -> DataFrame:
        return lancestat.read_table(self.session, str(self.path))


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    session = with_cbo(spark)
    # Parquet's own statistics leave NaN out, so that its pages are skipped though they hold some.
    session.conf.set("spark.sql.parquet.filterPushdown", "false")
    return session


def compare(session: SparkSession, world: World) -> Compared:
    assert world.run().status == "success"
    rows = world.dataset.to_table()
    parquet = world.path.parent / f"rows{world.dataset.version}.parquet"
    pq.write_table(rows, parquet)
    computed = Catalyst(session).computed(f"select * from parquet.`{parquet}`")
    config = world.dataset.config()

    def named(entries: Any, prefix: str) -> dict[str, str]:
        return {k.removeprefix(prefix): v for k, v in entries.items() if k.startswith(prefix)}

    return Compared(
        world.path,
        session,
        session.read.parquet(str(parquet)),
        {name: named(config, f"{COLUMN_PREFIX}{name}.") for name in rows.column_names},
        {name: named(computed[name][2], f"{name}.") for name in rows.column_names},
    )


@pytest.fixture(scope="module")
def compared(session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Compared:
    path = tmp_path_factory.mktemp("nan") / "t.lance"
    lance.write_dataset(rows_of(5), path, max_rows_per_file=FRAGMENT_ROWS)
    return compare(session, World(path))


def assert_as_spark(ours: dict[str, str], theirs: dict[str, str]) -> None:
    """Check that entries are Spark's own, less those by which it cannot estimate."""
    for suffix in ("version", "nullCount", "avgLen", "maxLen"):
        assert ours[suffix] == theirs[suffix]
    known = [float(theirs[suffix]) for suffix in ("min", "max") if suffix in theirs]
    if known and all(map(math.isfinite, known)):
        # Spark's zero has either sign.
        assert [float(ours["min"]), float(ours["max"])] == known
        assert int(ours["distinctCount"]) == pytest.approx(int(theirs["distinctCount"]), rel=0.1)
    else:
        assert not {"min", "max"} & ours.keys()
        assert ours.get("distinctCount") == (None if known else "0")


@pytest.mark.parametrize("name", COLUMNS)
def test_entries_are_sparks_less_bounds_that_are_not_finite(compared: Compared, name: str) -> None:
    assert_as_spark(compared.ours[name], compared.theirs[name])


def test_spark_itself_takes_nan_for_the_largest_value(compared: Compared) -> None:
    assert compared.theirs["a_few_nan_double"]["max"] == "NaN"
    assert compared.theirs["all_nan_float"]["min"] == "NaN"


@pytest.mark.parametrize("name", COLUMNS)
def test_no_rows_are_estimated_only_where_there_are_none(compared: Compared, name: str) -> None:
    """And every condition can be planned, and is answered as over Parquet."""
    for condition in sample(CONDITIONS, 10):
        text = condition.format(c=name)
        matching = compared.read().where(text).select("id")
        expected = sorted(row.id for row in compared.plain.where(text).select("id").collect())
        estimated = planned(matching).rows
        assert estimated is not None
        assert estimated > 0 or not expected, text
        assert sorted(row.id for row in matching.collect()) == expected, text


def test_nan_above_the_largest_number_is_estimated(compared: Compared) -> None:
    above = compared.read().where("half_nan_double > 1e30")
    assert above.count() > ROWS / 3
    assert planned(above).rows == ROWS
    without = compared.read().where("numbers_double > 1e30")
    assert (planned(without).rows, without.count()) == (0, 0)


def test_bounds_go_and_come_as_fragments_with_nan_do(session: SparkSession, tmp_path: Path) -> None:
    few = {"mixed": SHAPES["numbers"], "steady": SHAPES["numbers_and_nulls"]}
    path = tmp_path / "t.lance"
    world = World(path)
    lance.write_dataset(rows_of(1, shapes=few), path, max_rows_per_file=FRAGMENT_ROWS)
    published = compare(session, world).ours["mixed_double"]
    assert "max" in published

    nan = {"mixed": SHAPES["a_few_nan"], "steady": SHAPES["numbers"]}
    lance.write_dataset(rows_of(2, 200, nan), path, mode="append")
    world.reads.clear()
    appended = compare(session, world)
    for name in ("mixed_double", "mixed_float", "steady_double", "steady_float"):
        assert_as_spark(appended.ours[name], appended.theirs[name])
    assert "max" not in appended.ours["mixed_double"]
    assert len(world.reads) == 1

    world.dataset.delete("isnan(mixed_double) or isnan(mixed_float)")
    deleted = compare(session, world)
    for name in ("mixed_double", "mixed_float"):
        assert_as_spark(deleted.ours[name], deleted.theirs[name])
    assert "max" in deleted.ours["mixed_double"]
