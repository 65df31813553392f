"""Event logs as Spark writes them, of plans that tests make up."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

_SQL = "org.apache.spark.sql.execution.ui.SparkListener"
NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)


def operator(name: str, text: str, *children: Any, rows: int | None = None) -> dict[str, Any]:
    """A `SparkPlanInfo`; `rows` is the accumulator of its number of output rows."""
    metrics = [{"name": "number of output rows", "accumulatorId": rows, "metricType": "sum"}]
    return {
        "nodeName": name,
        "simpleString": text,
        "children": list(children),
        "metadata": {},
        "metrics": [] if rows is None else metrics,
    }


def scan(table: str, *columns: str) -> dict[str, Any]:
    """A scan of a table, whose columns are written as `o_id#1L`."""
    name = f"BatchScan {table}"
    return operator(name, f"{name}[{', '.join(columns)}] lancestat {table}")


def started(plan: Any, id: int = 0, at: datetime = NOON, text: str = "") -> dict[str, Any]:
    return {
        "Event": f"{_SQL}SQLExecutionStart",
        "executionId": id,
        "rootExecutionId": id,
        "description": "select 'TOP-SECRET'",
        "details": "",
        "physicalPlanDescription": text,
        "sparkPlanInfo": plan,
        "time": int(at.timestamp() * 1000),
        "modifiedConfigs": {},
    }


def stage(rows: Mapping[int, int]) -> dict[str, Any]:
    accumulables = [
        {"ID": id, "Name": "number of output rows", "Value": str(value), "Internal": True}
        for id, value in rows.items()
    ]
    info = {"Stage ID": 0, "Number of Tasks": 1, "Accumulables": accumulables}
    return {"Event": "SparkListenerStageCompleted", "Stage Info": info}


def ended(id: int = 0) -> dict[str, Any]:
    return {"Event": f"{_SQL}SQLExecutionEnd", "executionId": id, "time": 1}


def lines(*events: Any) -> bytes:
    head = {"Event": "SparkListenerLogStart", "Spark Version": "4.0.0"}
    return b"".join(json.dumps(event).encode() + b"\n" for event in (head, *events))


def write_log(path: Path, *plans: Any, at: datetime = NOON) -> Path:
    """Write a log of queries, one for each plan."""

    def events() -> Iterator[Any]:
        for id, plan in enumerate(plans):
            yield started(plan, id, at)
            yield ended(id)

    path.write_bytes(lines(*events()))
    return path
