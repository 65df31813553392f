"""`reader: connector` with the real connector: rows, statistics, versions, filters."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lancestat
from lancestat.errors import RunError
from tests.connector.every_type import (
    EVERY_COLUMN,
    MAPS,
    NOT_ALWAYS_OPENED,
    NOT_OPENED,
    NOT_READ,
    READ_ALONE,
    SEEN_OTHERWISE,
    joined,
    write,
)
from tests.integration.odd_numbers import CONDITIONS
from tests.integration.planned import planned
from tests.integration.test_connector import QUERIES, ROWS, orders
from tests.runs.world import World, write_project

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

READ_ALIKE = EVERY_COLUMN.keys() - (NOT_OPENED | NOT_ALWAYS_OPENED | NOT_READ | SEEN_OTHERWISE)

Read = Callable[..., "DataFrame"]


@pytest.fixture(scope="module")
def path(warehouse: Path) -> Path:
    """A table of two fragments whose statistics are current."""
    path = warehouse / "orders.lance"
    lance.write_dataset(orders(), str(path), max_rows_per_file=ROWS // 2)
    assert World(path).run().status == "success"
    return path


@pytest.fixture
def read(session: SparkSession) -> Read:
    def connected(path: Path, **options: Any) -> DataFrame:
        return lancestat.read_table(session, str(path), reader="connector", **options)

    return connected


@pytest.mark.parametrize("query", QUERIES)
def test_answers_are_those_of_lancestats_reader(
    session: SparkSession, path: Path, read: Read, query: str
) -> None:
    read(path).createOrReplaceTempView("connected")
    lancestat.read_table(session, str(path)).createOrReplaceTempView("own")
    answer = session.sql(query.format(t="connected"))
    plan = answer._jdf.queryExecution().executedPlan().toString()
    # The rows of a whole table are counted in its manifest.
    is_answered = query == "select count(*) from {t}"
    assert ("PushedAggregates: [" if is_answered else "LanceScan") in plan
    expected = session.sql(query.format(t="own")).collect()
    assert sorted(answer.collect(), key=str) == sorted(expected, key=str)


@pytest.mark.parametrize(
    ("version", "names"),
    [
        ("2.1", sorted(READ_ALIKE - MAPS - {READ_ALONE})),
        ("2.1", [READ_ALONE]),
        ("2.2", sorted(MAPS)),
    ],
)
def test_columns_of_every_type_are_read_alike(
    session: SparkSession, warehouse: Path, read: Read, version: str, names: list[str]
) -> None:
    path = warehouse / f"alike_{names[0]}.lance"
    write(joined(names), path, version)
    theirs, own = read(path), lancestat.read_table(session, str(path))
    assert [(f.name, f.dataType.simpleString()) for f in theirs.schema] == [
        (f.name, f.dataType.simpleString()) for f in own.schema
    ]
    rows = {row.id: row.asDict(recursive=True) for row in theirs.collect()}
    expected = {row.id: row.asDict(recursive=True) for row in own.collect()}
    for name in names:
        column = {id: row[name] for id, row in rows.items()}
        assert column == {id: row[name] for id, row in expected.items()}, name


def test_tables_with_blobs_are_read(session: SparkSession, warehouse: Path, read: Read) -> None:
    path = warehouse / "blobs.lance"
    blobs = ["blob", "blob_required", "blob_by_metadata", "struct_of_blobs", "json"]
    write(joined([*blobs, "string"]), path)
    assert World(path).run().status == "success"
    theirs = read(path)
    places = theirs.where("id <= 2").select("id", "blob.size", "string").collect()
    assert sorted(map(tuple, places)) == [(1, 2, "a"), (2, 0, "")]
    assert planned(theirs.select("id", "string")).rows == 3
    assert set(planned(theirs).columns) == {"id", "string"}
    assert theirs.select("id").count() == 3


def test_lancestats_own_reader_gives_the_bytes_of_blobs(
    session: SparkSession, warehouse: Path
) -> None:
    path = warehouse / "bytes.lance"
    write(joined(["blob", "blob_required", "blob_by_metadata", "struct_of_blobs"]), path)
    rows = lancestat.read_table(session, str(path)).orderBy("id").collect()
    assert [bytes(row.blob_required) for row in rows] == [b"ab", b"", b"c"]
    assert [None if row.blob is None else bytes(row.blob) for row in rows] == [b"ab", b"", None]
    assert [bytes(row.struct_of_blobs.inner) for row in rows] == [b"ab", b"", b"c"]
    assert bytes(rows[0].blob_by_metadata) == b"ab"


def test_statistics_are_those_that_lancestat_reports(
    session: SparkSession, path: Path, read: Read
) -> None:
    columns = ["id", "part", "price", "day", "at", "note"]
    mine = planned(lancestat.read_table(session, str(path)).select(columns))
    theirs = planned(read(path).select(columns))
    assert theirs.rows == mine.rows == ROWS
    assert theirs.size_bytes == mine.size_bytes
    assert {name: str(stat) for name, stat in theirs.columns.items()} == {
        name: str(stat) for name, stat in mine.columns.items()
    }


def test_filters_are_estimated_once(path: Path, read: Read) -> None:
    assert planned(read(path).where("id >= 250")).rows == pytest.approx(750, rel=0.01)
    assert planned(read(path).where("price < 50")).rows == pytest.approx(200, rel=0.02)


def test_a_table_stays_at_its_version_whatever_the_options(
    session: SparkSession, warehouse: Path, read: Read
) -> None:
    path = warehouse / "growing.lance"
    lance.write_dataset(orders(10), str(path))
    pinned = read(path)
    with_options = read(path, options={"batch_size": "4"})
    first = read(path, version=1, options={"batch_size": "4"})
    lance.write_dataset(orders(5), str(path), mode="append")
    assert [rows.count() for rows in (pinned, with_options, first)] == [10, 10, 10]
    assert [len(rows.collect()) for rows in (pinned, with_options, first)] == [10, 10, 10]
    assert [planned(rows).rows for rows in (pinned, with_options, first)] == [10, 10, 10]
    assert len(read(path, options={"batch_size": "4"}).collect()) == 15


def test_filters_treat_nan_as_spark_does(
    session: SparkSession, warehouse: Path, read: Read
) -> None:
    path = warehouse / "odd_filters.lance"
    values = [1.5, math.nan, -2.0, None, math.inf, -math.inf, 0.0, -0.0]
    types = {"double": pa.float64(), "float": pa.float32()}
    columns = {name: pa.array(values, type) for name, type in types.items()}
    lance.write_dataset(pa.table({"id": range(len(values)), **columns}), str(path))
    texts = [condition.format(c=column) for condition in CONDITIONS for column in types]
    # Of conditions that are selected Spark alone decides, and of each row.
    own = lancestat.read_table(session, str(path)).selectExpr("id", *texts).collect()
    for number, text in enumerate(texts, start=1):
        expected = sorted(row[0] for row in own if row[number])
        assert sorted(row.id for row in read(path).where(text).collect()) == expected, text


def test_deleted_rows_are_not_read(warehouse: Path, read: Read) -> None:
    path = warehouse / "deleted.lance"
    lance.write_dataset(orders(20), str(path))
    lance.dataset(str(path)).delete("id < 5")
    assert sorted(row.id for row in read(path).collect()) == list(range(5, 20))


def test_metadata_columns_are_the_connectors(path: Path, read: Read) -> None:
    rows = read(path).where("id in (3, 700)").select("id", "_fragid").collect()
    assert sorted(map(tuple, rows)) == [(3, 0), (700, 1)]


def test_a_project_has_its_tables_read_by_the_connector(
    session: SparkSession, path: Path, tmp_path: Path
) -> None:
    orders = {"name": "orders", "uri": str(path)}
    project = write_project(tmp_path, orders, target={"reader": "connector", "state": "state"})
    attachment = project.attach(session)
    assert (attachment.views, dict(attachment.failed)) == (("orders",), {})
    query = session.sql("select * from orders where id < 100")
    assert planned(query).rows == pytest.approx(100, rel=0.02)
    assert query.count() == 100


@pytest.mark.parametrize(
    ("name", "code"), [("dictionary", "LS542"), ("decimal256", "LS541"), ("duration_s", "LS541")]
)
def test_a_table_that_the_connector_cannot_read_is_refused(
    warehouse: Path, read: Read, name: str, code: str
) -> None:
    path = warehouse / f"refused_{name}.lance"
    write(joined([name]), path)
    with pytest.raises(RunError) as refused:
        read(path)
    assert refused.value.code == code
    assert str(path) in refused.value.message
