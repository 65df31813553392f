"""The state of all nodes as JSON: a contract, like that of a run."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from lancestat.manifest.wire import format_instant
from lancestat.report.values import (
    JoinReport,
    NodeReport,
    NodeRunReport,
    ProjectReport,
    TableReport,
)
from lancestat.spec.model import Freshness

FORMAT_VERSION = 1


def render_json(report: ProjectReport) -> dict[str, object]:
    """The object that `lancestat status --output json` prints; null is what is not known."""
    return {
        "format_version": FORMAT_VERSION,
        "command": "status",
        "project": report.name,
        "target": report.target,
        "made_at": format_instant(report.made_at),
        "status": report.health.value,
        "nodes": [_node(node, report.made_at) for node in report.nodes],
    }


def _node(node: NodeReport, now: datetime) -> dict[str, object]:
    own = _table(node, now) if isinstance(node, TableReport) else _join(node, now)
    return {
        "name": node.spec.name,
        "kind": node.spec.kind.value,
        "status": node.health.value,
        "problems": list(node.problems),
        "owner": node.spec.owner,
        "tags": list(node.spec.tags),
        **own,
        "last_run": _run(node.runs[0]) if node.runs else None,
    }


def _table(node: TableReport, now: datetime) -> dict[str, object]:
    shown = node.shown
    computed_at = shown.computed_at if shown else None
    return {
        "verdict": node.verdict,
        "reason": node.reason,
        "detail": shown.detail if shown else node.error.message if node.error else None,
        "policy": node.spec.policy.name,
        "version": shown.version if shown else None,
        "versions_behind": shown.versions_behind if shown else None,
        "computed_at": _instant(computed_at),
        "age_seconds": _age(computed_at, now),
        "changed_rows": shown.changed_rows if shown else None,
        "rows_changed_at": _instant(node.changed_at),
        "rows_age_seconds": _age(node.changed_at, now),
        "freshness": _freshness(node),
        "rows": shown.rows if shown else None,
        "fragments": shown.fragments if shown else None,
        "size_bytes": shown.size_bytes if shown else None,
        "disk_bytes": shown.disk_bytes if shown else None,
        "columns_analyzable": shown.analyzable if shown else None,
        "columns_wanted": len(shown.columns) + len(shown.missing) if shown else None,
        "columns_covered": len(shown.columns) if shown else None,
        "columns_missing": list(shown.missing) if shown else None,
    }


def _freshness(node: TableReport) -> Mapping[str, object] | None:
    bounds: Freshness | None = node.spec.freshness
    if bounds is None:
        return None
    return {
        "status": node.freshness.value if node.freshness else None,
        "warn_after_seconds": _seconds(bounds.warn_after),
        "error_after_seconds": _seconds(bounds.error_after),
    }


def _join(node: JoinReport, now: datetime) -> dict[str, object]:
    record = node.record
    made_at = record.finished_at if record else None
    return {
        "verdict": node.verdict,
        "reasons": list(node.reasons),
        "detail": node.error.message if node.error else None,
        "computed_at": _instant(made_at),
        "age_seconds": _age(made_at, now),
        "rows": record.result.rows if record else None,
        "strategy": record.strategy if record else None,
        "left_rows": record.left_rows if record else None,
        "right_rows": record.right_rows if record else None,
        "unmatched_left_rows": record.unmatched_left_rows if record else None,
        "excluded_right_rows": record.excluded_right_rows if record else None,
        "recall": record.recall if record else None,
        "nprobes": record.nprobes if record else None,
    }


def _run(run: NodeRunReport) -> dict[str, object]:
    told = run.result.to_json()
    del told["name"], told["kind"]
    head = {"run_id": run.run_id, "command": run.command}
    return {**head, "finished_at": format_instant(run.finished_at), **told}


def _instant(instant: datetime | None) -> str | None:
    return None if instant is None else format_instant(instant)


def _age(instant: datetime | None, now: datetime) -> float | None:
    return None if instant is None else max(0.0, (now - instant).total_seconds())


def _seconds(span: timedelta | None) -> float | None:
    return None if span is None else span.total_seconds()
