"""The optimizer receives the published statistics of a scan in Spark's own form."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lancestat
from lancestat.tables.manifest.wire import COLUMN_PREFIX, COMPUTED_AT_VERSION
from tests.integration.catalyst import Catalyst
from tests.integration.planned import optional, planned, with_cbo
from tests.integration.scans import as_spark_reads
from tests.runs.world import World

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ROWS = 2_000
EPOCH = datetime(1969, 12, 1, 3, 4, 5, 678_901, tzinfo=timezone.utc)


def every_type() -> pa.Table:
    """A column of every analyzable type, each with a null and values on both sides of zero."""
    numbers = [None if n % 10 == 9 else n - ROWS // 2 for n in range(ROWS)]

    def column(make: Callable[[int], Any], type: pa.DataType) -> pa.Array:
        return pa.array([None if n is None else make(n) for n in numbers], type)

    def text(n: int) -> str:
        return "ß" * (n % 7) + str(n)

    integers = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
    unsigned = (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
    decimals = ((5, 0), (9, 2), (18, 6), (38, 10))
    return pa.table(
        {
            "boolean": column(lambda n: n % 2 == 0, pa.bool_()),
            **{str(type): column(lambda n: n % 100 - 50, type) for type in integers},
            **{str(type): column(lambda n: n % 100, type) for type in unsigned},
            "half": column(lambda n: np.float16(n / 8), pa.float16()),
            "float": column(lambda n: n / 8, pa.float32()),
            "double": column(lambda n: n / 7, pa.float64()),
            **{
                f"decimal_{precision}": column(
                    lambda n, scale=scale: Decimal(n % 997).scaleb(-scale),
                    pa.decimal128(precision, scale),
                )
                for precision, scale in decimals
            },
            "date": column(lambda n: date(1970, 1, 1) + timedelta(n), pa.date32()),
            "date64": column(lambda n: date(1970, 1, 1) + timedelta(n), pa.date64()),
            "at": column(lambda n: EPOCH + timedelta(hours=n), pa.timestamp("us", "UTC")),
            "at_ms": column(lambda n: n * 3_600_000, pa.timestamp("ms", "Europe/Paris")),
            "text": column(text, pa.string()),
            "large_text": column(text, pa.large_string()),
            "word": column(lambda n: text(n % 5), pa.string()).dictionary_encode(),
            "blob": column(lambda n: text(n).encode(), pa.binary()),
            "large_blob": column(lambda n: text(n).encode(), pa.large_binary()),
            "fixed_blob": column(lambda n: n.to_bytes(7, "big", signed=True), pa.binary(7)),
        }
    )


EVERY_TYPE = every_type()


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    return with_cbo(spark)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return published(tmp_path_factory.mktemp("every") / "every.lance", EVERY_TYPE)


@pytest.fixture(scope="module")
def frame(session: SparkSession, table: Path) -> DataFrame:
    return lancestat.read_table(session, str(table))


@pytest.fixture(scope="module")
def computed(session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Spark's own ColumnStat over the same rows in Parquet, by column."""
    parquet = tmp_path_factory.mktemp("computed") / "rows.parquet"
    pq.write_table(as_spark_reads(EVERY_TYPE), parquet)
    statistics = Catalyst(session).computed(f"select * from parquet.`{parquet}`")
    return {name: stat for name, (_, stat, _) in statistics.items()}


