"""`lancestat runs`."""

from __future__ import annotations

import click

from lancestat.cli.command import Invocation, command
from lancestat.presentation.views import PastRunView, RunsView

HELP = """List past runs of the target, the newest first, or the nodes of one RUN.

RUN is an id, of which the beginning is enough. Runs that found nothing to do are not recorded.
Spark is not started."""


@command("runs", help=HELP, short_help="List past runs.", views=[RunsView, PastRunView])
@click.argument("run", required=False)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    metavar="N",
    help="How many runs to list.",
)
@click.pass_context
def runs(context: click.Context, invocation: Invocation, run: str | None, limit: int) -> None:
    from lancestat.presentation.report_views import past_run_view, runs_view
    from lancestat.runs.past_runs import past_run

    project = invocation.project()
    if run is None:
        invocation.show(runs_view(project.spec, project.runs(limit=limit)))
        return
    chosen = past_run(project.runs(), run)
    invocation.show(past_run_view(project.spec, chosen))
