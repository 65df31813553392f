"""Filters as people write them mean what Spark's SQL means by the same text."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from lancestat.lake.snapshot import Field, spark_type
from lancestat.query.predicates.filter import (
    And,
    Comparison,
    Day,
    Filter,
    FilterSyntaxError,
    In,
    Instant,
    IsNull,
    LocalTime,
    Not,
    Operator,
    Or,
    TextMatch,
    TextOperator,
    UnknownColumnError,
    columns_of,
    parse_filter,
)

TYPES: Mapping[str, pa.DataType] = {
    "size": pa.int32(),
    "name": pa.string(),
    "ok": pa.bool_(),
    "half": pa.float32(),
    "wide": pa.float64(),
    "price": pa.decimal128(9, 2),
    "day": pa.date32(),
    "at": pa.timestamp("us", tz="UTC"),
    "local": pa.timestamp("us"),
    "raw": pa.binary(),
    "an `odd` name": pa.int64(),
    "date": pa.int32(),
    "list": pa.list_(pa.int32()),
}
FIELDS = {
    name: Field(number, name, type, True, spark_type(type))
    for number, (name, type) in enumerate(TYPES.items())
}
E, LT, LE, GT, GE = (Operator(sign) for sign in ("=", "<", "<=", ">", ">="))
BELOW = float(np.nextafter(np.float32(0.1), np.float32(0)))


@pytest.mark.parametrize(
    ("text", "filter"),
    [
        ("size < 20", Comparison("size", LT, 20)),
        ("size>=-3", Comparison("size", GE, -3)),
        ("size = 2e1", Comparison("size", E, 20)),
        ("size <> 1", Not(Comparison("size", E, 1))),
        ("size != 1", Not(Comparison("size", E, 1))),
        ("size <=> null", Comparison("size", Operator.NULL_SAFE, None)),
        ("size = NULL", In("size", (None,))),
        ("NOT size in (1, null)", Not(In("size", (1, None)))),
        ("size not in (1)", Not(In("size", (1,)))),
        ("size between 1 and 2", And(Comparison("size", GE, 1), Comparison("size", LE, 2))),
        ("name is null or ok", Or(IsNull("name"), Comparison("ok", E, True))),
        ("name is not null", Not(IsNull("name"))),
        ("not ok and ok = false", And(Not(Comparison("ok", E, True)), Comparison("ok", E, False))),
        ("(size < 1 or size > 2) and ok", And(
            Or(Comparison("size", LT, 1), Comparison("size", GT, 2)), Comparison("ok", E, True))),
        ("ok or ok and not ok", Or(
            Comparison("ok", E, True),
            And(Comparison("ok", E, True), Not(Comparison("ok", E, True))))),
        ("name = 'it''s'", Comparison("name", E, "it's")),
        ("name like 'a%'", TextMatch("name", TextOperator.STARTS_WITH, "a")),
        ("name like '%a'", TextMatch("name", TextOperator.ENDS_WITH, "a")),
        ("name not like '%a%'", Not(TextMatch("name", TextOperator.CONTAINS, "a"))),
        ("name like 'a'", Comparison("name", E, "a")),
        ("wide < 0.1", Comparison("wide", LT, 0.1)),
        ("half < 0.1", Comparison("half", LE, BELOW)),
        ("half >= 0.1", Comparison("half", GT, BELOW)),
        ("half = 0.1", And(Comparison("half", LE, BELOW), Comparison("half", GT, BELOW))),
        ("half = 0.5", Comparison("half", E, 0.5)),
        ("price = 1.10", Comparison("price", E, Decimal("1.10"))),
        ("day < date '1970-01-02'", Comparison("day", LT, Day(1))),
        ("day < '1970-01-02'", Comparison("day", LT, Day(1))),
        ("at > timestamp '1970-01-01 01:00:00+01:00'", Comparison("at", GT, Instant(0))),
        ("at > '1970-01-01T00:00:00.000001Z'", Comparison("at", GT, Instant(1))),
        ("local > '1970-01-01 00:00:01'", Comparison("local", GT, LocalTime(1_000_000))),
        ("raw = X'00ff'", Comparison("raw", E, b"\x00\xff")),
        ("`an ``odd`` name` = 1", Comparison("an `odd` name", E, 1)),
        ("date = 1", Comparison("date", E, 1)),
        ("list is null", IsNull("list")),
    ],
)  # fmt: skip
def test_a_filter_is_read(text: str, filter: Filter) -> None:
    assert parse_filter(text, FIELDS) == filter


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "has its end where the name of a column is expected"),
        ("size", "has its end where a comparison is expected"),
        ("size <", "has its end where a literal is expected"),
        ("size < name", "has 'name' where a literal is expected"),
        ("size < 20 20", "cannot be read from '20' on"),
        ("(size < 20", "has its end where ')' is expected"),
        ("size < 20)", "cannot be read from ')' on"),
        ("upper(name) = 'A'", "names an unknown column 'upper'"),
        ("20 > size", "has '20' where the name of a column is expected"),
        ("size < 1.5", "compares 'size', which is of type int32, with 1.5"),
        ("size < 'a'", "compares 'size', which is of type int32, with 'a'"),
        ("name < 1", "compares 'name', which is of type string, with 1"),
        ("name like 'a_'", "has LIKE 'a_', but '%' may only be at the ends of a text without '_'"),
        ("name like '%'", "has LIKE '%', but '%' may only be at the ends of a text without '_'"),
        ("size like '1'", "compares 'size', which is of type int32, with '1'"),
        ("name = 'a\\n'", "has a backslash in a text, whose meaning depends on settings"),
        ("name = 'a", "cannot be read from \"'a\" on"),
        ("size < 1; drop table t", "cannot be read from '; drop table t' on"),
        ("day < 'tomorrow'", "compares 'day', which is of type date32[day], with 'tomorrow'"),
        ("at < '2020-01-01'", "compares 'at', which is of type timestamp[us, tz=UTC], with "
                              "'2020-01-01'"),
        ("local < '2020-01-01 00:00:00Z'", "compares 'local', which is of type timestamp[us], "
                                           "with '2020-01-01 00:00:00Z'"),
        ("list = 1", "compares 'list', which is of type list<item: int32>, with 1"),
        ("not " * 40 + "ok", "is nested too deeply"),
        ("(" * 40 + "ok" + ")" * 40, "is nested too deeply"),
        ("size = - 'a'", "has a minus that no number follows"),
    ],
)  # fmt: skip
def test_what_is_no_filter_to_push_is_refused(text: str, reason: str) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        parse_filter(text, FIELDS)
    assert str(caught.value) == reason


def test_an_unknown_column_is_named() -> None:
    with pytest.raises(UnknownColumnError) as caught:
        parse_filter("sise < 20", FIELDS)
    assert caught.value.column == "sise"


def test_the_columns_that_a_filter_reads() -> None:
    filter = parse_filter("not (size < 1 or name is null) and ok and size > 0", FIELDS)
    assert columns_of(filter) == {"size", "name", "ok"}
