"""`lancestat init`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lancestat.cli.command import Invocation, command
from lancestat.formats import count, named
from lancestat.presentation.terminal import paint
from lancestat.presentation.views import Answer

if TYPE_CHECKING:
    from lancestat.scaffold import Scaffold


@command(
    "init",
    help="Create a working project in DIR or the current folder.",
    views=[Answer],
)
@click.argument("folder", metavar="[DIR]", type=click.Path(path_type=Path), required=False)
@click.option(
    "--from",
    "location",
    metavar="LOCATION",
    help="Declare existing tables: a folder or URI of Lance datasets, or dir:PATH or rest:URL "
    "of a catalog.",
)
def init(invocation: Invocation, folder: Path | None, location: str | None) -> None:
    from lancestat.scaffold import starter_project

    root = folder or invocation.project_dir or Path()
    found: list[str] | None = None
    if location is None:
        scaffold = starter_project()
    else:
        from lancestat.cli.adopt import adopted_project

        scaffold, found = adopted_project(location, root)
    unchanged = scaffold.write(root)
    files = [name for name in (*scaffold.files, *scaffold.editor_files) if name not in unchanged]
    members = {"folder": str(root), "files": files, "tables": [*scaffold.tables], "found": found}
    invocation.show(Answer("init", members, lambda page: _lines(root, files, scaffold, found)))
    if unchanged:
        verb = "stays as it is" if len(unchanged) == 1 else "stay as they are"
        names = " and ".join(unchanged)
        invocation.say(f"{names} {verb}; 'yaml.schemas' there can name the files of schemas/.")


def _lines(
    root: Path, files: Sequence[str], scaffold: Scaffold, found: list[str] | None
) -> Iterator[str]:
    is_here = root == Path()
    yield paint(f"A new project in {'.' if is_here else root}", "title")
    yield ""
    yield from (f"  {file}" for file in files)
    yield from (f"  {name}  a sample table" for name in scaffold.tables)
    yield ""
    enter = "" if is_here else f"cd {root}, then "
    if found is not None:
        yield f"Found {count(len(found), 'table')}: {named(found)}."
        yield f"Next: {enter}lancestat plan; specs/sources.yml says which tables are nodes."
        return
    yield f"Next: {enter}lancestat plan and lancestat run."
    yield "      Once specs/tables.yml names your own tables, the folder sample can go."
