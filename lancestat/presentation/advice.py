"""The words and cells of advice, which text and Markdown share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from lancestat.formats import count, size
from lancestat.presentation import views
from lancestat.presentation.terminal import paint, table

if TYPE_CHECKING:
    from lancestat.query.workload.advice import Advice, Proposal

_MOST_NAMED = 20
HEAD = ("table", "change", "columns", "evidence", "first read")


def advice_title(advice: Advice) -> str:
    """Return what was read: `12 queries in 1 log, from 2026-01-02 to 2026-01-03`."""
    queries = count(advice.queries, "query", "queries")
    text = f"{queries} in {count(advice.logs, 'log')}"
    if advice.first is None or advice.last is None:
        return text
    return f"{text}, from {advice.first:%Y-%m-%d} to {advice.last:%Y-%m-%d}"


def proposal_cells(proposal: Proposal) -> tuple[str, ...]:
    """Return the cells of a proposal under `HEAD`."""
    read = size(proposal.size_bytes) if proposal.size_bytes else ""
    return proposal.table, proposal.change.value, proposal.what, proposal.evidence, read


def advice_notes(view: views.AdviceView) -> Iterator[str]:
    """Yield sentences about what has no proposal, or is not in the diff."""
    advice = view.advice
    by_reason: dict[str, dict[str, list[str]]] = {}
    for proposal, why in advice.by_hand:
        tables = by_reason.setdefault(why, {})
        tables.setdefault(proposal.table, []).append(f"{proposal.change} {proposal.what}")
    for why, tables in by_reason.items():
        listed = "; ".join(f"{name}, {', '.join(changes)}" for name, changes in tables.items())
        yield f"To change by hand: {listed}: {why}."
    if advice.unneeded:
        changes = count(advice.unneeded, "change")
        yield f"Not proposed, since estimates are good without: {changes} (see --min-q-error)."
    if advice.queries and not advice.has_estimates:
        yield (
            "No q-errors: the logs lack the rows that Spark expected, which they have with "
            "spark.sql.cbo.enabled=true and, in event logs, spark.sql.ui.explainMode=cost."
        )
    if advice.undeclared:
        yield f"Not declared: {_undeclared(advice)}."
    for name, message in advice.unopened.items():
        yield f"Not opened: {name}: {message.rstrip('.')}."
    if advice.left_out:
        yield f"Left out: {advice.left_out}."
    if view.written:
        yield f"Changed {', '.join(view.written)}."


def _undeclared(advice: Advice) -> str:
    ordered = sorted(advice.undeclared.items(), key=lambda item: (-item[1], item[0]))
    named = [f"{name} ({count(n, 'query', 'queries')})" for name, n in ordered[:_MOST_NAMED]]
    more = len(ordered) - len(named)
    return ", ".join([*named, f"{count(more)} more"] if more else named)


def advice_lines(view: views.AdviceView, page: views.Page) -> Iterator[str]:
    """Yield the lines of the format `text`."""
    advice = view.advice
    yield paint(f"Advice for {advice.project}, target {advice.target}", "title")
    yield advice_title(advice)
    yield ""
    if advice.proposals:
        rows = [proposal_cells(proposal) for proposal in advice.proposals]
        yield from table(rows, head=list(HEAD), right={4}, indent="  ", page=page)
    else:
        yield "Nothing to change."
    notes = list(advice_notes(view))
    if notes:
        yield from ("", *notes)
    if advice.diff:
        yield ""
        yield from map(_painted, advice.diff.split("\n"))


def _painted(line: str) -> str:
    tones = {"+": "success", "-": "error", "@": "note"}
    return paint(line, tones[line[0]]) if line[:1] in tones else line
