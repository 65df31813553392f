"""`lancestat list`."""

from __future__ import annotations

from lancestat.cli.command import Invocation, any_of, command, selection_options
from lancestat.presentation.terminal import CONSOLE
from lancestat.presentation.views import ListView


@command("list", help="List what the project declares.", views=[ListView])
@selection_options
def list_nodes(invocation: Invocation, select: tuple[str, ...], exclude: tuple[str, ...]) -> None:
    from lancestat.spec.redaction import redacted_nodes

    project = invocation.project()
    nodes = project.nodes(any_of(select), any_of(exclude))
    spec = project.spec
    redacted = list(redacted_nodes(spec, nodes, CONSOLE.audience))
    invocation.show(ListView(spec.name, spec.target.name, redacted, is_empty=not spec.nodes))
