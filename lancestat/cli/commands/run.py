"""`lancestat run`."""

from __future__ import annotations

from pathlib import Path

import click

from lancestat.cli.command import (
    Invocation,
    any_of,
    command,
    execution_options,
    run_nodes,
    selection_options,
)
from lancestat.presentation.views import RunView


@command("run", help="Bring statistics and joins up to date.", views=[RunView])
@selection_options
@click.option("--full-refresh", is_flag=True, help="Compute everything from scratch.")
@click.option(
    "--plan-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Run exactly what 'plan --out FILE' wrote, with the options given there; refused if "
    "the project, a dataset or the state has changed since.",
)
@execution_options
@click.pass_context
def run(
    context: click.Context,
    invocation: Invocation,
    select: tuple[str, ...],
    exclude: tuple[str, ...],
    full_refresh: bool,
    plan_file: Path | None,
    fail_fast: bool,
    threads: int | None,
) -> None:
    if plan_file is not None and (select or exclude or full_refresh):
        raise click.UsageError(
            "--plan-file cannot be combined with --select, --exclude and --full-refresh; pass "
            "them to 'plan --out'.",
            context,
        )
    project = invocation.project()
    if plan_file is not None:
        plan = project.load_plan(plan_file)
    else:
        plan = project.plan(any_of(select), any_of(exclude), full_refresh=full_refresh)
    run_nodes(
        context,
        invocation,
        lambda progress: project.run(
            plan,
            fail_fast=fail_fast,
            threads=threads,
            progress=progress,
            ends_process=invocation.ends_process,
        ),
    )
