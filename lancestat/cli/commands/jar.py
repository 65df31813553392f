"""`lancestat jar`."""

from __future__ import annotations

from pathlib import Path

import click

from lancestat.cli.command import Invocation, command
from lancestat.presentation.views import JarView

_HELP = """Write the jar that lets sessions run NEAREST BY on lancestat's engine.

It is for sessions that lancestat does not start, and for the Spark that is installed here. Name
it in 'spark.jars', and set 'spark.sql.extensions' to what the command prints. Then call
lancestat.register to connect the session with its Python process."""


@command("jar", help=_HELP, views=[JarView])
@click.option(
    "--out",
    metavar="FILE",
    type=click.Path(path_type=Path),
    default=Path("lancestat.jar"),
    help="Where to write it (default: lancestat.jar).",
)
@click.option("--force", is_flag=True, help="Replace an existing file.")
def jar(invocation: Invocation, out: Path, force: bool) -> None:
    """Write the jar, and print the settings that give it to a session."""
    from lancestat.spark.compiler import jar_settings, write_extension_jar

    invocation.say("compiling; starting Spark takes a few seconds")
    size_bytes, version = write_extension_jar(out, is_replaced=force)
    invocation.show(JarView(out, size_bytes, version, jar_settings(str(out))))
