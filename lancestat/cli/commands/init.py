"""`lancestat init`."""

from __future__ import annotations

from pathlib import Path

import click

from lancestat.cli.command import Invocation, command
from lancestat.presentation.views import InitView


@command(
    "init",
    help="Start a project: files that work as they are, in DIR or here.",
    views=[InitView],
)
@click.argument("folder", metavar="[DIR]", type=click.Path(path_type=Path), required=False)
def init(invocation: Invocation, folder: Path | None) -> None:
    """Write the starter project; never over what is there."""
    from lancestat.scaffold.starter import starter_project
    from lancestat.scaffold.writer import write_scaffold

    root = folder or invocation.project_dir
    written = write_scaffold(starter_project(), root)
    invocation.show(InitView(root, written.files, written.tables))
    if written.unchanged:
        unchanged = " and ".join(written.unchanged)
        verb = "stays as it is" if len(written.unchanged) == 1 else "stay as they are"
        invocation.say(f"{unchanged} {verb}; 'yaml.schemas' there can name the files of schemas/.")
