"""What `lancestat.display` shows of values in Python: the views and formats of the command line."""

from __future__ import annotations

import os
from functools import singledispatch
from typing import TYPE_CHECKING

from lancestat.formats import escape_commands, visible
from lancestat.presentation.diff_view import diff_view
from lancestat.presentation.html import FORMAT as HTML
from lancestat.presentation.plan_view import plan_view
from lancestat.presentation.registry import Page
from lancestat.presentation.report_views import garbage_answer, run_view, show_view, status_view
from lancestat.presentation.terminal import unpainted, width
from lancestat.presentation.text import FORMAT as TEXT
from lancestat.presentation.views import ExplanationView, UnpublishView
from lancestat.redact import EMPTY_REDACTOR, Audience, Redactor, secret_environment
from lancestat.report.gather import (
    RESULTS,
    STATISTICS,
    STATUS,
    result_row,
    statistics_rows,
    status_rows,
)
from lancestat.report.values import ProjectReport
from lancestat.review.values import Diff
from lancestat.runs.actions import Plan
from lancestat.runs.result import RunResult, planned
from lancestat.state.retention import GarbageReport
from lancestat.tables.table_status import TableStatus
from lancestat.tables.unpublish import UnpublishResult

if TYPE_CHECKING:
    import pyarrow as pa


@singledispatch
def view_of(value: object) -> object:
    raise TypeError(f"nothing shows a {type(value).__name__}")


@view_of.register
def _(value: Plan) -> object:
    return plan_view(value, {})


view_of.register(RunResult, run_view)
view_of.register(ProjectReport, status_view)
view_of.register(TableStatus, show_view)
view_of.register(Diff, diff_view)
view_of.register(UnpublishResult, UnpublishView)
view_of.register(GarbageReport, garbage_answer)


def text(value: object) -> str:
    """Return what the command line prints of a value, as wide as the terminal, if there is one."""
    view = view_of(value)
    page = Page(isinstance(view, ExplanationView), width(), Audience.PERSON, _redactor(value))
    lines = (unpainted(page.redacted(line)) for line in TEXT.render(view, page))
    return "\n".join(visible(escape_commands(line)).rstrip() for line in lines)


def html(value: object) -> str:
    """Return a value as HTML that a notebook shows."""
    page = Page(audience=Audience.PUBLIC, redactor=_redactor(value))
    return str(HTML.render(view_of(value), page))


def rows(value: object) -> pa.Table:
    match value:
        case Plan():
            return RESULTS.table(map(result_row, map(planned, value.actions)))
        case RunResult():
            return RESULTS.table(map(result_row, value.nodes))
        case ProjectReport():
            return STATUS.table(status_rows(value))
        case TableStatus():
            return STATISTICS.table(statistics_rows(value))
    raise TypeError(f"a {type(value).__name__} has no rows")


def _redactor(value: object) -> Redactor:
    """Return the redactor of a value, which also knows this process's secrets.

    A diff has none: what it holds is public.
    """
    own: Redactor = getattr(value, "redactor", EMPTY_REDACTOR)
    return own.merged(Redactor(secret_environment(os.environ), own.public))
