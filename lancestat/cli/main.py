"""The entry point: `lancestat`; how errors and signals end a command."""

from __future__ import annotations

import difflib
import gc
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import click

from lancestat.cli.command import ENVIRONMENT, ExitCode, Invocation, shared_options
from lancestat.errors import (
    InternalError,
    InvalidProject,
    LancestatError,
    NotWritten,
    UsageError,
    WrongCommandLine,
)
from lancestat.formats import escape_commands, message_lines, visible
from lancestat.presentation.terminal import CONSOLE, paint, replace_what_has_no_code
from lancestat.presentation.views import ErrorsView, Page, load_format
from lancestat.redact import Audience, redact_line
from lancestat.version import __version__

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# Where a context keeps the words of the command line.
LINE = "lancestat.command_line"

# The commands in the order of `--help`, by the chapter that declares them.
_CHAPTERS = {
    "init": ("init", "Create a working project."),
    "validate": ("project", "Check the YAML without opening datasets."),
    "list": ("project", "List what the project declares."),
    "plan": ("nodes", "Show what a run would do, and why."),
    "diff": ("review", "Show what a change of the project means."),
    "run": ("nodes", "Bring statistics and joins up to date."),
    "watch": ("watch", "Run what is due, again and again."),
    "retry": ("nodes", "Run again what failed or was interrupted last time."),
    "runs": ("nodes", "List past runs."),
    "status": ("nodes", "Show all tables and joins at a glance."),
    "check": ("checks", "Say whether tables are as expected."),
    "docs": ("nodes", "Write HTML pages about all tables and joins."),
    "show": ("nodes", "Show a table's published statistics."),
    "sql": ("sql", "Run a query with the tables' statistics."),
    "advise": ("advise", "Propose changes of the YAML, from what queries have done."),
    "comment": ("review", "Keep a pull request's comment up to date."),
    "gc": ("nodes", "Remove state and scratch that are no longer needed."),
    "unpublish": ("nodes", "Remove published statistics from tables."),
    "package": ("environment", "Pack what Spark's workers need."),
    "jar": ("environment", "Write the jar that lets sessions run NEAREST BY."),
    "schema": ("project", "Print the JSON Schema of a KIND of YAML, or list the kinds."),
    "completion": ("project", "Print the script that completes commands and names."),
    "debug": ("environment", "Check Java, Spark, libraries, storage."),
}
COMMANDS = {name: summary for name, (_, summary) in _CHAPTERS.items()}


def load_command(name: str) -> click.Command:
    """Import the chapter of a subcommand and return the command."""
    declared = vars(import_module(f"lancestat.cli.{_CHAPTERS[name][0]}")).values()
    return next(one for one in declared if isinstance(one, click.Command) and one.name == name)


class Terminated(KeyboardInterrupt):
    """SIGTERM, which schedulers send to processes that take too long."""


# The exceptions of signals, and what handles these in programs that have no handlers of their own.
_RAISED: Mapping[signal.Signals, tuple[type[KeyboardInterrupt], object]] = {
    signal.SIGTERM: (Terminated, signal.SIG_DFL),
    signal.SIGINT: (KeyboardInterrupt, signal.default_int_handler),
}


@contextmanager
def termination_raised() -> Iterator[None]:
    """Raise an interrupt in the block at the first SIGTERM or SIGINT; a second one kills.

    A handler that the program has installed before is left in place.
    """
    is_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in _RAISED}
    taken = [number for number, (_, usual) in _RAISED.items() if before[number] is usual]
    if not is_main:
        yield
        return
    for number in taken:
        signal.signal(number, _raise)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, before[number])


def _raise(number: int, frame: FrameType | None) -> NoReturn:
    signal.signal(number, signal.SIG_DFL)
    raise _RAISED[signal.Signals(number)][0]


def raise_once(number: int, frame: FrameType | None) -> NoReturn:
    """Raise an interrupt at a signal, and ignore it from then on."""
    signal.signal(number, signal.SIG_IGN)
    raise _RAISED[signal.Signals(number)][0]


