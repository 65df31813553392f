from __future__ import annotations

import pyarrow as pa
import pytest

from lancestat.lake.snapshot import Field, spark_type
from lancestat.spark.versions import data_type, spark_schema, unreadable
from tests.query.read.arrow_values import CASES, Case


def field(name: str, type: pa.DataType, nullable: bool = True) -> Field:
    return Field(0, name, type, nullable, spark_type(type))


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_types_are_those_that_schema_hashes_name(case: Case) -> None:
    assert data_type(case.column.type).simpleString() == case.spark_type
    assert spark_type(case.column.type) == case.spark_type


@pytest.mark.parametrize(
    "type",
    [
        pa.string_view(),
        pa.binary_view(),
        pa.list_view(pa.int8()),
        pa.large_list_view(pa.int8()),
        pa.uuid(),
        pa.time32("ms"),
    ],
)
def test_types_that_files_do_not_hold_have_a_spark_type(type: pa.DataType) -> None:
    assert data_type(type).simpleString() == spark_type(type)


def test_columns_without_a_spark_type_are_left_out_with_the_reason() -> None:
    fields = [
        field("id", pa.int64(), nullable=False),
        field("big", pa.decimal256(50, 2)),
        field("deep", pa.list_(pa.struct([("x", pa.decimal256(50, 2))]))),
        field("hundreds", pa.decimal128(5, -2)),
        field("deep_hundreds", pa.list_(pa.decimal128(5, -2))),
        field("tiny", pa.decimal128(3, 5)),
        field("back`tick", pa.int64()),
        field("", pa.int64()),
        field("*", pa.int64()),
        field("name", pa.string()),
    ]
    assert list(unreadable(fields)) == [
        "big", "deep", "hundreds", "deep_hundreds", "tiny", "back`tick", "", "*",
    ]  # fmt: skip
    assert unreadable(fields)["big"] == "Spark has no type for decimal256(50, 2)"
    assert unreadable(fields)["back`tick"] == "Lance cannot read a column of this name"
    schema = spark_schema(fields)
    assert [(column.name, column.nullable) for column in schema] == [("id", False), ("name", True)]


def test_nullability_reaches_every_depth() -> None:
    type = pa.struct(
        [
            pa.field("a", pa.int8(), nullable=False),
            pa.field("l", pa.list_(pa.field("item", pa.int8(), nullable=False))),
            pa.field("m", pa.map_(pa.string(), pa.field("value", pa.int8(), nullable=False))),
        ]
    )
    struct_type = data_type(type)
    assert [column.nullable for column in struct_type] == [False, True, True]
    assert struct_type["l"].dataType.containsNull is False
    assert struct_type["m"].dataType.valueContainsNull is False
