"""What `lancestat.display` shows of values in Python: the views and formats of the command line.

`lancestat.explain` shows what `lancestat sql --explain` does, of any DataFrame.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import singledispatch
from typing import TYPE_CHECKING

from lancestat import display
from lancestat.arguments import check
from lancestat.errors import InvalidArgument
from lancestat.formats import count, escape_commands, visible
from lancestat.presentation import views
from lancestat.presentation.html import FORMAT as HTML
from lancestat.presentation.json import FORMAT as JSON
from lancestat.presentation.results import garbage_answer, show_view, status_view, unpublish_answer
from lancestat.presentation.terminal import unpainted, width
from lancestat.presentation.text import FORMAT as TEXT
from lancestat.query.workload.advice import Advice
from lancestat.redact import EMPTY_REDACTOR, Audience, Redactor, secret_environment
from lancestat.report.checks import CheckReport
from lancestat.report.gather import (
    CHECKS,
    RESULTS,
    STATISTICS,
    STATUS,
    check_rows,
    result_row,
    statistics_rows,
    status_rows,
)
from lancestat.report.values import ProjectReport
from lancestat.review.values import Diff
from lancestat.runs.actions import Plan
from lancestat.runs.result import RunResult, planned
from lancestat.state.garbage import GarbageReport
from lancestat.tables.table_status import TableStatus
from lancestat.tables.unpublish import UnpublishResult

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from lancestat.query.sql.explanation import PlanExplanation


@dataclass(frozen=True, slots=True)
class QueryExplanation:
    """The plan of a DataFrame; printed, it is the text of `lancestat sql --explain --verbose`.

    `plan` has its operators and scans as values, and what they did where the DataFrame was run.
    """

    plan: PlanExplanation
    redactor: Redactor = field(repr=False, compare=False)

    def to_json(self) -> Mapping[str, object]:
        payload = JSON.render(views.ExplanationView(self.plan), views.Page())
        redacted = self.redactor.json(payload, Audience.PERSON)
        assert isinstance(redacted, dict)
        return redacted

    def __repr__(self) -> str:
        operators = count(len(self.plan.operators), "operator")
        scans = self.plan.scans
        known = sum(scan.explanation is not None for scan in scans)
        what = f"{operators}, {count(len(scans), 'scan')}, {count(known)} of Lance tables"
        return display.summary(self, what)

    __str__ = display.as_text
    _repr_html_ = display.as_html


@singledispatch
def view_of(value: object) -> object:
    raise TypeError(f"nothing shows a {type(value).__name__}")


view_of.register(Plan, lambda plan: views.PlanView(plan, {}))
view_of.register(QueryExplanation, lambda value: views.ExplanationView(value.plan))
view_of.register(RunResult, views.RunView)
view_of.register(ProjectReport, status_view)
view_of.register(CheckReport, views.CheckView)
view_of.register(TableStatus, show_view)
view_of.register(Diff, views.DiffView)
view_of.register(UnpublishResult, unpublish_answer)
view_of.register(GarbageReport, garbage_answer)
view_of.register(Advice, views.AdviceView)


def text(value: object) -> str:
    """Return what the command line prints of a value, as wide as the terminal, if there is one."""
    view = view_of(value)
    page = views.Page(
        isinstance(view, views.ExplanationView), width(), Audience.PERSON, _redactor(value)
    )
    lines = (unpainted(page.redacted(line)) for line in TEXT.render(view, page))
    return "\n".join(visible(escape_commands(line)).rstrip() for line in lines)


def html(value: object) -> str:
    """Return a value as HTML that a notebook shows."""
    page = views.Page(audience=Audience.PUBLIC, redactor=_redactor(value))
    return str(HTML.render(view_of(value), page))


def rows(value: object) -> pa.Table:
    match value:
        case Plan():
            return RESULTS.table(map(result_row, map(planned, value.actions)))
        case RunResult():
            return RESULTS.table(map(result_row, value.nodes))
        case ProjectReport():
            return STATUS.table(status_rows(value))
        case CheckReport():
            return CHECKS.table(check_rows(value))
        case TableStatus():
            return STATISTICS.table(statistics_rows(value))
    raise TypeError(f"a {type(value).__name__} has no rows")


def _redactor(value: object) -> Redactor:
    """Return the redactor of a value, which also knows this process's secrets.

    A diff has none: what it holds is public.
    """
    own: Redactor = getattr(value, "redactor", EMPTY_REDACTOR)
    return own.merged(Redactor(secret_environment(os.environ), own.public))


def explain(frame: DataFrame, *, analyze: bool = False) -> QueryExplanation:
    """Explain the plan of a DataFrame.

    The explanation has the plan's operators with the rows that Spark expects of them and what these
    rest on and, for each scan of a Lance table, which statistics, filters and aggregates reach it,
    or why they do not. The plan is the one that the DataFrame's actions run; below cached data, it
    is the plan that computed the data.

    Args:
        frame: A DataFrame of a classic session, over tables of any format.
        analyze: Plan and run it too, to its last row, and give its rows to nobody. The plan is then
            the one that ran, after adaptive execution, with the true rows, time and q-error of
            operators beside the estimates from before it ran. Without, nothing is run.

    Raises:
        InvalidArgument: `frame` is not a DataFrame, or `analyze` neither True nor False.
        SparkConnectSession: `frame` belongs to a Spark Connect session.
        LancestatError: Spark cannot plan it, or it fails.
    """
    from lancestat.query.read.relation import planning_service
    from lancestat.query.sql.explain import explain_frame

    if not hasattr(frame, "sparkSession"):
        raise InvalidArgument(f"explain takes a DataFrame, not {type(frame).__name__}")
    check("analyze", analyze, isinstance(analyze, bool), "True or False")
    explained = explain_frame(frame, analyze=analyze)
    known = [*secret_environment(os.environ), *planning_service().secrets()]
    return QueryExplanation(explained, Redactor(known))
