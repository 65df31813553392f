"""`lancestat unpublish`."""

from __future__ import annotations

import click

from lancestat.cli.command import Invocation, any_of, command, selection_options
from lancestat.cli.completion import complete_selector
from lancestat.cli.failure import ExitCode
from lancestat.presentation.views import UnpublishView

_HELP = """Remove published statistics from tables.

SELECTION is what --select takes: a name, tag:x and so on; without any, all tables. Every table
gets one commit, which removes the entries that lancestat wrote and changes nothing else. Statistics
of other writers, the state and the results of joins stay as they are.

The next run publishes the statistics of tables with 'publish: manifest' again, without reading
what the state has stored. To keep them out, declare 'publish: none'."""


@command(
    "unpublish",
    help=_HELP,
    short_help="Remove published statistics from tables.",
    views=[UnpublishView],
)
@click.argument("selection", nargs=-1, shell_complete=complete_selector)
@selection_options
@click.option("--dry-run", is_flag=True, help="Only print what would be removed.")
@click.pass_context
def unpublish(
    context: click.Context,
    invocation: Invocation,
    selection: tuple[str, ...],
    select: tuple[str, ...],
    exclude: tuple[str, ...],
    dry_run: bool,
) -> None:
    project = invocation.project()
    chosen = any_of((*selection, *select))
    result = project.unpublish(chosen, any_of(exclude), dry_run=dry_run)
    view = UnpublishView(result)
    invocation.show(view)
    if view.is_failed:
        context.exit(ExitCode.FAILURE)
