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
from lancestat.presentation.registry import Format, Page
from lancestat.presentation.site.text import PageSanitizer, shorten
from lancestat.presentation.terminal import unpainted
from lancestat.presentation.text import show_facts
from lancestat.presentation.text_diff import NOTHING
from lancestat.presentation.text_nodes import (
    COLUMNS,
    RIGHT,
    SKIPS_LISTED,
    WELL_LISTED,
    node_published,
    node_read,
    plan_verdict,
    run_totals,
    source_lines,
)
from lancestat.presentation.text_sql import (
    estimates,
    explanation_notes,
    operator_figures,
    operator_text,
    scan_facts,
    scan_summary,
)
from lancestat.presentation.views import (
    DiffView,
    ExplanationView,
    NodeDiffView,
    PlanView,
    PropertyView,
    RunView,
    ShowView,
    StatusView,
)

FORMAT: Format[Markup] = Format(print, is_for_people=True, is_published=True)

_TONES = {
    "analyze": "ok",
    "refresh": "warn",
    "restamp": "note",
    "skip": "note",
    "not run": "note",
    "blocked": "error",
    "failed": "error",
    "added": "ok",
    "changed": "warn",
    "removed": "error",
}
_LONGEST_BOUND = 32
_DARK = (
    '[data-jp-theme-light="false"]',
    ".vscode-dark",
    ".vscode-high-contrast:not(.vscode-high-contrast-light)",
    '[theme="dark"]',
    '[data-theme="dark"]',
    '[data-bs-theme="dark"]',
)
_LIGHT = (
    '[data-jp-theme-light="true"]',
    ".vscode-light",
    ".vscode-high-contrast-light",
    '[theme="light"]',
    '[data-theme="light"]',
    '[data-bs-theme="light"]',
)


@cache
def _style() -> Markup:
    """Return the style of every output: light or dark as the notebook says, else as the system."""
    palette = (Path(site.__file__).parent / "static" / "palette.css").read_text("utf-8")
    rules = Path(__file__).with_name("notebook.css").read_text("utf-8")
    themes = (
        f"{', '.join(f'{theme} .lancestat' for theme in selectors)} {{ color-scheme: {scheme}; }}\n"
        for scheme, selectors in (("light", _LIGHT), ("dark", _DARK))
    )
    palette = palette.replace(":root", ".lancestat")
    return Markup(f"<style>\n{palette}{''.join(themes)}{rules}</style>")


class _Writer:
    """Writes texts as HTML: sanitized and escaped, unless they are markup already."""

    def __init__(self, page: Page) -> None:
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


@FORMAT.renders(PlanView)
def _plan(view: PlanView, page: Page) -> Markup:
    html = _Writer(page)
    is_folded = sum(action.verb == "skip" for action in view.actions) > SKIPS_LISTED
    rows: list[Sequence[str] | Markup] = []
    for action in view.actions:
        if is_folded and action.verb == "skip":
            continue
        why = spoken(action.reasons)
        rows.append((html.state(action.verb), action.node, action.reads, html.part("note", why)))
        choice = [action.choice] if action.choice and action.shows_choice else []
        if action.verb != "skip":
            rows += html.below(4, [*choice, *action.notes])
        rows += html.below(4, message_lines(action.error or ""), "error")
    listed = html.table(rows, head=("", "node", "reads", "why"), named=1) if rows else Markup("")
    counts = ", ".join(f"{number} {verb}" for _, verb, number in view.counts)
    verdict = f"{counts}. {plan_verdict(view)}" if view.actions else "No nodes selected."
    return html.output(
        html.paragraph(_titled(html, "Plan for", view.project, view.target)),
        listed,
        html.paragraph(verdict),
        *map(html.paragraph, source_lines(view)),
    )


def _titled(html: _Writer, what: str, project: str, target: str) -> Markup:
    return Markup("{} {}, target {}").format(what, html.strong(project), html.text(target))


@FORMAT.renders(RunView)
def _run(view: RunView, page: Page) -> Markup:
    html = _Writer(page)
    is_folded = view.unchanged > SKIPS_LISTED
    rows: list[Sequence[str] | Markup] = []
    for node in view.nodes:
        if is_folded and node.action == "skip":
            continue
        done = (node_read(node), node_published(node), node.elapsed or "") if node.is_done else ()
        idle = (html.part("note", node.reasons),) if node.action == "skip" else ("",)
        cells = (html.state(node.action), node.name, *(done or (*idle, "", "")))
        rows.append(cells)
        rows += html.below(5, node.quality)
        rows += html.below(5, message_lines(node.result.text), "error")
    what = "Retry of" if view.command == "retry" else "Run of"
    head = ("", "node", "read", "published", "took")
    return html.output(
        html.paragraph(_titled(html, what, view.project, view.target)),
        html.table(rows, head=head, right={4}, named=1) if rows else Markup(""),
        *map(html.paragraph, filter(None, (*run_totals(view), view.gone))),
    )


