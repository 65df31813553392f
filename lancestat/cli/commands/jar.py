"""`lancestat jar`."""

from __future__ import annotations

from pathlib import Path

import click

from lancestat.cli.command import Invocation, command, session_lines
from lancestat.formats import size
from lancestat.presentation.terminal import paint
from lancestat.presentation.views import Answer

_HELP = """Write the jar that lets sessions run NEAREST BY on lancestat's engine.

It is for sessions that lancestat does not start, and for the Spark that is installed here. Name
it in 'spark.jars', and set 'spark.sql.extensions' to what the command prints. Then call
lancestat.register to connect the session with its Python process."""


@command("jar", help=_HELP, views=[Answer])
@click.option(
    "--out",
    metavar="FILE",
    type=click.Path(path_type=Path),
    default=Path("lancestat.jar"),
    help="Where to write it (default: lancestat.jar).",
)
@click.option("--force", is_flag=True, help="Replace an existing file.")
def jar(invocation: Invocation, out: Path, force: bool) -> None:
    from lancestat.spark.compiler import jar_settings, write_extension_jar

    invocation.say("compiling; starting Spark takes a few seconds")
    size_bytes, version = write_extension_jar(out, is_replaced=force)
    conf = jar_settings(str(out))
    members = {"path": str(out), "size_bytes": size_bytes, "spark": version, "conf": conf}
    lines = [
        paint(f"wrote {out}, for Spark {version}: {size(size_bytes)}", "note"),
        *session_lines(conf),
        "",
        "Then, in its Python: lancestat.register(spark)",
    ]
    invocation.show(Answer("jar", members, lambda page: lines))
