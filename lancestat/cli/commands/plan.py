"""`lancestat plan`."""

from __future__ import annotations

from pathlib import Path

import click

from lancestat.cli.command import Invocation, any_of, command, selection_options
from lancestat.cli.failure import ExitCode


@command(
    "plan",
    help="Show what a run would do, and why. Opens datasets, starts no Spark.",
    short_help="Show what a run would do, and why.",
    formats=("text", "json", "markdown"),
)
@selection_options
@click.option("--full-refresh", is_flag=True, help="As if nothing were known yet.")
@click.option("--check", is_flag=True, help="Exit with 3 when there is anything to do.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the plan to a file, too, for 'run --plan-file FILE'.",
)
@click.pass_context
def plan(
    context: click.Context,
    invocation: Invocation,
    select: tuple[str, ...],
    exclude: tuple[str, ...],
    full_refresh: bool,
    check: bool,
    out: Path | None,
) -> None:
    """Print the plan."""
    from lancestat.plan.actions import blocked, is_pending

    project = invocation.project()
    chosen = any_of(select), any_of(exclude)
    if out is None:
        made = project.plan(*chosen, full_refresh=full_refresh)
    else:
        made = project.save_plan(out, *chosen, full_refresh=full_refresh)
    policies = {table.name: table.policy for table in project.spec.tables}
    invocation.printer().planned(made, policies)
    if out is not None:
        invocation.say(f"the plan is in {out}, for 'lancestat run --plan-file'")
    if blocked(made):
        context.exit(ExitCode.FAILURE)
    if check and any(is_pending(action) for action in made.actions):
        context.exit(ExitCode.CHANGES_PENDING)
