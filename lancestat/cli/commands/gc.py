"""`lancestat gc`."""

from __future__ import annotations

import click

from lancestat.cli.command import Invocation, command
from lancestat.presentation.views import Answer


@command("gc", help="Remove state and scratch that are no longer needed.", views=[Answer])
@click.option("--dry-run", is_flag=True, help="Only print what would be removed.")
def gc(invocation: Invocation, dry_run: bool) -> None:
    from lancestat.presentation.report_views import garbage_answer

    project = invocation.project()
    report = project.collect_garbage(dry_run=dry_run)
    invocation.show(garbage_answer(report, project.spec.name, project.spec.target.name))
