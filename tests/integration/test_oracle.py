"""Published statistics equal those that Spark computes over the same rows."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import lancestat
from lancestat.tables.wire import COLUMN_PREFIX
from tests.examples import sample
from tests.integration.catalyst import Catalyst
from tests.integration.odd_numbers import CONDITIONS
from tests.integration.planned import optional, planned, with_cbo
from tests.integration.scans import as_spark_reads
from tests.runs.world import World

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ROWS = 4_000
DAY_MICROS = 86_400_000_000
NAN, INFINITY = math.nan, math.inf
Entries = Mapping[str, str]


def pick(draw: random.Random, edges: Sequence[Any], other: Any) -> list[Any]:
    """Return every edge at least once, some nulls, and otherwise values of `other`."""
    made = [draw.choice([other(), draw.choice(edges)]) for _ in range(ROWS - len(edges))]
    values = [*edges, *(None if draw.random() < 0.1 else value for value in made)]
    draw.shuffle(values)
    return values


def integers(draw: random.Random, low: int, high: int) -> list[Any]:
    return pick(draw, [low, low + 1, 0, high - 1, high], lambda: draw.randint(low, high))


def decimals(draw: random.Random, precision: int, scale: int) -> list[Any]:
    def decimal(unscaled: int) -> Decimal:
        sign, digits, _ = Decimal(unscaled).as_tuple()
        return Decimal((sign, digits, -scale))

    most = 10**precision - 1
    edges = [decimal(number) for number in (-most, -1, 0, 1, most)]
    return pick(draw, edges, lambda: decimal(draw.randint(-most, most)))


def texts(draw: random.Random) -> list[Any]:
    edges = ["", " ", "ß", "日本語", "\U0001f600" * 70, "\x00", "a" * 300]
    return pick(draw, edges, lambda: "".join(draw.choices("aß日", k=draw.randint(0, 12))))


def blobs(draw: random.Random) -> list[Any]:
    return pick(draw, [b"", b"\x00", b"\xff" * 300], lambda: draw.randbytes(draw.randint(0, 12)))


def micros(draw: random.Random) -> list[Any]:
    edges = [-62_135_596_800_000_000, -1, 0, 1, 253_402_300_799_999_999]
    return pick(draw, edges, lambda: draw.randint(-90_000 * DAY_MICROS, 90_000 * DAY_MICROS))


def awkward_table() -> pa.Table:
    draw = random.Random(71)
    infinities = [math.inf, -math.inf, 0.0, 5e-324, 1.7976931348623157e308]
    days = pick(draw, [-719_162, -1, 0, 1, 2_932_896], lambda: draw.randint(-50_000, 50_000))
    some_text = texts(draw)
    columns: dict[str, pa.Array] = {
        "flag": pa.array(pick(draw, [True, False], lambda: True), pa.bool_()),
        "always": pa.array([True] * ROWS, pa.bool_()),
        "int8": pa.array(integers(draw, -(2**7), 2**7 - 1), pa.int8()),
        "int16": pa.array(integers(draw, -(2**15), 2**15 - 1), pa.int16()),
        "int32": pa.array(integers(draw, -(2**31), 2**31 - 1), pa.int32()),
        "int64": pa.array(integers(draw, -(2**63), 2**63 - 1), pa.int64()),
        "uint8": pa.array(integers(draw, 0, 2**8 - 1), pa.uint8()),
        "uint16": pa.array(integers(draw, 0, 2**16 - 1), pa.uint16()),
        "uint32": pa.array(integers(draw, 0, 2**32 - 1), pa.uint32()),
        "uint64": pa.array(integers(draw, 0, 2**63 - 1), pa.uint64()),
        "float16": pa.array(np.float16([draw.uniform(-6e4, 6e4) for _ in range(ROWS)])),
        "float32": pa.array(pick(draw, [0.0, math.inf, -math.inf], draw.random), pa.float32()),
        "float64": pa.array(pick(draw, infinities, lambda: draw.expovariate(1e-9)), pa.float64()),
        "shares": pa.array(pick(draw, [0.1, 0.5], draw.random), pa.float64()),
        "decimal9": pa.array(decimals(draw, 9, 2), pa.decimal128(9, 2)),
        "decimal18": pa.array(decimals(draw, 18, 0), pa.decimal128(18, 0)),
        "decimal38": pa.array(decimals(draw, 38, 37), pa.decimal128(38, 37)),
        "date32": pa.array(days, pa.int32()).cast(pa.date32()),
        "date64": pa.array(days, pa.int32()).cast(pa.date32()).cast(pa.date64()),
        "at_us": pa.array(micros(draw), pa.int64()).cast(pa.timestamp("us", "UTC")),
        "at_ms": pc.floor_temporal(
            pa.array(micros(draw), pa.int64()).cast(pa.timestamp("us", "UTC")), unit="millisecond"
        ).cast(pa.timestamp("ms", "Europe/Paris")),
        "text": pa.array(some_text, pa.string()),
        "large_text": pa.array(some_text, pa.large_string()),
        "words": pa.array([None if t is None else t[:1] for t in some_text]).dictionary_encode(),
        "blob": pa.array(blobs(draw), pa.binary()),
        "large_blob": pa.array(blobs(draw), pa.large_binary()),
        "fixed_blob": pa.array([draw.randbytes(7) for _ in range(ROWS)], pa.binary(7)),
        "no_number": pa.nulls(ROWS, pa.int64()),
        "no_text": pa.nulls(ROWS, pa.string()),
        "empty_text": pa.array([""] * ROWS, pa.string()),
        "Mixed Case/ß": pa.array(range(ROWS), pa.int32()),
    }
    return pa.table(columns)


AWKWARD = awkward_table()

# Columns with NaN, infinities and zeros of both signs.
NAN_ROWS, NAN_FRAGMENT_ROWS = 400, 90
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


def rows_of(seed: int, count: int = NAN_ROWS, shapes: dict[str, Draw] = SHAPES) -> pa.Table:
    draw = random.Random(seed)
    columns = {
        f"{shape}_{name}": pa.array([value(draw) for _ in range(count)], type)
        for shape, value in shapes.items()
        for name, type in TYPES.items()
    }
    return pa.table({"id": range(count), **columns})


NAN_COLUMNS = rows_of(0, 1).column_names[1:]


@dataclass(frozen=True)
class Compared:
    """A published table, and by column its entries, Spark's own, and the exact distinct count."""

    path: Path
    session: SparkSession
    plain: DataFrame
    ours: Mapping[str, Entries]
    theirs: Mapping[str, Entries]
    stats: Mapping[str, Any]
    distinct: Mapping[str, int]

    def read(self) -> DataFrame:
        return lancestat.read_table(self.session, str(self.path))


