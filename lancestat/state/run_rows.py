"""Run records and join records as rows, and the codec of their JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from lancestat.state.identity import join_identity
from lancestat.state.values import (
    InputRecord,
    JoinRecord,
    NodeRun,
    ResultRecord,
    RunRecord,
    TableRecord,
)

if TYPE_CHECKING:
    import pyarrow as pa


def text(found: object) -> str:
    """A text; ValueError otherwise."""
    if not isinstance(found, str):
        raise ValueError(f"expected text, found {type(found).__name__}")
    return found


def texts(found: object) -> dict[str, str]:
    """A mapping of texts; ValueError otherwise."""
    # A thousand records hold a hundred values each, so types are compared all at once.
    if not isinstance(found, dict) or not set(map(type, found.values())) <= {str}:
        raise ValueError("expected an object of texts")
    return found


def count(found: object) -> int:
    """A whole number; ValueError otherwise."""
    if not isinstance(found, int) or isinstance(found, bool):
        raise ValueError(f"expected a whole number, found {type(found).__name__}")
    return found


def instant(found: object) -> datetime:
    """An aware instant, UTC where it does not say; ValueError otherwise."""
    if not isinstance(found, datetime):
        raise ValueError(f"expected an instant, found {type(found).__name__}")
    return found if found.tzinfo else found.replace(tzinfo=timezone.utc)


def encode_join(record: JoinRecord) -> str:
    """The stored form of a join's record: JSON."""
    stored = asdict(record)
    stored["finished_at"] = record.finished_at.astimezone(timezone.utc).isoformat()
    return json.dumps(stored, separators=(",", ":"))


def decode_join(stored: str) -> JoinRecord:
    """The inverse of `encode_join`; raises ValueError on anything else."""
    found = json.loads(stored)
    try:
        return JoinRecord(
            node=text(found["node"]),
            digest=text(found["digest"]),
            left=_input(found["left"]),
            right=_input(found["right"]),
            result=_result_record(found["result"]),
            left_rows=count(found["left_rows"]),
            right_rows=count(found["right_rows"]),
            unmatched_left_rows=count(found["unmatched_left_rows"]),
            excluded_right_rows=count(found["excluded_right_rows"]),
            strategy=text(found["strategy"]),
            finished_at=instant(datetime.fromisoformat(text(found["finished_at"]))),
            recall=_optional_share(found["recall"]),
            nprobes=_optional_count(found["nprobes"]),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a record of a join: {error}") from None


def _input(found: Mapping[str, object]) -> InputRecord:
    return InputRecord(
        digest=text(found["digest"]),
        fragments=count(found["fragments"]),
        last_fragment=count(found["last_fragment"]),
        rows=_optional_count(found["rows"]),
        unproven=_unproven(found.get("unproven")),
    )


def _unproven(found: object) -> tuple[str, ...] | None:
    # Records of earlier releases have nothing about it.
    if found is None:
        return None
    if not isinstance(found, list):
        raise ValueError(f"expected a list, found {type(found).__name__}")
    return tuple(map(text, found))


def _result_record(found: Mapping[str, object]) -> ResultRecord:
    generation = found["generation"]
    return ResultRecord(
        rows=count(found["rows"]),
        digest=text(found["digest"]),
        version=_optional_count(found["version"]),
        generation=None if generation is None else text(generation),
    )


def _optional_count(found: object) -> int | None:
    return None if found is None else count(found)


def _optional_share(found: object) -> float | None:
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise ValueError(f"expected a number, found {type(found).__name__}")
    return float(found)


# The kind of the rows whose record is a join's.
JOIN_KIND = "knn_join"

# The key of a flag that is stored within a node's result, though it is no part of that.
_FULL_REFRESH = "full_refresh"


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
    rows = [{**head, **_node_row(node)} for node in run.nodes]
    return pa.RecordBatch.from_pylist(rows or [head], schema)


def _node_row(node: NodeRun) -> dict[str, object]:
    table, record_json = _stored(node)
    return {
        "node": node.node,
        "kind": node.kind,
        "digest": node.digest,
        "table": table,
        "record": record_json is not None,
        "result_json": json.dumps(_result(node), default=str),
        "record_json": record_json,
    }


def _result(node: NodeRun) -> dict[str, object]:
    # Rows of older releases have no column for it, and older releases look for no such key.
    return {**node.result, **({_FULL_REFRESH: True} if node.full_refresh else {})}


def _stored(node: NodeRun) -> tuple[str | None, str | None]:
    """What the row is filed under, and its record."""
    match node.record:
        case JoinRecord() as join:
            return join_identity(join.node), encode_join(join)
        case TableRecord() as table:
            return table.table, encode_record(table)
    return node.table, None


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
        run_id=text(row["run_id"]),
        command=text(row["command"]),
        target=text(row["target"]),
        started_at=instant(row["started_at"]),
        finished_at=instant(row["finished_at"]),
        status=text(row["status"]),
        nodes=(),
    )


def _node(row: Mapping[str, object]) -> NodeRun | None:
    if row["node"] is None:
        return None
    result = json.loads(text(row["result_json"]))
    if not isinstance(result, dict):
        raise ValueError("a node's result is not an object")
    full_refresh = result.pop(_FULL_REFRESH, False) is True
    kind, table, stored = text(row["kind"]), row["table"], row["record_json"]
    # What a join's record is filed under is no table.
    is_filed = table is not None and not (kind == JOIN_KIND and stored is not None)
    decode = decode_join if kind == JOIN_KIND else decode_record
    return NodeRun(
        node=text(row["node"]),
        kind=kind,
        digest=text(row["digest"]),
        table=text(table) if is_filed else None,
        result=result,
        record=None if stored is None else decode(text(stored)),
        full_refresh=full_refresh,
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
            table=text(found["table"]),
            node=text(found["node"]),
            version=count(found["version"]),
            published=bool(found["published"]),
            content_digest=text(found["content_digest"]),
            schema_hash=text(found["schema_hash"]),
            rows=count(found["rows"]),
            fragments=count(found["fragments"]),
            computed_at=instant(datetime.fromisoformat(text(found["computed_at"]))),
            columns=tuple(text(name) for name in found["columns"]),
            values=texts(found["values"]),
            bounds={name: (text(low), text(high)) for name, (low, high) in found["bounds"].items()},
            histograms=tuple(text(name) for name in found.get("histograms", ())),
            manifest=None if found.get("manifest") is None else text(found["manifest"]),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a table record: {error}") from None
