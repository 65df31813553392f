"""`lancestat status`."""

from __future__ import annotations

import click

from lancestat.cli.command import Invocation, any_of, command, selection_options
from lancestat.cli.failure import ExitCode
from lancestat.presentation.terminal import CONSOLE
from lancestat.presentation.views import StatusView


@command(
    "status",
    help="""Show all tables and joins at a glance, and what is wrong with them.

    A table has an error if it cannot be opened, its policy refuses the statistics, its last run
    failed, or its rows are older than freshness.error_after. A join has an error if it is blocked,
    has no result or failed. Warnings are rows older than freshness.warn_after, declared columns
    without statistics, and a join whose result is out of date. Exits with 1 if any node has an
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
