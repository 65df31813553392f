"""Plans and query results as Markdown, for pull requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lancestat.presentation.terminal import CONSOLE
from lancestat.presentation.text import TextOutput

if TYPE_CHECKING:
    from lancestat.plan.actions import Plan
    from lancestat.presentation.output import Printed
    from lancestat.report.values import ProjectReport
    from lancestat.review.values import Diff
    from lancestat.spark.sql.query import QueryResult
    from lancestat.spec.model import Policy


class MarkdownOutput(TextOutput):
    """Prints tables; commands that print nothing else refuse the format beforehand."""

    def planned(self, plan: Plan, policies: Mapping[str, Policy]) -> None:
        """What a run would do."""
        from lancestat.presentation.plan_markdown import render_markdown

        CONSOLE.markdown(render_markdown(plan, policies, CONSOLE.redactor))

    def compared(self, diff: Diff) -> None:
        """What a change of the project means."""
        from lancestat.presentation.diff_markdown import render_markdown

        CONSOLE.markdown(render_markdown(diff))

    def told(self, report: ProjectReport) -> None:
        """The state of nodes, with what is wrong with them."""
        from lancestat.presentation.status_markdown import render_markdown

        CONSOLE.markdown(render_markdown(report))

    def queried(self, result: QueryResult) -> Printed:
        """The rows of a query."""
        from lancestat.presentation.sql import render_markdown

        lines, printed = render_markdown(result)
        CONSOLE.markdown("\n".join(lines))
        return printed
