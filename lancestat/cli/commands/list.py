"""`lancestat list`."""

from __future__ import annotations

from lancestat.cli.command import Invocation, any_of, command, selection_options


@command("list", help="List what the project declares.")
@selection_options
def list_nodes(invocation: Invocation, select: tuple[str, ...], exclude: tuple[str, ...]) -> None:
    """Print the selected nodes."""
    project = invocation.project()
    nodes = project.nodes(any_of(select), any_of(exclude))
    invocation.printer().listed(project.spec, nodes)
