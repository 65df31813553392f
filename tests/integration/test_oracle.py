"""Statistics of a scan of Lance tables equal those that Spark computes over the same rows."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from collections.abc import Sequence
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

from lancestat.tables.statistics.bound_text import format_bound
from lancestat.tables.statistics.column_statistics import ColumnStatistics
from lancestat.tables.statistics.column_type import ColumnType, Kind
from tests.examples import sample
from tests.integration.catalyst import Catalyst, entries_of
from tests.integration.scans import as_spark_reads, statistics, whole_table
from tests.interpreted import interpreted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROWS = 4_000
DAY_MICROS = 86_400_000_000

EXACT_SUFFIXES = ("version", "min", "max", "nullCount", "avgLen", "maxLen")


@dataclass(frozen=True)
class Compared:
    """One column's entries, without its name, from both sides; `distinct` is exact."""

    ours: dict[str, str]
    theirs: dict[str, str]
    distinct: int
    rows: int


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


@pytest.fixture(scope="module")
def spark(spark: SparkSession) -> SparkSession:
    return interpreted(spark)


def compare(spark: SparkSession, uri: Path, scratch: Path) -> dict[str, Compared]:
    """Return the statistics of both sides over the rows that Lance reads."""
    rows = as_spark_reads(lance.dataset(uri).to_table())
    pq.write_table(rows, scratch / "rows.parquet")
    catalyst = Catalyst(spark)
    computed = catalyst.computed(f"select * from parquet.`{scratch / 'rows.parquet'}`")
    ours = statistics(whole_table(str(uri)))
    assert ours.keys() == computed.keys()
    compared = {}
    for name, (type, column_statistics) in ours.items():
        spark_type, _, theirs = computed[name]
        entries = entries_of(name, type, column_statistics)
        assert catalyst.decoded(name, entries, spark_type) is not None
        compared[name] = Compared(
            {**_unpublished(type, column_statistics), **_without_name(name, entries)},
            _without_name(name, theirs),
            len(rows[name].drop_null().unique()),
            rows.num_rows,
        )
    return compared


def _unpublished(type: ColumnType, column_statistics: ColumnStatistics) -> dict[str, str]:
    # Bounds that are infinite, or too far apart, make Spark's planning fail. They are held back,
    # and with them the distinct count.
    if (
        type.kind is not Kind.FLOAT
        or column_statistics.minimum is None
        or column_statistics.maximum is None
    ):
        return {}
    texts = (
        format_bound(column_statistics.minimum, type),
        format_bound(column_statistics.maximum, type),
    )
    return {
        "min": str(texts[0]),
        "max": str(texts[1]),
        "distinctCount": str(column_statistics.distinct),
    }


def _without_name(name: str, entries: dict[str, str]) -> dict[str, str]:
    return {key.removeprefix(f"{name}."): text for key, text in entries.items()}


def assert_equal(column: Compared) -> None:
    assert column.ours.keys() == column.theirs.keys()
    for suffix in EXACT_SUFFIXES:
        assert column.ours.get(suffix) == column.theirs.get(suffix), suffix
    distinct = int(column.ours["distinctCount"])
    assert abs(distinct - column.distinct) <= 0.05 * column.distinct
    assert distinct <= column.rows - int(column.ours["nullCount"])


def share_within(columns: Sequence[Compared], error: float) -> float:
    """Return the share of columns whose distinct count has at most that error."""
    near = [
        abs(int(column.ours["distinctCount"]) - column.distinct) <= error * column.distinct
        for column in columns
    ]
    return sum(near) / len(near)


@pytest.fixture(scope="module")
def awkward(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Compared]:
    folder = tmp_path_factory.mktemp("awkward")
    dataset = lance.write_dataset(AWKWARD, folder / "t.lance", max_rows_per_file=700)
    dataset.delete("int32 % 7 = 3")
    return compare(spark, folder / "t.lance", folder)


@pytest.mark.parametrize("name", AWKWARD.column_names)
def test_a_column_of_awkward_values_equals_sparks(awkward: dict[str, Compared], name: str) -> None:
    assert_equal(awkward[name])


def test_distinct_counts_are_mostly_within_three_percent(awkward: dict[str, Compared]) -> None:
    assert share_within(list(awkward.values()), 0.03) >= 0.8


def test_a_table_without_rows_equals_spark(spark: SparkSession, tmp_path: Path) -> None:
    lance.write_dataset(AWKWARD.slice(0, 0), tmp_path / "t.lance")
    for column in compare(spark, tmp_path / "t.lance", tmp_path).values():
        assert_equal(column)
        assert int(column.ours["distinctCount"]) == 0


def test_strings_and_binary_have_bounds(spark: SparkSession, tmp_path: Path) -> None:
    lance.write_dataset(pa.table({"s": ["b", "", "a"], "b": [b"\xff", b"z", None]}), tmp_path)
    by_column = statistics(whole_table(str(tmp_path)))
    assert {name: (column.minimum, column.maximum) for name, (_, column) in by_column.items()} == {
        "s": (b"", b"b"),
        "b": (b"z", b"\xff"),
    }
    assert {type.kind for type, _ in by_column.values()} == {Kind.STRING, Kind.BINARY}


TABLES = ("lineitem", "customer", "orders", "nation", "part", "partsupp", "region", "supplier")


@pytest.fixture(scope="module")
def tpch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tpch")
    generator = Path(sys.executable).parent / "tpchgen-cli"
    subprocess.run(
        [generator, "parquet", "-s", "0.01", "--output-dir", folder],
        check=True,
        capture_output=True,
    )
    return folder


@pytest.mark.parametrize("table", sample(TABLES, 4))
def test_tpch_equals_spark(spark: SparkSession, tpch: Path, tmp_path: Path, table: str) -> None:
    rows = pq.read_table(tpch / f"{table}.parquet")
    stored = pa.schema(
        [
            pa.field(f.name, pa.string() if pa.types.is_string_view(f.type) else f.type, f.nullable)
            for f in rows.schema
        ]
    )
    uri = tmp_path / f"{table}.lance"
    lance.write_dataset(rows.cast(stored), uri, max_rows_per_file=max(2, rows.num_rows // 5))
    compared = compare(spark, uri, tmp_path)

    assert len(compared) == rows.num_columns
    for column in compared.values():
        assert_equal(column)
    assert share_within(list(compared.values()), 0.03) >= 0.8
