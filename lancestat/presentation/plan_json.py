"""A plan as JSON: a contract, like that of a run."""

from __future__ import annotations

from dataclasses import asdict

from lancestat.plan.actions import Action, Blocked, Join, JoinFigures, Plan
from lancestat.presentation.plan_view import blocked, join_figures, table_figures

FORMAT_VERSION = 1
_COUNTS = (
    "fragments_total",
    "fragments_scanned",
    "columns",
    "rows_total",
    "rows_scanned",
    "version_read",
)


def render_json(plan: Plan) -> dict[str, object]:
    """The object that `lancestat plan --output json` prints."""
    return {
        "format_version": FORMAT_VERSION,
        "command": "plan",
        "project": plan.project,
        "target": plan.target,
        "status": "error" if blocked(plan) else "planned",
        "nodes": [node_json(action) for action in plan.actions],
    }


def node_json(action: Action) -> dict[str, object]:
    """A node of a plan, with the keys that a node of a run has."""
    if isinstance(action, Blocked):
        reasons, status, message = [], "error", str(action.error)
    else:
        reasons, status, message = [reason.value for reason in action.reasons], "planned", None
    figures = table_figures(action)
    known = asdict(figures) if figures is not None else {}
    return {
        "name": action.node,
        "kind": action.kind,
        "action": action.verb,
        "reasons": reasons,
        "status": status,
        **{name: known.get(name) for name in _COUNTS},
        "version_published": None,
        "elapsed_seconds": None,
        "message": message,
        **(asdict(join_figures(action) or JoinFigures()) if action.kind == Join.kind else {}),
    }
