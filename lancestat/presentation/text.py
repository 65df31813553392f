"""The format `text`, for people at a terminal; colours are dropped elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from lancestat.formats import age, count, instant, named, size, visible
from lancestat.presentation.registry import Format, Page
from lancestat.presentation.terminal import CONSOLE, paint, table
from lancestat.presentation.text_diff import diff_lines
from lancestat.presentation.text_plan import plan_lines, run_lines
from lancestat.presentation.text_runs import past_run_lines, runs_lines
from lancestat.presentation.text_sql import explanation_lines, query_lines
from lancestat.presentation.text_status import status_lines
from lancestat.presentation.text_unpublish import unpublish_lines
from lancestat.presentation.views import (
    ChecksView,
    CommentView,
    DiffView,
    ExplanationView,
    GarbageView,
    InitView,
    JarView,
    ListView,
    PackageView,
    PastRunView,
    PlanView,
    QueryView,
    RunsView,
    RunView,
    SchemaFilesView,
    SchemaKindsView,
    ShowView,
    SiteView,
    StatusView,
    UnpublishView,
    ValidationView,
)
from lancestat.redact import redact_line

if TYPE_CHECKING:
    from lancestat.tables.manifest.wire import PublishedColumn

_LONGEST_BOUND = 28


def _write(lines: Iterable[str]) -> None:
    CONSOLE.out(*lines)


FORMAT: Format[Iterable[str]] = Format(_write, is_for_people=True)

FORMAT.renders(PlanView)(plan_lines)
FORMAT.renders(RunView)(run_lines)
FORMAT.renders(RunsView)(runs_lines)
FORMAT.renders(PastRunView)(past_run_lines)
FORMAT.renders(DiffView)(diff_lines)
FORMAT.renders(StatusView)(status_lines)
FORMAT.renders(UnpublishView)(unpublish_lines)
FORMAT.renders(QueryView)(query_lines)
FORMAT.renders(ExplanationView)(explanation_lines)


@FORMAT.renders(InitView)
def _init(view: InitView, page: Page) -> Iterator[str]:
    is_here = view.folder == Path()
    yield paint(f"A new project in {'.' if is_here else view.folder}", "title")
    yield ""
    yield from (f"  {file}" for file in view.files)
    yield from (f"  {name}  a sample table" for name in view.tables)
    yield ""
    enter = "" if is_here else f"cd {view.folder}, then "
    if view.found is not None:
        yield f"Found {count(len(view.found), 'table')}: {named(view.found)}."
        yield f"Next: {enter}lancestat plan; specs/sources.yml says which tables are nodes."
        return
    yield f"Next: {enter}lancestat plan and lancestat run."
    yield "      Once specs/tables.yml names your own tables, the folder sample can go."


@FORMAT.renders(SchemaKindsView)
def _schema_kinds(view: SchemaKindsView, page: Page) -> list[str]:
    return table(view.kinds.items(), head=["kind", "schema of"], page=page)


@FORMAT.renders(SchemaFilesView)
def _schema_files(view: SchemaFilesView, page: Page) -> Iterator[str]:
    return (str(view.folder / file) for file in view.files)


@FORMAT.renders(ValidationView)
def _validation(view: ValidationView, page: Page) -> Iterator[str]:
    counts = [
        count(view.kinds.count(kind), noun)
        for kind, noun in (("table", "table"), ("knn_join", "KNN join"), ("source", "source"))
        if kind in view.kinds
    ]
    *others, last = counts or ["nothing yet"]
    nodes = f"{', '.join(others)} and {last}" if others else last
    yield f"{paint('valid', 'success')}  {view.project}, target {view.target}: {nodes}"


@FORMAT.renders(ListView)
def _list(view: ListView, page: Page) -> list[str]:
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


@FORMAT.renders(ShowView)
def _show(view: ShowView, page: Page) -> list[str]:
    status = view.status
    lines = [f"{paint(status.table, 'title')}  {paint(redact_line(status.uri), 'note')}", ""]
    lines += table(show_facts(view), indent="  ", page=page)
    lines += ["", *_columns(status.columns, page)] if status.columns else []
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


def show_facts(view: ShowView) -> Iterator[tuple[str, str]]:
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


def _columns(columns: Mapping[str, PublishedColumn], page: Page) -> list[str]:
    [first, *_] = columns.values()
    statistics = [statistic for statistic, _ in first.items()]
    rows = [
        [name, *(_shortened(statistic.text(value)) for statistic, value in column.items())]
        for name, column in columns.items()
    ]
    head = ["column", *(statistic.label for statistic in statistics)]
    right = [index for index, statistic in enumerate(statistics, start=1) if not statistic.is_bound]
    return table(rows, head=head, right=right, indent="  ", page=page)


def _shortened(text: str) -> str:
    line = visible(" ".join(text.split()))
    return line if len(line) <= _LONGEST_BOUND else f"{line[: _LONGEST_BOUND - 3]}..."


@FORMAT.renders(SiteView)
def _site(view: SiteView, page: Page) -> Iterator[str]:
    pages = f"{count(view.pages, 'page')}, {size(view.size_bytes)}"
    yield paint(f"wrote {pages}; open this one in a browser:", "note")
    yield view.page.as_uri()


@FORMAT.renders(PackageView)
def _package(view: PackageView, page: Page) -> Iterator[str]:
    packages = count(len(view.packages), "package")
    yield paint(f"wrote {view.path}: {packages}, {size(view.size_bytes)}", "note")
    if page.verbose:
        yield ""
        yield from (f"  {name} {version}" for name, version in view.packages.items())
    yield ""
    yield f"For workers with Python {view.python} on machines of this kind. In a target,"
    yield "with the path as from the project's folder:"
    yield ""
    yield f"  spark: {{package: {view.path}}}"
    yield ""
    yield "In the configuration of a session that lancestat does not start:"
    yield ""
    yield from (f"  {key}  {value}" for key, value in view.conf.items())


@FORMAT.renders(JarView)
def _jar(view: JarView, page: Page) -> Iterator[str]:
    yield paint(f"wrote {view.path}, for Spark {view.spark}: {size(view.size_bytes)}", "note")
    yield ""
    yield "In the configuration of a session that lancestat does not start:"
    yield ""
    yield from (f"  {key}  {value}" for key, value in view.conf.items())
    yield ""
    yield "Then, in its Python: lancestat.register(spark)"


@FORMAT.renders(GarbageView)
def _garbage(view: GarbageView, page: Page) -> Iterator[str]:
    report = view.report
    counts = [
        count(report.partials_dropped, "set of partials", "sets of partials"),
        count(report.runs_dropped, "run entry", "run entries"),
        count(report.generations_dropped, "superseded dataset"),
        count(report.scratch_dropped, "scratch folder"),
        count(report.layouts_dropped, "kept layout"),
    ]
    removed = [text for text in counts if not text.startswith("0 ")]
    verb = "would remove" if view.is_dry_run else "removed"
    yield f"{verb} {', '.join(removed)}: {size(report.bytes)}" if removed else "Nothing to remove."
    if report.scratch_left:
        left = count(report.scratch_left, "scratch folder")
        yield paint(f"left {left} that cannot be removed, see above", "note")


@FORMAT.renders(CommentView)
def _comment(view: CommentView, page: Page) -> Iterator[str]:
    if view.result.body is not None:
        yield from view.result.body.rstrip("\n").split("\n")
        return
    outcome = paint(view.result.outcome.value.replace("_", " "), "success")
    yield f"{outcome}  {view.result.url}" if view.result.url else outcome


@FORMAT.renders(ChecksView)
def _checks(view: ChecksView, page: Page) -> list[str]:
    rows = []
    for check in view.checks:
        sign = paint("ok", "success") if check.passed else paint("no", "error")
        rows.append([sign, check.subject, check.finding])
        if check.advice:
            rows.append(["", "", f"-> {check.advice}"])
    return table(rows, page=page)
