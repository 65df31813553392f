"""A plan for people."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence

from lancestat.formats import count
from lancestat.knn.work import Scope
from lancestat.plan.actions import (
    SYMBOLS,
    Action,
    Blocked,
    JoinAction,
    Plan,
    Skip,
    blocked,
    is_pending,
    join_figures,
    table_figures,
)
from lancestat.presentation.plan_view import (
    choice,
    explain_join,
    reads,
    totals,
)
from lancestat.redact import PAINT, message_lines, visible

# Paints a text in the tone of an action's word, or of `note`, `title`.
Paint = Callable[[str, str], str]

# So many unchanged nodes are still listed one by one.
SKIPS_LISTED = 12
_INDENT = " " * 13


def plain(text: str, tone: str) -> str:
    """Paint nothing."""
    return text


def render_text(
    plan: Plan, *, paint: Paint = plain, verbose: bool = False, width: int = 100
) -> str:
    """The page that `lancestat plan` prints: a line per node, below it what needs more words."""
    if not plan.actions:
        return "No nodes selected."
    shown, folded = _fold(plan.actions, verbose)
    columns = _Columns(shown, width)
    lines = [paint(f"Plan for {plan.project}, target {plan.target}", "title"), ""]
    for action in shown:
        lines += columns.lines(action, paint)
        lines += _below(action, paint, verbose, width)
    if folded:
        more = "more unchanged" if shown else "unchanged"
        text = f"  {SYMBOLS['skip']} skip     {count(folded)} {more} (--verbose lists them)"
        lines.append(paint(text, "skip"))
    return "\n".join(visible(line, keep=PAINT) for line in [*lines, "", *_summary(plan, paint)])


def _fold(actions: Sequence[Action], verbose: bool) -> tuple[list[Action], int]:
    idle = sum(isinstance(action, Skip) for action in actions)
    if verbose or idle <= SKIPS_LISTED:
        return list(actions), 0
    return [action for action in actions if not isinstance(action, Skip)], idle


class _Columns:
    """Widths that let names, readings and reasons of all lines stand under each other.

    Reasons go below the names where a line would be wider than the page.
    """

    def __init__(self, actions: Sequence[Action], width: int) -> None:
        self.name = min(40, max((len(action.node) for action in actions), default=0))
        self.reads = max((len(reads(action)) for action in actions), default=0)
        left = width - len(_INDENT) - self.name - self.reads - 4
        self.is_narrow = any(len(_why(a)) > left for a in actions if is_pending(a))

    def lines(self, action: Action, paint: Paint) -> list[str]:
        word = action.verb
        head = f"{SYMBOLS[action.verb]} {word:<8}"
        if isinstance(action, Blocked):
            return [f"  {paint(f'{head} {action.node}', word)}"]
        name, why = f"{action.node:<{self.name}}", _why(action)
        if isinstance(action, Skip):
            return ["  " + paint(f"{head} {name}  {why}", word)]
        line = f"  {paint(head, word)} {name}  "
        if self.is_narrow:
            return [f"{line}{reads(action)}".rstrip(), f"{_INDENT}{paint(why, 'note')}"]
        return [f"{line}{reads(action):<{self.reads}}  {paint(why, 'note')}"]


def _why(action: Action) -> str:
    reasons = () if isinstance(action, Blocked) else action.reasons
    return ", ".join(reason.value.replace("_", " ") for reason in reasons)


def _below(action: Action, paint: Paint, verbose: bool, width: int) -> list[str]:
    if isinstance(action, Blocked):
        return indented(str(action.error), width)
    if isinstance(action, Skip) and not verbose:
        return []
    lines = [f"note: {note}" for note in action.notes]
    figures = table_figures(action)
    if verbose and figures is not None:
        lines.insert(
            0, f"version {figures.version_read}, {count(figures.columns, 'column')} analyzed"
        )
    if isinstance(action, JoinAction):
        lines = [*_choice(action, verbose), *lines]
    return [paint(line, "note") for text in lines for line in indented(text, width)]


def _choice(action: JoinAction, verbose: bool) -> Sequence[str]:
    """How a join is done; what a narrowed scope does is in its note."""
    if verbose:
        return explain_join(action)
    return [choice(action)] if action.work.scope is Scope.FULL else []


def indented(text: str, width: int) -> list[str]:
    """Lines that stand below a node's name."""
    lines: list[str] = []
    for line in message_lines(text):
        margin = _INDENT + " " * (len(line) - len(line.lstrip()))
        lines += textwrap.wrap(
            line.strip(),
            max(width, 40),
            initial_indent=margin,
            subsequent_indent=margin,
            break_long_words=False,
            break_on_hyphens=False,
        )
    return lines


def _summary(plan: Plan, paint: Paint) -> list[str]:
    found = totals(plan.actions)
    parts = [paint(f"{SYMBOLS[word]} {number} {word}", word) for word, number in found.verbs]
    if any(is_pending(action) for action in plan.actions):
        verdict = str(found)
    elif blocked(plan):
        verdict = "Nothing else to do."
    else:
        what = "everything is" if any(map(join_figures, plan.actions)) else "all statistics are"
        verdict = f"Nothing to do: {what} up to date."
    return ["   ".join(parts), paint(verdict, "title")]
