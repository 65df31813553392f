"""`lancestat plan`."""

from __future__ import annotations

from pathlib import Path

import click

from lancestat.cli.command import Invocation, any_of, command, selection_options
from lancestat.cli.failure import ExitCode
from lancestat.presentation.views import PlanView


@command(
    "plan",
    help="Show what a run would do, and why. Opens datasets, starts no Spark.",
    short_help="Show what a run would do, and why.",
    views=[PlanView],
)
@selection_options
@click.option("--full-refresh", is_flag=True, help="Plan as if nothing were known yet.")
@click.option("--check", is_flag=True, help="Exit with 3 if there is anything to do.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also write the plan to a file, for 'run --plan-file FILE'.",
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
    from lancestat.presentation.plan_view import plan_view

    project = invocation.project()
    chosen = any_of(select), any_of(exclude)
    if out is None:
        made = project.plan(*chosen, full_refresh=full_refresh)
    else:
        made = project.save_plan(out, *chosen, full_refresh=full_refresh)
    policies = {table.name: table.policy for table in project.spec.tables}
    view = plan_view(made, policies)
    invocation.show(view)
    if out is not None:
        invocation.say(f"the plan is in {out}, for 'lancestat run --plan-file'")
    if view.is_blocked:
        context.exit(ExitCode.FAILURE)
    if check and view.pending:
        context.exit(ExitCode.CHANGES_PENDING)
