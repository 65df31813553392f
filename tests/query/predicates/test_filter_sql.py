from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from random import Random

import lance
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lancestat.lake.open import snapshot
from lancestat.lake.snapshot import Field, spark_type
from lancestat.query.predicates.filter import (
    And,
    Comparison,
    Day,
    Filter,
    In,
    Instant,
    IsNull,
    Literal,
    LocalTime,
    Not,
    Operator,
    Or,
    TextMatch,
    TextOperator,
)
from lancestat.query.predicates.filter_sql import exact_conjuncts, to_lance
from tests.examples import examples
from tests.lake.awkward import BY_NAME, COLUMNS, Row, leaf, predicate, table
from tests.query.predicates.three_valued import selected

ROWS = 120
AT_ONCE = 25
INDEXED = "indexed"
# What is pushed at least, of tests of one column that are drawn; all others are all pushed.
PUSHED = {"day64": 0.1, "large bytes": 0, "f16": 0.6, "it's": 0.9, "large": 0.9, "é": 0.7}


@dataclass(frozen=True)
class Written:
    """A dataset, its rows as Spark sees them, and its columns by name."""

    dataset: lance.LanceDataset
    rows: list[Row]
    fields: Mapping[str, Field]

    def select(self, sql: str) -> list[int]:
        ids: list[int] = []
        for fragment in self.dataset.get_fragments():
            scanner = fragment.scanner(columns=["id"], filter=sql)
            ids += scanner.to_table().column("id").to_pylist()
        return sorted(ids)

    def agrees(self, filter: Filter) -> bool:
        """Return whether the filter is translated; if so, Lance must select the rows of Spark."""
        sql = to_lance(filter, self.fields)
        if sql is not None:
            assert self.select(sql) == selected(filter, self.rows), sql
        return sql is not None


@pytest.fixture(scope="module", params=["2.0", "2.1", "2.2", "legacy", INDEXED])
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Written:
    is_indexed = request.param == INDEXED
    rows, seen = table(7, ROWS)
    place = tmp_path_factory.mktemp(request.param) / "t.lance"
    format = "2.1" if is_indexed else request.param
    dataset = lance.write_dataset(rows, place, max_rows_per_file=60, data_storage_version=format)
    for number, column in enumerate(COLUMNS if is_indexed else ()):
        dataset.create_scalar_index(column.name, ("BTREE", "BITMAP", "ZONEMAP")[number % 3])
    dataset = lance.dataset(place)
    if request.param == "legacy":
        seen = written_rows(dataset.to_table())
    return Written(dataset, seen, {column.name: column for column in snapshot(dataset).fields})


def written_rows(rows: pa.Table) -> list[Row]:
    """Rows as they were read: the oldest files keep no nulls of most types."""
    seen: list[Row] = [{"id": number} for number in rows["id"].to_pylist()]
    for column in COLUMNS:
        array = rows[column.name].combine_chunks()
        stored = array
        if pa.types.is_temporal(array.type):
            stored = array.view(pa.int32() if pa.types.is_date32(array.type) else pa.int64())
        for row, value in zip(seen, stored.to_pylist(), strict=True):
            row[column.name] = None if value is None else column.seen(value)
    return seen


@settings(max_examples=examples(16), derandomize=True, database=None)
@given(st.randoms(use_true_random=False))
def test_lance_selects_the_rows_that_spark_selects(written: Written, random: Random) -> None:
    translated = [written.agrees(predicate(random)) for _ in range(AT_ONCE)]
    assert any(translated)


@pytest.mark.parametrize("name", BY_NAME)
def test_comparisons_of_each_column_select_the_same_rows(written: Written, name: str) -> None:
    random = Random(name)
    leaves = [leaf(random, BY_NAME[name]) for _ in range(15)]
    filters = [filter for operand in leaves for filter in (operand, Not(operand))]
    translated = sum(to_lance(filter, written.fields) is not None for filter in filters)
    assert translated >= PUSHED.get(name, 1) * len(filters)
    for filter in filters[: examples(len(filters))]:
        written.agrees(filter)


def field(type: pa.DataType, name: str = "x") -> dict[str, Field]:
    return {name: Field(0, name, type, True, spark_type(type))}


def compare(type: pa.DataType, literal: Literal, operator: Operator = Operator.LESS) -> str | None:
    return to_lance(Comparison("x", operator, literal), field(type))


