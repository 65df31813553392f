"""`lancestat retry`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lancestat.cli.command import Invocation, command, execution_options, run_nodes
from lancestat.formats import instant
from lancestat.presentation.views import RunView

if TYPE_CHECKING:
    from lancestat.runs.result import UnfinishedNodes

HELP = """Run again what failed or was interrupted last time.

Runs the nodes that failed in the newest run of this target, and those that did not run because
of a failure, or because the run was interrupted or killed; after 'run --full-refresh', in full
again. What was read before is not read again. If nothing failed, or no run is recorded, there is
nothing to do, and the command succeeds."""


@command(
    "retry",
    help=HELP,
    short_help="Run again what failed or was interrupted last time.",
    views=[RunView],
)
@execution_options
@click.pass_context
def retry(
    context: click.Context, invocation: Invocation, fail_fast: bool, threads: int | None
) -> None:
    project = invocation.project()
    left = project.unfinished()
    for name in left.gone:
        invocation.say(f"'{name}' is no longer declared, and is not retried")
    if not left.nodes:
        invocation.say(_nothing(left, project.spec.target.name))
    run_nodes(
        context,
        invocation,
        lambda progress: project.retry(
            left,
            fail_fast=fail_fast,
            threads=threads,
            progress=progress,
            ends_process=invocation.ends_process,
        ),
    )


def _nothing(left: UnfinishedNodes, target: str) -> str:
    if left.run is None:
        return f"no run of target {target} is recorded"
    ended = instant(left.run.finished_at, with_seconds=True)
    what = "nothing else failed" if left.gone else "nothing failed"
    return f"{what} in the last run of target {target}, which ended at {ended}"
