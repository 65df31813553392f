"""`lancestat show`."""

from __future__ import annotations

import click

from lancestat.cli.command import Invocation, command
from lancestat.cli.completion import complete_table
from lancestat.presentation.views import ShowView


@command(
    "show",
    help="""Show a table's published statistics, and whether its policy lets readers use them.

    CSV has a line per column with all figures, like lancestat.statistics in SQL.""",
    short_help="Show a table's published statistics.",
    views=[ShowView],
)
@click.argument("table", shell_complete=complete_table)
def show(invocation: Invocation, table: str) -> None:
    from lancestat.presentation.report_views import show_view

    invocation.show(show_view(invocation.project().show(table)))
