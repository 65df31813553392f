"""Fills templates with the content of a report."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from lancestat.errors import error_class
from lancestat.formats import count, size
from lancestat.presentation.site import overview
from lancestat.presentation.site.facts import (
    column_rows,
    join_facts,
    selection_words,
    side_facts,
    table_facts,
)
from lancestat.presentation.site.graph import draw
from lancestat.presentation.site.join_charts import (
    JoinRunFigures,
    distance_figures,
    join_history,
    join_run_figures,
)
from lancestat.presentation.site.runs import NodeRunRow, all_runs, history, node_run_row
from lancestat.presentation.site.source import Sources
from lancestat.presentation.site.text import (
    HEALTH,
    PageSanitizer,
    addresses,
    error_codes,
    instant,
    live,
    prose,
    sentence,
    since,
)
from lancestat.report.joins import JoinReport
from lancestat.report.tables import TableReport, verdict_words
from lancestat.report.values import ProjectReport
from lancestat.runs.actions import gone_words
from lancestat.runs.result import PastRun
from lancestat.spec.model import ProjectSpec
from lancestat.spec.redaction import named

if TYPE_CHECKING:
    from types import CodeType

    from jinja2 import BytecodeCache, Environment
    from jinja2.bccache import Bucket
    from jinja2.runtime import Context

_TEMPLATES = Path(__file__).parent / "templates"
_RUNS_SHOWN = 30
_FRAGMENTS_SHOWN = 24
# The rest of a list is laid out on demand, since browsers are slow with long tables.
_ROWS_SHOWN = 100


@dataclass(frozen=True, slots=True)
class SitePage:
    """A file of the site: its path relative to the site's folder, with slashes, and its text."""

    path: str
    text: str


class Pages:
    """The pages of one report about a project, in whose folder its YAML is."""

    def __init__(self, report: ProjectReport, spec: ProjectSpec, sanitizer: PageSanitizer) -> None:
        # A kind of node that has no page of its own is left out.
        nodes = tuple(node for node in report.nodes if isinstance(node, TableReport | JoinReport))
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
                "kinds": self._kinds(),
                "shown_first": _ROWS_SHOWN,
            }
        )

    def all(self) -> Iterator[SitePage]:
        """Yield every page."""
        report = self._report
        runs = all_runs(report)
        tables = [node for node in report.nodes if isinstance(node, TableReport)]
        joins = [node for node in report.nodes if isinstance(node, JoinReport)]
        yield self._page(
            "index.html",
            "index.html.j2",
            here="overview",
            problems=overview.problem_nodes(report),
            gone=gone_words(report.sources),
            healths=overview.nodes_by_health(report),
            columns=overview.column_counts(report),
            tables=[overview.table_row(table) for table in tables],
            joins=[overview.join_row(join) for join in joins],
            runs=runs[:5],
            skips=overview.last_skips(report),
        )
        yield self._page("runs.html", "runs.html.j2", here="runs", runs=runs[:_RUNS_SHOWN])
        yield self._page(
            "graph.html", "graph.html.j2", here="graph", drawing=draw(report), read_by=self._read_by
        )
        for table in tables:
            yield self._table(table)
        for join in joins:
            yield self._join(join)
        yield SitePage("search-index.js", self._search_index())
        if self._codes:
            kinds = [error_class(code) for code in sorted(self._codes)]
            yield self._page("errors.html", "errors.html.j2", kinds=kinds)

    def _live(self, context: Context, text: str) -> Markup:
        line = self._sanitizer.line(text)
        self._codes.update(error_codes(line))
        return live(line, self._report.made_at, f"{context['root']}errors.html")

    def _table(self, table: TableReport) -> SitePage:
        name = table.spec.name
        coverage, covered = overview.coverage_of(table)
        origins = self._origins.get(name, {})
        return self._page(
            self._addresses[name],
            "table.html.j2",
            node=table,
            facts=table_facts(table, origins),
            verdict=verdict_words(table.verdict == "use", table.reason),
            coverage=coverage,
            covered=covered,
            columns=column_rows(table),
            declared=named(origins, "columns") or selection_words(table.spec.columns),
            policy=named(origins, "policy") or table.spec.policy.accepted_staleness,
            history=history(table.runs),
            runs=[node_run_row(run) for run in table.runs[:_RUNS_SHOWN]],
            fragments=table.fragments[:_FRAGMENTS_SHOWN],
            source=self._sources.of(table.spec.location),
            reads=self._report.reads.get(name, ()),
            read_by=self._read_by.get(name, ()),
        )

    def _join(self, join: JoinReport) -> SitePage:
        name = join.spec.name
        return self._page(
            self._addresses[name],
            "join.html.j2",
            node=join,
            verdict=overview.result_words(join),
            facts=join_facts(join, self._origins.get(name, {})),
            sides=side_facts(join),
            distances=distance_figures(join),
            history=join_history(join),
            results=_join_rows(join.results),
            runs=_join_rows(join.runs[:_RUNS_SHOWN]),
            source=self._sources.of(join.spec.location),
            reads=self._report.reads.get(name, ()),
            read_by=self._read_by.get(name, ()),
        )

    def _page(self, path: str, template: str, **values: object) -> SitePage:
        root = "../" * path.count("/")
        text = self._environment.get_template(template).render(root=root, **values)
        return SitePage(path, text)

    def _kinds(self) -> dict[str, str]:
        words = {"table": "table", "knn_join": "KNN join"}
        return {node.spec.name: words[node.spec.kind.value] for node in self._report.nodes}

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


def _join_rows(runs: Sequence[PastRun]) -> list[tuple[NodeRunRow, JoinRunFigures]]:
    return [(node_run_row(run), join_run_figures(run)) for run in runs]


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
        bytecode_cache=_compiled_templates(),
    )
    environment.filters.update(
        {
            "count": count,
            "size": size,
            "instant": instant,
            "live": pass_context(lambda context, text: live(context, text)),
            "prose": prose,
            "since": since,
            "sentence": sentence,
            "verbatim": sanitizer.verbatim,
            "chart": _chart,
        }
    )
    environment.globals["health_words"] = {health.value: text for health, text in HEALTH.items()}
    return environment


@cache
def _compiled_templates() -> BytecodeCache:
    """Compiled templates, which the environments of all reports in this process share."""
    from jinja2 import BytecodeCache

    class CompiledTemplates(BytecodeCache):
        def __init__(self) -> None:
            self._codes: dict[tuple[str, str], CodeType] = {}

        def load_bytecode(self, bucket: Bucket) -> None:
            bucket.code = self._codes.get((bucket.key, bucket.checksum))

        def dump_bytecode(self, bucket: Bucket) -> None:
            assert bucket.code is not None
            self._codes[bucket.key, bucket.checksum] = bucket.code

    return CompiledTemplates()


def _chart(values: Mapping[str, object]) -> Markup:
    """Numbers for a chart as the value of an attribute."""
    return escape(json.dumps(values, separators=(",", ":"), allow_nan=False))


def _inverted(reads: Mapping[str, tuple[str, ...]]) -> dict[str, list[str]]:
    read_by: dict[str, list[str]] = {}
    for name, inputs in reads.items():
        for source in inputs:
            read_by.setdefault(source, []).append(name)
    return read_by
