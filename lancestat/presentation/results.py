"""What commands and notebooks show of results: views, and answers that only text and JSON print."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, cast

from lancestat.formats import count, duration, format_instant, instant, named, size, visible
from lancestat.presentation import views, words
from lancestat.presentation.terminal import paint, table
from lancestat.presentation.text import folded, indented, node_lines, paragraphs
from lancestat.query.sql.query import ARRAY, QueryResult, ResultValue, Shape
from lancestat.report.gather import STATISTICS, statistics_rows
from lancestat.report.history import HISTORY, history_rows
from lancestat.report.tables import TableFigures
from lancestat.report.values import health_counts, one_line, status_words
from lancestat.runs.actions import gone_words

if TYPE_CHECKING:
    from lancestat.report.values import ProjectReport
    from lancestat.runs.result import PastRun
    from lancestat.spec.model import ProjectSpec
    from lancestat.state.garbage import GarbageReport
    from lancestat.state.history import HistoryPoint
    from lancestat.tables.table_status import TableStatus
    from lancestat.tables.unpublish import UnpublishedNode, UnpublishResult


def show_view(status: TableStatus) -> views.ShowView:
    rows = tuple(statistics_rows(status))
    return views.ShowView(status, TableFigures.of(status), tuple(STATISTICS.columns), rows)


def history_view(table: str, points: Sequence[HistoryPoint]) -> views.HistoryView:
    rows = tuple(history_rows(points))
    return views.HistoryView(table, tuple(points), tuple(HISTORY.columns), rows)


def status_view(report: ProjectReport) -> views.StatusView:
    now = report.made_at
    nodes = tuple(
        (replace(node, problems=tuple(map(one_line, node.problems))), status_words(node, now))
        for node in report.nodes
    )
    project, target = one_line(report.name), one_line(report.target)
    counts = health_counts(report.nodes)
    return views.StatusView(project, target, report, nodes, counts, gone_words(report.sources))


_RUN_TONES = {"success": "success", "error": "error", "interrupted": "refresh", "running": "title"}
# How much of an id is shown: enough to name one run of very many.
_ID_SHOWN = 12
_OF_PAST = {
    "skip": "unchanged",
    "error": "failed",
    "skipped": "not run",
    "interrupted": "stopped",
    "defer": "deferred",
}


def runs_answer(spec: ProjectSpec, runs: Sequence[PastRun]) -> views.Answer:
    """Return the answer for past runs, newest first."""
    target = spec.target.name
    listed = [{**_run_members(run), "nodes": run.counts} for run in runs]
    members = {"project": spec.name, "target": target, "runs": listed}

    def lines(page: views.Page) -> list[str]:
        if not runs:
            return [f"No run of target {target} is recorded."]
        head = ["run", "command", "started", "status", "time", "nodes"]
        rows = table([_run_cells(run, page) for run in runs], head=head, right={4}, indent="  ")
        return [paint(f"Runs of {spec.name}, target {target}", "title"), "", *rows]

    return views.Answer("runs", members, lines)


def past_run_answer(spec: ProjectSpec, run: PastRun) -> views.Answer:
    """Return the answer for the nodes of one past run."""
    nodes = [node.to_json() for node in run.nodes]
    members = {**_run_members(run), "target": run.target, "nodes": nodes}

    def lines(page: views.Page) -> Iterator[str]:
        title = f"{run.command.capitalize()} {run.run_id} of {spec.name}, target {run.target}"
        yield paint(title, "title")
        took = f", took {_time(run)}" if run.elapsed is not None else ""
        yield f"{_status(run)}, started {instant(run.started_at, with_seconds=True)}{took}"
        yield ""
        yield from node_lines(run.nodes, page)

    return views.Answer("runs", {"project": spec.name, "run": members}, lines)


def _run_members(run: PastRun) -> dict[str, object]:
    elapsed, finished_at = run.elapsed, run.finished_at
    return {
        "run_id": run.run_id,
        "command": run.command,
        "status": run.status,
        "started_at": format_instant(run.started_at),
        "finished_at": None if finished_at is None else format_instant(finished_at),
        "elapsed_seconds": None if elapsed is None else elapsed.total_seconds(),
    }


def _run_cells(run: PastRun, page: views.Page) -> list[str]:
    counts = (f"{count(number)} {_OF_PAST.get(what, what)}" for what, number in run.counts.items())
    run_id = run.run_id if page.verbose else run.run_id[:_ID_SHOWN]
    started = instant(run.started_at, with_seconds=True)
    return [run_id, run.command, started, _status(run), _time(run), ", ".join(counts)]


def _status(run: PastRun) -> str:
    return paint(run.status, _RUN_TONES.get(run.status, "note"))


def _time(run: PastRun) -> str:
    return "" if run.elapsed is None else duration(run.elapsed.total_seconds())


def garbage_answer(report: GarbageReport, project: str = "", target: str = "") -> views.Answer:
    counts = asdict(report)
    members = {"project": project, "target": target, "dry_run": counts.pop("is_dry_run"), **counts}
    return views.Answer("gc", members, lambda page: _garbage_lines(report))


def _garbage_lines(report: GarbageReport) -> Iterator[str]:
    removed = f"{report.verb} {report.removed}: {size(report.bytes)}"
    yield removed if report.removed else "Nothing to remove."
    if report.scratch_left:
        left = count(report.scratch_left, "scratch folder")
        yield paint(f"left {left} that cannot be removed, see above", "note")


_UNPUBLISH_SYMBOLS = {"unpublish": "-", "skip": ".", "blocked": "!"}
_UNPUBLISH_TONES = {"unpublish": "refresh", "skip": "skip", "blocked": "blocked"}
_KEPT_BECAUSE = {
    "absent": "nothing is published",
    "other_writer": "the statistics of another writer stay",
    "newer_release": "what a newer release of lancestat wrote stays",
    "not_a_table": "the result of a join stays as it is",
}


def unpublish_answer(result: UnpublishResult) -> views.Answer:
    """Return the answer for the statistics that were removed from tables, or would be."""
    members = {
        "project": result.project,
        "target": result.target,
        "dry_run": result.is_dry_run,
        "status": result.status.value,
        "nodes": [node.to_json() for node in result.nodes],
    }
    return views.Answer("unpublish", members, lambda page: _unpublish_lines(result, page))


def _unpublish_lines(result: UnpublishResult, page: views.Page) -> list[str]:
    idle = sum(node.action == "skip" for node in result.nodes)
    is_folded = idle > words.SKIPS_LISTED and not page.verbose
    nodes = [node for node in result.nodes if not (is_folded and node.action == "skip")]
    what = "Dry run of unpublish" if result.is_dry_run else "Unpublish"
    lines = [paint(f"{what} for {result.project}, target {result.target}", "title"), ""]
    for line, node in zip(table(map(_unpublish_cells, nodes), indent="  "), nodes, strict=True):
        lines += [line, *indented(node.error.text() if node.error else "", page)]
        lines += indented(_unknown(node), page, "note")
    if is_folded:
        lines.append(folded(f"{count(idle)} left as they are", 9))
    return [*lines, "", *_unpublish_totals(result, idle), *paragraphs(_next_run(result), page)]


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


def _unpublish_totals(result: UnpublishResult, idle: int) -> Iterator[str]:
    removed = [node for node in result.nodes if node.action == "unpublish"]
    failed = sum(node.error is not None for node in result.nodes)
    entries = count(sum(node.entries or 0 for node in removed), "entry", "entries")
    where = f"from {count(len(removed), 'table')}"
    removal = "Would remove" if result.is_dry_run else "Removed"
    text = f"{removal} {entries} {where}" if removed else "Nothing to remove"
    parts = [f"{count(idle)} left as they are"] if idle else []
    parts += [paint(f"{count(failed)} failed", "error")] if failed else []
    yield "".join(f", {part}" if index else part for index, part in enumerate([text, *parts])) + "."


def _next_run(result: UnpublishResult) -> Iterator[str]:
    """Yield sentences on tables whose statistics the next run publishes, or confirms."""
    if again := [node.name for node in result.nodes if node.is_published_again]:
        yield (
            f"The next run publishes the statistics of {named(again)} again, without reading what "
            "the state has stored; 'publish: none' keeps them out."
        )
    if kept := [node.name for node in result.nodes if node.is_behind]:
        yield (
            f"What the state keeps of {named(kept)} describes an earlier version until the next "
            "run, which confirms it without reading."
        )


_EPOCH = datetime(1970, 1, 1)
_NOT_NUMBERS = frozenset({"NaN", "Infinity", "-Infinity"})


def json_value(value: ResultValue, shape: Shape) -> object:
    """The value as JSON holds it.

    Integers and finite floats are numbers, decimals strings, as are NaN and the infinities; dates
    and timestamps are ISO 8601 with six digits of a second, those with a zone in UTC with a `Z`;
    binary is base64. A struct is an object, or a list of its values where fields share a name; a
    map is a list of `[key, value]`.
    """
    if isinstance(value, tuple):
        members = [json_value(*cell) for cell in zip(value, shape.parts, strict=True)]
        names = shape.names
        is_ambiguous = len(set(names)) < len(names)
        return members if is_ambiguous else dict(zip(names, members, strict=True))
    if isinstance(value, list):
        if shape.kind == ARRAY:
            return [json_value(item, shape.parts[0]) for item in value]
        return [
            list(map(json_value, cast(Sequence[ResultValue], pair), shape.parts)) for pair in value
        ]
    return None if value is None else _scalar(value, shape.kind)


def text_value(value: ResultValue, shape: Shape) -> str:
    """The value as a cell: top-level text bare, what is made of values as compact JSON."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return json.dumps(json_value(value, shape), ensure_ascii=False)
    if shape.kind == "binary":
        return f"0x{value}"
    return str(value)


