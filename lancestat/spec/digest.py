"""A digest of what a node means, whatever it is written like."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from lancestat.spec.model import (
    ColumnPattern,
    ColumnRule,
    ColumnSelection,
    KnnJoin,
    KnnSide,
    Node,
    Policy,
    StaleBounds,
    Table,
)

DIGEST_VERSION = 1


def node_digest(node: Node) -> str:
    """SHA-256, in hex, of what a run does for the node and what readers accept of it.

    Places, formatting, the node's name, description, tags and owner have no part in it; nor whether
    a policy or a column set is inline or named. It is stable across runs and releases, as long as
    `DIGEST_VERSION` stays.
    """
    meaning = _table(node) if isinstance(node, Table) else _knn_join(node)
    text = json.dumps([DIGEST_VERSION, node.kind.value, meaning], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _table(table: Table) -> dict[str, Any]:
    meaning = {
        "uri": table.uri,
        "columns": _columns(table.columns),
        "policy": _policy(table.policy),
        "publish": table.publish.value,
    }
    # Only where it is asked for: digests of other tables stay what they were.
    return {**meaning, "histogram": True} if table.histogram else meaning


def _columns(selection: ColumnSelection) -> dict[str, Any]:
    return {
        "all": selection.all,
        "rules": sorted((_rule(rule) for rule in selection.rules), key=json.dumps),
        "exclude": _patterns(selection.exclude),
    }


def _rule(rule: ColumnRule) -> dict[str, Any]:
    return {
        "include": _patterns(rule.include),
        "exclude": _patterns(rule.exclude),
        "types": None if rule.types is None else sorted(rule.types),
    }


def _patterns(patterns: tuple[ColumnPattern, ...]) -> list[str]:
    return sorted({pattern.text for pattern in patterns})


def _policy(policy: Policy) -> dict[str, Any]:
    allowed = policy.allow_stale
    return {
        "allow.stale": _bounds(allowed) if isinstance(allowed, StaleBounds) else allowed,
        "refresh": policy.refresh.value,
    }


def _bounds(bounds: StaleBounds) -> dict[str, Any]:
    return {
        "max_versions": bounds.max_versions,
        "max_age": None if bounds.max_age is None else bounds.max_age.total_seconds(),
        "max_changed_rows": bounds.max_changed_rows,
    }


def _knn_join(join: KnnJoin) -> dict[str, Any]:
    meaning = {
        "left": _side(join.left),
        "right": _side(join.right),
        "output": [join.output_format, join.output_uri],
        "k": join.k,
        "metric": join.metric,
        "mode": join.mode,
        "approx": [join.nprobes, join.recall],
        "join": join.join,
        "min_right_rows": join.min_right_rows,
    }
    return {**meaning, "rank": True} if join.rank else meaning


def _side(side: KnnSide) -> dict[str, Any]:
    return {
        "table": side.table,
        "format": side.format,
        "uri": side.uri,
        "options": dict(side.options),
        "sql": side.sql,
        "vector": side.vector,
        "select": None if side.select is None else list(side.select),
    }
