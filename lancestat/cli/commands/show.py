"""`lancestat show`."""

from __future__ import annotations

import click

from lancestat.cli.command import Invocation, command
from lancestat.cli.completion import complete_table


@command("show", help="Show a table's published statistics.")
@click.argument("table", shell_complete=complete_table)
def show(invocation: Invocation, table: str) -> None:
    """Print the statistics, and whether a reader may use them."""
    invocation.printer().shown(invocation.project().show(table))
