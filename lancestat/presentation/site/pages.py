"""Fills templates with the values of a report, and writes the pages to a folder."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from lancestat.errors import NotWritten, PlaceOccupied, UsageError, error_class
from lancestat.formats import count, duration, large, share, size, spoken
from lancestat.lake.error_mapping import is_full
from lancestat.lake.files import new_draft, remove, remove_drafts
from lancestat.presentation.relations import check_table, relation_tables
from lancestat.presentation.site import charts, facts
from lancestat.presentation.site.text import (
    NOTHING,
    PageSanitizer,
    Sources,
    addresses,
    ago,
    error_codes,
    instant,
    live,
    prose,
    sentence,
    shorten,
    since,
)
from lancestat.presentation.words import kind_name, pairs_of
from lancestat.report.duplicates import DuplicatesReport
from lancestat.report.gather import redacted_report
from lancestat.report.joins import JoinReport
from lancestat.report.site_folder import MARKER, is_free, put
from lancestat.report.tables import TableFigures, TableReport, verdict_words
from lancestat.report.values import Health, NodeReport, ProjectReport
from lancestat.runs.actions import gone_words
from lancestat.runs.result import NodeFailure, NodeResult, PastRun
from lancestat.spec.model import ProjectSpec
from lancestat.spec.redaction import named
from lancestat.tables.statistics.column_statistics import STATISTICS
from lancestat.tables.table_status import TableStatus

if TYPE_CHECKING:
    from jinja2 import Environment
    from jinja2.runtime import Context

_HERE = Path(__file__).parent
_TEMPLATES = _HERE / "templates"
_ASSETS = (*sorted(_HERE.glob("static/*")), *sorted(_HERE.glob("vendor/*")))
_RUNS_SHOWN = 30
_FRAGMENTS_SHOWN = 24
# The rest of a list is laid out on demand, since browsers are slow with long tables.
_ROWS_SHOWN = 100
_LONGEST_BOUND = 32
_LONGEST_LABEL = 26

# A file of the site: its path relative to the site's folder, with slashes, and its text.
SitePage = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Site:
    """A site that was written; `page` is the one to open."""

    page: Path
    pages: int
    size_bytes: int


def build_site(report: ProjectReport, spec: ProjectSpec, folder: Path) -> Site:
    """Write the pages of a report to a folder, in place of the site that is there.

    Secrets of the project `spec` are masked, and templates are shown of what came from the
    environment. A folder that is not empty must be a site.

    Raises:
        PlaceOccupied: the folder holds something else.
        NotWritten: it cannot be written.
    """
    folder = check_folder(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        remove_drafts(folder / MARKER)
        draft = new_draft(folder / MARKER)
        try:
            pages, size_bytes = _write(report, spec, draft)
            put(draft, folder)
        finally:
            remove(draft)
    except OSError as error:
        raise _pages_not_written(folder, error) from error
    return Site(folder / "index.html", pages, size_bytes)


def check_folder(folder: Path) -> Path:
    """The folder without links in its path, when pages may be written there.

    Raises:
        PlaceOccupied: it holds something else.
        NotWritten: it cannot be read.
    """
    try:
        folder = folder.resolve()
        if folder.exists() and not folder.is_dir():
            raise PlaceOccupied(f"{folder} is a file; pages are written to a folder")
        if folder.is_dir() and not is_free(folder):
            raise PlaceOccupied(
                f"{folder} holds files that `lancestat docs` did not write, and would be replaced",
                hint="name a new or an empty folder: --out DIR",
            )
    except (OSError, ValueError, RuntimeError) as error:
        raise _pages_not_written(folder, error) from error
    return folder


def _pages_not_written(folder: Path, error: Exception) -> UsageError:
    reason = getattr(error, "strerror", None) or str(error)
    hint = "make room there, or choose another --out" if is_full(error) else "choose another --out"
    return NotWritten(f"cannot write the pages to {folder}: {reason}", hint=hint)


def _write(report: ProjectReport, spec: ProjectSpec, folder: Path) -> tuple[int, int]:
    redacted = redacted_report(report, spec)
    assets = folder / "assets"
    assets.mkdir(parents=True)
    for asset in _ASSETS:
        shutil.copyfile(asset, assets / asset.name)
    pages = size_bytes = 0
    for path, text in Pages(redacted, spec, PageSanitizer(spec.redactor, spec.root)).all():
        content = text.encode("utf-8")
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_bytes(content)
        pages += path.endswith(".html")
        size_bytes += len(content)
    return pages, size_bytes


class Pages:
    """The pages of one report about a project, in whose folder its YAML is."""

    def __init__(self, report: ProjectReport, spec: ProjectSpec, sanitizer: PageSanitizer) -> None:
        # A kind of node that has no page of its own is left out.
        shown = TableReport | JoinReport | DuplicatesReport
        nodes = tuple(node for node in report.nodes if isinstance(node, shown))
        if nodes != report.nodes:
            names = {node.spec.name for node in nodes}
            reads = {
                name: tuple(other for other in others if other in names)
                for name, others in report.reads.items()
                if name in names
            }
            report = replace(report, nodes=nodes, reads=reads)
        self._report = report
        self._sanitizer = sanitizer
        self._origins = spec.origins
        self._sources = Sources(spec.root)
        self._addresses = addresses(report.nodes)
        self._read_by = _inverted(report.reads)
        # The codes of errors that pages name.
        self._codes: set[str] = set()
        self._environment = _environment(sanitizer, self._live)
        self._environment.globals.update(
            {
                "report": report,
                "address": self._addresses,
                "kinds": {node.spec.name: kind_name(node.spec.kind.value) for node in report.nodes},
                "shown_first": _ROWS_SHOWN,
            }
        )

    def all(self) -> Iterator[SitePage]:
        """Yield every page."""
        report = self._report
        runs = all_runs(report)
        tables = [node for node in report.nodes if isinstance(node, TableReport)]
        joins = [node for node in report.nodes if isinstance(node, JoinReport)]
        duplicates = [node for node in report.nodes if isinstance(node, DuplicatesReport)]
        order, healths = list(Health), Counter(node.health for node in report.nodes)
        unwell = [node for node in report.nodes if node.health is not Health.OK]
        yield self._page(
            "index.html",
            here="overview",
            problems=sorted(unwell, key=lambda node: -order.index(node.health)),
            gone=gone_words(report.sources),
            healths={health.value: healths[health] for health in Health},
            columns=column_counts(report),
            tables=tables,
            joins=joins,
            duplicates=duplicates,
            runs=runs[:5],
            skips=last_skips(report),
        )
        yield self._page("runs.html", here="runs", runs=runs[:_RUNS_SHOWN])
        boxes, edges, width, height = charts.draw(report)
        yield self._page(
            "graph.html",
            here="graph",
            read_by=self._read_by,
            boxes=boxes,
            edges=edges,
            width=width,
            height=height,
        )
        for table in tables:
            yield self._table(table)
        for join in joins:
            yield self._join(join)
        for node in duplicates:
            yield self._duplicates(node)
        yield "search-index.js", self._search_index()
        if self._codes:
            kinds = [error_class(code) for code in sorted(self._codes)]
            yield self._page("errors.html", kinds=kinds)

    def _live(self, context: Context, text: str) -> Markup:
        line = self._sanitizer.line(text)
        self._codes.update(error_codes(line))
        return live(line, self._report.made_at, f"{context['root']}errors.html")

    def _table(self, table: TableReport) -> SitePage:
        origins = self._origins.get(table.spec.name, {})
        trends, column_trends = charts.table_trends(table.history)
        return self._node(
            table,
            "table.html",
            facts=facts.table_facts(table, origins),
            declared=named(origins, "columns") or facts.selection_words(table.spec.columns),
            distributions=facts.distributions(table),
            relations=[
                *check_table(table.checks),
                *(relation_tables(table.status.relations) if table.status else ()),
            ],
            history=charts.table_history(table.runs),
            trends=trends,
            column_trends=column_trends,
            fragments=table.fragments[:_FRAGMENTS_SHOWN],
        )

    def _join(self, join: JoinReport) -> SitePage:
        distances = join.record.distances if join.record else None
        return self._node(
            join,
            "join.html",
            facts=facts.join_facts(join, self._origins.get(join.spec.name, {})),
            sides=facts.side_facts(join),
            ranks=charts.distance_shapes(join.spec.metric, distances) if distances else [],
            distances=charts.distance_words(join, distances) if distances else None,
            history=charts.join_history(join),
        )

    def _duplicates(self, node: DuplicatesReport) -> SitePage:
        distances = node.record.pairs.distances if node.record else None
        origins = self._origins.get(node.spec.name, {})
        return self._node(
            node,
            "duplicates.html",
            facts=facts.duplicates_facts(node, origins),
            sizes=facts.group_sizes(node),
            ranks=charts.distance_shapes(node.spec.metric, distances) if distances else [],
            history=charts.duplicates_history(node),
        )

    def _node(self, node: NodeReport, template: str, **values: object) -> SitePage:
        name = node.spec.name
        return self._page(
            self._addresses[name],
            template,
            node=node,
            runs=node.runs[:_RUNS_SHOWN],
            source=self._sources.of(node.spec.location),
            reads=self._report.reads.get(name, ()),
            read_by=self._read_by.get(name, ()),
            **values,
        )

    def _page(self, path: str, template: str = "", **values: object) -> SitePage:
        root = "../" * path.count("/")
        page = self._environment.get_template(f"{template or path}.j2")
        return path, page.render(root=root, **values)

    def _search_index(self) -> str:
        """A script, since pages from a disk may read no other files."""
        line = self._sanitizer.line
        entries = []
        for node in self._report.nodes:
            spec = node.spec
            columns = (
                list(node.status.columns) if isinstance(node, TableReport) and node.status else []
            )
            words = [spec.owner or "", spec.description or "", *spec.tags]
            entries.append(
                {
                    "name": line(spec.name),
                    "kind": spec.kind.value,
                    "page": self._addresses[spec.name],
                    "health": node.health.value,
                    "words": line(" ".join(words)),
                    "columns": [line(column) for column in columns],
                }
            )
        return f"window.lancestatNodes = {json.dumps(entries, separators=(',', ':'))};\n"


_HEALTH = {"ok": "within policy", "warn": "needs attention", "error": "has an error"}


def column_counts(report: ProjectReport) -> tuple[int, int]:
    """Columns with statistics that may be used, also kept ones, and all that are wanted."""
    statuses = [
        node.status for node in report.nodes if isinstance(node, TableReport) and node.status
    ]
    used = sum(len(status.columns) for status in statuses if status.use)
    return used, sum(len(status.columns) + len(status.missing) for status in statuses)


def last_skips(report: ProjectReport) -> list[tuple[str, int]]:
    """Count the nodes that their last run skipped, by the reason."""
    last = [node.runs[0].result for node in report.nodes if node.runs]
    idle = Counter(spoken(run.reasons) or "nothing to do" for run in last if run.is_idle)
    return idle.most_common()


def coverage_of(report: TableReport) -> tuple[float | None, str]:
    """The share of the columns to analyze that have statistics, and both numbers."""
    status = report.status
    if status is None:
        return None, NOTHING
    total = len(status.columns) + len(status.missing)
    if not total:
        return None, "no columns"
    return len(status.columns) / total, f"{count(len(status.columns))} of {count(total)}"


def result_words(report: JoinReport | DuplicatesReport) -> str:
    """Whether a node's result holds, and why it does not."""
    if report.verdict == "current" or not report.reasons:
        return report.verdict
    return f"{report.verdict}: {spoken(report.reasons)}"


