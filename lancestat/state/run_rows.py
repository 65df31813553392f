"""Runs as rows of the runs dataset."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING

from lancestat import codec
from lancestat.codec import Instant
from lancestat.state.values import NodeRun, RunRecord, StoredRecord

if TYPE_CHECKING:
    import pyarrow as pa

# The key of a flag that is stored within a node's result, though it is no part of that.
_FULL_REFRESH = "full_refresh"


def run_schema() -> pa.Schema:
    """Columns of the runs dataset; `record` is set where `record_json` is there."""
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


@dataclass(frozen=True, slots=True)
class _RunColumns:
    """The columns of a row that are the same in all rows of a run."""

    run_id: str
    command: str
    target: str
    started_at: Instant
    finished_at: Instant
    status: str


@dataclass(frozen=True, slots=True)
class _NodeColumns:
    """The columns of a row that are a node's own, except for `record`."""

    node: str
    kind: str
    digest: str
    table: str | None
    result_json: str
    record_json: str | None


def run_batch(run: RunRecord, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows of one run: one for each node, or a single one without a node."""
    import pyarrow as pa

    head = {field.name: getattr(run, field.name) for field in fields(_RunColumns)}
    rows = [{**head, **_node_row(node)} for node in run.nodes]
    return pa.RecordBatch.from_pylist(rows or [head], schema)


def _node_row(node: NodeRun) -> dict[str, object]:
    record = node.record
    key, record_json = (None, None) if record is None else (record.key, record.json)
    # Rows of older releases have no column for the flag, and older releases ignore the key.
    result = {**node.result, **({_FULL_REFRESH: True} if node.full_refresh else {})}
    columns = _NodeColumns(
        node.node, node.kind, node.digest, key, json.dumps(result, default=str), record_json
    )
    return {**asdict(columns), "record": record_json is not None}


def runs_of(rows: Iterable[Mapping[str, object]]) -> list[RunRecord]:
    """Return runs from those of their rows that decode, in the order in which they first appear."""
    runs: dict[str, tuple[_RunColumns, dict[str, NodeRun]]] = {}
    for row in rows:
        try:
            head = codec.convert(row, _RunColumns)
            node = None if row["node"] is None else _node(codec.convert(row, _NodeColumns))
        except ValueError:
            continue
        _, nodes = runs.setdefault(head.run_id, (head, {}))
        if node is not None:
            # Two that record a killed run at the same time each append it.
            nodes.setdefault(node.node, node)
    return [RunRecord(**asdict(head), nodes=tuple(nodes.values())) for head, nodes in runs.values()]


def _node(row: _NodeColumns) -> NodeRun:
    result = codec.decode(row.result_json, dict[str, object])
    full_refresh = result.pop(_FULL_REFRESH, False) is True
    record = None
    if row.table is not None and row.record_json is not None:
        record = StoredRecord(row.table, row.record_json)
    return NodeRun(row.node, row.kind, row.digest, result, record, full_refresh)