@pytest.mark.parametrize(
    ("type", "literal"),
    [
        (pa.int32(), True),
        (pa.int32(), 1.0),
        (pa.int32(), "1"),
        (pa.bool_(), 1),
        (pa.float64(), 1),
        (pa.float32(), 0.1),
        (pa.float16(), 70_000.0),
        (pa.decimal128(5, 2), 1),
        (pa.decimal128(5, 2), Decimal("NaN")),
        (pa.decimal128(5, -2), Decimal("100")),
        (pa.decimal256(50, 2), Decimal("1.00")),
        (pa.string(), b"a"),
        (pa.string(), "\ud800"),
        (pa.string_view(), "a"),
        (pa.binary(), "a"),
        (pa.binary(2), b"a"),
        (pa.date32(), LocalTime(0)),
        (pa.date64(), Day(0)),
        (pa.timestamp("us"), Instant(0)),
        (pa.timestamp("us", "UTC"), LocalTime(0)),
        (pa.timestamp("us", "UTC"), Day(0)),
        (pa.null(), 1),
        (pa.list_(pa.int32()), 1),
        (pa.dictionary(pa.int8(), pa.int32()), 1),
    ],
    ids=str,
)
def test_doubtful_comparisons_stay_with_spark(type: pa.DataType, literal: Literal) -> None:
    assert compare(type, literal) is None
    assert to_lance(Not(Comparison("x", Operator.LESS, literal)), field(type)) is None
    assert to_lance(Or(IsNull("x"), In("x", (literal, literal))), field(type)) is None or (
        type == pa.binary(2)
    )


UNCERTAIN_NULLS = [
    *(pa.null(), pa.list_(pa.int32()), pa.struct([("a", pa.int32())]), pa.list_(pa.float32(), 2)),
    *(pa.map_(pa.string(), pa.int32()), pa.uuid(), pa.json_(), pa.decimal256(50, 2)),
]
MISREAD = ("", "a`b", "_rowid", "_rowaddr", "_ROW", "_distance", "_score")
TRANSLATABLE, OTHER = IsNull("x"), Comparison("y", Operator.EQUAL, Day(0))
TWO = {**field(pa.int32()), **field(pa.date64(), "y")}


@pytest.mark.parametrize(
    ("filter", "fields"),
    [
        *((IsNull("x"), field(type)) for type in UNCERTAIN_NULLS),
        *((IsNull(name), field(pa.int32(), name)) for name in MISREAD),
        *((IsNull(name), field(pa.int32())) for name in ("y", "X")),
        (TextMatch("x", TextOperator.STARTS_WITH, "a"), field(pa.binary())),
        (TextMatch("x", TextOperator.STARTS_WITH, "\ud800"), field(pa.string())),
        (In("x", ()), field(pa.int32())),
        (Or(TRANSLATABLE, OTHER), TWO),
        (Not(And(TRANSLATABLE, OTHER)), TWO),
        (And(TRANSLATABLE, OTHER), TWO),
    ],
    ids=ascii,
)
def test_what_lance_may_take_otherwise_stays_with_spark(
    filter: Filter, fields: Mapping[str, Field]
) -> None:
    assert to_lance(filter, fields) is None


def test_names_differ_by_case(tmp_path: Path) -> None:
    rows = pa.table({"id": [0, 1], "x": [1, 2], "X": [2, 1]})
    dataset = lance.write_dataset(rows, tmp_path / "t.lance")
    fields = {column.name: column for column in snapshot(dataset).fields}
    seen: list[Row] = [{"id": 0, "x": 1, "X": 2}, {"id": 1, "x": 2, "X": 1}]
    two = Written(dataset, seen, fields)
    assert two.agrees(Comparison("x", Operator.EQUAL, 1))
    assert two.agrees(Comparison("X", Operator.EQUAL, 1))