def behind(status: TableStatus) -> Markup:
    figures = TableFigures.of(status)
    parts = [f"{figures.behind} behind"] if figures.behind else []
    parts += [f"{figures.changed} of rows"] if figures.changed else []
    parts += [Markup("of {}").format(ago(status.computed_at))] if status.computed_at else []
    return Markup(", ").join(parts)


def lengths(texts: Mapping[str, str]) -> str:
    """Return the average and the longest length, once where they are equal."""
    average, longest = texts["average_length"], texts["maximum_length"]
    return average if average == longest else f"{average} / {longest}"


def verdict(table: TableReport) -> str:
    return verdict_words(table.verdict == "use", table.reason)


def short(text: str) -> str:
    return shorten(text, _LONGEST_BOUND)


def label(text: str) -> str:
    return shorten(text, _LONGEST_LABEL)


def tone(result: NodeResult) -> str:
    """Return the colour of the end of a node."""
    return "error" if result.is_failed else "idle" if result.is_idle else "ok"


def read_words(result: NodeResult) -> str:
    """Return what a run read or compared of a node."""
    if not result.is_done:
        return NOTHING
    if result.figures is None:
        return result.read or "nothing"
    return ", ".join(filter(None, (result.figures.compared, result.figures.narrowed)))


def versions(result: NodeResult) -> str:
    read, published = result.version_read, result.version_published
    if published is None:
        return NOTHING if read is None else str(read)
    return str(published) if read is None else f"{read} \u2192 {published}"


