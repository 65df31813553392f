"""The format `text`, for people at a terminal; colours are dropped elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, takewhile
from typing import TYPE_CHECKING

from lancestat import formats
from lancestat.formats import PAINT, age, count, duration, instant, message_lines, spoken, visible
from lancestat.presentation import views, words
from lancestat.presentation.advice import advice_lines
from lancestat.presentation.explanations import (
    change_words,
    comparison_notes,
    estimates,
    execution_notes,
    explanation_notes,
    operator_table,
    operator_text,
    scan_facts,
    scan_summary,
    side_cells,
)
from lancestat.presentation.findings import check_lines, history_lines, shortened
from lancestat.presentation.relations import relation_tables
from lancestat.presentation.terminal import (
    CONSOLE,
    cell_width,
    fitting_columns,
    paint,
    table,
    wrapped,
)
from lancestat.redact import redact_line

if TYPE_CHECKING:
    from lancestat.query.sql.explanation import PlanExplanation, ScanLine
    from lancestat.report.values import NodeReport
    from lancestat.review.values import Diff, NodeDiff, PropertyChange
    from lancestat.runs.actions import Action
    from lancestat.runs.result import NodeResult
    from lancestat.tables.wire import PublishedColumn

_INDENT = " " * 13
# Symbol, verb and name, of which the name may take 40 columns.
_WIDEST = {0: 51}


def _write(lines: Iterable[str]) -> None:
    CONSOLE.out(*lines)


FORMAT: views.Format[Iterable[str]] = views.Format(_write, is_for_people=True)


def folded(text: str, width: int = 8) -> str:
    """Return the line for nodes that are left out, below verbs of a width."""
    return paint(
        f"  {words.SYMBOLS['skip']} {'skip':<{width}} {text} (--verbose lists them)", "skip"
    )


def indented(text: str, page: views.Page, tone: str | None = None) -> list[str]:
    """Return the lines of a text below a node."""
    lines = [
        part
        for line in message_lines(text)
        for part in wrapped(
            line.strip(),
            max(page.width, 40),
            indent=_INDENT + " " * (len(line) - len(line.lstrip())),
        )
    ]
    return [paint(line, tone) for line in lines] if tone else lines


def paragraphs(texts: Iterable[str], page: views.Page, tone: str = "note") -> list[str]:
    """Return the lines of texts of the whole width."""
    width = max(page.width, 40)
    return [paint(line, tone) for text in texts for line in wrapped(text, width, indent="")]


def _gone(gone: str, page: views.Page) -> list[str]:
    return paragraphs([gone], page, "refresh")


@FORMAT.renders(views.PlanView)
def _plan(view: views.PlanView, page: views.Page) -> list[str]:
    from lancestat.runs.actions import is_idle

    plan = view.plan
    if not plan.actions:
        return ["No nodes selected.", *words.source_lines(plan.sources)]
    idle = sum(map(is_idle, plan.actions))
    is_folded = idle > words.SKIPS_LISTED and not page.verbose
    actions = [action for action in plan.actions if not (is_folded and is_idle(action))]
    lines = [paint(f"Plan for {plan.project}, target {plan.target}", "title"), ""]
    for line, action in zip(_action_lines(actions, page.width), actions, strict=True):
        lines += [*line, *_below_action(action, page)]
    if is_folded:
        lines.append(folded(f"{count(idle)} {'more unchanged' if actions else 'unchanged'}"))
    counts = [
        paint(f"{words.SYMBOLS[verb]} {number} {verb}", verb)
        for verb, number in words.verb_counts(plan)
    ]
    closing = words.closing_words(words.planned_results(plan))
    found = paragraphs((*words.source_lines(plan.sources), *closing), page)
    return [*lines, "", "   ".join(counts), paint(words.plan_verdict(plan), "title"), *found]


def _action_lines(actions: Sequence[Action], width: int) -> list[list[str]]:
    """Return the lines of each action, with the reasons below where the page is too narrow."""
    rows = [_cells(action) for action in actions]
    names = min(40, max((len(action.node) for action in actions), default=0))
    reads = max((len(action.reads) for action in actions), default=0)
    left = width - len(_INDENT) - names - reads - 4
    if all(cell_width(row[2]) <= left for row in rows if len(row) == 3):
        return [[line] for line in table(rows, widest=_WIDEST, indent="  ")]
    lines = table([row[:2] for row in rows], widest=_WIDEST, indent="  ")
    return [
        [line, _INDENT + row[2]] if len(row) == 3 else [line]
        for line, row in zip(lines, rows, strict=True)
    ]


def _cells(action: Action) -> tuple[str, ...]:
    head = f"{words.SYMBOLS[action.verb]} {action.verb:<8}"
    if action.error is not None:
        return paint(f"{head} {action.node}", action.verb), ""
    why = spoken(reason.value for reason in action.reasons)
    if action.verb == "skip":
        return paint(f"{head} {action.node}", action.verb), paint(why, action.verb)
    return f"{paint(head, action.verb)} {action.node}", action.reads, paint(why, "note")


def _below_action(action: Action, page: views.Page) -> list[str]:
    from lancestat.runs.actions import is_idle, table_figures

    if action.error is not None:
        return indented(action.error.text(), page)
    if is_idle(action) and not page.verbose:
        return []
    texts: list[str] = []
    figures = table_figures(action)
    if page.verbose and figures is not None:
        analyzed = count(figures.columns, "column")
        texts.append(f"version {figures.version_read}, {analyzed} analyzed")
    if page.verbose:
        texts += words.stage_lines(action)
    elif action.choice is not None and action.shows_choice:
        texts.append(action.choice)
    texts += [f"note: {note}" for note in action.notes]
    return [line for text in texts for line in indented(text, page, "note")]


@FORMAT.renders(views.RunView)
def _run(view: views.RunView, page: views.Page) -> list[str]:
    result, gone = view.result, words.gone_words(view.result.sources)
    is_retry = result.command == "retry"
    if not result.nodes:
        return ["Nothing to retry." if is_retry else "No nodes selected.", *_gone(gone, page)]
    what = "Retry" if is_retry else "Run"
    title = paint(f"{what} of {result.project}, target {result.target}", "title")
    left = paragraphs(words.closing_words(result.nodes), page)
    totals = [*words.run_totals(result), *_gone(gone, page), *left]
    return [title, "", *node_lines(result.nodes, page), "", *totals]


def node_lines(results: Sequence[NodeResult], page: views.Page) -> list[str]:
    """Return a line for each node of a run, and below it what needs more words."""
    idle = sum(node.action == "skip" for node in results)
    is_folded = idle > words.SKIPS_LISTED and not page.verbose
    nodes = [node for node in results if not (is_folded and node.action == "skip")]
    unbegun = sum(node.has_not_begun for node in nodes)
    if unbegun > 1 and not page.verbose:
        nodes = [node for node in nodes if not node.has_not_begun]
    else:
        unbegun = 0
    lines: list[str] = []
    rows = table(map(_run_cells, nodes), right={3}, indent="  ")
    for line, node in zip(rows, nodes, strict=True):
        lines += [line, *indented(node.text, page)]
        texts = [", ".join(node.quality)]
        # Those of joins, say, are about what the plan chose, and the line says what was done.
        if node.figures is None and (node.is_done or page.verbose):
            texts += [f"note: {note}" for note in node.notes]
        lines += [part for text in texts for part in indented(text, page, "note")]
    if unbegun:
        text = f"{count(unbegun, 'node')} that had not begun (--verbose lists them)"
        lines.append(paint(f"    {'stopped':<8} {text}", "note"))
    if is_folded:
        lines.append(folded(f"{count(idle)} unchanged"))
    return lines


def _run_cells(node: NodeResult) -> tuple[str, ...]:
    """Return symbol, action and name; what was read, what was published, how long it took."""
    is_left = node.end in ("not run", "stopped", "deferred")
    tone = "error" if node.is_failed else "note" if is_left else node.end
    symbol = words.SYMBOLS.get("blocked" if node.is_failed else node.action, " ")
    head = paint(f"{symbol} {node.end:<8}", tone)
    if node.end == "skip":
        why = paint(spoken(node.reasons), "note")
        return f"{head} {paint(node.name, 'note')}", why, "", ""
    name = f"{head} {node.name}"
    if not node.is_done:
        return name, "", "", ""
    return name, words.read_or_compared(node), words.node_published(node), node.took or duration(0)


_HEALTH_TONES = {"ok": "success", "warn": "refresh", "error": "error"}
_MARGIN = "  "
_BELOW_INDENT = " " * 11
_LAST_RUN = "last run"
_KEPT_COLUMNS = 5


@FORMAT.renders(views.StatusView)
def _status(view: views.StatusView, page: views.Page) -> list[str]:
    """Return a line per node, below it in sentences what is wrong, and a summary."""
    if not view.nodes:
        return ["No nodes declared.", *_gone(view.gone, page)]
    well = sum(texts["health"] == "ok" for _, texts in view.nodes)
    is_folded = well > words.WELL_LISTED and not page.verbose
    nodes = [row for row in view.nodes if not (is_folded and row[1]["health"] == "ok")]
    lines = [paint(f"Status of {view.project}, target {view.target}", "title"), ""]
    if nodes:
        lines += _listed(nodes, page.width)
    if is_folded:
        more = "more are well" if nodes else "are well"
        text = f"{words.HEALTH_SYMBOLS['ok']} ok     {count(well)} {more} (--verbose lists them)"
        lines.append(paint(f"{_MARGIN}{text}", "skip"))
    counts = ", ".join(paint(text, _HEALTH_TONES[health]) for text, health in view.counts)
    return [*lines, "", f"{counts}.", *_gone(view.gone, page)]


FORMAT.renders(views.CheckView)(check_lines)
FORMAT.renders(views.HistoryView)(history_lines)


# A node, and its texts by column.
StatusRow = tuple["NodeReport", Mapping[str, str]]


def _listed(nodes: Sequence[StatusRow], width: int) -> list[str]:
    """Return all about a node on its line as far as that has room, the rest below it."""
    columns = words.status_columns([texts for _, texts in nodes])
    beside = len(columns)
    least = sum(column in words.COLUMNS[:_KEPT_COLUMNS] for column in columns)
    while beside > least and _breadth(_table(columns[:beside], nodes)) > width:
        beside -= 1
    head, *lines = _table(columns[:beside], nodes)
    breadth = _breadth([head, *lines])
    room = 0 if beside < len(columns) else width - breadth - len(_MARGIN)
    is_any_beside = any(0 < len(texts["last_run"]) <= room for _, texts in nodes)
    page = [_beside(head, breadth, paint(_LAST_RUN, "note")) if is_any_beside else head]
    for (node, texts), line in zip(nodes, lines, strict=True):
        rest = [phrase.format(texts[name]) for name, _, phrase in columns[beside:] if texts[name]]
        if len(texts["last_run"]) <= room:
            line = _beside(line, breadth, texts["last_run"])
        elif texts["last_run"]:
            rest.append(f"{_LAST_RUN}: {texts['last_run']}")
        page.append(line)
        page += [paint(text, "note") for text in _under("; ".join(rest), width)]
        tone = _HEALTH_TONES[texts["health"]]
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
        [_sign(texts["health"]), *(texts[name] for name, _, _ in columns)] for _, texts in nodes
    ]
    right = [index for index, (name, _, _) in enumerate(columns, 1) if name in words.RIGHT]
    return table(rows, head=head, right=right, indent=_MARGIN)


def _sign(health: str) -> str:
    return paint(f"{words.HEALTH_SYMBOLS[health]} {health:<5}", _HEALTH_TONES[health])


def _under(text: str, width: int) -> list[str]:
    return wrapped(text, max(width, 40), indent=_BELOW_INDENT)


@FORMAT.renders(views.Answer)
def _answer(view: views.Answer, page: views.Page) -> Iterable[str]:
    return view.lines(page)


@FORMAT.renders(views.ListView)
def _list(view: views.ListView, page: views.Page) -> list[str]:
    if not view.nodes and not view.sources:
        return ["No nodes declared." if view.is_empty else "No nodes selected."]
    head = ["name", "kind", "tags", "file", *(["description"] if page.verbose else [])]
    rows = []
    for node in view.nodes:
        location = paint(f"{node.location.file}:{node.location.line}", "note")
        row = [node.name, node.kind.value, " ".join(node.tags), location, node.description or ""]
        rows.append(row[: len(head)])
    for source in view.sources:
        location = paint(f"{source.location.file}:{source.location.line}", "note")
        row = [f"source:{source.label}", "source", " ".join(source.defaults.tags), location, ""]
        rows.append(row[: len(head)])
    lines = table(rows, head=head, page=page)
    if view.sources:
        which = "this source" if len(view.sources) == 1 else "these sources"
        lines += ["", paint(f"--discover lists the tables of {which} too.", "note")]
    return lines


@FORMAT.renders(views.ShowView)
def _show(view: views.ShowView, page: views.Page) -> list[str]:
    status = view.status
    lines = [f"{paint(status.table, 'title')}  {paint(redact_line(status.uri), 'note')}", ""]
    lines += table(show_facts(view), indent="  ", page=page)
    lines += ["", *_columns(status.columns, page)] if status.columns else []
    for relation in relation_tables(status.relations):
        rows = [list(map(visible, row)) for row in relation.rows]
        lines += ["", paint(f"  {relation.title}", "title")]
        lines += table(rows, head=relation.head, right=relation.right, indent="  ", page=page)
    if status.kept:
        kept = ", ".join(visible(name) for name in status.columns if name in status.kept)
        lines += ["", f"  kept in the state alone, since Spark cannot plan with it: {kept}"]
    if status.unbounded:
        lines += ["", f"  {status.unbounded_words}"]
    if status.missing:
        lines += ["", f"  without statistics: {', '.join(status.missing)}"]
    notes = [*(f"ignored: {name}, {why}" for name, why in status.dropped.items()), *status.skipped]
    if notes:
        lines += ["", *(paint(f"  {note}", "note") for note in notes)]
    return lines


def show_facts(view: views.ShowView) -> Iterator[tuple[str, str]]:
    """Yield what is known of a table and its statistics: terms and painted texts."""
    status, figures = view.status, view.figures
    verdict = paint(figures.verdict, "success" if status.use else "error")
    yield "statistics", f"{verdict}, {status.detail}"
    yield "table", f"version {status.version}, {figures.rows}"
    yield "size", figures.size
    if status.computed_at is not None:
        ago = f", {age(status.age)} ago" if status.age is not None else ""
        yield "computed", f"{instant(status.computed_at, with_seconds=True)}{ago}"
    if status.columns:
        covered = f"{count(len(status.columns))} of {count(status.analyzable)}"
        yield "columns", f"{covered} that can have statistics"
    if figures.behind:
        changed = f", {figures.changed} of the rows" if figures.changed else ""
        yield "behind", f"{figures.behind}{changed}"
    if status.policy:
        yield "policy", status.policy


def _columns(columns: Mapping[str, PublishedColumn], page: views.Page) -> list[str]:
    [first, *_] = columns.values()
    statistics = [statistic for statistic, _ in first.items()]
    rows = [
        [name, *(shortened(statistic.text(value)) for statistic, value in column.items())]
        for name, column in columns.items()
    ]
    head = ["column", *(statistic.label for statistic in statistics)]
    right = [index for index, statistic in enumerate(statistics, start=1) if not statistic.is_bound]
    return table(rows, head=head, right=right, indent="  ", page=page)


_TONES = {"added": "analyze", "changed": "refresh", "removed": "error"}
_NAMED = 30


@FORMAT.renders(views.DiffView)
def _diff(view: views.DiffView, page: views.Page) -> list[str]:
    diff, width = view.diff, max(page.width, 60)
    sides = f"{words.side_name(diff.base)} -> {words.side_name(diff.head)}"
    title = f"Diff of {diff.project}, target {diff.target}: {sides}"
    lines = [paint(title, "title"), ""]
    if diff.settings:
        lines += [f"  {paint('~ project and target', 'refresh')}"]
        lines += [*_properties(diff.settings, width), ""]
    for node in diff.nodes:
        lines += [*_changed_node(node, width), ""]
    lines += [
        paint(line, "note")
        for note in diff.notes
        for line in wrapped(f"note: {note}", width, indent=_INDENT)
    ]
    return [*lines, *_totals(diff)]


def _totals(diff: Diff) -> Iterator[str]:
    if diff.is_empty:
        unchanged = count(diff.unchanged, "node")
        yield paint(f"No changes: both sides mean the same, {unchanged}.", "title")
        return
    yield words.diff_summary(diff)
    if diff.risks:
        risks = ", ".join(sorted(risk.value for risk in diff.risks))
        yield paint(f"Risks: {risks}", "refresh")
    if (cost := words.diff_cost(diff)) is not None:
        yield paint(cost, "title")


def _changed_node(node: NodeDiff, width: int) -> Iterator[str]:
    change = node.change.value
    word = paint(f"{words.CHANGE_SYMBOLS[change]} {change:<8}", _TONES[change])
    about = ", ".join([words.kind_name(node.kind_word), words.declared_in(node), *node.owners])
    yield f"  {word} {node.name}  {paint(about, 'note')}"
    yield from _properties(words.shown_properties(node), width, is_new=change == "added")
    if node.columns is not None:
        how = "" if node.columns.are_names else " by pattern"
        yield from _names(f"gains{how}", node.columns.gained, "analyze", width)
        yield from _names(f"loses{how}", node.columns.lost, "error", width)
    if node.tables is not None:
        yield from _names("gains", _cut(node.tables.gained), "analyze", width)
        yield from _names("loses", _cut(node.tables.lost), "error", width)
    for risk in node.risks:
        yield from _begun(f"! {risk.risk.value}", f": {risk.sentence}", "refresh", width)
    for note in node.notes:
        for line in wrapped(f"note: {note}", width, indent=_INDENT, hanging="  "):
            yield paint(line, "note")


def _properties(
    properties: Sequence[PropertyChange], width: int, *, is_new: bool = False
) -> Iterator[str]:
    margin = max((len(change.name) for change in properties), default=0)
    for change in properties:
        head = f"{_INDENT}{change.name:<{margin}}  "
        texts = words.property_texts(change)
        old, new = (words.NOTHING if side is None else side for side in texts)
        short = texts[1] or "" if is_new else f"{old} -> {new}"
        if "\n" not in short and len(head) + len(short) <= width:
            yield head + short
        else:
            yield head.rstrip()
            yield from _lines(change, width)


def _lines(change: PropertyChange, width: int) -> Iterator[str]:
    tones = {"-": "error", "+": "analyze"}
    for line in words.property_lines(change):
        tone = tones.get(line[:1])
        for part in wrapped(line, width, indent=_INDENT, hanging="  "):
            yield paint(part, tone) if tone else part


def _names(word: str, names: Sequence[str], tone: str, width: int) -> Iterator[str]:
    if names:
        yield from _begun(word, f" {', '.join(names)}", tone, width)


def _cut(names: Sequence[str]) -> Sequence[str]:
    """Return names, of many only the first."""
    if len(names) <= _NAMED:
        return names
    return (*names[:_NAMED], f"and {count(len(names) - _NAMED)} more")


def _begun(word: str, rest: str, tone: str, width: int) -> Iterator[str]:
    """Yield wrapped lines, the first of which begins with a word in colour."""
    first, *others = wrapped(f"{word}{rest}", width, indent=_INDENT, hanging="  ")
    yield first.replace(word, paint(word, tone), 1)
    yield from others


_WIDEST_CELL = 60
_WIDEST_EVIDENCE = 28


@FORMAT.renders(views.QueryView)
def _query(view: views.QueryView, page: views.Page) -> list[str]:
    """Return columns under each other; long cells are shortened unless the page is verbose."""
    rows = list(view.cells)
    if not view.columns:
        return []
    if not page.verbose:
        view.is_shortened = any(cell_width(cell) > _WIDEST_CELL for row in rows for cell in row)
        rows = [list(map(_short_cell, row)) for row in rows]
    head = [visible(column.name) for column in view.columns]
    kept: list[int | None] = [*range(len(head))]
    if page.limit is not None and not page.verbose:
        kept = _fitting(len(head), fitting_columns(page.limit))
        view.is_shortened |= None in kept
    head = ["..." if index is None else head[index] for index in kept]
    rows = [["..." if index is None else row[index] for index in kept] for row in rows]
    numbers = {index for index, column in enumerate(view.columns) if column.is_number}
    right = [place for place, index in enumerate(kept) if index in numbers]
    return table(rows, head=head, right=right, page=None if page.verbose else page)


def _fitting(columns: int, room: int) -> list[int | None]:
    """Return the indexes of the columns that have room, None in place of those in the middle."""
    if columns <= room:
        return [*range(columns)]
    first, last = room // 2, room - room // 2 - 1
    return [*range(first), None, *range(columns - last, columns)]


def _short_cell(cell: str) -> str:
    if cell_width(cell) <= _WIDEST_CELL:
        return cell
    from rich.cells import set_cell_size

    return f"{set_cell_size(cell, _WIDEST_CELL - 3).rstrip()}..."


@FORMAT.renders(views.ExplanationView)
def _explanation(view: views.ExplanationView, page: views.Page) -> list[str]:
    """Return operators with estimated rows and bytes, then each scan with its statistics."""
    explanation = view.explanation
    lines = _operators(explanation, page)
    for note in (*execution_notes(explanation), *explanation_notes(explanation)):
        lines += ["", visible(page.redacted(note), keep=PAINT)]
    for number, scan in enumerate(explanation.scans, start=1):
        lines += ["", *_scan(number, scan, verbose=page.verbose)]
    return lines


def _operators(explanation: PlanExplanation, page: views.Page) -> list[str]:
    head, cells, right = operator_table(explanation)
    widths = [max(map(cell_width, column)) for column in zip(head, *cells, strict=True)]
    if not page.verbose:
        widths[-1] = min(widths[-1], _WIDEST_EVIDENCE)
    room = max(40, page.width - sum(widths) - 2 * len(widths))
    levels = _levels([operator.depth for operator in explanation.operators], room)
    rows = []
    for operator, level, beside in zip(explanation.operators, levels, cells, strict=True):
        # Redacted before it is shortened, which could leave a part of a secret.
        text = "  " * level + visible(page.redacted(operator_text(operator)))
        evidence = formats.cut(page.redacted(beside[-1]), widths[-1])
        rows.append([*beside[:-1], evidence, formats.cut(text, room)])
    return table(rows, head=[*head, "operator"], right=right)


def _levels(depths: Sequence[int], room: int) -> list[int]:
    """Return by how many levels operators are indented: as deep as they are, if half is left.

    In deeper plans an operator's only input is as far in as itself.
    """
    if 4 * max(depths, default=0) <= room:
        return [*depths]
    levels: list[int] = []
    # By depth, the operator that was there last.
    path: dict[int, int] = {}
    for at, depth in enumerate(depths):
        path[depth] = at
        above = path.get(depth - 1)
        is_only = above is not None and not _has_siblings(depths, at)
        levels.append(0 if above is None else levels[above] + (0 if is_only else 1))
    return levels


def _has_siblings(depths: Sequence[int], at: int) -> bool:
    """Whether the operator above one has other inputs."""
    depth = depths[at]
    before = takewhile(lambda other: other >= depth, reversed(depths[:at]))
    after = takewhile(lambda other: other >= depth, depths[at + 1 :])
    return depth in chain(before, after)


@FORMAT.renders(views.ComparisonView)
def _comparison(view: views.ComparisonView, page: views.Page) -> list[str]:
    """Return times of both sides and what changed in the plan; a verbose page has both plans."""
    comparison = view.comparison
    sides = {
        "without statistics": comparison.without_statistics,
        "with statistics": comparison.with_statistics,
    }
    head = ["", "time", "of all turns", "planning", "worst estimate"]
    lines = table([side_cells(*side) for side in sides.items()], head=head, right={1, 3})
    for note in comparison_notes(comparison):
        lines += ["", note]
    if comparison.changes:
        changes = [
            [change_words(change), change.without_statistics, change.with_statistics]
            for change in comparison.changes
        ]
        lines += ["", *table(changes, head=["changed", *sides], page=page)]
    for name, side in sides.items() if page.verbose else ():
        lines += ["", paint(name, "title"), *_operators(side.plan, page)]
    for note in explanation_notes(comparison.with_statistics.plan):
        lines += ["", visible(page.redacted(note), keep=PAINT)]
    return lines


def _scan(number: int, scan: ScanLine, *, verbose: bool) -> list[str]:
    explanation = scan.explanation
    title = f"[{number}] {paint(scan.table, 'title')}"
    if explanation is None:
        lines = [title, f"    {scan_summary(scan)}"]
        return lines if scan.note is None else [*lines, f"    {scan.note}"]
    lines = [f"{title}, {scan_summary(scan)}"]
    lines += table(scan_facts(scan, explanation, verbose=verbose), indent="    ")
    if explanation.columns:
        head, rows, right = estimates(explanation.columns)
        lines += table(rows, head=head, right=right, indent="    ")
    return lines


@FORMAT.renders(views.AdviceView)
def _advice(view: views.AdviceView, page: views.Page) -> Iterator[str]:
    return (visible(page.redacted(line), keep=PAINT) for line in advice_lines(view, page))
