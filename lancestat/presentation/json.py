"""Results as JSON, one object per command."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from lancestat.errors import InvalidProject, LancestatError
from lancestat.presentation.terminal import CONSOLE
from lancestat.spec.disclosure import disclosed_nodes

if TYPE_CHECKING:
    from lancestat.execution.result import RunResult
    from lancestat.manifest.wire import PublishedColumn
    from lancestat.plan.actions import Plan
    from lancestat.plan.table_status import Shown
    from lancestat.presentation.output import Check, Printed
    from lancestat.report.site.build import Site
    from lancestat.report.values import ProjectReport
    from lancestat.review.comment import Kept
    from lancestat.review.values import Diff
    from lancestat.spark.sql.explain import PlanExplanation
    from lancestat.spark.sql.query import QueryResult
    from lancestat.spec.model import Node, Policy, ProjectSpec
    from lancestat.state.garbage_collection import SweepReport

FORMAT_VERSION = 1


class JsonOutput:
    """Prints objects that scripts may rely on; `format_version` rises when a meaning changes."""

    def created(self, folder: Path, files: Sequence[str]) -> None:
        """Files of a new project."""
        _print("init", folder=str(folder), files=list(files))

    def listed_schemas(self, kinds: Mapping[str, str]) -> None:
        """What there are schemas of."""
        _print("schema", kinds=[{"name": name, "of": about} for name, about in kinds.items()])

    def written_schemas(self, folder: Path, files: Sequence[str]) -> None:
        """Schemas that were written into a folder."""
        _print("schema", folder=str(folder), files=list(files))

    def validated(self, spec: ProjectSpec) -> None:
        """A project without errors."""
        _print(
            "validate",
            project=spec.name,
            target=spec.target.name,
            status="success",
            nodes=len(spec.nodes),
            errors=[],
        )

    def invalid(self, error: InvalidProject) -> None:
        """A project with errors."""
        errors = [_error(part) for part in error.errors]
        _print("validate", project=None, target=None, status="error", nodes=None, errors=errors)

    def listed(self, spec: ProjectSpec, nodes: Sequence[Node]) -> None:
        """Declared nodes."""
        objects = [_node(node) for node in disclosed_nodes(spec, nodes, CONSOLE.audience)]
        _print("list", project=spec.name, target=spec.target.name, nodes=objects)

    def planned(self, plan: Plan, policies: Mapping[str, Policy]) -> None:
        """What a run would do."""
        from lancestat.presentation.plan_json import render_json

        _dump(render_json(plan))

    def compared(self, diff: Diff) -> None:
        """What a change of the project means."""
        from lancestat.presentation.diff_json import render_json

        _dump(render_json(diff))

    def ran(self, result: RunResult) -> None:
        """What a run did."""
        _print(
            result.command,
            project=result.project,
            target=result.target,
            status=result.status.value,
            nodes=[node.to_json() for node in result.nodes],
        )

    def shown(self, shown: Shown) -> None:
        """One table's statistics; bounds are Spark's strings, null where there is no value."""
        from lancestat.manifest.wire import format_instant

        _dump(
            {
                "format_version": FORMAT_VERSION,
                "table": shown.table,
                "version": shown.version,
                "verdict": "use" if shown.use else "refuse",
                "reason": shown.reason,
                "numRows": shown.rows,
                "sizeInBytes": shown.size_bytes,
                "computedAt": format_instant(shown.computed_at) if shown.computed_at else None,
                "columns": {
                    name: {**_column(column), "fragmentsCovered": (shown.covered or {}).get(name)}
                    for name, column in shown.columns.items()
                },
                "missingColumns": list(shown.missing),
                "fragments": shown.fragments,
                "versionsBehind": shown.versions_behind,
                "changedRows": shown.changed_rows,
                "policy": shown.policy,
            }
        )

    def documented(self, site: Site) -> None:
        """Where the pages are, and how the nodes are that they tell of."""
        nodes = [{"name": n.spec.name, "health": n.health.value} for n in site.report.nodes]
        _print("docs", page=str(site.page), pages=site.pages, nodes=nodes)

    def told(self, report: ProjectReport) -> None:
        """The state of nodes, with every figure."""
        from lancestat.presentation.status_json import render_json

        _dump(render_json(report))

    def queried(self, result: QueryResult) -> Printed:
        """Columns with Spark's types, and rows as lists: all at once, so that it is all or none."""
        from lancestat.presentation.sql import result_json as render_result

        text, printed = render_result(result)
        CONSOLE.json(text)
        return printed

    def explained(self, explanation: PlanExplanation) -> None:
        """A plan with its estimates, and its scans."""
        _print("sql", explanation=explanation.to_json())

    def swept(self, spec: ProjectSpec, report: SweepReport, *, dry_run: bool) -> None:
        """What was dropped, or would be."""
        counts = asdict(report)
        _print("gc", project=spec.name, target=spec.target.name, dry_run=dry_run, **counts)

    def commented(self, kept: Kept) -> None:
        """What became of a pull request's comment; without one, `url` is null."""
        _print("comment", outcome=kept.outcome.value, url=kept.url)

    def checked(self, checks: Sequence[Check]) -> None:
        """Whether the surroundings are as they should be."""
        status = "success" if all(check.passed for check in checks) else "error"
        _print("debug", status=status, checks=[asdict(check) for check in checks])


def _print(command: str, **rest: object) -> None:
    _dump({"format_version": FORMAT_VERSION, "command": command, **rest})


def _dump(payload: Mapping[str, object]) -> None:
    shown = CONSOLE.redactor.json(payload, CONSOLE.audience)
    CONSOLE.json(json.dumps(shown, indent=2, ensure_ascii=False, allow_nan=False))


def _error(error: LancestatError) -> dict[str, object]:
    place = error.location
    return {
        "code": error.code,
        "message": error.message,
        "file": place.file if place else None,
        "line": place.line if place else None,
        "column": place.column if place else None,
        "hint": error.hint,
    }


def _node(node: Node) -> dict[str, object]:
    return {
        "name": node.name,
        "kind": node.kind.value,
        "tags": list(node.tags),
        "file": node.location.file,
        "line": node.location.line,
        "description": node.description,
        "owner": node.owner,
    }


def _column(column: PublishedColumn) -> dict[str, object]:
    return {
        "min": column.minimum,
        "max": column.maximum,
        "nullCount": column.nulls,
        "distinctCount": column.distinct,
        "avgLen": column.average_length,
        "maxLen": column.maximum_length,
    }
