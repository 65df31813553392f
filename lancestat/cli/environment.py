"""The commands about machines: `debug`, `package` and `jar`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import click

from lancestat.cli.command import ExitCode, F, Invocation, command, path_option
from lancestat.formats import count, size
from lancestat.presentation.terminal import paint
from lancestat.presentation.views import Answer


@command(Answer)
@click.option(
    "--warm-up",
    is_flag=True,
    help="Only write the class archive that halves the time Spark takes to start.",
)
def debug(invocation: Invocation, warm_up: bool) -> ExitCode | None:
    """Check Java, Spark, libraries, storage."""
    from lancestat.cli.debug import checks_answer, run_checks

    invocation.say("running checks; starting Spark takes a few seconds")
    checks = run_checks(invocation.project, warm_up=warm_up)
    invocation.show(checks_answer(checks))
    return None if all(check.passed for check in checks) else ExitCode.FAILURE


def _archive_options(default: str) -> Callable[[F], F]:
    """Declare `--out`, with a default, and `--force`."""

    def declare(function: F) -> F:
        out = path_option(
            "--out", default=Path(default), help=f"Where to write it (default: {default})."
        )
        return out(
            click.option("--force", is_flag=True, help="Replace an existing file.")(function)
        )

    return declare


def _session_lines(conf: Mapping[str, str]) -> list[str]:
    settings = [f"  {key}  {value}" for key, value in conf.items()]
    return ["", "In the configuration of a session that lancestat does not start:", "", *settings]


@command(Answer)
@_archive_options("lancestat.tar.gz")
def package(invocation: Invocation, out: Path, force: bool) -> None:
    """Pack what Spark's workers need, for a cluster whose machines do not have lancestat.

    The archive contains lancestat and everything it needs except PySpark, as installed here.
    Workers need the same Python minor version and the same kind of machine. Name the archive in a
    target's 'spark.package'.
    """
    from lancestat.spark.package import package_settings, require_free_place, write_package

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
        *_session_lines(conf),
    ]
    head = [paint(f"wrote {out}: {sizes}", "note"), *(listed if invocation.verbose else [])]
    invocation.show(Answer("package", members, lambda page: [*head, *lines]))


@command(Answer)
@_archive_options("lancestat.jar")
def jar(invocation: Invocation, out: Path, force: bool) -> None:
    """Write the jar that lets sessions run NEAREST BY on lancestat's engine.

    It is for sessions that lancestat does not start, and for the Spark that is installed here. Name
    it in 'spark.jars', and set 'spark.sql.extensions' to what the command prints. Then call
    lancestat.register to connect the session with its Python process.
    """
    from lancestat.spark.compiler import jar_settings, write_extension_jar

    invocation.say("compiling; starting Spark takes a few seconds")
    size_bytes, version = write_extension_jar(out, is_replaced=force)
    conf = jar_settings(str(out))
    members = {"path": str(out), "size_bytes": size_bytes, "spark": version, "conf": conf}
    lines = [
        paint(f"wrote {out}, for Spark {version}: {size(size_bytes)}", "note"),
        *_session_lines(conf),
        "",
        "Then, in its Python: lancestat.register(spark)",
    ]
    invocation.show(Answer("jar", members, lambda page: lines))
