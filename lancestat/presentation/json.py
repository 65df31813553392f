"""The format `json`: one object per command, a contract that scripts may rely on.

`format_version` rises when a meaning changes. Null is what is not known.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING

from lancestat.formats import format_instant
from lancestat.presentation.registry import Format, Page
from lancestat.presentation.terminal import CONSOLE
from lancestat.presentation.views import (
    Answer,
    DiffView,
    ErrorsView,
    ExplanationView,
    ListView,
    PastRunView,
    PlanView,
    QueryView,
    RunsView,
    RunView,
    ShowView,
    StatusView,
    UnpublishView,
)
from lancestat.version import __version__

if TYPE_CHECKING:
    from lancestat.errors import LancestatError
    from lancestat.report.values import NodeReport
    from lancestat.review.values import (
        ColumnsChange,
        NodeDiff,
        PropertyChange,
        TablesChange,
    )
    from lancestat.runs.actions import SourceFindings
    from lancestat.runs.result import PastRun
    from lancestat.spec.model import Node

FORMAT_VERSION = 1

Payload = Mapping[str, object]


def _write(payload: Payload | str) -> None:
    if isinstance(payload, str):
        CONSOLE.json(payload)
        return
    redacted = CONSOLE.redactor.json(payload, CONSOLE.audience)
    CONSOLE.json(json.dumps(redacted, indent=2, ensure_ascii=False, allow_nan=False))


FORMAT: Format[Payload | str] = Format(_write)


def _object(command: str, **members: object) -> Payload:
    return {"format_version": FORMAT_VERSION, "command": command, **members}


@FORMAT.renders(Answer)
def _answer(view: Answer, page: Page) -> Payload:
    return _object(view.command, **view.members)


@FORMAT.renders(ErrorsView)
def _errors(view: ErrorsView, page: Page) -> Payload:
    return {
        "format_version": FORMAT_VERSION,
        "command": view.command,
        "status": "error",
        "errors": [_error(error) for error in view.errors],
    }


def _error(error: LancestatError) -> Payload:
    return {
        "code": error.code,
        "message": error.message,
        "location": None if error.location is None else asdict(error.location),
        "hint": error.hint,
    }


@FORMAT.renders(ListView)
def _list(view: ListView, page: Page) -> Payload:
    return _object(
        "list",
        project=view.project,
        target=view.target,
        status="error" if view.errors else "success",
        nodes=[_declared(node) for node in view.nodes],
        sources=[
            {"name": source.label, "file": source.location.file, "line": source.location.line}
            for source in view.sources
        ],
        errors=[_error(error) for error in view.errors],
    )


def _declared(node: Node) -> Payload:
    return {
        "name": node.name,
        "kind": node.kind.value,
        "tags": list(node.tags),
        "file": node.location.file,
        "line": node.location.line,
        "description": node.description,
        "owner": node.owner,
    }


@FORMAT.renders(PlanView)
def _plan(view: PlanView, page: Page) -> Payload:
    return _object(
        "plan",
        project=view.project,
        target=view.target,
        status="error" if view.is_blocked else "planned",
        nodes=[action.result.to_json() for action in view.actions],
        estimated_seconds=view.estimated_seconds,
        spark_start_seconds=view.spark_start_seconds,
        **_sources(view.sources),
    )


def _sources(sources: SourceFindings | None) -> Payload:
    if sources is None:
        return {}
    gone = None if sources.gone is None else list(sources.gone)
    notes = list(sources.notes)
    found = {"found": sources.found, "new": list(sources.new), "gone": gone, "notes": notes}
    return {"sources": found}


@FORMAT.renders(RunView)
def _run(view: RunView, page: Page) -> Payload:
    return _object(
        view.command,
        project=view.project,
        target=view.target,
        version=__version__,
        run_id=view.run_id,
        started_at=_instant(view.started_at),
        finished_at=_instant(view.finished_at),
        status=view.status,
        nodes=[node.result.to_json() for node in view.nodes],
        **_sources(view.sources),
    )


@FORMAT.renders(RunsView)
def _runs(view: RunsView, page: Page) -> Payload:
    runs = [{**_past_run(run), "nodes": run.counts} for run in view.runs]
    return _object("runs", project=view.project, target=view.target, runs=runs)


@FORMAT.renders(PastRunView)
def _one_run(view: PastRunView, page: Page) -> Payload:
    nodes = [node.to_json() for node in view.run.nodes]
    run = {**_past_run(view.run), "target": view.run.target, "nodes": nodes}
    return _object("runs", project=view.project, run=run)


def _past_run(run: PastRun) -> dict[str, object]:
    elapsed = run.elapsed
    return {
        "run_id": run.run_id,
        "command": run.command,
        "status": run.status,
        "started_at": _instant(run.started_at),
        "finished_at": _instant(run.finished_at),
        "elapsed_seconds": None if elapsed is None else elapsed.total_seconds(),
    }


@FORMAT.renders(ShowView)
def _show(view: ShowView, page: Page) -> Payload:
    """Return one table's statistics; bounds are Spark's strings."""
    status = view.status
    covered = status.covered or {}
    return {
        "format_version": FORMAT_VERSION,
        "table": status.table,
        "version": status.version,
        "verdict": "use" if status.use else "refuse",
        "reason": status.reason,
        "num_rows": status.rows,
        "size_in_bytes": status.size_bytes,
        "computed_at": _instant(status.computed_at),
        "columns": {
            name: {
                **column.to_json(),
                "published": name not in status.kept,
                "fragments_covered": covered.get(name),
            }
            for name, column in status.columns.items()
        },
        "missing_columns": list(status.missing),
        "fragments": status.fragments,
        "versions_behind": status.versions_behind,
        "changed_rows": status.changed_rows,
        "policy": status.policy,
    }


@FORMAT.renders(StatusView)
def _status(view: StatusView, page: Page) -> Payload:
    report = view.report
    return _object(
        "status",
        project=report.name,
        target=report.target,
        made_at=format_instant(report.made_at),
        status=report.health.value,
        nodes=[_node_status(node, report.made_at) for node in report.nodes],
        **_sources(report.sources),
    )


def _node_status(node: NodeReport, now: datetime) -> Payload:
    return {
        "name": node.spec.name,
        "kind": node.spec.kind.value,
        "status": node.health.value,
        "problems": list(node.problems),
        "owner": node.spec.owner,
        "tags": list(node.spec.tags),
        **node.to_json(now),
        "last_run": _last_run(node.runs[0]) if node.runs else None,
    }


def _last_run(run: PastRun) -> Payload:
    result = run.result.to_json()
    del result["name"], result["kind"]
    head = {"run_id": run.run_id, "command": run.command}
    return {**head, "finished_at": format_instant(run.ended_at), **result}


def _instant(instant: datetime | None) -> str | None:
    return None if instant is None else format_instant(instant)


@FORMAT.renders(QueryView)
def _query(view: QueryView, page: Page) -> str:
    """Return columns with Spark's types, and rows as lists, one a line."""
    rows = [_compact(row) for row in view.values]
    members = {
        "format_version": FORMAT_VERSION,
        "command": "sql",
        "columns": [{"name": column.name, "type": column.type} for column in view.columns],
        "row_count": view.printed,
        "complete": view.is_complete,
    }
    lines = [f"  {_compact(name)}: {_compact(value)}" for name, value in members.items()]
    listed = "".join(f"\n    {row}," for row in rows)[:-1]
    end = "\n  ]" if rows else "]"
    lines.append(f'  "rows": [{listed}{end}')
    return "{\n" + ",\n".join(lines) + "\n}"


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


