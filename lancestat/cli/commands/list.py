"""`lancestat list`."""

from __future__ import annotations

import logging

import click

from lancestat.cli.command import Invocation, any_of, command, selection_options
from lancestat.errors import InvalidProject, LancestatError
from lancestat.presentation.terminal import CONSOLE
from lancestat.presentation.views import ListView

_log = logging.getLogger("lancestat")


@command("list", help="List what the project declares.", views=[ListView])
@selection_options
@click.option("--discover", is_flag=True, help="Search the sources, and list their tables too.")
def list_nodes(
    invocation: Invocation, select: tuple[str, ...], exclude: tuple[str, ...], discover: bool
) -> None:
    from lancestat.spec.redaction import redacted_nodes

    project = invocation.project()
    errors: list[LancestatError] = []
    if discover:
        from lancestat.plan.discover import unlisted_errors, without_stand_ins

        errors = unlisted_errors(project.discover())
        for note in project.spec.source_notes:
            _log.warning("%s", project.spec.redactor.text(note, CONSOLE.audience))
        project.spec = without_stand_ins(project.spec)
    nodes = project.nodes(any_of(select), any_of(exclude), discover=discover)
    spec = project.spec
    redacted = list(redacted_nodes(spec, nodes, CONSOLE.audience))
    has_sources = bool(spec.sources) and not discover
    names = spec.name, spec.target.name
    invocation.show(ListView(*names, redacted, not spec.nodes, has_sources, errors))
    if errors:
        raise InvalidProject(errors)
