"""What a listener records of the queries of real sessions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lancestat
from lancestat.query.workload.query_log import record_queries, stop_recording

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def recorded(session: SparkSession, tmp_path: Path) -> Callable[..., list[dict[str, Any]]]:
    """Run queries on a table `t` in a session that records, and return its lines."""
    rows = pa.table({"id": range(100), "kind": [n % 7 for n in range(100)]})
    lance.write_dataset(rows, tmp_path / "t.lance")

    def run(*queries: str) -> list[dict[str, Any]]:
        lancestat.read_table(session, str(tmp_path / "t.lance")).createOrReplaceTempView("t")
        record_queries(session, tmp_path / "log")
        for query in queries:
            try:
                session.sql(query).collect()
            except Exception as error:
                assert "MARK" in str(error) or "nope" in str(error), error
        stop_recording(session)
        session.catalog.dropTempView("t")
        files = sorted((tmp_path / "log").glob("*"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]

    return run


def test_a_query_has_its_columns_roles_and_q_error(
    recorded: Callable[..., list[dict[str, Any]]], session: SparkSession, tmp_path: Path
) -> None:
    [query] = recorded("select count(*) from t where kind = 3 and id > 20")
    [(table, columns)] = query["reads"].items()
    assert (Path(table).name, columns) == ("t.lance", ["id", "kind"])
    roles = {tuple(use["columns"]): use["role"] for use in query["uses"]}
    assert roles == {("kind",): "equality", ("id",): "range"}
    assert all(use["q_error"] >= 1 for use in query["uses"])
    # Nobody records any longer, and other sessions never did.
    assert session.range(3).count() == 3
    assert len(list((tmp_path / "log").iterdir())) == 1


def test_a_query_that_fails_has_no_q_error(
    recorded: Callable[..., list[dict[str, Any]]],
) -> None:
    failing = "select sum(if(kind = 3, raise_error('MARK'), 1)) from t where id > 20"
    missing = "select nope from t where id > 20"
    [query] = recorded(failing, missing)
    [use] = query["uses"]
    assert (use["columns"], use["role"], "q_error" in use) == (["id"], "range", False)


def test_tables_that_adaptive_execution_finds_empty_are_read(
    recorded: Callable[..., list[dict[str, Any]]],
) -> None:
    [query] = recorded(
        "select a.id, count(*) from t a join t b on a.kind = b.id + 1000 where a.id % 2 = 0 "
        "and b.kind % 7 = 8 group by a.id"
    )
    assert [sorted(columns) for columns in query["reads"].values()] == [["id", "kind"]]


def test_each_session_records_its_own(
    recorded: Callable[..., list[dict[str, Any]]], session: SparkSession, tmp_path: Path
) -> None:
    other = session.newSession()
    record_queries(other, tmp_path / "others")
    record_queries(other, tmp_path / "others")
    lancestat.read_table(other, str(tmp_path / "t.lance")).where("id = 1").collect()
    [query] = recorded("select id from t where kind = 3")
    stop_recording(other)
    stop_recording(other)
    assert [use["columns"] for use in query["uses"]] == [["kind"]]
    [file] = (tmp_path / "others").iterdir()
    [query] = [json.loads(line) for line in file.read_text().splitlines()]
    assert [use["columns"] for use in query["uses"]] == [["id"]]
