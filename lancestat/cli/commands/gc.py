"""`lancestat gc`."""

from __future__ import annotations

import click

from lancestat.cli.command import Invocation, command
from lancestat.presentation.views import GarbageView


@command("gc", help="Sweep scratch and old state.", views=[GarbageView])
@click.option("--dry-run", is_flag=True, help="Only tell what would be dropped.")
def gc(invocation: Invocation, dry_run: bool) -> None:
    """Drop what no declared table needs."""
    project = invocation.project()
    report = project.collect_garbage(dry_run=dry_run)
    invocation.show(GarbageView(project.spec.name, project.spec.target.name, report, dry_run))
