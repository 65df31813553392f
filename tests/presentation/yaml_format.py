"""The worked example of docs/recipes/output-format.md: lists of nodes as YAML."""

from __future__ import annotations

import click

from lancestat.presentation.terminal import CONSOLE
from lancestat.presentation.views import Format, ListView, Page


def _write(value: object) -> None:
    import yaml

    redacted = CONSOLE.redactor.json(value, CONSOLE.audience)
    click.echo(yaml.safe_dump(redacted, sort_keys=False), nl=False)


FORMAT: Format[object] = Format(_write)


@FORMAT.renders(ListView)
def _list(view: ListView, page: Page) -> object:
    return [{"name": node.name, "kind": node.kind.value} for node in view.nodes]
