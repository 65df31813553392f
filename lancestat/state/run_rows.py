"""Runs as rows: one per (run, node), and one for a run without nodes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from lancestat.state.partial_rows import row_id
from lancestat.state.values import NodeRun, RunRecord, TableRecord

if TYPE_CHECKING:
    import pyarrow as pa


def run_schema() -> pa.Schema:
    """Columns of the runs dataset; `record` tells whether `record_json` is there."""
    import pyarrow as pa

    return pa.schema(
        [
            pa.field("id", pa.int64()),
            pa.field("run_id", pa.string()),
            pa.field("command", pa.string()),
            pa.field("target", pa.string()),
            pa.field("started_at", pa.timestamp("us", "UTC")),
            pa.field("finished_at", pa.timestamp("us", "UTC")),
            pa.field("status", pa.string()),
            pa.field("node", pa.string()),
            pa.field("kind", pa.string()),
            pa.field("digest", pa.string()),
            pa.field("table", pa.string()),
            pa.field("record", pa.bool_()),
            pa.field("result_json", pa.string()),
            pa.field("record_json", pa.string()),
        ]
    )


def run_batch(run: RunRecord, schema: pa.Schema) -> pa.RecordBatch:
    """The rows of one run."""
    import pyarrow as pa

    head = {
        "run_id": run.run_id,
        "command": run.command,
        "target": run.target,
        "started_at": run.started_at,
        "finished_at": run.finished_at,
        "status": run.status,
    }
    rows = [{**head, "id": row_id(), **_node_row(node)} for node in run.nodes]
    return pa.RecordBatch.from_pylist(rows or [{**head, "id": row_id()}], schema)


def _node_row(node: NodeRun) -> dict[str, object]:
    record = node.record
    return {
        "node": node.node,
        "kind": node.kind,
        "digest": node.digest,
        "table": record.table if record else node.table,
        "record": record is not None,
        "result_json": json.dumps(dict(node.result), default=str),
        "record_json": encode_record(record) if record else None,
    }


def runs_of(rows: Iterable[Mapping[str, object]]) -> list[RunRecord]:
    """Runs from those of their rows that decode, in the order in which they first appear."""
    runs: dict[str, RunRecord] = {}
    nodes: dict[str, list[NodeRun]] = {}
    for row in rows:
        try:
            run = _head(row)
            node = _node(row)
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
        runs.setdefault(run.run_id, run)
        if node:
            nodes.setdefault(run.run_id, []).append(node)
    return [
        RunRecord(
            run.run_id,
            run.command,
            run.target,
            run.started_at,
            run.finished_at,
            run.status,
            tuple(nodes.get(run.run_id, ())),
        )
        for run in runs.values()
    ]


def _head(row: Mapping[str, object]) -> RunRecord:
    return RunRecord(
        run_id=_text(row["run_id"]),
        command=_text(row["command"]),
        target=_text(row["target"]),
        started_at=_instant(row["started_at"]),
        finished_at=_instant(row["finished_at"]),
        status=_text(row["status"]),
        nodes=(),
    )


def _node(row: Mapping[str, object]) -> NodeRun | None:
    if row["node"] is None:
        return None
    result = json.loads(_text(row["result_json"]))
    if not isinstance(result, dict):
        raise ValueError("a node's result is not an object")
    table, stored = row["table"], row["record_json"]
    return NodeRun(
        node=_text(row["node"]),
        kind=_text(row["kind"]),
        digest=_text(row["digest"]),
        table=None if table is None else _text(table),
        result=result,
        record=None if stored is None else decode_record(_text(stored)),
    )


def encode_record(record: TableRecord) -> str:
    """The stored form of a table record: JSON."""
    stored = {field.name: getattr(record, field.name) for field in fields(record)}
    stored["computed_at"] = record.computed_at.astimezone(timezone.utc).isoformat()
    stored["values"] = dict(record.values)
    stored["bounds"] = dict(record.bounds)
    return json.dumps(stored, separators=(",", ":"))


def decode_record(stored: str) -> TableRecord:
    """The inverse of `encode_record`; raises ValueError on anything else."""
    found = json.loads(stored)
    try:
        return TableRecord(
            table=_text(found["table"]),
            node=_text(found["node"]),
            version=_count(found["version"]),
            published=bool(found["published"]),
            content_digest=_text(found["content_digest"]),
            schema_hash=_text(found["schema_hash"]),
            rows=_count(found["rows"]),
            fragments=_count(found["fragments"]),
            computed_at=_instant(datetime.fromisoformat(_text(found["computed_at"]))),
            columns=tuple(_text(name) for name in found["columns"]),
            values=_texts(found["values"]),
            bounds={
                name: (_text(low), _text(high)) for name, (low, high) in found["bounds"].items()
            },
            histograms=tuple(_text(name) for name in found.get("histograms", ())),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a table record: {error}") from None


def _text(found: object) -> str:
    if not isinstance(found, str):
        raise ValueError(f"expected text, found {type(found).__name__}")
    return found


def _texts(found: object) -> dict[str, str]:
    # A thousand records hold a hundred values each, so types are compared all at once.
    if not isinstance(found, dict) or not set(map(type, found.values())) <= {str}:
        raise ValueError("expected an object of texts")
    return found


def _count(found: object) -> int:
    if not isinstance(found, int) or isinstance(found, bool):
        raise ValueError(f"expected a whole number, found {type(found).__name__}")
    return found


def _instant(found: object) -> datetime:
    if not isinstance(found, datetime):
        raise ValueError(f"expected an instant, found {type(found).__name__}")
    return found if found.tzinfo else found.replace(tzinfo=timezone.utc)
