"""`lancestat retry`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lancestat.cli.command import Invocation, command, execution_options
from lancestat.cli.failure import ExitCode
from lancestat.formats import instant
from lancestat.presentation.views import RunView

if TYPE_CHECKING:
    from lancestat.execution.result import UnfinishedNodes

HELP = """Run again what failed last time.

Runs the nodes that failed in the newest run of this target, and those that did not run because
of a failure; after 'run --full-refresh', in full again. If nothing failed, or no run is recorded,
there is nothing to do, and the command succeeds.

A run that was killed or interrupted leaves no record, so that this looks at the run before it.
'lancestat run' goes on from there: it reads only what has not been read."""


@command("retry", help=HELP, short_help="Run again what failed last time.", views=[RunView])
@execution_options
@click.pass_context
def retry(
    context: click.Context, invocation: Invocation, fail_fast: bool, threads: int | None
) -> None:
    """Find what failed, plan that, do it, and print what was done."""
    from lancestat.cli.progress import progress_display
    from lancestat.presentation.report_views import run_view

    project = invocation.project()
    left = project.unfinished()
    for name in left.gone:
        invocation.say(f"'{name}' is no longer declared, and is not retried")
    if not left.nodes:
        invocation.say(_nothing(left, project.spec.target.name))
    with progress_display(quiet=invocation.quiet) as progress:
        result = project.retry(
            left,
            fail_fast=fail_fast,
            threads=threads,
            progress=progress,
            ends_process=invocation.ends_process,
        )
    view = run_view(result)
    invocation.show(view)
    if view.is_failed:
        context.exit(ExitCode.FAILURE)


def _nothing(left: UnfinishedNodes, target: str) -> str:
    if left.run is None:
        return f"no run of target {target} is recorded"
    ended = instant(left.run.finished_at, with_seconds=True)
    what = "nothing else failed" if left.gone else "nothing failed"
    return f"{what} in the last run of target {target}, which ended at {ended}"