def all_runs(report: ProjectReport) -> list[PastRun]:
    """The runs that any node of a report took part in, the newest first.

    Of the nodes of a run those that failed come first, those that were left alone last.
    """
    by_run: dict[str, list[PastRun]] = {}
    for run in chain(*(node.runs for node in report.nodes), report.former_runs):
        by_run.setdefault(run.run_id, []).append(run)
    order = ("error", "ok", "idle")
    whole = [
        replace(
            parts[0],
            finished_at=max(part.ended_at for part in parts),
            nodes=tuple(
                sorted((part.result for part in parts), key=lambda node: order.index(tone(node)))
            ),
        )
        for parts in by_run.values()
    ]
    return sorted(whole, key=lambda run: run.ended_at, reverse=True)


def skips(results: Sequence[NodeResult]) -> list[tuple[str, int]]:
    """Count the nodes that were left alone, by the reason."""
    idle = Counter(
        (spoken(node.reasons) or "nothing to do") if node.end == "skip" else node.end
        for node in results
        if node.is_idle
    )
    return idle.most_common()


def total_read(run: PastRun) -> str:
    rows = sum(result.rows_scanned or 0 for result in run.nodes)
    parts = [count(rows, "row")] if rows else []
    if pairs := pairs_of(run.nodes):
        parts.append(f"{large(pairs)} pairs")
    return ", ".join(parts) or "nothing"


