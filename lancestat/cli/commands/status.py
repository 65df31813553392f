"""`lancestat status`."""

from __future__ import annotations

import click

from lancestat.cli.command import Invocation, any_of, command, selection_options
from lancestat.cli.failure import ExitCode
from lancestat.presentation.terminal import CONSOLE
from lancestat.presentation.views import StatusView


@command(
    "status",
    help="""Show all tables and joins at a glance: what is well, what is not, and why.

    A table is an error when it cannot be opened, when its policy refuses the statistics, when its
    last run failed, or when its rows are older than freshness.error_after; a join, when it is
    blocked, has no result or failed. A warning: rows older than freshness.warn_after, wanted
    columns without statistics, a join whose result is behind. Exits with 1 when any node is an
    error. Starts no Spark.""",
    short_help="Show all tables and joins at a glance.",
    views=[StatusView],
)
@selection_options
@click.pass_context
def status(
    context: click.Context,
    invocation: Invocation,
    select: tuple[str, ...],
    exclude: tuple[str, ...],
) -> None:
    from lancestat.presentation.report_views import status_view
    from lancestat.report.gather import redacted_report
    from lancestat.report.values import Health

    project = invocation.project()
    report = project.report(any_of(select), any_of(exclude), runs=1)
    invocation.show(status_view(redacted_report(report, project.spec, CONSOLE.audience)))
    if report.health is Health.ERROR:
        context.exit(ExitCode.FAILURE)
