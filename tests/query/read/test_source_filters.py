from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from lancestat.lake.snapshot import Field, spark_type
from lancestat.query.predicates.filter import DEEPEST
from lancestat.query.read.source import pushed_filters

_TYPES = {
    "i": pa.int32(),
    "x": pa.float64(),
    "d": pa.decimal128(38, 10),
    "s": pa.string(),
    "b": pa.binary(),
    "day": pa.date32(),
    "at": pa.timestamp("us", "UTC"),
    "local": pa.timestamp("us"),
    "list": pa.list_(pa.int32()),
    "wide": pa.decimal256(50, 0),
}
FIELDS = {
    name: Field(number, name, type, True, spark_type(type))
    for number, (name, type) in enumerate(_TYPES.items())
}


def column(name: str) -> tuple[str, ...]:
    return tuple(name.split("."))


@pytest.mark.parametrize(
    ("filter", "sql"),
    [
        (EqualTo(column("i"), 1), "`i` = 1"),
        (EqualNullSafe(column("i"), 1), "`i` = 1"),
        (EqualNullSafe(column("i"), None), "`i` IS NULL"),
        (LessThan(column("i"), 1), "`i` < 1"),
        (LessThanOrEqual(column("i"), 1), "`i` <= 1"),
        (GreaterThan(column("i"), 1), "`i` > 1"),
        (GreaterThanOrEqual(column("i"), 1), "`i` >= 1"),
        (Not(EqualTo(column("i"), 1)), "`i` <> 1"),
        (In(column("i"), (1, 2, None)), "`i` IN (1, 2)"),
        (Not(In(column("i"), (1, 2, None))), "false"),
        (IsNull(column("s")), "`s` IS NULL"),
        (IsNotNull(column("s")), "`s` IS NOT NULL"),
        (StringStartsWith(column("s"), "a%"), "starts_with(`s`, 'a%')"),
        (StringEndsWith(column("s"), "'"), "ends_with(`s`, '''')"),
        (Not(StringContains(column("s"), "a_")), "NOT contains(`s`, 'a_')"),
        (EqualTo(column("d"), Decimal("1.5")), "`d` = CAST('1.5000000000' AS DECIMAL(38, 10))"),
        (EqualTo(column("d"), 2), "`d` = CAST('2.0000000000' AS DECIMAL(38, 10))"),
        (EqualTo(column("b"), b"'"), "`b` = X'27'"),
        (
            EqualTo(column("local"), datetime(1970, 1, 1)),
            "`local` = arrow_cast(0, 'Timestamp(Microsecond, None)')",
        ),
    ],
    ids=str,
)
def test_filters_of_spark_are_translated_for_lance(filter: Filter, sql: str) -> None:
    assert pushed_filters([filter], FIELDS) == (sql, [])


@pytest.mark.parametrize(
    "filter",
    [
        EqualTo(column("i.a"), 1),
        IsNull(column("i.a")),
        EqualTo(column("missing"), 1),
        EqualTo(column("list"), [1]),
        EqualTo(column("wide"), Decimal(1)),
        EqualTo(column("i"), True),
        EqualTo(column("x"), 1),
        In(column("i"), ([1],)),
    ],
    ids=str,
)
def test_unsupported_filters_stay_with_spark(filter: Filter) -> None:
    sql, left = pushed_filters([EqualTo(column("i"), 1), filter], FIELDS)
    assert sql == "`i` = 1"
    assert left[0] is filter
    assert len(left) == 1


def test_decimals_that_pyspark_may_have_rounded_stay_with_spark() -> None:
    """PySpark reads a literal as `Decimal(unscaled) * Decimal(10) ** -scale`, to 28 digits."""
    given = 12345678901234567890_1234567891
    arrived: Any = Decimal(given) * (Decimal(10) ** -10)
    assert arrived != Decimal("12345678901234567890.1234567891")
    assert pushed_filters([EqualTo(column("d"), arrived)], FIELDS)[0] is None
    assert pushed_filters([EqualTo(column("d"), Decimal("9" * 27))], FIELDS)[0] is not None


NOON = datetime(1970, 1, 1, 12, tzinfo=timezone.utc)
DAY_MICROS = 86_400_000_000


def instant(micros: int) -> str:
    return f"arrow_cast({micros}, 'Timestamp(Microsecond, Some(\"UTC\"))')"


@pytest.mark.parametrize(
    ("filter", "sql"),
    [
        (LessThan(column("day"), date(1969, 12, 31)), "`day` <= arrow_cast(1, 'Date32')"),
        (GreaterThanOrEqual(column("day"), date(1970, 1, 1)), "`day` >= arrow_cast(-2, 'Date32')"),
        (
            EqualTo(column("day"), date(1582, 10, 15)),
            "(`day` >= arrow_cast(-141439, 'Date32') AND `day` <= arrow_cast(-141415, 'Date32'))",
        ),
        (
            In(column("day"), (date(1970, 1, 1), date(1970, 1, 9), None)),
            "(`day` >= arrow_cast(-2, 'Date32') AND `day` <= arrow_cast(10, 'Date32'))",
        ),
        (
            EqualTo(column("at"), NOON.astimezone(timezone(timedelta(hours=1)))),
            f"(`at` >= {instant(-3 * DAY_MICROS // 2)} AND `at` <= {instant(5 * DAY_MICROS // 2)})",
        ),
    ],
    ids=str,
)
def test_dates_and_instants_are_searched_in_a_range(filter: Filter, sql: str) -> None:
    """Java's dates lack ten days of 1582, and days that zones skipped: Spark tests once more."""
    assert pushed_filters([filter], FIELDS) == (sql, [filter])


def test_a_negated_date_stays_with_spark() -> None:
    other = Not(EqualTo(column("day"), date(1970, 1, 1)))
    assert pushed_filters([other], FIELDS) == (None, [other])


def negated(levels: int) -> Filter:
    filter: Filter = EqualTo(column("i"), 1)
    for _ in range(levels):
        filter = Not(filter)
    return filter


def test_negations_are_read_to_a_depth_and_stay_with_spark_beyond() -> None:
    sql = "`i` = 1" if DEEPEST % 2 == 0 else "`i` <> 1"
    assert pushed_filters([negated(DEEPEST)], FIELDS) == (sql, [])
    for levels in (DEEPEST + 1, 10_000):
        deep = negated(levels)
        taken, left = pushed_filters([EqualTo(column("s"), "a"), deep], FIELDS)
        assert taken == "`s` = 'a'"
        assert len(left) == 1
        assert left[0] is deep


def test_text_that_java_may_have_replaced_stays_with_spark() -> None:
    for filter in (
        EqualTo(column("s"), "\ufffd"),
        StringContains(column("s"), "a\ufffd"),
        In(column("s"), ("a", "\ufffd")),
    ):
        assert pushed_filters([filter], FIELDS) == (None, [filter])
