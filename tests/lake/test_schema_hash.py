from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from lance.blob import blob_field

from lancestat.lake.fingerprint import schema_hash
from lancestat.lake.snapshot import Field, connector_type, spark_type

VECTORS = json.loads(
    (Path(__file__).parent.parent / "vectors" / "schema_hash.json").read_text(encoding="utf-8")
)

ARROW = {
    "long": pa.int64(),
    "integer": pa.int32(),
    "string": pa.string(),
    "date": pa.date32(),
    "float": pa.float32(),
    "double": pa.float64(),
    "decimal(15,2)": pa.decimal128(15, 2),
}


def arrow_type(spark: object) -> pa.DataType:
    """Spark's JSON form of a type as the Arrow type that the connector would read so."""
    if isinstance(spark, str):
        return ARROW[spark]
    assert isinstance(spark, dict)
    if spark["type"] == "array":
        return pa.list_(arrow_type(spark["elementType"]))
    if spark["type"] == "map":
        return pa.map_(arrow_type(spark["keyType"]), arrow_type(spark["valueType"]))
    return pa.struct([pa.field(f["name"], arrow_type(f["type"])) for f in spark["fields"]])


def fields_of(vector: dict[str, object]) -> list[Field]:
    schema = vector["spark_schema"]
    assert isinstance(schema, dict)
    types = [arrow_type(field["type"]) for field in schema["fields"]]
    return [
        Field(index, field["name"], type, field["nullable"], spark_type(type))
        for index, (field, type) in enumerate(zip(schema["fields"], types, strict=True))
    ]


@pytest.mark.parametrize("name", sorted(VECTORS))
def test_hashes_equal_the_test_vectors(name: str) -> None:
    fields = fields_of(VECTORS[name])
    assert [field.spark_type for field in fields] == VECTORS[name]["catalogStrings"]
    assert schema_hash(fields) == VECTORS[name]["schemaHash"]


def test_a_column_without_spark_type_affects_the_hash() -> None:
    def with_wide(precision: int) -> str:
        wide = pa.decimal256(precision, 2)
        return schema_hash([Field(0, "wide", wide, True, spark_type(wide))])

    assert spark_type(pa.decimal256(50, 2)) is None
    assert with_wide(50) != with_wide(51)
    assert with_wide(50) == with_wide(50)


def test_json_is_hashed_as_the_connector_reads_it() -> None:
    def of(type: pa.DataType) -> str:
        return schema_hash([Field(0, "document", type, True, spark_type(type))])

    assert of(pa.json_()) == of(pa.binary()) != of(pa.string())


def test_field_ids_do_not_affect_the_hash() -> None:
    assert schema_hash([Field(1, "a", pa.int32(), True, "int")]) == schema_hash(
        [Field(9, "a", pa.int32(), True, "int")]
    )


def test_nested_types_have_their_spark_type() -> None:
    point = pa.struct([("x.y", pa.float64()), ("tags", pa.list_(pa.large_string()))])
    assert spark_type(point) == "struct<x.y:double,tags:array<string>>"
    assert spark_type(pa.list_(pa.float32(), 128)) == "array<float>"
    assert spark_type(pa.large_list(point)) == f"array<{spark_type(point)}>"
    assert spark_type(pa.map_(pa.string(), pa.list_(pa.date32()))) == "map<string,array<date>>"
    assert spark_type(pa.struct([])) == "struct<>"


@pytest.mark.parametrize(
    "arrow",
    [
        pa.decimal256(50, 2),
        pa.month_day_nano_interval(),
        pa.sparse_union([pa.field("a", pa.int32())]),
        pa.list_(pa.decimal256(50, 2)),
        pa.map_(pa.string(), pa.decimal256(50, 2)),
        pa.struct([("a", pa.int32()), ("b", pa.decimal256(50, 2))]),
    ],
    ids=str,
)
def test_unsupported_types_have_no_spark_type_at_any_depth(arrow: pa.DataType) -> None:
    assert spark_type(arrow) is None


DESCRIPTOR = "struct<kind:smallint,position:bigint,size:bigint,blob_id:bigint,blob_uri:string>"
BLOB = blob_field("b").type
JSON = pa.json_()


@pytest.mark.parametrize(
    ("arrow", "ours", "the_connectors"),
    [
        (BLOB, "binary", DESCRIPTOR),
        (pa.list_(BLOB), "array<binary>", "array<binary>"),
        (pa.struct([("b", BLOB)]), "struct<b:binary>", "struct<b:binary>"),
        (JSON, "string", "binary"),
        (pa.json_(pa.large_string()), "string", "binary"),
        (pa.map_(pa.string(), JSON), "map<string,string>", "map<string,binary>"),
        (pa.struct([("j", pa.list_(JSON))]), "struct<j:array<string>>", "struct<j:array<binary>>"),
        (pa.large_binary(), "binary", "binary"),
        (pa.uuid(), "binary", "binary"),
        (pa.fixed_shape_tensor(pa.float32(), [2, 2]), "array<float>", "array<float>"),
        (pa.decimal256(50, 2), None, None),
    ],
    ids=str,
)
def test_the_connector_has_blobs_and_json_as_other_types(
    arrow: pa.DataType, ours: str | None, the_connectors: str | None
) -> None:
    assert (spark_type(arrow), connector_type(arrow)) == (ours, the_connectors)
