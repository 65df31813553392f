"""From rows to published entries: equal to what Spark computes over the same rows."""

from __future__ import annotations

import random
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lancestat.stats.column_type import column_type
from lancestat.stats.kernel import analyze
from lancestat.stats.partial import summarize
from lancestat.stats.values import parse_bound
from tests.integration.catalyst import Catalyst, entries_of
from tests.integration.catalyst import spark as spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROWS = 20_000
EXACT = ("nullCount", "avgLen", "maxLen")


def _columns(draw: random.Random) -> dict[str, tuple[pa.DataType, list[Any]]]:
    words = ["", "a", "ß", "日本語", "naïve café", "x" * 300]
    return {
        "flag": (pa.bool_(), [draw.random() < 0.3 for _ in range(ROWS)]),
        "tiny": (pa.int8(), [draw.randint(-128, 127) for _ in range(ROWS)]),
        "small": (pa.int16(), [draw.randint(-(2**15), 2**15 - 1) for _ in range(ROWS)]),
        "whole": (pa.int32(), [draw.randint(-(2**31), 2**31 - 1) for _ in range(ROWS)]),
        "long": (pa.int64(), [draw.choice([-(2**63), 2**63 - 1, 7]) for _ in range(ROWS)]),
        "single": (pa.float32(), [draw.uniform(-1e30, 1e30) for _ in range(ROWS)]),
        "double": (pa.float64(), [draw.expovariate(1e-9) for _ in range(ROWS)]),
        "price": (pa.decimal128(12, 2), [_decimal(draw, 12, 2) for _ in range(ROWS)]),
        "huge": (pa.decimal128(38, 20), [_decimal(draw, 38, 20) for _ in range(ROWS)]),
        "day": (pa.date32(), [draw.randint(-800_000, 4_000_000) for _ in range(ROWS)]),
        "at": (
            pa.timestamp("us", tz="UTC"),
            [timedelta(days=draw.randint(-90_000, 40_000)) for _ in range(ROWS)],
        ),
        "word": (pa.string(), [draw.choice(words) * draw.randint(0, 3) for _ in range(ROWS)]),
        "code": (pa.string(), [f"code-{draw.randint(0, 10**6)}" for _ in range(ROWS)]),
        "bytes": (pa.binary(), [draw.randbytes(draw.randint(0, 9)) for _ in range(ROWS)]),
    }


def _decimal(draw: random.Random, precision: int, scale: int) -> Decimal:
    unscaled = draw.randint(-(10**precision) + 1, 10**precision - 1)
    sign, digits, _ = Decimal(unscaled).as_tuple()
    return Decimal((sign, digits, -scale))


def _array(type: pa.DataType, values: list[Any]) -> pa.Array:
    if pa.types.is_date32(type):
        return pa.array(values, pa.int32()).cast(type)
    if pa.types.is_timestamp(type):
        micros = [None if each is None else each // timedelta(microseconds=1) for each in values]
        return pa.array(micros, pa.int64()).cast(type)
    return pa.array(values, type)


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    draw = random.Random(20260301)
    columns = {
        name: _array(type, [None if draw.random() < 0.1 else each for each in values])
        for name, (type, values) in _columns(draw).items()
    }
    return pa.table(columns)


def test_published_entries_equal_those_of_spark(
    spark: SparkSession, rows: pa.Table, tmp_path: Path
) -> None:
    pq.write_table(rows, tmp_path / "rows.parquet")
    catalyst = Catalyst(spark)
    computed = catalyst.computed(f"select * from parquet.`{tmp_path}`")
    partials = analyze(rows.to_batches(max_chunksize=4_096), rows.schema)
    assert computed.keys() == partials.keys()
    for name, partial in partials.items():
        type = column_type(rows.schema.field(name).type)
        assert type is not None
        spark_type, stat, theirs = computed[name]
        ours = entries_of(name, type, summarize(partial, type))
        assert ours.keys() == theirs.keys()
        assert {s: ours[f"{name}.{s}"] for s in EXACT} == {s: theirs[f"{name}.{s}"] for s in EXACT}
        if f"{name}.min" in theirs:
            for bound in (f"{name}.min", f"{name}.max"):
                assert parse_bound(ours[bound], type) == parse_bound(theirs[bound], type)
        decoded = catalyst.decoded(name, ours, spark_type)
        assert decoded.min().equals(stat.min())
        assert decoded.max().equals(stat.max())
        exact = len(rows[name].drop_null().unique())
        distinct = int(ours[f"{name}.distinctCount"])
        assert distinct == pytest.approx(exact, rel=0.05)
        assert distinct <= ROWS - partial.nulls
