"""`lancestat init`, also over tables that are there already."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from lancestat.cli.command import Invocation, command
from lancestat.errors import DatasetMissing, LakeError
from lancestat.formats import count, named, visible
from lancestat.lake.catalogs import client_of
from lancestat.lake.files import local_path
from lancestat.presentation.terminal import paint
from lancestat.presentation.views import Answer
from lancestat.redact import redact_line
from lancestat.scaffold import Scaffold, project_of, starter_project
from lancestat.spec.catalog import Catalog
from lancestat.spec.names import PUNCTUATION, is_name
from lancestat.spec.schema import PROJECT_FILE
from lancestat.spec.template import is_template

_CATALOG = "lake"
_MOST_LISTED = 50

_PROJECT = """\
# yaml-language-server: $schema=schemas/lancestat_project.schema.json
name: {name}
default_target: dev
targets:
  dev:
    spark: {{master: "local[*]"}}
    # What runs remember. Deleting it costs time, never correctness.
    state: .lancestat/state
    # Sessions record which columns queries use, for `lancestat advise`:
    # listen: true
    # Lance takes the usual variables of object stores from the environment, such as AWS_REGION and
    # AWS_ACCESS_KEY_ID. Other options go here, and secrets never stand in this file:
    # storage_options:
    #   aws_endpoint: "{{{{ env_var('AWS_ENDPOINT') }}}}"
{catalogs}"""

_CATALOGS = """\
    # Properties of a catalog may be secret, too: take those from env_var('NAME').
    catalogs:
      {name}:
        impl: {impl}
        properties: {{{key}: {location}}}
"""

_SOURCES = """\
# yaml-language-server: $schema=../schemas/lancestat_specs.schema.json

# Every table of a source is a node, as if it were declared with the source's defaults. Tables that
# come later are found by the next command: 'lancestat plan' says which are new and which are gone.
sources:
  - {location}
    # Patterns of whole names such as sales.orders; * matches dots, too.
    include: ["*"]
    exclude: []
    # The names of nodes are namespace and table joined by _, unless there is a template:
    # name: "{{{{ namespace }}}}_{{{{ table }}}}"
    defaults:
      policy: fresh_enough
      # Statistics are of all columns unless they are listed:
      # columns: ["*_id", "*_date"]
      # Statistics are committed to the tables' manifests. 'none' keeps them in the state alone:
      # publish: none

# What was found when this file was written:
{found}

policies:
  # Which staleness readers accept. Without a policy, none.
  - name: fresh_enough
    description: Queries may use statistics that are slightly stale.
    allow.stale: {{max_age: 24h, max_changed_rows: 5%}}

# A table that is declared has its own keys, and none of the source's:
# tables:
#   - name: orders
#     {example}
#     columns: [order_id, customer_id]
"""


@dataclass(frozen=True, slots=True)
class LakeLocation:
    """A folder where `impl` is None, else a catalog."""

    impl: str | None
    address: str
    written: str

    @property
    def catalog(self) -> Catalog:
        return Catalog(self.impl or "dir", {self.key: self.address})

    @property
    def shown(self) -> str:
        return self.address if self.impl is None else f"{self.impl}:{self.address}"

    @property
    def key(self) -> str:
        """The property that says where a catalog is."""
        return "uri" if self.impl == "rest" else "root"


def parse_location(text: str, root: Path) -> LakeLocation:
    """Return what `--from` names: a folder or URI, `dir:PATH` or `rest:URL`.

    A local path inside of `root`, the project's folder, is written relative to it.
    """
    kind, colon, rest = text.partition(":")
    impl = kind if colon and kind in ("dir", "rest") else None
    address = rest if impl is not None else text
    if not address:
        raise click.UsageError("--from takes a folder, a URI, dir:PATH or rest:URL.")
    if redact_line(address) != address:
        raise click.UsageError(
            "--from names a location with a user, a password or a query in it, which would be "
            "written to the project: leave that out, and give it by the environment."
        )
    if is_template(address):
        raise click.UsageError("--from names a location with {{ or {% in it, which is a template.")
    path = None if impl == "rest" else local_path(address)
    if path is None:
        return LakeLocation(impl, address, address)
    absolute = Path(os.path.normpath(path.absolute()))
    if not absolute.is_dir():
        raise DatasetMissing(f"there is no folder {address}", hint="check what --from names")
    inside = absolute.is_relative_to(root.resolve())
    written = f"./{absolute.relative_to(root.resolve())}" if inside else str(absolute)
    return LakeLocation(impl, str(absolute), written)


def adopted_project(text: str, root: Path) -> tuple[Scaffold, list[str]]:
    """Return a project over what is at a location, and the names of the tables there."""
    lake = parse_location(text, root)
    try:
        listed = [table.identifier for table in client_of(lake.catalog, _CATALOG).tables()]
    except LakeError as error:
        raise type(error)(error.message, hint="check what --from names") from None
    tables = sorted(listed, key=lambda identifier: (identifier[:-1], identifier[-1]))
    if not tables:
        raise DatasetMissing(
            f"there are no Lance tables at {lake.shown}; nothing was written",
            hint="--from takes a folder of datasets, dir:PATH or rest:URL",
        )
    names = [visible(".".join(identifier)) for identifier in tables]
    files = {PROJECT_FILE: _project(lake, root), "specs/sources.yml": _sources(lake, names)}
    return project_of(files), names


def _project(lake: LakeLocation, root: Path) -> str:
    name = root.resolve().name
    catalogs = ""
    if lake.impl is not None:
        location = json.dumps(lake.written)
        catalogs = _CATALOGS.format(name=_CATALOG, impl=lake.impl, key=lake.key, location=location)
    is_usable = is_name(name, PUNCTUATION["lancestat-name"])
    return _PROJECT.format(name=json.dumps(name) if is_usable else "lake", catalogs=catalogs)


def _sources(lake: LakeLocation, names: Sequence[str]) -> str:
    listed = [f"#   {name}" for name in names[:_MOST_LISTED]]
    if len(names) > len(listed):
        listed.append(f"#   and {count(len(names) - len(listed))} more")
    if lake.impl is None:
        source = f"uri: {json.dumps(lake.written)}"
        example = f"uri: {lake.written}/orders.lance"
    else:
        source, example = f"catalog: {_CATALOG}", f"table: {_CATALOG}.sales.orders"
    return _SOURCES.format(location=source, found="\n".join(listed), example=example)


@command(Answer)
@click.argument("folder", metavar="[DIR]", type=click.Path(path_type=Path), required=False)
@click.option(
    "--from",
    "location",
    metavar="LOCATION",
    help="Declare existing tables: a folder or URI of Lance datasets, or dir:PATH or rest:URL "
    "of a catalog.",
)
def init(invocation: Invocation, folder: Path | None, location: str | None) -> None:
    """Create a working project in DIR or the current folder."""
    root = folder or invocation.project_dir or Path()
    found: list[str] | None = None
    if location is None:
        scaffold = starter_project()
    else:
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