def test_dictionaries_of_strings_are_compared(tmp_path: Path) -> None:
    indices = pa.array([0, 1, None, 2, 3], pa.int8())
    words = pa.DictionaryArray.from_arrays(indices, pa.array(["a", None, "b'", "a_"]))
    rows = pa.table({"id": range(5), "x": words})
    dataset = lance.write_dataset(rows, tmp_path / "t.lance")
    seen: list[Row] = [
        {"id": number, "x": value} for number, value in enumerate(["a", None, None, "b'", "a_"])
    ]
    two = Written(dataset, seen, {column.name: column for column in snapshot(dataset).fields})
    for operand in (
        Comparison("x", Operator.EQUAL, "b'"),
        Comparison("x", Operator.GREATER, "a"),
        Comparison("x", Operator.NULL_SAFE, "a"),
        In("x", ("a", "zz")),
        IsNull("x"),
        TextMatch("x", TextOperator.STARTS_WITH, "a_"),
    ):
        assert two.agrees(operand)
        assert two.agrees(Not(operand))


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_blobs_stay_with_spark(tmp_path: Path, version: str) -> None:
    blob = pa.field("x", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    schema = pa.schema([pa.field("id", pa.int64()), blob])
    rows = pa.table({"id": range(3), "x": [b"ab", None, b""]}, schema)
    dataset = lance.write_dataset(rows, tmp_path / "t.lance", data_storage_version=version)
    fields = {column.name: column for column in snapshot(dataset).fields}
    for operand in (Comparison("x", Operator.EQUAL, b"ab"), IsNull("x"), In("x", (b"",))):
        assert to_lance(operand, fields) is None
        assert to_lance(Not(operand), fields) is None


def test_literals_cannot_break_out(tmp_path: Path) -> None:
    texts = [
        "'",
        "''",
        "' OR '1'='1",
        "x' --",
        "\\'",
        "`",
        "'; DROP",
        "\0'",
        "%' OR true --",
        "\n'",
    ]
    rows = pa.table({"id": range(len(texts)), "x": texts})
    dataset = lance.write_dataset(rows, tmp_path / "t.lance")
    seen: list[Row] = [{"id": number, "x": text} for number, text in enumerate(texts)]
    one = Written(dataset, seen, {column.name: column for column in snapshot(dataset).fields})
    for text in texts:
        assert one.agrees(Comparison("x", Operator.EQUAL, text))
        assert one.agrees(Not(In("x", (text,))))
        assert one.agrees(TextMatch("x", TextOperator.STARTS_WITH, text))


def test_between_two_values_of_the_column() -> None:
    late = Instant(-999_999)
    seconds = pa.timestamp("s", "Europe/Paris")
    assert compare(seconds, late) == "`x` < arrow_cast(0, 'Timestamp(Second, Some(\"UTC\"))')"
    assert compare(seconds, late, Operator.EQUAL) == "false"
    assert compare(pa.decimal128(5, 2), Decimal("1.005")) == ("`x` < CAST('1.01' AS DECIMAL(5, 2))")
    assert compare(pa.uint8(), 300) == "`x` IS NOT NULL"
    assert compare(pa.uint8(), 300, Operator.GREATER) == "false"


def test_a_comparison_with_null_is_never_true() -> None:
    unknown = Comparison("x", Operator.EQUAL, None)
    assert to_lance(unknown, field(pa.int32())) == "false"
    assert to_lance(Not(unknown), field(pa.int32())) == "false"


def test_the_exact_part_of_a_conjunction_is_pushed() -> None:
    one, two = TRANSLATABLE, Comparison("x", Operator.EQUAL, 2)
    expected = "(`x` IS NULL AND `x` = 2)"
    assert exact_conjuncts([one, OTHER, two], TWO) == (expected, [OTHER])
    assert exact_conjuncts([And(one, And(OTHER, two))], TWO) == (expected, [OTHER])
    assert exact_conjuncts([OTHER], TWO) == (None, [OTHER])
    assert exact_conjuncts([], TWO) == (None, [])


@pytest.fixture
def orders(tmp_path: Path) -> lance.LanceDataset:
    rows = pa.table({"id": range(100), "s": [f"name {id}" for id in range(100)]})
    return lance.write_dataset(rows, tmp_path / "orders.lance")


def test_long_chains_and_lists_are_pushed_up_to_a_bound(orders: lance.LanceDataset) -> None:
    fields = {column.name: column for column in snapshot(orders).fields}
    chain: Filter = Comparison("id", Operator.EQUAL, 0)
    for number in range(1, 1_000):
        chain = Or(chain, Comparison("id", Operator.EQUAL, number))
    for filter in (chain, In("id", tuple(range(1_000)))):
        sql = to_lance(filter, fields)
        assert sql is not None
        assert orders.count_rows(sql) == 100
    assert to_lance(Or(chain, Comparison("id", Operator.EQUAL, 0)), fields) is None
    assert to_lance(In("id", tuple(range(1_001))), fields) is None


@pytest.mark.parametrize(("depth", "is_said"), [(14, True), (40, False), (5_000, False)])
def test_filters_nested_too_deeply_stay_with_spark(
    orders: lance.LanceDataset, depth: int, is_said: bool
) -> None:
    fields = {column.name: column for column in snapshot(orders).fields}
    nested: Filter = Comparison("id", Operator.LESS, 10)
    for _ in range(depth):
        nested = And(Or(nested, IsNull("s")), Not(IsNull("id")))
    sql = to_lance(nested, fields)
    assert (sql is not None) == is_said
    if sql is not None:
        assert orders.count_rows(sql) == 10