def slowest(run: PastRun) -> str:
    """Return the longest time of a node: nodes run concurrently, so their sum says little."""
    return duration(max(result.elapsed_seconds or 0 for result in run.nodes))


def _environment(sanitizer: PageSanitizer, live: Callable[[Context, str], Markup]) -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_context

    def finalize(value: object) -> object:
        return sanitizer.line(value) if type(value) is str else value

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    shown: list[Callable[..., object]] = [
        ago,
        behind,
        charts.distance_text,
        charts.join_run_figures,
        count,
        coverage_of,
    ]
    shown += [facts.column_texts, facts.freshness_words, facts.null_share, instant, label, lengths]
    shown += [prose, read_words, result_words, sentence, share, short, since, size, skips, slowest]
    shown += [spoken, tone, total_read, verdict, versions]
    filters: dict[str, Callable[..., object]] = {function.__name__: function for function in shown}
    filters["chart"] = _chart
    filters["sparkline"] = lambda table: charts.sparkline(table.history)
    filters["failure"] = NodeFailure.of
    filters["live"] = pass_context(lambda context, text: live(context, text))
    filters["verbatim"] = sanitizer.verbatim
    environment.filters.update(filters)
    environment.globals["health_words"] = _HEALTH
    environment.globals["box"] = {"width": charts.BOX_WIDTH, "height": charts.BOX_HEIGHT}
    environment.globals["others"] = [one for one in STATISTICS if one.name not in facts.CELLS]
    return environment


def _chart(values: Mapping[str, object]) -> Markup:
    """Numbers for a chart as the value of an attribute."""
    return escape(json.dumps(values, separators=(",", ":"), allow_nan=False))


def _inverted(reads: Mapping[str, tuple[str, ...]]) -> dict[str, list[str]]:
    read_by: dict[str, list[str]] = {}
    for name, inputs in reads.items():
        for source in inputs:
            read_by.setdefault(source, []).append(name)
    return read_by
