"""`lancestat list`."""

from __future__ import annotations

import logging
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import click

from lancestat.cli.command import Invocation, any_of, command, selection_options
from lancestat.errors import InvalidProject, LancestatError, NothingSelected
from lancestat.presentation.terminal import CONSOLE
from lancestat.presentation.views import ListView

if TYPE_CHECKING:
    from lancestat.spec.model import Source

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
        from lancestat.runs.discover import unlisted_errors, without_stand_ins

        errors = unlisted_errors(project.discover())
        for note in project.spec.source_notes:
            _log.warning("%s", project.spec.redactor.text(note, CONSOLE.audience))
        project.spec = without_stand_ins(project.spec)
    spec = project.spec
    unsearched = () if discover else spec.sources
    try:
        nodes = project.nodes(any_of(select), any_of(exclude), discover=discover)
    except NothingSelected as error:
        if not unsearched:
            raise
        more = "the sources have not been searched, as --discover does"
        hint = f"{error.hint}; {more}" if error.hint else more
        raise NothingSelected(error.message, hint=hint) from None
    redacted = list(redacted_nodes(spec, nodes, CONSOLE.audience))
    sources = [source for source in unsearched if _is_selected(source, select)]
    names = spec.name, spec.target.name
    invocation.show(ListView(*names, redacted, not spec.nodes, sources, errors))
    if errors:
        raise InvalidProject(errors)


def _is_selected(source: Source, select: tuple[str, ...]) -> bool:
    """Whether tables of a source may be selected, as far as a selector without signs says."""
    words = [word for text in select for word in text.split()]
    return not words or any(
        word == "kind:table" or fnmatchcase(f"source:{source.label}", word) for word in words
    )
