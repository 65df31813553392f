"""What every rendering of a plan says of an action."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from lancestat.plan.actions import Action, Analyze, Blocked, Plan, Refresh, Restamp, Skip
from lancestat.plan.format import count, size

# In the order in which a summary counts them.
SYMBOLS = {kind.verb: kind.symbol for kind in (Analyze, Refresh, Restamp, Skip, Blocked)}


def is_pending(action: Action) -> bool:
    """Whether a run would do something."""
    return not isinstance(action, Skip | Blocked)


def blocked(plan: Plan) -> tuple[Blocked, ...]:
    """The nodes that cannot be planned."""
    return tuple(action for action in plan.actions if isinstance(action, Blocked))


def reads(action: Action) -> str:
    """What an action reads: `1 of 17 fragments, 250,000 rows, 12 MB`."""
    if not is_pending(action) or isinstance(action, Blocked):
        return ""
    figures = action.figures
    if not figures.fragments_scanned:
        return "nothing to read"
    part = f"{count(figures.fragments_scanned)} of {count(figures.fragments_total, 'fragment')}"
    rows = count(figures.rows_scanned, "row")
    return f"{part}{_columns(action)}, {rows}, {size(figures.bytes_scanned)}"


def _columns(action: Action) -> str:
    """Which columns are read, where not all of them are."""
    if not isinstance(action, Analyze | Refresh):
        return ""
    touched = frozenset[str]().union(*{scan.fields for scan in action.work.scans})
    total = action.figures.columns
    return f" ({count(len(touched))} of {count(total, 'column')})" if len(touched) < total else ""


@dataclass(frozen=True, slots=True)
class Totals:
    """A plan in one glance; `verbs` counts the actions by word, in the order of the symbols."""

    verbs: tuple[tuple[str, int], ...]
    fragments_total: int
    fragments_scanned: int
    rows_scanned: int
    bytes_scanned: int

    def __str__(self) -> str:
        if not self.fragments_scanned:
            return "Reads no data."
        part = f"{count(self.fragments_scanned)} of {count(self.fragments_total, 'fragment')}"
        return f"Reads {part}: {count(self.rows_scanned, 'row')}, {size(self.bytes_scanned)}."


def totals(actions: Sequence[Action]) -> Totals:
    """Add up actions."""
    verbs = Counter(action.verb for action in actions)
    figures = [action.figures for action in actions if not isinstance(action, Blocked)]
    return Totals(
        tuple((word, verbs[word]) for word in SYMBOLS if verbs[word]),
        sum(each.fragments_total for each in figures),
        sum(each.fragments_scanned for each in figures),
        sum(each.rows_scanned for each in figures),
        sum(each.bytes_scanned for each in figures),
    )
