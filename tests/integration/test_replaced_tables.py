"""Tables that were dropped and created again behind the back of who reads them through Spark."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import lance
import pytest

import lancestat
from lancestat.query.read.relation import register
from lancestat.spark.versions import has_python_sources
from tests.examples import sample
from tests.runs.world import orders, write_project

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

Reader = Callable[["SparkSession", "lancestat.Project", str], "DataFrame"]


@pytest.fixture(scope="module", autouse=True)
def _format(session: SparkSession) -> None:
    if has_python_sources():
        register(session)


@pytest.fixture
def project(tmp_path: Path, spark: SparkSession) -> Iterator[lancestat.Project]:
    project = write_project(tmp_path, "orders")
    make(tmp_path / "orders.lance", 0)
    assert project.run().status.value == "success"
    yield project
    spark.catalog.dropTempView("orders")


def make(uri: Path, first: int) -> None:
    shutil.rmtree(uri, ignore_errors=True)
    for part in range(3):
        mode = "append" if part else "create"
        lance.write_dataset(orders(first + 100 * part, 100), uri, mode=mode)


def view(session: SparkSession, project: lancestat.Project, uri: str) -> DataFrame:
    project.attach(session)
    return session.table("orders")


def table(session: SparkSession, project: lancestat.Project, uri: str) -> DataFrame:
    return lancestat.read_table(session, uri)


def source(session: SparkSession, project: lancestat.Project, uri: str) -> DataFrame:
    return session.read.format("lancestat").load(uri)


READERS = [view, table, *([source] if has_python_sources() else [])]
QUERIES = {
    # All fragments of the old table are ruled out, so that no task opens it.
    "ruled out": lambda rows: rows.where("o_id >= 1000").count(),
    "some": lambda rows: rows.where("o_id >= 250").count(),
    "count": lambda rows: rows.count(),
    "values": lambda rows: rows.agg({"o_id": "max"}).collect(),
    "limit": lambda rows: rows.limit(3).collect(),
}


# Workers keep datasets open between queries: they are warm when they have the table open.
@pytest.mark.parametrize(
    ("read", "query", "is_warm"),
    sample(
        [
            *product(READERS, ("ruled out", "count", "limit"), [False]),
            *product(READERS, ("some", "values"), [True]),
        ],
        8,
    ),
)
def test_a_query_over_a_recreated_table_fails_with_a_hint(
    session: SparkSession,
    project: lancestat.Project,
    tmp_path: Path,
    read: Reader,
    query: str,
    is_warm: bool,
) -> None:
    uri = tmp_path / "orders.lance"
    rows = read(session, project, str(uri))
    ask = QUERIES[query]
    if is_warm:
        ask(read(session, project, str(uri)))
    shutil.rmtree(uri)
    make(uri, 1000)
    lance.dataset(uri).update_config({"user.key": "as many versions as before"})
    with pytest.raises(Exception, match=r"LS209 .*has been replaced: its version 4") as bad:
        ask(rows)
    assert "attach or read the table again" in str(bad.value)
    again = read(session, project, str(uri))
    assert again.where("o_id >= 1000").count() == 300


@pytest.mark.parametrize("read", READERS)
def test_a_query_over_a_table_that_was_dropped_fails(
    session: SparkSession, project: lancestat.Project, tmp_path: Path, read: Reader
) -> None:
    rows = read(session, project, str(tmp_path / "orders.lance"))
    shutil.rmtree(tmp_path / "orders.lance")
    with pytest.raises(Exception, match=r"LS206 .*has no version 4"):
        rows.where("o_id >= 1000").count()


def test_a_table_recreated_during_a_run_is_read_again(
    session: SparkSession,
    project: lancestat.Project,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The plan is of one table, and the workers open another."""
    from lancestat.tables.analyze import SparkScanner

    uri = tmp_path / "orders.lance"
    lance.write_dataset(orders(300, 100), uri, mode="append")
    on_spark = write_project(tmp_path, "orders", min_bytes="0")
    scan = SparkScanner.scan
    done: list[int] = []

    def late(*args: object) -> object:
        if not done:
            done.append(1)
            make(uri, 5000)
            for part in range(2):
                lance.write_dataset(orders(6000 + part, 1), uri, mode="append")
        return scan(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(SparkScanner, "scan", late)
    assert on_spark.run().status.value == "success"
    assert done == [1]
    config = lance.dataset(uri).config()
    assert config["lance.stats.column.o_id.min"] == "5000"
    assert config["lance.stats.numRows"] == "302"