def published(path: Path, rows: pa.Table) -> Path:
    """Write rows as a table of three fragments with its statistics."""
    lance.write_dataset(rows, path, max_rows_per_file=-(-rows.num_rows // 3))
    assert World(path).run().status == "success"
    return path


def entries(path: Path) -> Mapping[str, dict[str, str]]:
    """The manifest's statistics by column, keyed as Spark's own maps are."""
    by_column: dict[str, dict[str, str]] = {}
    for key, text in lance.dataset(path).config().items():
        if key.startswith(COLUMN_PREFIX):
            entry = key.removeprefix(COLUMN_PREFIX)
            by_column.setdefault(entry.rpartition(".")[0], {})[entry] = text
    return by_column


def remove(path: Path, *keys: str) -> None:
    """Take entries out of the manifest without making the others stale."""
    dataset = lance.dataset(path)
    changed: dict[str, str | None] = {f"{COLUMN_PREFIX}{key}": None for key in keys}
    dataset.update_config({**changed, COMPUTED_AT_VERSION: str(dataset.version + 1)})


@pytest.mark.parametrize("column", EVERY_TYPE.column_names)
def test_column_statistics_equal_those_published(
    column: str, session: SparkSession, table: Path, frame: DataFrame
) -> None:
    catalyst = Catalyst(session)
    type = catalyst.types.fromDDL(frame.schema[column].dataType.simpleString())
    expected = catalyst.decoded(column, entries(table)[column], type)
    assert planned(frame).columns[column].equals(expected), expected.toString()


@pytest.mark.parametrize("column", EVERY_TYPE.column_names)
def test_column_statistics_equal_those_of_spark(
    column: str, frame: DataFrame, computed: dict[str, Any]
) -> None:
    ours, theirs = planned(frame).columns[column], computed[column]
    for exact in ("min", "max", "nullCount", "avgLen", "maxLen"):
        assert getattr(ours, exact)().equals(getattr(theirs, exact)()), exact
    distinct = len(EVERY_TYPE[column].unique().drop_null())
    assert optional(ours.distinctCount()) == pytest.approx(distinct, rel=0.06)


@pytest.mark.parametrize(
    "columns",
    [[name] for name in EVERY_TYPE.column_names]
    + [["int32", "text"], ["boolean", "double", "large_blob"], EVERY_TYPE.column_names],
    ids="-".join,
)
def test_the_size_is_that_of_the_projected_columns(
    columns: list[str], frame: DataFrame, computed: dict[str, Any]
) -> None:
    statistics = planned(frame.select(*columns))
    widths = [optional(computed[name].avgLen()) for name in columns]
    assert list(statistics.columns) == columns
    assert (statistics.rows, statistics.size_bytes) == (ROWS, ROWS * (8 + sum(widths)))


UNIFORM_ROWS = 60_000
STEPS = 1_000
SCALES: dict[str, tuple[pa.DataType, Callable[[int], Any], Callable[[int], str]]] = {
    "int": (pa.int32(), lambda n: n - 300, lambda n: str(n - 300)),
    "bigint": (pa.int64(), lambda n: n * 10**12, lambda n: f"{n * 10**12}L"),
    "double": (pa.float64(), lambda n: n / 4 - 50, lambda n: f"{n / 4 - 50}D"),
    "decimal": (
        pa.decimal128(15, 2),
        lambda n: Decimal(n) / 4,
        lambda n: f"{n / 4:.2f}BD",
    ),
    "date": (
        pa.date32(),
        lambda n: date(1968, 6, 1) + timedelta(n),
        lambda n: f"date '{date(1968, 6, 1) + timedelta(n)}'",
    ),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        lambda n: EPOCH + timedelta(hours=n),
        lambda n: f"timestamp '{(EPOCH + timedelta(hours=n)).isoformat()}'",
    ),
}


@pytest.fixture(scope="module")
def uniform(session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    """Columns that hold every step as often as any other, a twentieth of them null."""
    # Spark's estimates of `in` and `<=>` count nulls as if they were values.
    steps = [row // 20 % STEPS if row % 20 else None for row in range(UNIFORM_ROWS)]
    path = tmp_path_factory.mktemp("uniform") / "uniform.lance"
    columns = {}
    for name, (type, make, _) in SCALES.items():
        values = pa.array([make(step) for step in range(STEPS)], type)
        columns[name] = values.take(pa.array(steps, pa.int32()))
    columns["text"] = pa.array([None if step is None else f"t{step % 50}" for step in steps])
    return lancestat.read_table(session, str(published(path, pa.table(columns))))


@pytest.fixture(scope="module")
def truths(uniform: DataFrame) -> dict[str, int]:
    """The number of rows that each condition of the tests selects, counted in one query."""
    conditions = [condition_on(text, column) for text in CONDITIONS for column in SCALES]
    conditions += UNBOUNDED + TEXT_CONDITIONS
    [counts] = uniform.selectExpr(*(f"count_if({text})" for text in conditions)).collect()
    return dict(zip(conditions, counts, strict=True))


CONDITIONS = [
    "{c} = {400}",
    "{c} <=> {400}",
    "{c} < {250}",
    "{c} <= {250}",
    "{c} > {900}",
    "{c} >= {100}",
    "{c} between {200} and {600}",
    "{c} > {200} and {c} < {600}",
    "{c} in ({1}, {500}, {999})",
    "{c} in ({1}, {2}, {3}, {4}, {5}, {6}, {7}, {8}, {9}, {10}, {11}, {12})",
    "{c} < {80} or {c} > {920}",
    "not ({c} < {250})",
    "{250} > {c}",
    "{c} is null",
    "{c} is not null",
    "{c} = {400} or {c} is null",
]


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("column", SCALES)
def test_estimates_of_filters_are_accurate(
    column: str, condition: str, uniform: DataFrame, truths: dict[str, int]
) -> None:
    text = condition_on(condition, column)
    assert truths[text] > 0
    assert planned(uniform.where(text)).rows == pytest.approx(truths[text], rel=0.1)


# Spark cannot estimate these: a sample does.
TEXT_CONDITIONS = [
    "text like 't1%'",
    "text like '%7'",
    "text like '%2%'",
    "text not like '%2%'",
    # Spark's own estimates of the other filters are applied once, to what the sample leaves.
    "text like '%2%' and int < 200",
    "text like '%2%' and text is not null and int is not null",
    "text = 't7' and int < 200",
]
UNBOUNDED = ["text = 't7'", "text in ('t1', 't2')", "text is null"]


@pytest.mark.parametrize(
    ("condition", "within"),
    [*((text, 0.1) for text in UNBOUNDED), *((text, 0.2) for text in TEXT_CONDITIONS)],
)
def test_estimates_without_bounds_are_accurate(
    condition: str, within: float, uniform: DataFrame, truths: dict[str, int]
) -> None:
    rows = uniform.where(condition)
    assert planned(rows).rows == pytest.approx(truths[condition], rel=within)


def test_fragments_pruned_by_a_prefix_are_not_counted_twice(
    session: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "sorted.lance"
    rows = pa.table({"text": [f"{n // 400:03}-{n}" for n in range(40_000)]})
    lance.write_dataset(rows, path, max_rows_per_file=2_000)
    lance.dataset(path).create_scalar_index("text", "ZONEMAP")
    assert World(path).run().status == "success"
    selected = lancestat.read_table(session, str(path)).where("text like '007%'")
    assert selected.count() == 400
    assert planned(selected).rows == pytest.approx(400, rel=0.3)


def condition_on(condition: str, column: str) -> str:
    """A condition with its steps as literals of the column's type."""
    _, _, literal = SCALES[column]
    spelled = re.sub(r"\{(\d+)\}", lambda step: literal(int(step[1])), condition)
    return spelled.replace("{c}", f"`{column}`")


ODD_NAMES = ["0", "1x", "a b", "ß/x", "Ünï", 'quo"te', "it's", "select", "new\nline", "_row", "a-b"]


def test_columns_with_odd_names_have_statistics(session: SparkSession, tmp_path: Path) -> None:
    rows = pa.table({name: [*range(99), None] for name in ODD_NAMES})
    table_rows = lancestat.read_table(session, str(published(tmp_path / "t.lance", rows)))
    stats = planned(table_rows).columns
    assert set(stats) == set(ODD_NAMES)
    for name in ODD_NAMES:
        assert (optional(stats[name].min()), optional(stats[name].max())) == (0, 98), name
        assert optional(stats[name].distinctCount()) == 99, name
        assert optional(stats[name].nullCount()) == 1, name
        below = table_rows.where(f"`{name}` < 33")
        assert planned(below).rows == pytest.approx(33, abs=2), name


@pytest.mark.parametrize("missing", ["min", "max", "min max"])
def test_a_distinct_count_needs_both_bounds(
    missing: str, session: SparkSession, tmp_path: Path
) -> None:
    path = published(tmp_path / "t.lance", EVERY_TYPE.select(["int32", "decimal_9", "text"]))
    for column in ("int32", "decimal_9"):
        remove(path, *(f"{column}.{bound}" for bound in missing.split()))
    table_rows = lancestat.read_table(session, str(path))
    stats = planned(table_rows).columns
    for column in ("int32", "decimal_9"):
        assert column not in stats
    assert optional(stats["text"].distinctCount()) is not None
    for condition in ("int32 = 3", "int32 < 3", "decimal_9 > 1", "int32 in (1, 2)"):
        assert planned(table_rows.where(condition)).rows > ROWS // 2


def test_infinite_bounds_are_not_reported(session: SparkSession, tmp_path: Path) -> None:
    rows = pa.table({"x": [0.0, 1.0, math.inf, None] * 100, "y": [math.nan, 0.5, 2.5, None] * 100})
    table_rows = lancestat.read_table(session, str(published(tmp_path / "t.lance", rows)))
    stats = planned(table_rows).columns
    assert not {"x", "y"} & stats.keys()
    for condition in ("x > 0.5D", "x = 1D", "y > 1D", "y = double('NaN')", "x <= y"):
        selected = table_rows.where(condition)
        assert 0 <= planned(selected).rows <= 400
        assert selected.count() > 0


def test_a_column_of_nulls_alone_reports_them(session: SparkSession, tmp_path: Path) -> None:
    types = [pa.int32(), pa.float64(), pa.decimal128(9, 2), pa.date32(), pa.string(), pa.binary()]
    rows = pa.table({f"c{i}": pa.nulls(90, type) for i, type in enumerate(types)} | {"n": [1] * 90})
    table_rows = lancestat.read_table(session, str(published(tmp_path / "t.lance", rows)))
    stats = planned(table_rows).columns
    for column in table_rows.columns[:-1]:
        assert optional(stats[column].nullCount()) == 90
        for absent in ("min", "max", "distinctCount"):
            assert optional(getattr(stats[column], absent)()) is None
        assert planned(table_rows.where(f"{column} is null")).rows == 90
        assert table_rows.where(f"{column} is null").count() == 90


def test_an_empty_table_is_estimated_empty(session: SparkSession, tmp_path: Path) -> None:
    path = published(tmp_path / "t.lance", EVERY_TYPE.slice(0, 0))
    table_rows = lancestat.read_table(session, str(path))
    assert planned(table_rows).rows == 0
    assert table_rows.where("int32 > 3 and text = 'a'").collect() == []


def test_types_without_statistics_are_sized_by_their_width(
    session: SparkSession, tmp_path: Path
) -> None:
    local = pa.array([datetime(2024, 1, 1)] * 30, pa.timestamp("us"))
    vector = pa.array([[1.0, 2.0, 3.0]] * 30, pa.list_(pa.float32(), 3))
    rows = pa.table({"local": local, "vector": vector, "n": range(30)})
    table_rows = lancestat.read_table(session, str(published(tmp_path / "t.lance", rows)))
    assert list(planned(table_rows).columns) == ["n"]
    assert planned(table_rows).size_bytes == 30 * (8 + 8 + 12 + 8)
    assert planned(table_rows.where("local > timestamp_ntz '2020-01-01 00:00:00'")).rows is not None


@pytest.fixture(autouse=True)
def _nothing_cached(session: SparkSession) -> Iterator[None]:
    yield
    session.catalog.clearCache()
