"""The format of notebooks: tables in the colours of the pages of `lancestat docs`.

Notebooks are saved with their outputs and shared, so this is published, as Markdown is. Nothing
that comes from a project or a table is markup. Without its style, as on GitHub, it can still be
read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache
from itertools import chain
from pathlib import Path

from markupsafe import Markup, escape

import lancestat.presentation.site as site
from lancestat.formats import count, message_lines, spoken
from lancestat.presentation import views, words
from lancestat.presentation.explanations import (
    estimates,
    execution_notes,
    explanation_notes,
    operator_table,
    operator_text,
    scan_facts,
    scan_summary,
)
from lancestat.presentation.relations import relation_tables
from lancestat.presentation.site.text import PageSanitizer, shorten
from lancestat.presentation.terminal import unpainted
from lancestat.presentation.text import show_facts
from lancestat.review.values import NodeDiff, PropertyChange

FORMAT: views.Format[Markup] = views.Format(print, is_for_people=True, is_published=True)

_TONES = {
    "analyze": "ok",
    "refresh": "warn",
    "restamp": "note",
    "skip": "note",
    "not run": "note",
    "defer": "note",
    "deferred": "note",
    "blocked": "error",
    "failed": "error",
    "added": "ok",
    "changed": "warn",
    "removed": "error",
}
_LONGEST_BOUND = 32


@cache
def _style() -> Markup:
    """Return the style of every output: light or dark as the notebook says, else as the system."""
    palette = (Path(site.__file__).parent / "static" / "palette.css").read_text("utf-8")
    rules = Path(__file__).with_name("notebook.css").read_text("utf-8")
    palette = palette.replace(":root", ".lancestat")
    return Markup(f"<style>\n{palette}{rules}</style>")


class _Writer:
    """Writes texts as HTML: sanitized and escaped, unless they are markup already."""

    def __init__(self, page: views.Page) -> None:
        # A notebook runs in its folder, and is read elsewhere.
        self._line = PageSanitizer(page.redactor, Path.cwd()).line

    def text(self, text: str) -> Markup:
        return text if isinstance(text, Markup) else escape(self._line(unpainted(text)))

    def part(self, tone: str, text: str) -> Markup:
        return Markup('<span class="{}">{}</span>').format(tone, self.text(text))

    def strong(self, text: str) -> Markup:
        return Markup("<strong>{}</strong>").format(self.text(text))

    def state(self, word: str, tone: str | None = None) -> Markup:
        return self.part(f"state {tone or _TONES.get(word, 'note')}", word)

    def lines(self, texts: Iterable[str]) -> Markup:
        return Markup("<br>").join(map(self.text, texts))

    def paragraph(self, text: str) -> Markup:
        return Markup("<p>{}</p>\n").format(self.text(text))

    def table(
        self,
        rows: Iterable[Sequence[str] | Markup],
        *,
        head: Sequence[str] = (),
        right: Collection[int] = (),
        named: int = 0,
    ) -> Markup:
        """Lay out rows, of which some are markup; the cell `named` is what its row is about."""
        body = Markup("\n").join(
            row if isinstance(row, Markup) else self._row(row, right, named) for row in rows
        )
        titles = Markup("").join(
            Markup("<th{}>{}</th>").format(self._aligned(index in right), self.text(title))
            for index, title in enumerate(head)
        )
        top = Markup("<thead><tr>{}</tr></thead>\n").format(titles) if head else Markup("")
        return Markup("<table>\n{}<tbody>\n{}\n</tbody>\n</table>\n").format(top, body)

    def below(self, columns: int, texts: Iterable[str], tone: str = "note") -> list[Markup]:
        """Return a row for what needs more words than a cell has room for, if there are any."""
        lines = self.lines(texts)
        row = Markup('<tr><td class="beside"></td><td class="below {}" colspan="{}">{}</td></tr>')
        return [row.format(tone, columns - 1, lines)] if lines else []

    def _row(self, cells: Sequence[str], right: Collection[int], named: int) -> Markup:
        made = (
            Markup("<{0}{1}>{2}</{0}>").format(
                "th" if index == named else "td", self._aligned(index in right), self.text(cell)
            )
            for index, cell in enumerate(cells)
        )
        return Markup("<tr>{}</tr>").format(Markup("").join(made))

    def _aligned(self, is_right: bool) -> Markup:
        return Markup(' class="r"') if is_right else Markup("")

    def output(self, *parts: Markup) -> Markup:
        content = Markup("").join(parts)
        return Markup('<div class="lancestat">\n{}\n{}</div>').format(_style(), content)


@FORMAT.renders(views.PlanView)
def _plan(view: views.PlanView, page: views.Page) -> Markup:
    from lancestat.runs.actions import is_idle

    html, plan = _Writer(page), view.plan
    is_folded = sum(map(is_idle, plan.actions)) > words.SKIPS_LISTED
    rows: list[Sequence[str] | Markup] = []
    for action in plan.actions:
        if is_folded and is_idle(action):
            continue
        why = html.part("note", spoken(reason.value for reason in action.reasons))
        rows.append((html.state(action.verb), action.node, action.reads, why))
        choice = [action.choice] if action.choice and action.shows_choice else []
        if not is_idle(action):
            rows += html.below(4, [*choice, *action.notes])
        rows += html.below(4, message_lines(action.error.text() if action.error else ""), "error")
    counts = ", ".join(f"{number} {verb}" for verb, number in words.verb_counts(plan))
    verdict = f"{counts}. {words.plan_verdict(plan)}" if plan.actions else "No nodes selected."
    return html.output(
        html.paragraph(_titled(html, "Plan for", plan.project, plan.target)),
        html.table(rows, head=("", "node", "reads", "why"), named=1) if rows else Markup(""),
        html.paragraph(verdict),
        *map(html.paragraph, words.source_lines(plan.sources)),
    )


def _titled(html: _Writer, what: str, project: str, target: str) -> Markup:
    return Markup("{} {}, target {}").format(what, html.strong(project), html.text(target))


@FORMAT.renders(views.RunView)
def _run(view: views.RunView, page: views.Page) -> Markup:
    html, result = _Writer(page), view.result
    unchanged = sum(node.is_idle and node.end == "skip" for node in result.nodes)
    rows: list[Sequence[str] | Markup] = []
    for node in result.nodes:
        if unchanged > words.SKIPS_LISTED and node.end == "skip":
            continue
        if node.is_done:
            cells = (words.read_or_compared(node), words.node_published(node), node.took)
        else:
            why = html.part("note", spoken(node.reasons)) if node.end == "skip" else ""
            cells = (why, "", "")
        rows.append((html.state(node.end), node.name, *cells))
        rows += html.below(5, node.quality)
        rows += html.below(5, message_lines(node.text), "error")
    what = "Retry of" if result.command == "retry" else "Run of"
    head = ("", "node", "read", "published", "took")
    return html.output(
        html.paragraph(_titled(html, what, result.project, result.target)),
        html.table(rows, head=head, right={4}, named=1) if rows else Markup(""),
        *map(
            html.paragraph,
            filter(None, (*words.run_totals(result), words.gone_words(result.sources))),
        ),
    )


@FORMAT.renders(views.StatusView)
def _status(view: views.StatusView, page: views.Page) -> Markup:
    html = _Writer(page)
    well = sum(texts["health"] == "ok" for _, texts in view.nodes)
    listed = [row for row in view.nodes if row[1]["health"] != "ok" or well <= words.WELL_LISTED]
    columns = words.status_columns([texts for _, texts in listed])
    names = [name for name, _, _ in columns] + ["last_run"]
    rows: list[Sequence[str] | Markup] = []
    for node, texts in listed:
        rows.append(
            (html.state(texts["health"], texts["health"]), *(texts[name] for name in names))
        )
        rows += html.below(len(names) + 1, node.problems, texts["health"])
    head = ["", *(title for _, title, _ in columns), "last run"]
    right = [index for index, name in enumerate(names, start=1) if name in words.RIGHT]
    counts = ", ".join(text for text, _ in view.counts) or "No nodes declared"
    rest = f" {count(well, 'node is', 'nodes are')} well and not listed."
    return html.output(
        html.paragraph(_titled(html, "Status of", view.project, view.target)),
        html.table(rows, head=head, right=right, named=1) if rows else Markup(""),
        html.paragraph(f"{counts}.{rest if well > words.WELL_LISTED else ''}"),
        *map(html.paragraph, filter(None, [view.gone])),
    )


_VERDICT_TONES = {"proved": "ok", "unknown": "note"}


@FORMAT.renders(views.CheckView)
def _check(view: views.CheckView, page: views.Page) -> Markup:
    html, checked = _Writer(page), view.checked
    rows = [
        (html.state("error", "error"), node, "", f"{error.code}: {error.message}")
        for node, error in checked.errors.items()
    ]
    for node, check in checked.checks:
        tone = "error" if check.is_failed else _VERDICT_TONES.get(check.verdict, "warn")
        detail = page.redacted(check.detail)
        rows.append((html.state(check.verdict.value, tone), node, check.check, detail))
    title = _titled(html, "Checks of", checked.report.name, checked.report.target)
    return html.output(
        html.paragraph(title),
        html.table(rows, head=["", "node", "check", "why"], named=1) if rows else Markup(""),
        html.paragraph(checked.summary),
    )


@FORMAT.renders(views.ShowView)
def _show(view: views.ShowView, page: views.Page) -> Markup:
    html, status = _Writer(page), view.status
    parts = [html.table(show_facts(view))]
    if status.columns:
        [first, *_] = status.columns.values()
        statistics = [statistic for statistic, _ in first.items()]
        numbers = [at for at, statistic in enumerate(statistics, 2) if not statistic.is_bound]
        rows = [
            (
                name,
                html.part("note", status.types.get(name, "")),
                *(
                    shorten(page.redacted(statistic.text(value)), _LONGEST_BOUND)
                    for statistic, value in column.items()
                ),
            )
            for name, column in status.columns.items()
        ]
        head = ("column", "type", *(statistic.label for statistic in statistics))
        parts.append(html.table(rows, head=head, right=numbers))
    for relation in relation_tables(status.relations):
        cells = [list(map(page.redacted, row)) for row in relation.rows]
        parts.append(html.paragraph(html.strong(relation.title)))
        parts.append(html.table(cells, head=relation.head, right=relation.right))
    notes = [f"ignored: {name}, {why}" for name, why in status.dropped.items()]
    if status.unbounded:
        notes.insert(0, status.unbounded_words)
    if status.missing:
        notes.insert(0, f"without statistics: {', '.join(status.missing)}")
    texts = (html.part("note", note) for note in (*notes, *status.skipped))
    title = Markup("{} {}").format(html.strong(status.table), html.part("note", status.uri))
    return html.output(html.paragraph(title), *parts, *map(html.paragraph, texts))


@FORMAT.renders(views.DiffView)
def _diff(view: views.DiffView, page: views.Page) -> Markup:
    html, diff = _Writer(page), view.diff
    rows: list[Sequence[str] | Markup] = []
    if diff.settings:
        lines = html.lines(chain.from_iterable(map(_property, diff.settings)))
        rows.append((html.state("changed"), "project and target", lines))
    for node in diff.nodes:
        about = ", ".join([words.kind_name(node.kind_word), words.declared_in(node), *node.owners])
        name = Markup("{}<br>{}").format(html.strong(node.name), html.part("note", about))
        rows.append((html.state(node.change.value), name, html.lines(_changes(node))))
        risks = (f"{note.risk.value}: {note.sentence}" for note in node.risks)
        rows += html.below(3, risks, "warn")
        rows += html.below(3, node.notes)
    base, head = html.text(words.side_name(diff.base)), html.text(words.side_name(diff.head))
    summary = words.diff_summary(diff)
    texts = [f"note: {note}" for note in diff.notes]
    empty = f"No changes: both sides mean the same, {count(diff.unchanged, 'node')}."
    texts.append(empty if diff.is_empty else f"{summary[:1].upper()}{summary[1:]}.")
    title = _titled(html, "Diff of", diff.project, diff.target)
    return html.output(
        html.paragraph(title + Markup(": {} to {}").format(base, head)),
        html.table(rows, head=("", "node", "change"), named=1) if rows else Markup(""),
        *map(html.paragraph, filter(None, [*texts, words.diff_cost(diff)])),
    )


def _changes(node: NodeDiff) -> Iterator[str]:
    yield from chain.from_iterable(map(_property, words.shown_properties(node)))
    if node.columns is not None:
        how = "" if node.columns.are_names else " by pattern"
        for verb, names in (("gains", node.columns.gained), ("loses", node.columns.lost)):
            if names:
                yield f"{verb}{how}: {', '.join(names)}"


def _property(change: PropertyChange) -> Iterator[str]:
    old, new = words.property_texts(change)
    sides = [words.NOTHING if text is None else text for text in (old, new)]
    if not any("\n" in text for text in sides):
        yield f"{change.name}: {sides[1] if old is None else ' -> '.join(sides)}"
        return
    yield f"{change.name}:"
    yield from words.property_lines(change)


@FORMAT.renders(views.ExplanationView)
def _explanation(view: views.ExplanationView, page: views.Page) -> Markup:
    html, explanation = _Writer(page), view.explanation
    origin = explanation.origin
    head, cells, right = operator_table(explanation)
    rows = []
    for at, (operator, beside) in enumerate(zip(explanation.operators, cells, strict=True)):
        # Spaces at the start are lost where texts are sanitized.
        indent = Markup("&nbsp;" * 2 * operator.depth)
        text = Markup('<span class="plan">{}{}</span>')
        shown = text.format(indent, html.text(operator_text(operator)))
        figures = [html.part("error", cell) if at == origin else cell for cell in beside]
        rows.append((*figures, shown))
    parts = [html.table(rows, head=(*head, "operator"), right=right, named=-1)]
    notes = (*execution_notes(explanation), *explanation_notes(explanation))
    parts += map(html.paragraph, map(unpainted, notes))
    for number, scan in enumerate(explanation.scans, start=1):
        title = Markup("[{}] {}, {}")
        what = title.format(number, html.strong(scan.table), html.text(scan_summary(scan)))
        parts.append(html.paragraph(what))
        if scan.explanation is not None:
            parts.append(html.table(scan_facts(scan, scan.explanation, verbose=True)))
            if scan.explanation.columns:
                titles, columns, numbers = estimates(scan.explanation.columns)
                parts.append(html.table(columns, head=titles, right=numbers))
        elif scan.note is not None:
            parts.append(html.paragraph(scan.note))
    return html.output(*parts)
