"""Lines of recorded queries: what they hold, and what happens where they cannot be written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancestat.query.workload import query_log
from lancestat.query.workload.queries import ColumnUse, Query, Role
from lancestat.query.workload.query_log import QueryEvent, QueryLog
from lancestat.query.workload.spark_events import read_workload
from tests.query.workload.logs import lines, operator, scan

SECRET = "TOP-SECRET"
ORDERS = scan("orders", "o_id#1L", "o_cat#2")


def message(at: int = 1_000, rows: int = 10) -> str:
    """A query as the JVM describes it: a filter of which 50 rows were expected."""
    text = f"Filter (isnotnull(o_cat#2) AND (o_cat#2 = {SECRET}))"
    described: dict[str, Any] = {
        "at": at,
        "plans": [operator("Filter", text, ORDERS, rows=7)],
        "rows": {"7": rows},
        "expected": [{"operator": text, "rows": 50.0}],
    }
    return json.dumps(described)


def files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.exists() else []


def test_a_line_is_an_event_without_literals(tmp_path: Path) -> None:
    log = QueryLog(tmp_path / "deep" / "log")
    assert files(tmp_path) == []
    log.apply(message())
    log.apply(message(at=2_000, rows=500))
    text = log.path.read_text()
    assert SECRET not in text
    assert json.loads(text.splitlines()[0]) == {
        "Event": "lancestat.Query",
        "time": 1_000,
        "reads": {"orders": ["o_cat", "o_id"]},
        "uses": [
            {"table": "orders", "columns": ["o_cat"], "role": "equality", "q_error": 5.0},
        ],
    }
    workload = read_workload([tmp_path]).workload
    usage = workload.sets["orders", ("o_cat",)]
    assert (workload.queries, usage.queries, usage.q_error) == (2, 2, 10.0)
    assert workload.first is not None
    assert workload.first.timestamp() == 1


def test_one_folder_may_hold_logs_of_both_kinds(tmp_path: Path) -> None:
    QueryLog(tmp_path).apply(message())
    (tmp_path / "app-1").write_bytes(lines())
    damaged = tmp_path / "queries-2.jsonl"
    damaged.write_text(
        '{"Event":"lancestat.Query","time":1,"reads":{"t":["a"]}}\n'
        '{"Event":"lancestat.Query","time":1,"reads":7}\n'
        '{"Event":"lancestat.Query","time":1,"rea'
    )
    reader = read_workload([tmp_path])
    assert (reader.logs, reader.workload.queries) == (3, 2)
    assert reader.left_out_words == "2 lines that are no events"


names = st.text(min_size=1)
uses = st.builds(
    ColumnUse,
    names,
    st.lists(names, min_size=1, max_size=3).map(tuple),
    st.sampled_from(Role),
    st.none() | names,
    st.lists(names, max_size=3).map(tuple),
)


@given(
    st.dictionaries(uses, st.none() | st.floats(1, 1e300), max_size=5),
    st.dictionaries(names, st.frozensets(names), max_size=3),
)
def test_a_query_is_what_was_recorded(
    errors: dict[ColumnUse, float | None], reads: dict[str, frozenset[str]]
) -> None:
    known = {use: error for use, error in errors.items() if error is not None}
    query = Query(frozenset(errors), reads, known)
    line = msgspec.json.encode(QueryEvent.of(query, 5))
    assert b"\n" not in line
    assert msgspec.json.decode(line, type=QueryEvent).query() == query


def test_a_full_log_is_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = QueryLog(tmp_path)
    log.apply(message())
    size = log.path.stat().st_size
    monkeypatch.setattr(query_log, "MAX_BYTES", 2 * size + 1)
    for _ in range(4):
        log.apply(message())
    assert log.path.stat().st_size == 2 * size
    [record] = caplog.records
    assert "is full: later queries of this session are not recorded" in record.message


def test_a_folder_that_cannot_be_written_is_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "log").write_text("a file")
    log = QueryLog(tmp_path / "log")
    for _ in range(3):
        assert log.apply(message()) == ""
    [record] = caplog.records
    assert record.message == f"queries are not recorded in {tmp_path / 'log'}: File exists"


def test_queries_without_tables_are_no_lines(tmp_path: Path) -> None:
    log = QueryLog(tmp_path)
    described = json.dumps(
        {"at": 1, "plans": [operator("Range", "Range (0, 3)")], "rows": {}, "expected": []}
    )
    log.apply(described)
    assert files(tmp_path) == []


def test_a_plan_that_cannot_be_read_is_a_warning_without_its_text(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = QueryLog(tmp_path)
    log.apply(json.dumps({"at": 1, "plans": [SECRET]}))
    log.apply(message())
    assert len(files(tmp_path)) == 1
    [record] = caplog.records
    assert record.message == "a query is not recorded: ValidationError"
