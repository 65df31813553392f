"""`lancestat run`."""

from __future__ import annotations

import click

from lancestat.cli.command import Invocation, any_of, command, selection_options
from lancestat.cli.failure import ExitCode


@command("run", help="Bring statistics and joins up to date.")
@selection_options
@click.option("--full-refresh", is_flag=True, help="Do everything again, whatever is known.")
@click.option("--fail-fast", is_flag=True, help="Start nothing new once a node has failed.")
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many nodes are worked on at once.",
)
@click.pass_context
def run(
    context: click.Context,
    invocation: Invocation,
    select: tuple[str, ...],
    exclude: tuple[str, ...],
    full_refresh: bool,
    fail_fast: bool,
    threads: int | None,
) -> None:
    """Plan, do it, and print what was done."""
    from lancestat.cli.progress import progress_display
    from lancestat.run.result import Status

    project = invocation.project()
    plan = project.plan(any_of(select), any_of(exclude), full_refresh=full_refresh)
    with progress_display(quiet=invocation.quiet) as progress:
        result = project.run(plan, fail_fast=fail_fast, threads=threads, progress=progress)
    invocation.printer().ran(result)
    if result.status is Status.ERROR:
        context.exit(ExitCode.FAILURE)
