"""Exit codes, the report of an error, and SIGTERM as an orderly end of a command."""

from __future__ import annotations

import signal
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum
from types import FrameType
from typing import NoReturn

from lancestat.errors import (
    InternalError,
    InvalidProject,
    LancestatError,
    UsageError,
)
from lancestat.formats import message_lines
from lancestat.presentation.terminal import CONSOLE, paint
from lancestat.redact import redact_line


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
    if isinstance(error, KeyboardInterrupt):
        # Of a run it says what was kept, and the signal is its cause.
        is_terminated = isinstance(error, Terminated) or isinstance(error.__cause__, Terminated)
        word = "terminated" if is_terminated else "interrupted"
        CONSOLE.err(f"{word}; {error}" if str(error) else word)
        return ExitCode.TERMINATED if is_terminated else ExitCode.INTERRUPTED
    CONSOLE.err(*describe(error))
    if verbose:
        for line in "".join(traceback.format_exception(error)).splitlines():
            CONSOLE.err(f"  {_redacted(line)}")
    return ExitCode.USAGE if isinstance(error, UsageError) else ExitCode.FAILURE


def print_document(command: str | None, error: BaseException) -> None:
    """Print the JSON document of a command that an error ended, unless it has printed its own."""
    if CONSOLE.has_document or isinstance(error, KeyboardInterrupt):
        return
    from lancestat.presentation.registry import Page, load_format
    from lancestat.presentation.views import ErrorsView

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
    if isinstance(error, UnicodeEncodeError):
        from lancestat.lake.error_mapping import is_of_file_names, name_not_encodable

        if is_of_file_names(error):
            return name_not_encodable(_redacted(error.object))
    what = _redacted(" ".join(str(error).split()))
    kind = type(error).__name__
    return InternalError(
        f"internal error: {kind}: {what}" if what else f"internal error: {kind}",
        hint="run it again with --verbose to see where, and report that",
    )


def painted(error: LancestatError, excerpt: str | None = None) -> list[str]:
    """The lines of an error, its code in red where colours are shown."""
    first, *rest = message_lines(CONSOLE.redacted(error.text(excerpt)))
    return [paint(error.code, "code") + first[len(error.code) :], *rest]


def _redacted(line: str) -> str:
    indent = line[: len(line) - len(line.lstrip())]
    return indent + redact_line(CONSOLE.redacted(line))
