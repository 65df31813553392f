"""SIGTERM ends a command as Ctrl-C does, so that it cleans up behind itself."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn


class Terminated(KeyboardInterrupt):
    """SIGTERM, as schedulers send it to what takes too long."""


@contextmanager
def termination_raised() -> Iterator[None]:
    """Raise `Terminated` in the block at the first SIGTERM; a second one kills as usual.

    A handler that somebody else has installed stays in charge.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _raise)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _raise(number: int, frame: FrameType | None) -> NoReturn:
    signal.signal(number, signal.SIG_DFL)
    raise Terminated
