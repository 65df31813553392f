"""What runs did to each node, read back without what they remembered."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from lancestat.state.row_order import commit_order
from lancestat.state.stored_json import instant, text
from lancestat.state.values import NodeOutcome

if TYPE_CHECKING:
    import pyarrow as pa
    from lance import LanceDataset

_log = logging.getLogger("lancestat.state")

_COLUMNS = ["run_id", "command", "target", "finished_at", "node", "kind", "result_json"]


def read_outcomes(
    dataset: LanceDataset, target: str, limit: int
) -> dict[str, tuple[NodeOutcome, ...]]:
    """By node, its `limit` newest outcomes under a target; only those are read and decoded."""
    rows = dataset.to_table(columns=["id", "node", "target"])
    positions = _newest(rows, target, limit)
    if not positions:
        return {}
    found: dict[str, list[NodeOutcome]] = {}
    undecodable = 0
    for row in dataset.take(positions, columns=_COLUMNS).to_pylist():
        try:
            outcome = _outcome(row)
        except (ValueError, KeyError, TypeError):
            undecodable += 1
        else:
            found.setdefault(outcome.node, []).append(outcome)
    if undecodable:
        _log.warning("%d outcomes of runs do not decode and are left out", undecodable)
    return {node: tuple(outcomes) for node, outcomes in found.items()}


def _newest(rows: pa.Table, target: str, limit: int) -> list[int]:
    """Positions of a target's newest rows of every node, the newest first."""
    import numpy as np
    import pyarrow.compute as pc

    encoded = rows.column("node").combine_chunks().dictionary_encode()
    nodes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    newest_first = commit_order(rows.column("id"))[::-1]
    order = newest_first[np.argsort(nodes[newest_first], kind="stable")]
    is_wanted = pc.equal(rows.column("target"), target).fill_null(False).to_numpy()
    order = order[(nodes[order] >= 0) & is_wanted[order]]
    if not len(order):
        return []
    ordered = nodes[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    ranks = np.arange(len(ordered)) - np.repeat(starts, np.diff(starts, append=len(ordered)))
    found: list[int] = order[ranks < limit].tolist()
    return found


def _outcome(row: Mapping[str, object]) -> NodeOutcome:
    result = json.loads(text(row["result_json"]))
    if not isinstance(result, dict):
        raise ValueError("a node's result is not an object")
    return NodeOutcome(
        run_id=text(row["run_id"]),
        command=text(row["command"]),
        target=text(row["target"]),
        finished_at=instant(row["finished_at"]),
        node=text(row["node"]),
        kind=text(row["kind"]),
        result=result,
    )
