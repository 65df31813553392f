"""Plans, runs, status and unpublished tables as text: a line per node, then the sum of all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from lancestat.formats import (
    MOST_NAMED,
    count,
    duration,
    instant,
    message_lines,
    named,
    spoken,
    visible,
)
from lancestat.presentation.registry import Page
from lancestat.presentation.terminal import cell_width, paint, table, wrapped
from lancestat.presentation.views import (
    SYMBOLS,
    ActionView,
    PastRunView,
    PlanView,
    RunsView,
    RunView,
    StatusView,
    UnpublishView,
)

if TYPE_CHECKING:
    from lancestat.report.values import NodeReport, NodeRunFigures
    from lancestat.runs.result import PastRun
    from lancestat.tables.unpublish import UnpublishedNode

# The most unchanged nodes that are listed one by one.
SKIPS_LISTED = 12
_INDENT = " " * 13
# Symbol, verb and name, of which the name may take 40 columns.
_WIDEST = {0: 51}


def plan_lines(view: PlanView, page: Page) -> list[str]:
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
    """Yield sentences on tables of which something is left to do that no run does by itself.

    They are those with `publish: none` that hold statistics published earlier, and those left as
    they are of which the state lacks what only it has.
    """
    if tables := [result.name for result in view.results if result.still_published]:
        yield (
            f"Statistics published earlier are still in {named(tables)}; "
            f"'lancestat unpublish {_arguments(tables)}' removes them."
        )
    if tables := [result.name for result in view.results if result.is_lacking]:
        yield (
            f"The state lacks what only it has of {named(tables)}: bounds of strings and binary, "
            "and what rules out fragments and answers aggregates; "
            f"'lancestat run --full-refresh -s \"{_arguments(tables)}\"' brings it back."
        )


def _arguments(tables: Sequence[str]) -> str:
    return " ".join(tables) if len(tables) <= MOST_NAMED else "NAME..."


def run_lines(view: RunView, page: Page) -> list[str]:
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
        # Those of joins, say, are about what the plan chose, and the line says what was done.
        if node.result.figures is None and (node.is_done or page.verbose):
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
    figures = node.result.figures
    return figures.done if figures else node.read or "nothing read"


def node_published(node: NodeRunFigures) -> str:
    """Return the version that was read and the one that the run has made."""
    read, published = node.result.version_read, node.result.version_published
    if read is None:
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
    return [
        part
        for line in message_lines(text)
        for part in wrapped(
            line.strip(),
            max(width, 40),
            indent=_INDENT + " " * (len(line) - len(line.lstrip())),
        )
    ]


_RUN_TONES = {"success": "success", "error": "error", "interrupted": "refresh", "running": "title"}
# How much of an id is shown: enough to name one run of very many.
_ID_SHOWN = 12
_OF_PAST = {
    "skip": "unchanged",
    "error": "failed",
    "skipped": "not run",
    "interrupted": "stopped",
}


def runs_lines(view: RunsView, page: Page) -> list[str]:
    if not view.runs:
        return [f"No run of target {view.target} is recorded."]
    lines = [paint(f"Runs of {view.project}, target {view.target}", "title"), ""]
    rows = [_past_run_cells(run, page) for run in view.runs]
    head = ["run", "command", "started", "status", "time", "nodes"]
    return [*lines, *table(rows, head=head, right={4}, indent="  ")]


def _past_run_cells(run: PastRun, page: Page) -> list[str]:
    tone = _RUN_TONES.get(run.status, "note")
    counts = (f"{count(number)} {_OF_PAST.get(what, what)}" for what, number in run.counts.items())
    run_id = run.run_id if page.verbose else run.run_id[:_ID_SHOWN]
    started = instant(run.started_at, with_seconds=True)
    return [run_id, run.command, started, paint(run.status, tone), _time(run), ", ".join(counts)]


def _time(run: PastRun) -> str:
    return "" if run.elapsed is None else duration(run.elapsed.total_seconds())


def past_run_lines(view: PastRunView, page: Page) -> Iterator[str]:
    run = view.run
    title = f"{run.command.capitalize()} {run.run_id} of {view.project}, target {run.target}"
    yield paint(title, "title")
    took = f", took {_time(run)}" if run.elapsed is not None else ""
    status = paint(run.status, _RUN_TONES.get(run.status, "note"))
    yield f"{status}, started {instant(run.started_at, with_seconds=True)}{took}"
    yield ""
    yield from node_lines(view.nodes, page)


HEALTH_SYMBOLS = {"ok": ".", "warn": "?", "error": "!"}
# The most healthy nodes that are listed one by one.
WELL_LISTED = 30
_HEALTH_TONES = {"ok": "success", "warn": "refresh", "error": "error"}
_MARGIN = "  "
_BELOW_INDENT = " " * 11

# Columns by what their cells are, with what they are called above them and in a sentence. Those at
# the end are the first to go below the line where the page is narrow.
COLUMNS = (
    ("name", "node", ""),
    ("verdict", "statistics", ""),
    ("behind", "behind", ""),
    ("changed", "changed", ""),
    ("columns", "columns", ""),
    ("age", "age", "statistics of {} ago"),
    ("rows_age", "data age", "rows of {} ago"),
)
_LAST_RUN = "last run"
RIGHT = frozenset({"behind", "changed", "columns"})
_KEPT_COLUMNS = 5


def status_lines(view: StatusView, page: Page) -> list[str]:
    """Return a line per node, below it in sentences what is wrong, and a summary."""
    if not view.nodes:
        return ["No nodes declared.", *gone_lines(view, page)]
    well = sum(words["health"] == "ok" for _, words in view.nodes)
    is_folded = well > WELL_LISTED and not page.verbose
    nodes = [row for row in view.nodes if not (is_folded and row[1]["health"] == "ok")]
    lines = [paint(f"Status of {view.project}, target {view.target}", "title"), ""]
    if nodes:
        lines += _listed(nodes, page.width)
    if is_folded:
        more = "more are well" if nodes else "are well"
        text = f"{HEALTH_SYMBOLS['ok']} ok     {count(well)} {more} (--verbose lists them)"
        lines.append(paint(f"{_MARGIN}{text}", "skip"))
    counts = ", ".join(paint(text, _HEALTH_TONES[health]) for text, health in view.counts)
    return [*lines, "", f"{counts}.", *gone_lines(view, page)]


# A node, and its texts by column.
StatusRow = tuple["NodeReport", Mapping[str, str]]


def _listed(nodes: Sequence[StatusRow], width: int) -> list[str]:
    """Return all about a node on its line as far as that has room, the rest below it."""
    columns = [column for column in COLUMNS if any(words[column[0]] for _, words in nodes)]
    beside = len(columns)
    least = sum(column in COLUMNS[:_KEPT_COLUMNS] for column in columns)
    while beside > least and _breadth(_table(columns[:beside], nodes)) > width:
        beside -= 1
    head, *lines = _table(columns[:beside], nodes)
    breadth = _breadth([head, *lines])
    room = 0 if beside < len(columns) else width - breadth - len(_MARGIN)
    is_any_beside = any(0 < len(words["last_run"]) <= room for _, words in nodes)
    page = [_beside(head, breadth, paint(_LAST_RUN, "note")) if is_any_beside else head]
    for (node, words), line in zip(nodes, lines, strict=True):
        rest = [phrase.format(words[name]) for name, _, phrase in columns[beside:] if words[name]]
        if len(words["last_run"]) <= room:
            line = _beside(line, breadth, words["last_run"])
        elif words["last_run"]:
            rest.append(f"{_LAST_RUN}: {words['last_run']}")
        page.append(line)
        page += [paint(text, "note") for text in _under("; ".join(rest), width)]
        tone = _HEALTH_TONES[words["health"]]
        below = (text for problem in node.problems for text in _under(problem, width))
        page += [paint(text, tone) for text in below]
    return page


def _breadth(lines: Sequence[str]) -> int:
    return max(map(cell_width, lines))


def _beside(line: str, breadth: int, text: str) -> str:
    return f"{line}{' ' * (breadth - cell_width(line))}{_MARGIN}{text}".rstrip()


def _table(columns: Sequence[tuple[str, str, str]], nodes: Sequence[StatusRow]) -> list[str]:
    head = ["", *(head for _, head, _ in columns)]
    rows = [
        [_sign(words["health"]), *(words[name] for name, _, _ in columns)] for _, words in nodes
    ]
    right = [index for index, (name, _, _) in enumerate(columns, 1) if name in RIGHT]
    return table(rows, head=head, right=right, indent=_MARGIN)


def _sign(health: str) -> str:
    return paint(f"{HEALTH_SYMBOLS[health]} {health:<5}", _HEALTH_TONES[health])


def _under(text: str, width: int) -> list[str]:
    return wrapped(text, max(width, 40), indent=_BELOW_INDENT)


_UNPUBLISH_SYMBOLS = {"unpublish": "-", "skip": ".", "blocked": "!"}
_UNPUBLISH_TONES = {"unpublish": "refresh", "skip": "skip", "blocked": "blocked"}
_KEPT_BECAUSE = {
    "absent": "nothing is published",
    "other_writer": "the statistics of another writer stay",
    "newer_release": "what a newer release of lancestat wrote stays",
    "not_a_table": "the result of a join stays as it is",
}


def unpublish_lines(view: UnpublishView, page: Page) -> list[str]:
    result = view.result
    idle = sum(node.action == "skip" for node in result.nodes)
    is_folded = idle > SKIPS_LISTED and not page.verbose
    nodes = [node for node in result.nodes if not (is_folded and node.action == "skip")]
    what = "Dry run of unpublish" if result.is_dry_run else "Unpublish"
    lines = [paint(f"{what} for {result.project}, target {result.target}", "title"), ""]
    for line, node in zip(table(map(_unpublish_cells, nodes), indent="  "), nodes, strict=True):
        lines += [line, *indented(node.error.text() if node.error else "", page.width)]
        lines += [paint(text, "note") for text in indented(_unknown(node), page.width)]
    if is_folded:
        lines.append(folded(f"{count(idle)} left as they are", 9))
    return [*lines, "", *_unpublish_totals(view, idle), *_next_run(view, page)]


def _unpublish_cells(node: UnpublishedNode) -> tuple[str, ...]:
    """Return symbol, action and name; what goes, and the versions before and after."""
    action = "failed" if node.error else node.action
    head = paint(f"{_UNPUBLISH_SYMBOLS[node.action]} {action:<9}", _UNPUBLISH_TONES[node.action])
    if node.reason is None:
        return f"{head} {node.name}", ""
    reason = _KEPT_BECAUSE.get(node.reason.value, "")
    if node.action != "unpublish":
        return f"{head} {node.name}", paint(reason, "note")
    what = count(node.entries or 0, "entry", "entries")
    what += f" of {count(node.columns, 'column')}" if node.columns else f"; {reason}"
    landed = node.version_committed
    version = f"version {node.version_read}" + ("" if landed is None else f" -> {landed}")
    return f"{head} {node.name}", what, version


def _unknown(node: UnpublishedNode) -> str:
    """Return which of the entries that go lancestat did not write; empty where it wrote all."""
    return (
        f"among them not lancestat's: {named([*map(visible, node.unknown)])}"
        if node.unknown
        else ""
    )


def _unpublish_totals(view: UnpublishView, idle: int) -> Iterator[str]:
    result = view.result
    removed = [node for node in result.nodes if node.action == "unpublish"]
    failed = sum(node.error is not None for node in result.nodes)
    entries = count(sum(node.entries or 0 for node in removed), "entry", "entries")
    where = f"from {count(len(removed), 'table')}"
    removal = "Would remove" if result.is_dry_run else "Removed"
    text = f"{removal} {entries} {where}" if removed else "Nothing to remove"
    parts = [f"{count(idle)} left as they are"] if idle else []
    parts += [paint(f"{count(failed)} failed", "error")] if failed else []
    yield "".join(f", {part}" if index else part for index, part in enumerate([text, *parts])) + "."


def _next_run(view: UnpublishView, page: Page) -> Iterator[str]:
    """Yield the lines on tables whose statistics the next run publishes, or confirms."""
    for text in _next_run_words(view):
        yield from (paint(line, "note") for line in wrapped(text, max(page.width, 40), indent=""))


def _next_run_words(view: UnpublishView) -> Iterator[str]:
    again: Sequence[str] = [node.name for node in view.result.nodes if node.is_published_again]
    if again:
        yield (
            f"The next run publishes the statistics of {named(again)} again, without reading what "
            "the state has stored; 'publish: none' keeps them out."
        )
    kept: Sequence[str] = [node.name for node in view.result.nodes if node.is_behind]
    if kept:
        yield (
            f"What the state keeps of {named(kept)} describes an earlier version until the next "
            "run, which confirms it without reading."
        )
