"""Plans and runs as text: a line per node, below it what needs more words, then the sum."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from lancestat.formats import MOST_NAMED, count, duration, message_lines, named, spoken
from lancestat.presentation.registry import Page
from lancestat.presentation.terminal import cell_width, paint, table, wrapped
from lancestat.presentation.views import SYMBOLS, ActionView, PlanView, RunView, StatusView

if TYPE_CHECKING:
    from lancestat.report.node_facts import NodeRunFigures

# The most unchanged nodes that are listed one by one.
SKIPS_LISTED = 12
_INDENT = " " * 13
# Symbol, verb and name, of which the name may take 40 columns.
_WIDEST = {0: 51}


def plan_lines(view: PlanView, page: Page) -> list[str]:
    """Return the page that `lancestat plan` prints."""
    if not view.actions:
        return ["No nodes selected.", *source_lines(view)]
    idle = sum(action.verb == "skip" for action in view.actions)
    is_folded = idle > SKIPS_LISTED and not page.verbose
    actions = [action for action in view.actions if not (is_folded and action.verb == "skip")]
    lines = [paint(f"Plan for {view.project}, target {view.target}", "title"), ""]
    for line, action in zip(_action_lines(actions, page.width), actions, strict=True):
        lines += [*line, *_below_action(action, page)]
    if is_folded:
        lines.append(folded(f"{count(idle)} {'more unchanged' if actions else 'unchanged'}"))
    counts = [paint(f"{symbol} {number} {verb}", verb) for symbol, verb, number in view.counts]
    found = [
        paint(line, "note")
        for text in (*source_lines(view), *closing_words(view))
        for line in wrapped(text, max(page.width, 40), indent="")
    ]
    return [*lines, "", "   ".join(counts), paint(plan_verdict(view), "title"), *found]


def folded(text: str, width: int = 8) -> str:
    """Return the line for nodes that are left out, below verbs of a width."""
    return paint(f"  {SYMBOLS['skip']} {'skip':<{width}} {text} (--verbose lists them)", "skip")


def _action_lines(actions: Sequence[ActionView], width: int) -> list[list[str]]:
    """Return the lines of each action, with the reasons below where the page is too narrow."""
    rows = [_cells(action) for action in actions]
    names = min(40, max((len(action.node) for action in actions), default=0))
    left = (
        width - len(_INDENT) - names - max((len(action.reads) for action in actions), default=0) - 4
    )
    if all(cell_width(row[2]) <= left for row in rows if len(row) == 3):
        return [[line] for line in table(rows, widest=_WIDEST, indent="  ")]
    lines = table([row[:2] for row in rows], widest=_WIDEST, indent="  ")
    return [
        [line, _INDENT + row[2]] if len(row) == 3 else [line]
        for line, row in zip(lines, rows, strict=True)
    ]


def _cells(action: ActionView) -> tuple[str, ...]:
    head = f"{action.symbol} {action.verb:<8}"
    if action.error is not None:
        return paint(f"{head} {action.node}", action.verb), ""
    why = spoken(action.reasons)
    if action.verb == "skip":
        return paint(f"{head} {action.node}", action.verb), paint(why, action.verb)
    return f"{paint(head, action.verb)} {action.node}", action.reads, paint(why, "note")


def _below_action(action: ActionView, page: Page) -> list[str]:
    if action.error is not None:
        return indented(action.error, page.width)
    if action.verb == "skip" and not page.verbose:
        return []
    texts: list[str] = []
    result = action.result
    if page.verbose and result.version_read is not None:
        analyzed = count(result.columns or 0, "column")
        texts.append(f"version {result.version_read}, {analyzed} analyzed")
    if page.verbose:
        texts += action.stages
    elif action.choice is not None and action.shows_choice:
        texts.append(action.choice)
    texts += [f"note: {note}" for note in action.notes]
    return [paint(line, "note") for text in texts for line in indented(text, page.width)]


def plan_verdict(view: PlanView) -> str:
    """Return what a run would read and compare in all, or that there is nothing to do."""
    if view.pending:
        return view.total
    if view.is_blocked:
        return "Nothing else to do."
    what = "everything is" if view.has_joins else "all statistics are"
    return f"Nothing to do: {what} up to date."


def source_lines(view: PlanView) -> Iterator[str]:
    """Yield sentences on what the sources have, of a plan or of none."""
    sources = view.sources
    if sources is None:
        return
    answered = " that could be looked up" if sources.gone is None else ""
    if sources.found or not answered:
        yield f"The sources{answered} have {count(sources.found, 'table')}."
    if sources.new:
        yield f"New since the last run: {named(sources.new)}."
    if sources.gone is None:
        yield "Whether tables are gone is not known, since a source could not be looked up."
    elif view.gone:
        yield view.gone
    yield from sources.notes


def closing_words(view: PlanView | RunView) -> Iterator[str]:
    """Yield sentences on tables of which something is left to do that no run does by itself."""
    if tables := view.still_published:
        yield (
            f"Statistics published earlier are still in {named(tables)}; "
            f"'lancestat unpublish {_arguments(tables)}' removes them."
        )
    if tables := view.lacking:
        yield (
            f"The state lacks what only it has of {named(tables)}: bounds of strings and binary, "
            "and what rules out fragments and answers aggregates; "
            f"'lancestat run --full-refresh -s \"{_arguments(tables)}\"' brings it back."
        )


def _arguments(tables: Sequence[str]) -> str:
    return " ".join(tables) if len(tables) <= MOST_NAMED else "NAME..."


def run_lines(view: RunView, page: Page) -> list[str]:
    """Return the page that `lancestat run` and `lancestat retry` print."""
    is_retry = view.command == "retry"
    if not view.nodes:
        return ["Nothing to retry." if is_retry else "No nodes selected.", *gone_lines(view, page)]
    what = "Retry" if is_retry else "Run"
    title = paint(f"{what} of {view.project}, target {view.target}", "title")
    left = [
        paint(line, "note")
        for text in closing_words(view)
        for line in wrapped(text, max(page.width, 40), indent="")
    ]
    totals = [*run_totals(view), *gone_lines(view, page), *left]
    return [title, "", *node_lines(view.nodes, page), "", *totals]


def gone_lines(view: RunView | StatusView, page: Page) -> list[str]:
    """Return the lines of a warning about tables that are gone, none where there are none."""
    lines = wrapped(view.gone, max(page.width, 40), indent="")
    return [paint(line, "refresh") for line in lines]


def node_lines(results: Sequence[NodeRunFigures], page: Page) -> list[str]:
    """Return a line for each node of a run, and below it what needs more words."""
    idle = sum(node.result.action == "skip" for node in results)
    is_folded = idle > SKIPS_LISTED and not page.verbose
    nodes = [node for node in results if not (is_folded and node.result.action == "skip")]
    unbegun = sum(node.has_not_begun for node in nodes)
    if unbegun > 1 and not page.verbose:
        nodes = [node for node in nodes if not node.has_not_begun]
    else:
        unbegun = 0
    lines: list[str] = []
    rows = table(map(_run_cells, nodes), right={3}, indent="  ")
    for line, node in zip(rows, nodes, strict=True):
        lines += [line, *indented(node.result.text, page.width)]
        texts = [", ".join(node.quality)]
        # Those of joins are about what the plan chose, and the line says what was done.
        if node.result.join is None and (node.is_done or page.verbose):
            texts += [f"note: {note}" for note in node.result.notes]
        below = [part for text in texts for part in indented(text, page.width)]
        lines += [paint(text, "note") for text in below]
    if unbegun:
        text = f"{count(unbegun, 'node')} that had not begun (--verbose lists them)"
        lines.append(paint(f"    {'stopped':<8} {text}", "note"))
    if is_folded:
        lines.append(folded(f"{count(idle)} unchanged"))
    return lines


def _run_cells(node: NodeRunFigures) -> tuple[str, ...]:
    """Return symbol, action and name; what was read, what was published, how long it took."""
    is_left = node.action in ("not run", "stopped")
    tone = "error" if node.is_failed else "note" if is_left else node.action
    symbol = SYMBOLS.get("blocked" if node.is_failed else node.result.action, " ")
    head = paint(f"{symbol} {node.action:<8}", tone)
    if node.action == "skip":
        return f"{head} {paint(node.name, 'note')}", paint(node.reasons, "note"), "", ""
    name = f"{head} {node.name}"
    if not node.is_done:
        return name, "", "", ""
    elapsed = node.elapsed or duration(0)
    return name, node_read(node), node_published(node), elapsed


def node_read(node: NodeRunFigures) -> str:
    """Return what was read of a table, or what a join compared."""
    join = node.result.join
    if join is None:
        return node.read or "nothing read"
    whole = f"{count(join.counts.left_rows or 0)} x {count(join.counts.right_rows or 0)} rows"
    rows = {"new_left": "new left rows", "new_right": "new right rows"}.get(join.scope or "", whole)
    return f"{join.strategy}, {rows}, {node.pairs}"


def node_published(node: NodeRunFigures) -> str:
    """Return the version that was read and the one that the run has made."""
    read, published = node.result.version_read, node.result.version_published
    if node.result.join is not None:
        return "written" if published is None else f"version {published}"
    return f"version {read}" if published is None else f"version {read} -> {published}"


def run_totals(view: RunView) -> Iterator[str]:
    """Yield how many nodes were brought up to date, and what was read in all."""
    text = paint(f"{view.updated} brought up to date, {view.unchanged} unchanged", "success")
    if view.interrupted:
        text += paint(f", {view.interrupted} stopped", "error")
    if view.not_run:
        text += paint(f", {view.not_run} not run", "note")
    if view.failed:
        text += paint(f", {view.failed} failed", "error")
    yield f"{text}."
    yield paint(view.total, "title")


def indented(text: str, width: int) -> list[str]:
    """Return the lines of a message as they stand below a node's name."""
    return [
        part
        for line in message_lines(text)
        for part in wrapped(
            line.strip(),
            max(width, 40),
            indent=_INDENT + " " * (len(line) - len(line.lstrip())),
        )
    ]
