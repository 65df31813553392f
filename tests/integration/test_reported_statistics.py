"""Spark's estimates follow the statistics that are published, and those that are not."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lancestat
from lancestat.tables.wire import COLUMN_PREFIX, COMPUTED_AT_VERSION
from tests.examples import each
from tests.integration.planned import optional, planned
from tests.integration.test_oracle import AWKWARD
from tests.runs.world import World

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

EPOCH = datetime(1969, 12, 1, 3, 4, 5, 678_901, tzinfo=timezone.utc)


def published(path: Path, rows: pa.Table) -> Path:
    """Write rows as a table of three fragments with its statistics."""
    lance.write_dataset(rows, path, max_rows_per_file=-(-rows.num_rows // 3))
    assert World(path).run().status == "success"
    return path


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


@pytest.mark.parametrize(("column", "condition"), each(SCALES, CONDITIONS))
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
    rows = AWKWARD.select(["int32", "decimal9", "text"])
    path = published(tmp_path / "t.lance", rows)
    bounds = product(("int32", "decimal9"), missing.split())
    removed = {f"{COLUMN_PREFIX}{name}.{bound}": None for name, bound in bounds}
    # Without making the others stale.
    current = {COMPUTED_AT_VERSION: str(lance.dataset(path).version + 1)}
    lance.dataset(path).update_config({**removed, **current})
    table_rows = lancestat.read_table(session, str(path))
    stats = planned(table_rows).columns
    for column in ("int32", "decimal9"):
        assert column not in stats
    assert optional(stats["text"].distinctCount()) is not None
    for condition in ("int32 = 3", "int32 < 3", "decimal9 > 1", "int32 in (1, 2)"):
        assert planned(table_rows.where(condition)).rows > len(rows) // 2


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