def compare(session: SparkSession, world: World) -> Compared:
    assert world.run().status == "success"
    rows = as_spark_reads(world.dataset.to_table())
    parquet = world.path.parent / f"rows{world.dataset.version}.parquet"
    pq.write_table(rows, parquet)
    plain = session.read.parquet(str(parquet))
    computed = Catalyst(session).computed(f"select * from parquet.`{parquet}`")
    return Compared(
        world.path,
        session,
        plain,
        published_entries(world.dataset),
        {name: named(entries, f"{name}.") for name, (_, _, entries) in computed.items()},
        {name: stat for name, (_, stat, _) in computed.items()},
        {name: exact_distinct(rows[name]) for name in rows.column_names},
    )


def named(entries: Entries, prefix: str) -> dict[str, str]:
    return {k.removeprefix(prefix): v for k, v in entries.items() if k.startswith(prefix)}


def published_entries(dataset: lance.LanceDataset) -> dict[str, Entries]:
    config = dataset.config()
    return {name: named(config, f"{COLUMN_PREFIX}{name}.") for name in dataset.schema.names}


def exact_distinct(column: pa.ChunkedArray) -> int:
    values = column.drop_null()
    if pa.types.is_floating(values.type):
        # Zeros of both signs are one value, and so is every NaN.
        return len(np.unique(values.to_numpy() + 0.0))
    return len(values.unique())


def assert_as_spark(compared: Compared, name: str, bound: Callable[[str], object] = str) -> None:
    """Check that entries are Spark's own, less those by which it cannot estimate."""
    ours, theirs = compared.ours[name], compared.theirs[name]
    for suffix in ("version", "nullCount", "avgLen", "maxLen"):
        assert ours[suffix] == theirs[suffix], suffix
    bounds = [theirs[suffix] for suffix in ("min", "max") if suffix in theirs]
    if any(text in ("NaN", "Infinity", "-Infinity") for text in bounds):
        assert ours.keys() == theirs.keys() - {"min", "max", "distinctCount"}
        return
    assert ours.keys() == theirs.keys() | ({"distinctCount"} if not bounds else set())
    for suffix in theirs.keys() & {"min", "max"}:
        assert bound(ours[suffix]) == bound(theirs[suffix]), suffix
    assert int(ours["distinctCount"]) == pytest.approx(compared.distinct[name], rel=0.05)