class RootGroup(click.Group):
    """The commands, each of which is imported when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return load_command(cmd_name) if cmd_name in COMMANDS else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the subcommand; the error for an unknown name suggests a similar one."""
        name = args[0]
        if name in COMMANDS or name.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f" Did you mean '{near[0]}'?" if near else f" There are {', '.join(COMMANDS)}."
        raise click.UsageError(f"No such command '{name}'.{hint}", ctx)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the subcommands without importing them, and the options."""
        from click.shell_completion import CompletionItem

        begun = [name for name in COMMANDS if name.startswith(incomplete)]
        commands = [CompletionItem(name, help=COMMANDS[name]) for name in begun]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

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
        context.meta[LINE] = line
        return context

    def invoke(self, ctx: click.Context) -> object:
        """Run the subcommand; no traceback reaches the user unless asked for."""
        try:
            with termination_raised():
                return super().invoke(ctx)
        except click.ClickException as error:
            raise _redacted(error, _command_name(ctx), ctx.meta[LINE]) from None
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
            ctx.exit(report(error, verbose=getattr(ctx.obj, "verbose", False)))


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
    return name if name in COMMANDS else None


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


def report(error: BaseException, *, verbose: bool) -> ExitCode:
    """Print an error to stderr: all of its parts when it is ours, one line when it is not."""
    if isinstance(error, KeyboardInterrupt):
        # Of a run it says what was kept, and the signal is its cause.
        is_terminated = isinstance(error, Terminated) or isinstance(error.__cause__, Terminated)
        word = "terminated" if is_terminated else "interrupted"
        CONSOLE.err(f"{word}; {error}" if str(error) else word, level="warning")
        return ExitCode.TERMINATED if is_terminated else ExitCode.INTERRUPTED
    CONSOLE.err(*describe(error), level="error", code=_coded(error).code)
    if verbose:
        for line in "".join(traceback.format_exception(error)).splitlines():
            CONSOLE.err(f"  {_redacted_line(line)}")
    return ExitCode.USAGE if isinstance(error, UsageError) else ExitCode.FAILURE


def print_document(command: str | None, error: BaseException) -> None:
    """Print the JSON document of a command that an error ended, unless it has printed its own."""
    if CONSOLE.has_document or isinstance(error, KeyboardInterrupt):
        return
    parts = error.errors if isinstance(error, InvalidProject) else [_coded(error)]
    load_format("json").print(ErrorsView(command, parts), Page())


def describe(error: BaseException) -> list[str]:
    if isinstance(error, InvalidProject):
        parts = zip(error.errors, error.excerpts, strict=True)
        lines = [line for part, excerpt in parts for line in painted(part, excerpt)]
        return [*lines, "", paint(error.message, "title")]
    return painted(_coded(error))


def _coded(error: BaseException) -> LancestatError:
    """Return the error itself if it has a code, else an internal error that names it."""
    if isinstance(error, LancestatError):
        return error
    from lancestat.lake.error_mapping import NO_SPACE, is_of_file_names, name_not_encodable

    if isinstance(error, UnicodeEncodeError) and is_of_file_names(error):
        return name_not_encodable(_redacted_line(error.object))
    if isinstance(error, OSError) and error.errno in NO_SPACE:
        where = _redacted_line(str(error.filename or "the output"))
        return NotWritten(f"cannot write to {where}: {error.strerror}", hint="make room there")
    what = _redacted_line(" ".join(str(error).split()))
    kind = type(error).__name__
    return InternalError(
        f"internal error: {kind}: {what}" if what else f"internal error: {kind}",
        hint="run it again with --verbose to see where, and report that",
    )


def painted(error: LancestatError, excerpt: str | None = None) -> list[str]:
    """The lines of an error, its code in red where colours are shown."""
    first, *rest = message_lines(CONSOLE.redacted(error.text(excerpt)))
    return [paint(error.code, "code") + first[len(error.code) :], *rest]


def _redacted_line(line: str) -> str:
    indent = line[: len(line) - len(line.lstrip())]
    return indent + redact_line(CONSOLE.redacted(line))


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
    # Commands make many values that live as long as they do: to look for cycles among these as
    # often as Python does by default takes a sixth of `status` of 1,000 tables.
    gc.set_threshold(50_000, 10, 10)
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
