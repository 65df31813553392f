"""`lancestat init`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from lancestat.cli.command import Invocation, command
from lancestat.errors import UsageError


@command("init", help="Start a project: files that work as they are, in DIR or here.")
@click.argument("folder", metavar="[DIR]", type=click.Path(path_type=Path), required=False)
def init(invocation: Invocation, folder: Path | None) -> None:
    """Write the templates; never over what is there."""
    from lancestat.spec.starter import editor_files, project_template

    root = folder or invocation.project_dir
    files = project_template()
    in_the_way = [name for name in files if _exists(root / name)]
    if in_the_way:
        raise UsageError(
            "LS403",
            f"nothing was written, since {root} already holds {', '.join(in_the_way)}",
            hint="name an empty folder: lancestat init DIR",
        )
    kept = [name for name in editor_files() if _exists(root / name)]
    files = {**files, **{name: text for name, text in editor_files().items() if name not in kept}}
    try:
        _write(root, files)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError("LS403", f"cannot write to {error.filename or root}: {reason}") from error
    invocation.printer().created(root, list(files))
    if kept:
        there = " and ".join(kept)
        verb = "stays as it is" if len(kept) == 1 else "stay as they are"
        invocation.say(f"{there} {verb}; 'yaml.schemas' there can name the files of schemas/.")


def _exists(path: Path) -> bool:
    # A broken link would be written through.
    return path.exists() or path.is_symlink()


def _write(root: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        # Mode x: even a file that appeared since is not overwritten.
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