def _scalar(value: bool | int | str, kind: str) -> object:
    match kind:
        case "float" | "double":
            return value if value in _NOT_NUMBERS else float(value)
        case "binary":
            return base64.b64encode(bytes.fromhex(str(value))).decode("ascii")
        case "timestamp" if isinstance(value, int):
            return f"{_instant(value)}Z"
        case "timestamp_ntz":
            day, _, time = str(value).partition(" ")
            whole, _, fraction = time.partition(".")
            return f"{day}T{whole}.{fraction:0<6}"
    return value


def _instant(microseconds: int) -> str:
    """ISO 8601 in UTC; years beyond four digits carry a sign, as Spark writes them."""
    try:
        return (_EPOCH + timedelta(microseconds=microseconds)).isoformat(timespec="microseconds")
    except OverflowError:
        import numpy as np

        text = str(np.datetime64(microseconds, "us"))
        return text if text.startswith("-") else f"+{text}"


def query_view(result: QueryResult) -> views.QueryView:
    """Return the view of a query's result, whose rows are read when a format prints them."""
    view = views.QueryView(result.columns, iter(()), iter(()))
    rows, shapes = _counted(result, view), [column.shape for column in result.columns]
    view.values = ([json_value(*cell) for cell in zip(row, shapes, strict=True)] for row in rows)
    view.cells = (
        [visible(text_value(*cell)) for cell in zip(row, shapes, strict=True)] for row in rows
    )
    return view


def _counted(result: QueryResult, view: views.QueryView) -> Iterator[tuple[ResultValue, ...]]:
    """Yield rows up to the limit, and record in the view how many there were."""
    for row in result.rows:
        if view.printed == result.limit:
            view.is_complete = False
            return
        view.printed += 1
        yield row
