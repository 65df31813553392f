"""A plan as JSON: a contract, like that of a run."""

from __future__ import annotations

from lancestat.plan.actions import Plan, blocked
from lancestat.plan.node_result import planned

FORMAT_VERSION = 1


def render_json(plan: Plan) -> dict[str, object]:
    """The object that `lancestat plan --output json` prints."""
    return {
        "format_version": FORMAT_VERSION,
        "command": "plan",
        "project": plan.project,
        "target": plan.target,
        "status": "error" if blocked(plan) else "planned",
        "nodes": [planned(action).to_json() for action in plan.actions],
    }
