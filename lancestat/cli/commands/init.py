"""`lancestat init`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from lancestat.cli.command import Invocation, command
from lancestat.errors import NotWritten, PlaceOccupied
from lancestat.presentation.views import InitView


@command(
    "init",
    help="Start a project: files that work as they are, in DIR or here.",
    views=[InitView],
)
@click.argument("folder", metavar="[DIR]", type=click.Path(path_type=Path), required=False)
@click.option(
    "--from",
    "place",
    metavar="PLACE",
    help="Over the tables that are there: a folder or URI of Lance datasets, dir:PATH or rest:URL "
    "of a catalog.",
)
def init(invocation: Invocation, folder: Path | None, place: str | None) -> None:
    """Write the templates; never over what is there."""
    from lancestat.lake.temporary_files import remove_drafts
    from lancestat.spec.resources import PROJECT_FILE, editor_files, project_template

    root = folder or invocation.project_dir
    if place is None:
        files = project_template()
    else:
        from lancestat.cli.adopt import adopted_project

        files = adopted_project(place, root)
    for name in (*files, *editor_files()):
        # Also an init that has nothing to write removes what a killed one has left.
        remove_drafts(root / name)
    in_the_way = [name for name in files if _exists(root / name)]
    if PROJECT_FILE not in in_the_way:
        # A killed init leaves whole files, and the project's file is the last that it writes.
        in_the_way = [name for name in in_the_way if not _holds(root / name, files[name])]
    if in_the_way:
        raise PlaceOccupied(
            f"nothing was written, since {root} already holds {', '.join(in_the_way)}",
            hint="name an empty folder: lancestat init DIR",
        )
    unchanged = [
        name
        for name, text in editor_files().items()
        if _exists(root / name) and not _holds(root / name, text)
    ]
    files = {
        **files,
        **{name: text for name, text in editor_files().items() if name not in unchanged},
    }
    try:
        _write(root, files)
    except OSError as error:
        reason = error.strerror or str(error)
        raise NotWritten(f"cannot write to {error.filename or root}: {reason}") from error
    invocation.show(InitView(root, list(files), is_adopted=place is not None))
    if unchanged:
        there = " and ".join(unchanged)
        verb = "stays as it is" if len(unchanged) == 1 else "stay as they are"
        invocation.say(f"{there} {verb}; 'yaml.schemas' there can name the files of schemas/.")


def _exists(path: Path) -> bool:
    # A broken link would be written through.
    return path.exists() or path.is_symlink()


def _holds(path: Path, text: str) -> bool:
    try:
        return not path.is_symlink() and path.read_bytes() == text.encode("utf-8")
    except OSError:
        return False


def _write(root: Path, files: Mapping[str, str]) -> None:
    """Write what is not there yet, and last the file that makes a folder a project."""
    from lancestat.lake.temporary_files import write_new
    from lancestat.spec.resources import PROJECT_FILE

    for name in sorted(files, key=lambda name: name == PROJECT_FILE):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not _holds(path, files[name]):
            # Even a file that appeared since is not overwritten.
            write_new(path, files[name].encode("utf-8"))