@FORMAT.renders(ExplanationView)
def _explanation(view: ExplanationView, page: Page) -> Payload:
    return _object("sql", explanation=view.explanation.to_json())


@FORMAT.renders(UnpublishView)
def _unpublish(view: UnpublishView, page: Page) -> Payload:
    result = view.result
    return _object(
        "unpublish",
        project=result.project,
        target=result.target,
        dry_run=result.is_dry_run,
        status=result.status.value,
        nodes=[node.to_json() for node in result.nodes],
    )


@FORMAT.renders(DiffView)
def _diff(view: DiffView, page: Page) -> Payload:
    """Return a diff, as docs/reference/cli.md describes its members."""
    diff = view.diff
    return _object(
        "diff",
        project=diff.project,
        target=diff.target,
        base={"label": diff.base, "commit": diff.base_commit},
        head={"label": diff.head, "commit": diff.head_commit},
        summary={**view.counts, "unchanged": diff.unchanged},
        risks=sorted(risk.value for risk in diff.risks),
        cost_bytes=diff.cost_bytes,
        settings=[_property(change) for change in diff.settings],
        nodes=[_node_diff(node) for node in diff.nodes],
        notes=list(diff.notes),
    )


def _node_diff(node: NodeDiff) -> Payload:
    return {
        "name": node.name,
        "kind": node.kind_word,
        "previous_name": node.previous_name,
        "change": node.change.value,
        "file": node.location.file,
        "line": node.location.line,
        "owners": list(node.owners),
        "properties": [_property(change) for change in node.properties],
        "columns": None if node.columns is None else _columns_change(node.columns),
        "tables": None if node.tables is None else _tables_change(node.tables),
        "cost_bytes": node.cost_bytes,
        "risks": [{"risk": note.risk.value, "message": note.sentence} for note in node.risks],
        "notes": list(node.notes),
    }


def _tables_change(tables: TablesChange) -> Payload:
    return {
        "known": tables.is_known,
        "gained": list(tables.gained),
        "lost": list(tables.lost),
        "renamed": [{"old": old, "new": new} for old, new in tables.renamed],
    }


def _property(change: PropertyChange) -> Payload:
    return {
        "name": change.name,
        "old": None if change.old is None else change.old.json,
        "new": None if change.new is None else change.new.json,
        "hidden": any(side.is_hidden for side in change.sides),
    }


def _columns_change(columns: ColumnsChange) -> Payload:
    return {
        "resolved": columns.are_names,
        "gained": list(columns.gained),
        "lost": list(columns.lost),
    }
