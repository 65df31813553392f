"""Filters through real Spark, against the logic of three values that unit tests take for Spark's.

`tests/filters` tries every way in which filters reach Lance.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lancestat.lake.snapshot import spark_type
from lancestat.query.predicates.filter import Day, Filter, Instant, Literal, LocalTime, Not
from tests.integration.spark_predicates import spark_predicate
from tests.lake.awkward import COLUMNS, leaf, predicate, table
from tests.query.predicates.three_valued import truth

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROWS = 90
TYPES = {column.name: str(spark_type(column.type)) for column in COLUMNS}
# Types as Parquet has them, for types that Spark lacks.
_SEEN_TYPES = {
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "date": pa.date32(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


def array_of(values: Sequence[Literal | None], type: pa.DataType) -> pa.Array:
    """Return an array of the literals of filters."""
    counts = [value.days if isinstance(value, Day) else value for value in values]
    counts = [
        value.micros if isinstance(value, (Instant, LocalTime)) else value for value in counts
    ]
    if pa.types.is_temporal(type):
        return pa.array(counts, pa.int32() if type == pa.date32() else pa.int64()).view(type)
    return pa.array(counts, type)


def drawn(seed: int) -> Iterator[Filter]:
    """Tests of one column and their negations, of one column after the other, and trees of them."""
    random = Random(seed)
    while True:
        for column in COLUMNS:
            yield leaf(random, column)
            yield Not(leaf(random, column))
            yield predicate(random)


def test_three_valued_logic_agrees_with_spark_over_parquet(
    spark: SparkSession, tmp_path: Path
) -> None:
    _, rows = table(7, ROWS)
    arrays = {"id": pa.array(range(ROWS), pa.int64())}
    for column in COLUMNS:
        type = _SEEN_TYPES.get(TYPES[column.name], column.type)
        arrays[column.name] = array_of([row[column.name] for row in rows], type)
    pq.write_table(pa.table(arrays), tmp_path / "rows.parquet")
    frame = spark.read.parquet(str(tmp_path / "rows.parquet"))
    assert dict(frame.dtypes) == {"id": "bigint", **TYPES}
    filters = drawn(1)
    for _ in range(8):
        some = list(islice(filters, 250))
        texts = [spark_predicate(filter, TYPES) for filter in some]
        decisions = frame.selectExpr("id", *(f"{text} AS `_{n}`" for n, text in enumerate(texts)))
        for answers in decisions.collect():
            row = rows[answers[0]]
            wrong = [
                text
                for text, answer, filter in zip(texts, answers[1:], some, strict=True)
                if answer is not truth(filter, row)
            ]
            assert wrong == [], f"in row {row['id']}"
