"""Filters through real Spark: over Parquet and over Lance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lancestat
from lancestat.lake.snapshot import spark_type
from lancestat.query.predicates.filter import Day, Filter, Instant, Literal, LocalTime, Not
from lancestat.query.read.relation import register
from tests.integration.spark_predicates import spark_predicate
from tests.interpreted import interpreted
from tests.lake.awkward import COLUMNS, Row, leaf, predicate, table
from tests.query.predicates.three_valued import selected, truth
from tests.versions.needs import python_sources

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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


@pytest.fixture(scope="module")
def spark(spark: SparkSession) -> SparkSession:
    return interpreted(spark)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same rows as Lance and as Parquet."""
    folder = tmp_path_factory.mktemp("filters")
    rows, seen = table(7, ROWS)
    lance.write_dataset(rows, folder / "rows.lance", max_rows_per_file=40)
    arrays = {"id": pa.array(range(ROWS), pa.int64())}
    for column in COLUMNS:
        type = _SEEN_TYPES.get(TYPES[column.name], column.type)
        arrays[column.name] = array_of([row[column.name] for row in seen], type)
    pq.write_table(pa.table(arrays), folder / "rows.parquet")
    return folder / "rows.lance", folder / "rows.parquet"


def array_of(values: Sequence[Literal | None], type: pa.DataType) -> pa.Array:
    """Return an array of the literals of filters."""
    counts = [value.days if isinstance(value, Day) else value for value in values]
    counts = [
        value.micros if isinstance(value, (Instant, LocalTime)) else value for value in counts
    ]
    if pa.types.is_temporal(type):
        return pa.array(counts, pa.int32() if type == pa.date32() else pa.int64()).view(type)
    return pa.array(counts, type)


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return table(7, ROWS)[1]


def drawn(seed: int) -> Iterator[Filter]:
    """Tests of one column and their negations, of one column after the other, and trees of them."""
    random = Random(seed)
    while True:
        for column in COLUMNS:
            yield leaf(random, column)
            yield Not(leaf(random, column))
            yield predicate(random)


def batches(filters: Iterator[Filter], count: int, size: int) -> list[list[Filter]]:
    return [list(islice(filters, size)) for _ in range(count // size)]


def test_three_valued_logic_agrees_with_spark_over_parquet(
    spark: SparkSession, places: tuple[Path, Path], rows: list[Row]
) -> None:
    frame = spark.read.parquet(str(places[1]))
    assert dict(frame.dtypes) == {"id": "bigint", **TYPES}
    for filters in batches(drawn(1), 2_000, 250):
        texts = [spark_predicate(filter, TYPES) for filter in filters]
        decisions = frame.selectExpr("id", *(f"{text} AS `_{n}`" for n, text in enumerate(texts)))
        for answers in decisions.collect():
            row = rows[answers[0]]
            expected = [truth(filter, row) for filter in filters]
            wrong = [
                text
                for text, answer, right in zip(texts, answers[1:], expected, strict=True)
                if answer is not right
            ]
            assert wrong == [], f"in row {row['id']}"


def ids(frames: Sequence[DataFrame], filters: Sequence[Filter]) -> list[list[int]]:
    """The rows that each filter selects from its frame, by one job over as many scans."""
    from pyspark.sql import functions as f

    parts = [
        frame.where(spark_predicate(filter, TYPES)).select(f.lit(number).alias("filter"), "id")
        for number, (frame, filter) in enumerate(zip(frames, filters, strict=True))
    ]
    selections: list[list[int]] = [[] for _ in filters]
    for number, id in reduce(lambda left, right: left.unionAll(right), parts).collect():
        selections[number].append(id)
    return [sorted(selection) for selection in selections]


@python_sources
def test_the_format_reads_the_same_rows(
    spark: SparkSession, places: tuple[Path, Path], rows: list[Row]
) -> None:
    register(spark)
    frame = spark.read.format("lancestat").load(str(places[0]))
    filters = list(islice(drawn(2), 12))
    assert ids([frame] * 12, filters) == [selected(filter, rows) for filter in filters]
    assert frame.count() == ROWS


def test_read_table_reads_the_same_rows(
    spark: SparkSession, places: tuple[Path, Path], rows: list[Row]
) -> None:
    frame = lancestat.read_table(spark, str(places[0]))
    for filters in batches(drawn(3), 300, 30):
        assert ids([frame] * 30, filters) == [selected(filter, rows) for filter in filters]
