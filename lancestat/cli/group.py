"""The root command: imports a subcommand when it is called, turns errors into exit codes."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from lancestat.cli.failure import ExitCode, report, termination_raised
from lancestat.formats import escape_commands, visible
from lancestat.presentation.terminal import CONSOLE

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


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
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.ClickException as error:
            raise _redacted(error) from None

    def invoke(self, ctx: click.Context) -> object:
        """Run the subcommand; no traceback reaches the user unless asked for."""
        try:
            with termination_raised():
                return super().invoke(ctx)
        except click.ClickException as error:
            raise _redacted(error) from None
        except (click.exceptions.Exit, click.Abort):
            raise
        except BrokenPipeError:
            _discard_stdout()
            ctx.exit(ExitCode.BROKEN_PIPE)
        except (SystemExit, GeneratorExit):
            raise
        except BaseException as error:
            # Not Exception: interrupts, and the panics of native libraries, belong here too.
            ctx.exit(report(error, verbose=wants_detail(ctx)))


def wants_detail(ctx: click.Context) -> bool:
    """Whether `--verbose` was given, before or after the subcommand."""
    return bool(getattr(ctx.obj, "verbose", False))


def _redacted(error: click.ClickException) -> click.ClickException:
    """Redact an error that click prints itself, since it quotes the command line."""
    error.message = escape_commands(visible(CONSOLE.redacted(error.message)))  # type: ignore[misc]
    return error


def _discard_stdout() -> None:
    # The reader has gone: what is still buffered must not raise again when the interpreter flushes.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
