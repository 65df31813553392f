"""How an error looks to the person who meets it, and which exit code it gives."""

from __future__ import annotations

import traceback
from enum import IntEnum

from lancestat.cli.console import CONSOLE
from lancestat.cli.paint import paint
from lancestat.cli.termination import Terminated
from lancestat.errors import InvalidProject, LancestatError, UsageError
from lancestat.redact import message_lines


class ExitCode(IntEnum):
    """The exit codes of every command."""

    SUCCESS = 0
    FAILURE = 1
    USAGE = 2
    CHANGES_PENDING = 3
    INTERRUPTED = 130
    BROKEN_PIPE = 141
    TERMINATED = 143


def report(error: BaseException, *, verbose: bool) -> ExitCode:
    """Print an error to stderr: all of its parts when it is ours, one line when it is not."""
    if isinstance(error, Terminated):
        CONSOLE.err("terminated")
        return ExitCode.TERMINATED
    if isinstance(error, KeyboardInterrupt):
        CONSOLE.err("interrupted")
        return ExitCode.INTERRUPTED
    CONSOLE.err(*describe(error))
    if verbose:
        for line in "".join(traceback.format_exception(error)).splitlines():
            CONSOLE.err(f"  {_cleaned(line)}")
    return ExitCode.USAGE if isinstance(error, UsageError) else ExitCode.FAILURE


def describe(error: BaseException) -> list[str]:
    """The lines that say what went wrong."""
    if isinstance(error, InvalidProject):
        lines = [line for part in error.errors for line in painted(part)]
        return [*lines, "", paint(error.message, "title")]
    if isinstance(error, LancestatError):
        return painted(error)
    what = _cleaned(" ".join(str(error).split()))
    kind = type(error).__name__
    internal = LancestatError(
        "LS001",
        f"internal error: {kind}: {what}" if what else f"internal error: {kind}",
        hint="run it again with --verbose to see where, and report that",
    )
    return painted(internal)


def painted(error: LancestatError) -> list[str]:
    """The lines of an error, its code in red where colours are shown."""
    first, *rest = message_lines(CONSOLE.text(str(error)))
    return [paint(error.code, "code") + first[len(error.code) :], *rest]


def _cleaned(line: str) -> str:
    from lancestat.lake.clean import clean

    indent = line[: len(line) - len(line.lstrip())]
    return indent + clean(CONSOLE.text(line))
