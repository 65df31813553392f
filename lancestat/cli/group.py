"""The root command: imports a subcommand when it is called, turns errors into exit codes."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from lancestat.cli.failure import ExitCode, print_document, report, termination_raised
from lancestat.errors import WrongCommandLine
from lancestat.formats import escape_commands, visible
from lancestat.presentation.terminal import CONSOLE
from lancestat.redact import Audience

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# Where a context keeps the words of the command line.
_LINE = "lancestat.command_line"


@dataclass(frozen=True, slots=True)
class Entry:
    """The place of a subcommand (`module:attribute`), and its line in `--help`."""

    target: str
    summary: str

    def load(self) -> click.Command:
        """Import the module and return the command."""
        module, _, attribute = self.target.partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command


class RootGroup(click.Group):
    """A group over `entries`, listed in the order in which a newcomer meets them."""

    def __init__(
        self,
        name: str | None = None,
        *,
        entries: Mapping[str, Entry],
        callback: Callable[..., object] | None = None,
        params: list[click.Parameter] | None = None,
        help: str | None = None,
        epilog: str | None = None,
        context_settings: dict[str, object] | None = None,
    ) -> None:
        super().__init__(
            name,
            callback=callback,
            params=params,
            help=help,
            epilog=epilog,
            context_settings=context_settings,
        )
        self.entries = entries

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one subcommand."""
        entry = self.entries.get(cmd_name)
        return entry.load() if entry else None

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

        begun = {name: entry for name, entry in self.entries.items() if name.startswith(incomplete)}
        commands = [CompletionItem(name, help=entry.summary) for name, entry in begun.items()]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the subcommands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in self.entries.items()])

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Parse the options that come before the subcommand."""
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