@FORMAT.renders(StatusView)
def _status(view: StatusView, page: Page) -> Markup:
    html = _Writer(page)
    well = sum(words["health"] == "ok" for _, words in view.nodes)
    listed = [row for row in view.nodes if row[1]["health"] != "ok" or well <= WELL_LISTED]
    columns = [column for column in COLUMNS if any(words[column[0]] for _, words in listed)]
    names = [name for name, _, _ in columns] + ["last_run"]
    rows: list[Sequence[str] | Markup] = []
    for node, words in listed:
        state = html.state(words["health"], words["health"])
        rows.append((state, *(words[name] for name in names)))
        rows += html.below(len(names) + 1, node.problems, words["health"])
    head = ["", *(title for _, title, _ in columns), "last run"]
    right = [index for index, name in enumerate(names, start=1) if name in RIGHT]
    counts = ", ".join(text for text, _ in view.counts) or "No nodes declared"
    rest = f" {count(well, 'node is', 'nodes are')} well and not listed."
    return html.output(
        html.paragraph(_titled(html, "Status of", view.project, view.target)),
        html.table(rows, head=head, right=right, named=1) if rows else Markup(""),
        html.paragraph(f"{counts}.{rest if well > WELL_LISTED else ''}"),
        *map(html.paragraph, filter(None, [view.gone])),
    )


@FORMAT.renders(ShowView)
def _show(view: ShowView, page: Page) -> Markup:
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
    notes = [f"ignored: {name}, {why}" for name, why in status.dropped.items()]
    if status.unbounded:
        notes.insert(0, status.unbounded_words)
    if status.missing:
        notes.insert(0, f"without statistics: {', '.join(status.missing)}")
    texts = (html.part("note", note) for note in (*notes, *status.skipped))
    title = Markup("{} {}").format(html.strong(status.table), html.part("note", status.uri))
    return html.output(html.paragraph(title), *parts, *map(html.paragraph, texts))


@FORMAT.renders(DiffView)
def _diff(view: DiffView, page: Page) -> Markup:
    html, diff = _Writer(page), view.diff
    rows: list[Sequence[str] | Markup] = []
    if view.settings:
        lines = html.lines(chain.from_iterable(map(_property, view.settings)))
        rows.append((html.state("changed"), "project and target", lines))
    for node in view.nodes:
        about = ", ".join([node.kind, node.location, *node.owners])
        name = Markup("{}<br>{}").format(html.strong(node.name), html.part("note", about))
        rows.append((html.state(node.change), name, html.lines(_changes(node))))
        rows += html.below(3, (f"{risk}: {sentence}" for risk, sentence in node.risks), "warn")
        rows += html.below(3, node.notes)
    sides = Markup(": {} to {}").format(html.text(view.base), html.text(view.head))
    texts = [f"note: {note}" for note in diff.notes]
    unchanged = count(diff.unchanged, "node")
    empty = f"No changes: both sides mean the same, {unchanged}."
    texts.append(empty if diff.is_empty else f"{view.summary[:1].upper()}{view.summary[1:]}.")
    texts += [view.cost] if view.cost else []
    return html.output(
        html.paragraph(_titled(html, "Diff of", diff.project, diff.target) + sides),
        html.table(rows, head=("", "node", "change"), named=1) if rows else Markup(""),
        *map(html.paragraph, texts),
    )


def _changes(node: NodeDiffView) -> Iterator[str]:
    yield from chain.from_iterable(map(_property, node.properties))
    if node.columns is not None:
        how = "" if node.columns.are_names else " by pattern"
        for verb, names in (("gains", node.columns.gained), ("loses", node.columns.lost)):
            if names:
                yield f"{verb}{how}: {', '.join(names)}"


def _property(change: PropertyView) -> Iterator[str]:
    sides = [NOTHING if text is None else text for text in (change.old, change.new)]
    if not any("\n" in text for text in sides):
        yield f"{change.name}: {sides[1] if change.old is None else ' -> '.join(sides)}"
        return
    yield f"{change.name}:"
    yield from change.lines()


@FORMAT.renders(ExplanationView)
def _explanation(view: ExplanationView, page: Page) -> Markup:
    html, explanation = _Writer(page), view.explanation
    rows = []
    for operator in explanation.operators:
        # Spaces at the start are lost where texts are sanitized.
        indent = Markup("&nbsp;" * 2 * operator.depth)
        text = Markup('<span class="plan">{}{}</span>')
        shown = text.format(indent, html.text(operator_text(operator)))
        rows.append((*operator_figures(operator), shown))
    parts = [html.table(rows, head=("rows", "bytes", "operator"), right={0, 1}, named=-1)]
    parts += map(html.paragraph, map(unpainted, explanation_notes(explanation)))
    for number, scan in enumerate(explanation.scans, start=1):
        title = Markup("[{}] {}, {}")
        what = title.format(number, html.strong(scan.table), html.text(scan_summary(scan)))
        parts.append(html.paragraph(what))
        if scan.explanation is not None:
            parts.append(html.table(scan_facts(scan, scan.explanation, verbose=True)))
            if scan.explanation.columns:
                head, cells, right = estimates(scan.explanation.columns)
                parts.append(html.table(cells, head=head, right=right))
        elif scan.note is not None:
            parts.append(html.paragraph(scan.note))
    return html.output(*parts)
