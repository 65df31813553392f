"""`spark.read.format("lancestat")` in a real session."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException

from lancestat.query.read.relation import register
from tests.versions.needs import python_sources

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, python_sources]

Load = Callable[..., "DataFrame"]


@pytest.fixture
def load(spark: SparkSession) -> Load:
    register(spark)

    def read(place: Path | str, **options: object) -> DataFrame:
        return spark.read.format("lancestat").options(**options).load(str(place))

    return read


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Version 1 has the ids 0 to 99 in five fragments, version 2 lost those below 50."""
    place = tmp_path_factory.mktemp("source") / "numbers.lance"
    rows = pa.table({"id": range(100), "s": pa.array(map(str, range(100)), pa.large_string())})
    dataset = lance.write_dataset(rows, place, max_rows_per_file=20)
    dataset.tags.create("whole", 1)
    dataset.delete("id < 50")
    return place


def test_versions_and_tags_are_read(load: Load, numbers: Path) -> None:
    assert load(numbers).count() == 50
    assert load(numbers, version=1).count() == 100
    assert load(numbers, tag="whole").count() == 100


def test_each_session_can_register_it(spark: SparkSession, load: Load, numbers: Path) -> None:
    other = spark.newSession()
    register(other)
    register(other)
    assert other.read.format("lancestat").load(str(numbers)).count() == 50
    assert load(numbers).count() == 50


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"version": 1, "tag": "whole"}, "LS410  both version 1 and tag 'whole' are given"),
        ({"version": "new"}, "LS411  'new' is no version of a dataset"),
        ({"version": 9}, "LS206 .* has no version 9"),
        ({"tag": "hole"}, "LS208 .* has no tag 'hole'\n.*did you mean 'whole'"),
        ({"versoin": 1}, "LS413  the format lancestat has no option 'versoin'\n.*'version'"),
    ],
)
def test_conflicting_options_are_refused(
    load: Load, numbers: Path, options: dict[str, object], message: str
) -> None:
    with pytest.raises(AnalysisException, match=message):
        load(numbers, **options)


def test_a_missing_path_or_table_is_refused(
    spark: SparkSession, load: Load, tmp_path: Path
) -> None:
    with pytest.raises(AnalysisException, match="LS412  no path of a Lance table is given"):
        spark.read.format("lancestat").load()
    with pytest.raises(AnalysisException, match="LS201  there is no Lance dataset at"):
        load(tmp_path / "none.lance")


def test_a_given_schema_selects_columns_and_must_match(
    spark: SparkSession, load: Load, numbers: Path
) -> None:
    reader = spark.read.format("lancestat")
    assert reader.schema("s string").load(str(numbers)).first() == ("50",)
    assert reader.schema("s string, id bigint").load(str(numbers)).first() == ("50", 50)
    with pytest.raises(AnalysisException, match=r"LS414 .* has no column 'x' at version 2"):
        reader.schema("x int").load(str(numbers)).collect()
    with pytest.raises(AnalysisException, match=r"LS414  column 'id' of .* is bigint, not int"):
        reader.schema("id int").load(str(numbers)).collect()


def test_a_table_without_rows_is_read(load: Load, tmp_path: Path) -> None:
    lance.write_dataset(pa.table({"id": pa.array([], pa.int64())}), tmp_path / "t.lance")
    assert load(tmp_path / "t.lance").collect() == []


def test_columns_of_every_shape_are_read(load: Load, tmp_path: Path) -> None:
    blob = pa.field("blob", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    point = pa.struct([pa.field("x", pa.uint8(), nullable=False), ("y", pa.large_string())])
    columns = {
        "small": (pa.uint8(), 255),
        "word": (pa.dictionary(pa.int8(), pa.string()), "a"),
        "half": (pa.float16(), 1.5),
        "vector": (pa.list_(pa.float32(), 2), [1.0, 2.0]),
        "words": (pa.large_list(pa.large_string()), ["a", None]),
        "point": (point, {"x": 1, "y": "b"}),
        "fixed": (pa.binary(2), b"ab"),
        "at": (pa.timestamp("ns"), datetime(1969, 12, 31, 23, 59, 59, 999_999)),
    }
    fields = [pa.field(name, type) for name, (type, _) in columns.items()]
    values = {name: [value, None] for name, (_, value) in columns.items()}
    rows = pa.table({**values, "blob": [b"bytes", None]}, pa.schema([*fields, blob]))
    lance.write_dataset(rows, tmp_path / "t.lance", data_storage_version="2.1")
    first, second = load(tmp_path / "t.lance").collect()
    expected = {name: value for name, (_, value) in columns.items()}
    assert first.asDict(recursive=True) == {**expected, "blob": b"bytes"}
    assert set(second.asDict().values()) == {None}


def test_storage_options_are_not_shown(load: Load, numbers: Path) -> None:
    frame = load(numbers, **{"storage.aws_secret_access_key": "hunter2"})
    assert frame.count() == 50
    assert "hunter2" not in frame._jdf.queryExecution().toString()
    with pytest.raises(AnalysisException, match="LS207") as caught:
        load("gopher://bucket/t.lance", **{"storage.token": "hunter2"})
    assert "hunter2" not in str(caught.value)
