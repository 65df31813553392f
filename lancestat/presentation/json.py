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
from lancestat.presentation import views, words
from lancestat.presentation.terminal import CONSOLE
from lancestat.version import __version__

if TYPE_CHECKING:
    from lancestat.errors import LancestatError
    from lancestat.query.workload.advice import Proposal
    from lancestat.report.values import NodeReport
    from lancestat.review.values import ColumnsChange, NodeDiff, PropertyChange, TablesChange
    from lancestat.runs.actions import SourceFindings
    from lancestat.runs.result import PastRun
    from lancestat.spec.model import Node
    from lancestat.tables.relations import Relations

FORMAT_VERSION = 1

Payload = Mapping[str, object]


def _write(payload: Payload | str) -> None:
    if isinstance(payload, str):
        CONSOLE.json(payload)
    else:
        CONSOLE.document(payload)


FORMAT: views.Format[Payload | str] = views.Format(_write)


def _object(command: str | None, **members: object) -> Payload:
    return {"format_version": FORMAT_VERSION, "command": command, **members}


@FORMAT.renders(views.Answer)
def _answer(view: views.Answer, page: views.Page) -> Payload:
    return _object(view.command, **view.members)


@FORMAT.renders(views.ErrorsView)
def _errors(view: views.ErrorsView, page: views.Page) -> Payload:
    return _object(view.command, status="error", errors=[_error(error) for error in view.errors])


def _error(error: LancestatError) -> Payload:
    return {
        "code": error.code,
        "message": error.message,
        "location": None if error.location is None else asdict(error.location),
        "hint": error.hint,
    }


@FORMAT.renders(views.ListView)
def _list(view: views.ListView, page: views.Page) -> Payload:
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


@FORMAT.renders(views.PlanView)
def _plan(view: views.PlanView, page: views.Page) -> Payload:
    plan = view.plan
    return _object(
        "plan",
        project=plan.project,
        target=plan.target,
        status="error" if words.is_blocked(plan) else "planned",
        nodes=[node.to_json() for node in words.planned_results(plan)],
        estimated_seconds=words.estimated_seconds(plan),
        spark_start_seconds=plan.spark_start_seconds,
        **_sources(plan.sources),
    )


def _sources(sources: SourceFindings | None) -> Payload:
    if sources is None:
        return {}
    gone = None if sources.gone is None else list(sources.gone)
    notes = list(sources.notes)
    found = {"found": sources.found, "new": list(sources.new), "gone": gone, "notes": notes}
    return {"sources": found}


@FORMAT.renders(views.RunView)
def _run(view: views.RunView, page: views.Page) -> Payload:
    result = view.result
    return _object(
        result.command,
        project=result.project,
        target=result.target,
        version=__version__,
        run_id=result.run_id,
        started_at=_instant(result.started_at),
        finished_at=_instant(result.finished_at),
        status=result.status.value,
        nodes=[node.to_json() for node in result.nodes],
        findings=[finding.to_json() for finding in result.findings],
        **_sources(result.sources),
    )


@FORMAT.renders(views.ShowView)
def _show(view: views.ShowView, page: views.Page) -> Payload:
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
        **_relations(status.relations),
        "fragments": status.fragments,
        "versions_behind": status.versions_behind,
        "changed_rows": status.changed_rows,
        "policy": status.policy,
    }


@FORMAT.renders(views.HistoryView)
def _history(view: views.HistoryView, page: views.Page) -> Payload:
    history = [
        {
            "version": None,
            "computed_at": format_instant(point.at),
            "run_id": point.run_id or None,
            **point.figures,
        }
        for point in view.points
    ]
    return _object("show", table=view.table, history=history)


def _relations(relations: Relations) -> Payload:
    return {
        "groups": [
            {
                "columns": list(group.columns),
                "distinct_count": group.distinct,
                "null_count": group.nulls,
            }
            for group in relations.groups
        ],
        "keys": [
            {"columns": list(key.columns), "status": key.status.value, "reason": key.reason}
            for key in relations.keys
        ],
        "references": [
            {
                "columns": list(reference.columns),
                "table": reference.table,
                "to": list(reference.to),
                "contained": known.contained,
                "reason": known.reason,
            }
            for reference, known in relations.references
        ],
        "common_values": [
            {
                "columns": list(shown.columns),
                "is_exact": shown.is_exact,
                "most_unlisted": shown.unlisted,
                "values": [
                    {"value": list(one.texts), "lower": one.lower, "upper": one.upper}
                    for one in shown.values
                ],
            }
            for shown in relations.common_values
        ],
    }


@FORMAT.renders(views.StatusView)
def _status(view: views.StatusView, page: views.Page) -> Payload:
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


@FORMAT.renders(views.CheckView)
def _check(view: views.CheckView, page: views.Page) -> Payload:
    checked = view.checked
    return _object(
        "check",
        project=checked.report.name,
        target=checked.report.target,
        made_at=format_instant(checked.report.made_at),
        status="success" if checked.ok else "error",
        checks=[{"node": node, **check.to_json()} for node, check in checked.checks],
        errors=[{"node": node, **_error(error)} for node, error in checked.errors.items()],
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


@FORMAT.renders(views.QueryView)
def _query(view: views.QueryView, page: views.Page) -> str:
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


@FORMAT.renders(views.ExplanationView)
def _explanation(view: views.ExplanationView, page: views.Page) -> Payload:
    return _object("sql", explanation=view.explanation.to_json())


@FORMAT.renders(views.ComparisonView)
def _comparison(view: views.ComparisonView, page: views.Page) -> Payload:
    return _object("sql", comparison=view.comparison.to_json())


@FORMAT.renders(views.DiffView)
def _diff(view: views.DiffView, page: views.Page) -> Payload:
    """Return a diff, as docs/reference/cli.md describes its members."""
    diff = view.diff
    return _object(
        "diff",
        project=diff.project,
        target=diff.target,
        base={"label": diff.base, "commit": diff.base_commit},
        head={"label": diff.head, "commit": diff.head_commit},
        summary={**words.change_counts(diff), "unchanged": diff.unchanged},
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


@FORMAT.renders(views.AdviceView)
def _advice(view: views.AdviceView, page: views.Page) -> Payload:
    advice = view.advice
    return _object(
        "advise",
        project=advice.project,
        target=advice.target,
        logs=advice.logs,
        queries=advice.queries,
        first=None if advice.first is None else format_instant(advice.first),
        last=None if advice.last is None else format_instant(advice.last),
        has_estimates=advice.has_estimates,
        proposals=[
            _proposal(proposal, advice.objection(proposal)) for proposal in advice.proposals
        ],
        undeclared=[{"table": name, "queries": n} for name, n in advice.undeclared.items()],
        unopened=[{"table": name, "message": text} for name, text in advice.unopened.items()],
        left_out=advice.left_out,
        unneeded=advice.unneeded,
        diff=advice.diff,
        written=None if view.written is None else list(view.written),
    )


def _proposal(proposal: Proposal, by_hand: str | None) -> Payload:
    last = proposal.last_read
    return {
        "table": proposal.table,
        "change": proposal.change.value,
        "columns": list(proposal.columns),
        "refers_to": None
        if proposal.other is None
        else {"table": proposal.other, "columns": list(proposal.other_columns)},
        "queries": proposal.queries,
        "roles": {role.value: number for role, number in proposal.roles.items()},
        "q_error": proposal.q_error,
        "size_bytes": proposal.size_bytes,
        "last_read": None if last is None else format_instant(last),
        "by_hand": by_hand,
    }
