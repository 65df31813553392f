"""The entry point: `lancestat`."""

from __future__ import annotations

import os
import sys
import warnings
from contextlib import suppress
from typing import NoReturn

import click

from lancestat import __version__
from lancestat.cli.command import ENVIRONMENT, Invocation, shared_options
from lancestat.cli.failure import ExitCode
from lancestat.cli.group import Entry, RootGroup
from lancestat.presentation.terminal import replace_what_has_no_code

COMMANDS = {
    "init": Entry("lancestat.cli.commands.init:init", "Create a working project."),
    "validate": Entry(
        "lancestat.cli.commands.validate:validate", "Check the YAML without opening datasets."
    ),
    "list": Entry("lancestat.cli.commands.list:list_nodes", "List what the project declares."),
    "plan": Entry("lancestat.cli.commands.plan:plan", "Show what a run would do, and why."),
    "diff": Entry("lancestat.cli.commands.diff:diff", "Show what a change of the project means."),
    "run": Entry("lancestat.cli.commands.run:run", "Bring statistics and joins up to date."),
    "retry": Entry(
        "lancestat.cli.commands.retry:retry", "Run again what failed or was interrupted last time."
    ),
    "runs": Entry("lancestat.cli.commands.runs:runs", "List past runs."),
    "status": Entry(
        "lancestat.cli.commands.status:status", "Show all tables and joins at a glance."
    ),
    "docs": Entry(
        "lancestat.cli.commands.docs:docs", "Write HTML pages about all tables and joins."
    ),
    "show": Entry("lancestat.cli.commands.show:show", "Show a table's published statistics."),
    "sql": Entry("lancestat.cli.commands.sql:sql", "Run a query with the tables' statistics."),
    "comment": Entry(
        "lancestat.cli.commands.comment:comment", "Keep a pull request's comment up to date."
    ),
    "gc": Entry(
        "lancestat.cli.commands.gc:gc", "Remove state and scratch that are no longer needed."
    ),
    "unpublish": Entry(
        "lancestat.cli.commands.unpublish:unpublish", "Remove published statistics from tables."
    ),
    "package": Entry("lancestat.cli.commands.package:package", "Pack what Spark's workers need."),
    "jar": Entry(
        "lancestat.cli.commands.jar:jar", "Write the jar that lets sessions run NEAREST BY."
    ),
    "schema": Entry(
        "lancestat.cli.commands.schema:schema",
        "Print the JSON Schema of a KIND of YAML, or list the kinds.",
    ),
    "completion": Entry(
        "lancestat.cli.commands.completion:completion",
        "Print the script that completes commands and names.",
    ),
    "debug": Entry("lancestat.cli.commands.debug:debug", "Check Java, Spark, libraries, storage."),
}

HELP = """Table statistics for Lance tables: declared in YAML, run on Spark, and only for what
changed."""

EPILOG = """Every option can also be set by an environment variable: LANCESTAT_TARGET for --target,
LANCESTAT_PROJECT_DIR for --project-dir, LANCESTAT_THREADS for run's --threads.

Exit codes: 0 success; 1 a node failed or has an error (status), or the project is invalid; 2 wrong
usage; 3 changes are pending (plan --check) or take a risk (diff --fail-on)."""


def _root(**options: object) -> None:
    context = click.get_current_context()
    context.obj = (context.obj or Invocation()).overridden(options)


cli = RootGroup(
    "lancestat",
    entries=COMMANDS,
    callback=_root,
    params=[
        *shared_options(from_environment=True),
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            allow_from_autoenv=False,
            callback=lambda ctx, _, given: _print_version(ctx) if given else None,
            help="Print the version and exit.",
        ),
    ],
    help=HELP,
    epilog=EPILOG,
    context_settings={
        "auto_envvar_prefix": ENVIRONMENT,
        "help_option_names": ["--help", "-h"],
        "max_content_width": 100,
    },
)


def _print_version(ctx: click.Context) -> None:
    click.echo(f"lancestat {__version__}")
    ctx.exit()


def main() -> None:
    if not sys.warnoptions:
        # Warnings of libraries are for developers, who ask for them with -W or PYTHONWARNINGS.
        warnings.simplefilter("ignore")
    replace_what_has_no_code()
    try:
        cli(prog_name="lancestat", obj=Invocation(ends_process=True))
    except KeyboardInterrupt:
        _exit_at_once(ExitCode.INTERRUPTED)
    except SystemExit as end:
        if end.code in (ExitCode.INTERRUPTED, ExitCode.TERMINATED):
            _exit_at_once(ExitCode(end.code))
        raise


def _exit_at_once(code: ExitCode) -> NoReturn:
    """Exit without waiting for threads that were cancelled and go on, as those that read."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
