"""How an error looks to the person who meets it, and which exit code it gives."""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from enum import IntEnum
from typing import TYPE_CHECKING

import click

from lancestat.cli.paint import wants_color
from lancestat.cli.termination import Terminated
from lancestat.errors import InvalidProject, LancestatError, UsageError

if TYPE_CHECKING:
    from lancestat.spec.model import Target

_SECRETS = "lancestat.secrets"


class ExitCode(IntEnum):
    """The exit codes of every command."""

    SUCCESS = 0
    FAILURE = 1
    USAGE = 2
    CHANGES_PENDING = 3
    INTERRUPTED = 130
    BROKEN_PIPE = 141
    TERMINATED = 143


def remember_secrets(target: Target) -> None:
    """Never show the target's secrets from now on, whatever a library puts into an exception."""
    from lancestat.lake.clean import secret_values

    context = click.get_current_context(silent=True)
    if context is not None:
        known: frozenset[str] = context.meta.get(_SECRETS, frozenset())
        context.meta[_SECRETS] = known | secret_values(target.storage_options)


def report(error: BaseException, *, verbose: bool) -> ExitCode:
    """Print an error to stderr: all of its parts when it is ours, one line when it is not."""
    if isinstance(error, Terminated):
        click.echo("terminated", err=True)
        return ExitCode.TERMINATED
    if isinstance(error, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return ExitCode.INTERRUPTED
    context = click.get_current_context(silent=True)
    secrets: frozenset[str] = context.meta.get(_SECRETS, frozenset()) if context else frozenset()
    for line in describe(error, secrets):
        click.echo(line, err=True, color=wants_color())
    if verbose:
        for line in "".join(traceback.format_exception(error)).splitlines():
            click.echo(_without_secrets(line, secrets), err=True)
    return ExitCode.USAGE if isinstance(error, UsageError) else ExitCode.FAILURE


def describe(error: BaseException, secrets: Iterable[str] = ()) -> list[str]:
    """The lines that say what went wrong."""
    if isinstance(error, InvalidProject):
        total = click.style(error.message, bold=True)
        return [*(painted(part) for part in error.errors), "", total]
    if isinstance(error, LancestatError):
        return [painted(error)]
    what = _without_secrets(" ".join(str(error).split()), secrets)
    kind = type(error).__name__
    internal = LancestatError(
        "LS001",
        f"internal error: {kind}: {what}" if what else f"internal error: {kind}",
        hint="run it again with --verbose to see where, and report that",
    )
    return [painted(internal)]


def painted(error: LancestatError) -> str:
    """An error as text, its code in red where colours are shown."""
    text = str(error)
    return click.style(error.code, fg="red", bold=True) + text[len(error.code) :]


def _without_secrets(line: str, secrets: Iterable[str]) -> str:
    from lancestat.lake.clean import clean

    indent = line[: len(line) - len(line.lstrip())]
    return indent + clean(line, secrets)