@pytest.fixture(scope="module")
def awkward(session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Compared:
    path = tmp_path_factory.mktemp("awkward") / "t.lance"
    lance.write_dataset(AWKWARD, path, max_rows_per_file=700).delete("int32 % 7 = 3")
    return compare(session, World(path))


@pytest.mark.parametrize("name", AWKWARD.column_names)
def test_a_column_of_awkward_values_equals_sparks(awkward: Compared, name: str) -> None:
    assert_as_spark(awkward, name)


def share_within(compared: Compared, error: float) -> float:
    """Return the share of columns whose distinct count has at most that error."""
    near = [
        int(entries["distinctCount"]) == pytest.approx(compared.distinct[name], rel=error)
        for name, entries in compared.ours.items()
        if "distinctCount" in entries
    ]
    return sum(near) / len(near)


def test_distinct_counts_are_mostly_within_three_percent(awkward: Compared) -> None:
    assert share_within(awkward, 0.03) >= 0.8


def test_the_optimizer_has_the_published_statistics(awkward: Compared) -> None:
    """But for columns whose bounds are not published, by which Spark would not estimate."""
    catalyst, frame = Catalyst(awkward.session), awkward.read()
    reported = planned(frame).columns
    assert AWKWARD.schema.names == frame.columns
    assert set(frame.columns) - reported.keys() == {"float32", "float64"}
    # Of columns of nulls alone less is reported: test_reported_statistics.
    for name in reported.keys() - {"no_number", "no_text"}:
        stat = reported[name]
        type = catalyst.types.fromDDL(frame.schema[name].dataType.simpleString())
        assert stat.equals(catalyst.decoded(name, qualified(name, awkward.ours[name]), type)), name
        for exact in ("min", "max", "nullCount", "avgLen", "maxLen"):
            assert getattr(stat, exact)().equals(getattr(awkward.stats[name], exact)()), name


def qualified(name: str, entries: Entries) -> dict[str, str]:
    return {f"{name}.{suffix}": text for suffix, text in entries.items()}


def test_the_size_is_that_of_the_projected_columns(awkward: Compared) -> None:
    frame, rows = awkward.read(), awkward.plain.count()
    known = [name for name in frame.columns if name not in ("float32", "float64")]
    some = [["int32", "text"], ["flag", "shares", "large_blob"], known]
    for columns in [*([name] for name in known), *some]:
        statistics = planned(frame.select(*(f"`{name}`" for name in columns)))
        widths = [optional(awkward.stats[name].avgLen()) for name in columns]
        assert list(statistics.columns) == columns
        assert (statistics.rows, statistics.size_bytes) == (rows, rows * (8 + sum(widths)))


def test_a_table_without_rows_equals_spark(session: SparkSession, tmp_path: Path) -> None:
    lance.write_dataset(AWKWARD.slice(0, 0), tmp_path / "t.lance")
    compared = compare(session, World(tmp_path / "t.lance"))
    for name in AWKWARD.column_names:
        assert_as_spark(compared, name)
    assert planned(compared.read()).rows == 0
    assert compared.read().where("int32 > 3 and text = 'a'").collect() == []


@pytest.fixture(scope="module")
def odd(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Compared:
    path = tmp_path_factory.mktemp("nan") / "t.lance"
    lance.write_dataset(rows_of(5), path, max_rows_per_file=NAN_FRAGMENT_ROWS)
    session = with_cbo(spark)
    # Parquet's own statistics leave NaN out, so that its pages are skipped though they hold some.
    session.conf.set("spark.sql.parquet.filterPushdown", "false")
    return compare(session, World(path))


@pytest.mark.parametrize("name", NAN_COLUMNS)
def test_entries_are_sparks_less_bounds_that_are_not_finite(odd: Compared, name: str) -> None:
    # Spark's zero has either sign.
    assert_as_spark(odd, name, float)


def test_spark_itself_takes_nan_for_the_largest_value(odd: Compared) -> None:
    assert odd.theirs["a_few_nan_double"]["max"] == "NaN"
    assert odd.theirs["all_nan_float"]["min"] == "NaN"


@pytest.mark.parametrize("name", sample(NAN_COLUMNS, 10))
def test_no_rows_are_estimated_only_where_there_are_none(odd: Compared, name: str) -> None:
    """`tests/filters` compares the rows that such conditions select."""
    texts = [condition.format(c=name) for condition in sample(CONDITIONS, 10)]
    [counts] = odd.plain.selectExpr(*(f"count_if({text})" for text in texts)).collect()
    for text, count in zip(texts, counts, strict=True):
        estimated = planned(odd.read().where(text).select("id")).rows
        assert estimated is not None
        assert estimated > 0 or not count, text


def test_nan_above_the_largest_number_is_estimated(odd: Compared) -> None:
    above = odd.read().where("half_nan_double > 1e30")
    assert above.count() > NAN_ROWS / 3
    assert planned(above).rows == NAN_ROWS
    without = odd.read().where("numbers_double > 1e30")
    assert (planned(without).rows, without.count()) == (0, 0)


def test_bounds_go_and_come_as_fragments_with_nan_do(session: SparkSession, tmp_path: Path) -> None:
    few = {"mixed": SHAPES["numbers"], "steady": SHAPES["numbers_and_nulls"]}
    path = tmp_path / "t.lance"
    world = World(path)
    lance.write_dataset(rows_of(1, shapes=few), path, max_rows_per_file=NAN_FRAGMENT_ROWS)
    published = compare(session, world).ours["mixed_double"]
    assert "max" in published

    nan = {"mixed": SHAPES["a_few_nan"], "steady": SHAPES["numbers"]}
    lance.write_dataset(rows_of(2, 200, nan), path, mode="append")
    world.reads.clear()
    appended = compare(session, world)
    for name in ("mixed_double", "mixed_float", "steady_double", "steady_float"):
        assert_as_spark(appended, name, float)
    assert "max" not in appended.ours["mixed_double"]
    assert len(world.reads) == 1

    world.dataset.delete("isnan(mixed_double) or isnan(mixed_float)")
    deleted = compare(session, world)
    for name in ("mixed_double", "mixed_float"):
        assert_as_spark(deleted, name, float)
    assert "max" in deleted.ours["mixed_double"]
