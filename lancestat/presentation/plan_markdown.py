"""A plan as a Markdown table, for pull requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lancestat.formats import count
from lancestat.plan.actions import SYMBOLS, Action, Blocked, JoinAction, Plan, Skip, is_pending
from lancestat.presentation.plan_view import choice, reads, totals
from lancestat.redact import NOTHING_KNOWN, Audience, Redactor, visible
from lancestat.spec.model import Policy


def render_markdown(
    plan: Plan, policies: Mapping[str, Policy], redactor: Redactor = NOTHING_KNOWN
) -> str:
    """What a reviewer needs to see: what will be read and why, and which staleness readers accept.

    Nodes that stay as they are are counted, not listed.

    Args:
        plan: The plan.
        policies: The policy of every table, by its name.
        redactor: Finds what must not be published.
    """
    busy = [_public(action, redactor) for action in plan.actions if not isinstance(action, Skip)]
    lines = [f"### lancestat: {cell(plan.project)}, target {cell(plan.target)}", ""]
    if busy:
        lines += ["| | node | reads | why | readers accept |", "|:-:|---|---|---|---|"]
        lines += [_row(action, policies.get(action.node)) for action in busy]
        lines.append("")
    lines.append(_summary(plan, busy))
    notes = [
        f"- {code(action.node)}: {cell(redactor.text(note, Audience.PUBLIC))}"
        for action in busy
        for note in _notes(action)
    ]
    return "\n".join([*lines, "", *notes] if notes else lines)


def _public(action: Action, redactor: Redactor) -> Action:
    if not isinstance(action, Blocked):
        return action
    return replace(action, error=redactor.error(action.error, Audience.PUBLIC))


def _row(action: Action, policy: Policy | None) -> str:
    if isinstance(action, Blocked):
        why = cell(str(action.error))
    else:
        why = ", ".join(code(reason.value) for reason in action.reasons)
    accepted = (policy.shown or policy.accepted_staleness) if policy else ""
    cells = (f"{code(SYMBOLS[action.verb])} {action.verb}", code(action.node), reads(action), why)
    return f"| {' | '.join(cells)} | {cell(accepted)} |"


def _notes(action: Action) -> tuple[str, ...]:
    if isinstance(action, Blocked):
        return ()
    return (choice(action), *action.notes) if isinstance(action, JoinAction) else action.notes


def _summary(plan: Plan, busy: Sequence[Action]) -> str:
    changes = sum(is_pending(action) for action in plan.actions)
    idle = len(plan.actions) - len(busy)
    if changes:
        text = f"**{count(changes, 'change')}.** {totals(plan.actions)}"
    else:
        text = "Nothing else to do." if busy else "Nothing to do."
    return f"{text} {count(idle, 'node')} unchanged." if idle else text


def code(text: str) -> str:
    """Text as inline code in a table's cell."""
    text = " ".join(text.replace("`", "'").replace("|", "\\|").split())
    return f"`{visible(text)}`"


def cell(text: str) -> str:
    """Text that cannot break out of a table's cell or turn into markup."""
    for char in "\\`*_[]<>|":
        text = text.replace(char, "\\" + char)
    return visible(" ".join(text.split()))
