"""The entry point: `lancestat`."""

from __future__ import annotations

import difflib
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

import click

from lancestat.cli.command import ENVIRONMENT, Invocation, shared_options
from lancestat.cli.failure import ExitCode, print_document, report, termination_raised
from lancestat.errors import WrongCommandLine
from lancestat.formats import escape_commands, visible
from lancestat.presentation.terminal import CONSOLE, replace_what_has_no_code
from lancestat.redact import Audience
from lancestat.version import __version__

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# Where a context keeps the words of the command line.
_LINE = "lancestat.command_line"


def load_command(name: str) -> click.Command:
    """Import the module of a subcommand and return the command that it declares."""
    module = import_module(f"lancestat.cli.commands.{name}")
    [command] = [member for member in vars(module).values() if isinstance(member, click.Command)]
    return command


class RootGroup(click.Group):
    """A group over `entries`, which have the summary of each command in the order of `--help`."""

    def __init__(self, name: str, *, entries: Mapping[str, str], **attributes: Any) -> None:
        super().__init__(name, **attributes)
        self.entries = entries

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return load_command(cmd_name) if cmd_name in self.entries else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the subcommand; the error for an unknown name suggests a similar one."""
        name = args[0]
        if name in self.entries or name.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        near = difflib.get_close_matches(name, self.entries, n=1)
        hint = f" Did you mean '{near[0]}'?" if near else f" There are {', '.join(self.entries)}."
        raise click.UsageError(f"No such command '{name}'.{hint}", ctx)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the subcommands without importing them, and the options."""
        from click.shell_completion import CompletionItem

        begun = [name for name in self.entries if name.startswith(incomplete)]
        commands = [CompletionItem(name, help=self.entries[name]) for name in begun]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(self.entries.items()))

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        CONSOLE.begin(Audience.PERSON)
        line = tuple(args)
        try:
            context = super().make_context(info_name, args, parent, **extra)
        except click.ClickException as error:
            raise _redacted(error, None, line) from None
        context.meta[_LINE] = line
        return context

    def invoke(self, ctx: click.Context) -> object:
        """Run the subcommand; no traceback reaches the user unless asked for."""
        try:
            with termination_raised():
                return super().invoke(ctx)
        except click.ClickException as error:
            raise _redacted(error, _command_name(ctx), ctx.meta[_LINE]) from None
        except (click.exceptions.Exit, click.Abort):
            raise
        except BrokenPipeError:
            _discard_stdout()
            ctx.exit(ExitCode.BROKEN_PIPE)
        except (SystemExit, GeneratorExit):
            raise
        except BaseException as error:
            # Not Exception: interrupts, and the panics of native libraries, belong here too.
            if getattr(ctx.obj, "output", None) == "json":
                print_document(_command_name(ctx), error)
            ctx.exit(report(error, verbose=wants_detail(ctx)))


def wants_detail(ctx: click.Context) -> bool:
    """Whether `--verbose` was given, before or after the subcommand."""
    return bool(getattr(ctx.obj, "verbose", False))


def _redacted(
    error: click.ClickException, command: str | None, line: Sequence[str]
) -> click.ClickException:
    """Redact an error that click prints itself, since it quotes the command line.

    If the line asks for JSON, print the document of the error.
    """
    if _is_for_json(line):
        print_document(command, WrongCommandLine(error.format_message()))
    error.message = escape_commands(visible(CONSOLE.redacted(error.message)))  # type: ignore[misc]
    return error


def _command_name(ctx: click.Context) -> str | None:
    # click sets it before it looks for the command.
    name = ctx.invoked_subcommand
    group = ctx.command
    return name if isinstance(group, RootGroup) and name in group.entries else None


def _is_for_json(line: Sequence[str]) -> bool:
    """Whether a command line that could not be parsed asks for JSON."""
    wanted = os.environ.get("LANCESTAT_OUTPUT")
    for index, word in enumerate(line):
        option, is_given, value = word.partition("=")
        if word == "--":
            break
        if option == "--output":
            wanted = value if is_given else "".join(line[index + 1 : index + 2])
    return wanted == "json"


def _discard_stdout() -> None:
    # The reader has gone: what is still buffered must not raise again when the interpreter flushes.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


COMMANDS = {
    "init": "Create a working project.",
    "validate": "Check the YAML without opening datasets.",
    "list": "List what the project declares.",
    "plan": "Show what a run would do, and why.",
    "diff": "Show what a change of the project means.",
    "run": "Bring statistics and joins up to date.",
    "retry": "Run again what failed or was interrupted last time.",
    "runs": "List past runs.",
    "status": "Show all tables and joins at a glance.",
    "docs": "Write HTML pages about all tables and joins.",
    "show": "Show a table's published statistics.",
    "sql": "Run a query with the tables' statistics.",
    "comment": "Keep a pull request's comment up to date.",
    "gc": "Remove state and scratch that are no longer needed.",
    "unpublish": "Remove published statistics from tables.",
    "package": "Pack what Spark's workers need.",
    "jar": "Write the jar that lets sessions run NEAREST BY.",
    "schema": "Print the JSON Schema of a KIND of YAML, or list the kinds.",
    "completion": "Print the script that completes commands and names.",
    "debug": "Check Java, Spark, libraries, storage.",
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
        _exit_now(ExitCode.INTERRUPTED)
    except SystemExit as end:
        if end.code in (ExitCode.INTERRUPTED, ExitCode.TERMINATED):
            _exit_now(ExitCode(end.code))
        raise


def _exit_now(code: ExitCode) -> NoReturn:
    """Exit without waiting for threads that were cancelled and go on, as those that read."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
