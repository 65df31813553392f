"""How results are printed: for people, as JSON, Markdown or CSV. Payload goes to stdout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from lancestat.errors import InvalidProject

if TYPE_CHECKING:
    from lancestat.execution.result import RunResult
    from lancestat.plan.actions import Plan
    from lancestat.plan.table_status import Shown
    from lancestat.report.site.build import Site
    from lancestat.report.values import ProjectReport
    from lancestat.review.comment import Kept
    from lancestat.review.values import Diff
    from lancestat.spark.sql.explain import PlanExplanation
    from lancestat.spark.sql.query import QueryResult
    from lancestat.spec.model import Node, Policy, ProjectSpec
    from lancestat.state.garbage_collection import SweepReport


@dataclass(frozen=True, slots=True)
class Printed:
    """How much of a query's result was printed: rows, all of them or not, cells whole or not."""

    rows: int
    is_complete: bool = True
    is_shortened: bool = False


@dataclass(frozen=True, slots=True)
class Check:
    """What was found of a subject, and what to do when it is not as it should be."""

    subject: str
    passed: bool
    finding: str
    advice: str | None = None


class Output(Protocol):
    """Prints what commands return, each kind of value in its way."""

    def created(self, folder: Path, files: Sequence[str]) -> None:
        """Files of a new project."""
        ...

    def listed_schemas(self, kinds: Mapping[str, str]) -> None:
        """What there are schemas of."""
        ...

    def written_schemas(self, folder: Path, files: Sequence[str]) -> None:
        """Schemas that were written into a folder."""
        ...

    def validated(self, spec: ProjectSpec) -> None:
        """A project without errors."""
        ...

    def invalid(self, error: InvalidProject) -> None:
        """A project with errors, which also go to stderr."""
        ...

    def listed(self, spec: ProjectSpec, nodes: Sequence[Node]) -> None:
        """Declared nodes."""
        ...

    def planned(self, plan: Plan, policies: Mapping[str, Policy]) -> None:
        """What a run would do."""
        ...

    def compared(self, diff: Diff) -> None:
        """What a change of the project means."""
        ...

    def ran(self, result: RunResult) -> None:
        """What a run did."""
        ...

    def shown(self, shown: Shown) -> None:
        """One table's statistics."""
        ...

    def documented(self, site: Site) -> None:
        """Pages about the project."""
        ...

    def told(self, report: ProjectReport) -> None:
        """The state of nodes."""
        ...

    def queried(self, result: QueryResult) -> Printed:
        """The rows of a query, which are read here."""
        ...

    def explained(self, explanation: PlanExplanation) -> None:
        """The plan of a query and what its estimates stand on."""
        ...

    def swept(self, spec: ProjectSpec, report: SweepReport, *, dry_run: bool) -> None:
        """What was dropped, or would be."""
        ...

    def commented(self, kept: Kept) -> None:
        """What became of a pull request's comment."""
        ...

    def checked(self, checks: Sequence[Check]) -> None:
        """Whether the surroundings are as they should be."""
        ...


def make_output(form: str, *, verbose: bool = False) -> Output:
    """The output for `--output`."""
    match form:
        case "json":
            from lancestat.presentation.json import JsonOutput

            return JsonOutput()
        case "markdown":
            from lancestat.presentation.markdown import MarkdownOutput

            return MarkdownOutput()
        case "csv":
            from lancestat.presentation.csv import CsvOutput

            return CsvOutput()
    from lancestat.presentation.text import TextOutput

    return TextOutput(verbose=verbose)
