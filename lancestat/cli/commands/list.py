"""`lancestat list`."""

from __future__ import annotations

from lancestat.cli.command import Invocation, any_of, command, selection_options


@command("list", help="List what the project declares.")
@selection_options
def list_nodes(invocation: Invocation, select: tuple[str, ...], exclude: tuple[str, ...]) -> None:
    """Print the selected nodes."""
    from lancestat.spec.selection import select as select_nodes

    spec = invocation.project().spec
    nodes = select_nodes(spec, any_of(select), any_of(exclude))
    invocation.printer().listed(spec, nodes)
