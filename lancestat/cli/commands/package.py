"""`lancestat package`."""

from __future__ import annotations

from pathlib import Path

import click

from lancestat.cli.command import Invocation, command, session_lines
from lancestat.formats import count, size
from lancestat.presentation.terminal import paint
from lancestat.presentation.views import Answer

_HELP = """Pack what Spark's workers need, for a cluster whose machines do not have lancestat.

The archive contains lancestat and everything it needs except PySpark, as installed here. Workers
need the same Python minor version and the same kind of machine. Name the archive in a target's
'spark.package'."""


@command("package", help=_HELP, views=[Answer])
@click.option(
    "--out",
    metavar="FILE",
    type=click.Path(path_type=Path),
    default=Path("lancestat.tar.gz"),
    help="Where to write it (default: lancestat.tar.gz).",
)
@click.option("--force", is_flag=True, help="Replace an existing file.")
def package(invocation: Invocation, out: Path, force: bool) -> None:
    from lancestat.spark.package import (
        package_settings,
        require_free_place,
        write_package,
    )

    require_free_place(out, is_replaced=force)
    invocation.say("packing; this takes half a minute")
    written = write_package(out, is_replaced=force)
    conf = package_settings(str(out), {})
    packages = dict(written.packages)
    members = {
        "path": str(out),
        "size_bytes": written.size_bytes,
        "python": written.python,
        "packages": packages,
        "conf": conf,
    }
    sizes = f"{count(len(packages), 'package')}, {size(written.size_bytes)}"
    listed = ["", *(f"  {name} {version}" for name, version in packages.items())]
    lines = [
        "",
        f"For workers with Python {written.python} on machines of this kind. In a target,",
        "with the path as from the project's folder:",
        "",
        f"  spark: {{package: {out}}}",
        *session_lines(conf),
    ]
    head = [paint(f"wrote {out}: {sizes}", "note"), *(listed if invocation.verbose else [])]
    invocation.show(Answer("package", members, lambda page: [*head, *lines]))
