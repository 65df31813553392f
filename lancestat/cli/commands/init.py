"""`lancestat init`."""

from __future__ import annotations

from pathlib import Path

import click

from lancestat.cli.command import Invocation, command
from lancestat.presentation.views import InitView


@command(
    "init",
    help="Create a working project in DIR or the current folder.",
    views=[InitView],
)
@click.argument("folder", metavar="[DIR]", type=click.Path(path_type=Path), required=False)
@click.option(
    "--from",
    "place",
    metavar="PLACE",
    help="Declare existing tables: a folder or URI of Lance datasets, or dir:PATH or rest:URL "
    "of a catalog.",
)
def init(invocation: Invocation, folder: Path | None, place: str | None) -> None:
    """Write the starter project, or one over tables that are there; never over what is there."""
    from lancestat.scaffold.starter import starter_project
    from lancestat.scaffold.writer import write_scaffold

    root = folder or invocation.project_dir or Path()
    found: list[str] | None = None
    if place is None:
        scaffold = starter_project()
    else:
        from lancestat.cli.adopt import adopted_project

        scaffold, found = adopted_project(place, root)
    written = write_scaffold(scaffold, root)
    invocation.show(InitView(root, written.files, written.tables, found))
    if written.unchanged:
        unchanged = " and ".join(written.unchanged)
        verb = "stays as it is" if len(written.unchanged) == 1 else "stay as they are"
        invocation.say(f"{unchanged} {verb}; 'yaml.schemas' there can name the files of schemas/.")
