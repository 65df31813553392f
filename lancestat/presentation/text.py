"""Results for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lancestat.errors import InvalidProject
from lancestat.presentation.terminal import CONSOLE, grid, paint, width
from lancestat.spec.disclosure import disclosed_nodes

if TYPE_CHECKING:
    from lancestat.execution.result import RunResult
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


class TextOutput:
    """Prints pages; colours on a terminal only."""

    def __init__(self, *, verbose: bool = False) -> None:
        self.verbose = verbose

    def created(self, folder: Path, files: Sequence[str]) -> None:
        """Files of a new project."""
        into = "." if folder == Path() else str(folder)
        _print(paint(f"A new project in {into}", "title"), "", *(f"  {file}" for file in files))
        there = "" if folder == Path() else f"cd {into}, then "
        steps = f"Next: {there}lancestat validate; let specs/tables.yml name your own tables."
        _print("", steps)

    def listed_schemas(self, kinds: Mapping[str, str]) -> None:
        """What there are schemas of."""
        _print(*grid(["kind", "schema of"], [[name, about] for name, about in kinds.items()]))

    def written_schemas(self, folder: Path, files: Sequence[str]) -> None:
        """Schemas that were written into a folder."""
        _print(*(str(folder / file) for file in files))

    def validated(self, spec: ProjectSpec) -> None:
        """A project without errors."""
        from lancestat.formats import count

        kinds = [node.kind.value for node in spec.nodes]
        parts = [
            count(kinds.count(kind), noun)
            for kind, noun in (("table", "table"), ("knn_join", "KNN join"))
            if kind in kinds
        ]
        holds = " and ".join(parts) or "nothing yet"
        _print(f"{paint('valid', 'success')}  {spec.name}, target {spec.target.name}: {holds}")

    def invalid(self, error: InvalidProject) -> None:
        """A project with errors, which stderr tells."""

    def listed(self, spec: ProjectSpec, nodes: Sequence[Node]) -> None:
        """Declared nodes."""
        if not nodes:
            _print("No nodes declared." if not spec.nodes else "No nodes selected.")
            return
        rows = []
        for node in disclosed_nodes(spec, nodes, CONSOLE.audience):
            place = f"{node.location.file}:{node.location.line}"
            tags = " ".join(node.tags)
            row = [node.name, node.kind.value, tags, paint(place, "note")]
            rows.append([*row, node.description or ""] if self.verbose else row)
        head = ["name", "kind", "tags", "file", "description"]
        _print(*grid(head[: len(rows[0])], rows))

    def planned(self, plan: Plan, policies: Mapping[str, Policy]) -> None:
        """What a run would do."""
        from lancestat.presentation.plan_text import render_text

        _print(*render_text(plan, paint=paint, verbose=self.verbose, width=width()).split("\n"))

    def compared(self, diff: Diff) -> None:
        """What a change of the project means."""
        from lancestat.presentation.diff_text import render_text

        _print(*render_text(diff, paint=paint, width=width()).split("\n"))

    def ran(self, result: RunResult) -> None:
        """What a run did."""
        from lancestat.presentation.run_text import render_run

        _print(*render_run(result, verbose=self.verbose, width=width()))

    def shown(self, shown: Shown) -> None:
        """One table's statistics."""
        from lancestat.presentation.show_text import render_shown

        _print(*render_shown(shown))

    def documented(self, site: Site) -> None:
        """How many pages there are, and the one to open."""
        from lancestat.formats import count, size

        pages = f"{count(site.pages, 'page')}, {size(site.size_bytes)}"
        _print(paint(f"wrote {pages}; open this one in a browser:", "note"), site.page.as_uri())

    def told(self, report: ProjectReport) -> None:
        """The state of nodes, with what is wrong with them."""
        from lancestat.presentation.status_text import render_status

        _print(*render_status(report, verbose=self.verbose, width=width()))

    def queried(self, result: QueryResult) -> Printed:
        """A table; long values are shortened unless the output is verbose."""
        from lancestat.presentation.sql import result_text as render_result

        lines, printed = render_result(result, is_whole=self.verbose)
        _print(*lines)
        return printed

    def explained(self, explanation: PlanExplanation) -> None:
        """A plan with its estimates, then its scans."""
        from lancestat.presentation.explain_text import render_explanation

        _print(*render_explanation(explanation, verbose=self.verbose, width=width()))

    def swept(self, spec: ProjectSpec, report: SweepReport, *, dry_run: bool) -> None:
        """What was dropped, or would be."""
        from lancestat.formats import count, size

        parts = [
            count(report.partials_dropped, "set of partials", "sets of partials"),
            count(report.runs_dropped, "run entry", "run entries"),
            count(report.generations_dropped, "outlived dataset"),
            count(report.scratch_dropped, "scratch folder"),
        ]
        dropped = [part for part in parts if not part.startswith("0 ")]
        verb = "would drop" if dry_run else "dropped"
        told = f"{verb} {', '.join(dropped)}: {size(report.bytes)}"
        _print(told if dropped else "Nothing to sweep.")
        if report.scratch_left:
            left = count(report.scratch_left, "scratch folder")
            _print(paint(f"left {left} that cannot be swept, see above", "note"))

    def commented(self, kept: Kept) -> None:
        """What became of a pull request's comment."""
        told = kept.outcome.value.replace("_", " ")
        _print(f"{paint(told, 'success')}  {kept.url}" if kept.url else paint(told, "success"))

    def checked(self, checks: Sequence[Check]) -> None:
        """Whether the surroundings are as they should be."""
        rows = []
        for check in checks:
            sign = paint("ok", "success") if check.passed else paint("no", "error")
            rows.append([sign, check.subject, check.finding])
            if check.advice:
                rows.append(["", "", f"-> {check.advice}"])
        _print(*grid(["", "", ""], rows)[1:])


def _print(*lines: str) -> None:
    CONSOLE.out(*lines)
