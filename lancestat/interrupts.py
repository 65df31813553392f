"""What lets Ctrl-C reach a thread that waits."""

from __future__ import annotations

import signal
import sys


def keep_interrupts() -> None:
    """Let SIGINT interrupt what waits, after the import of a library that handles it, as Polars.

    Such a handler calls Python's, but has the system resume a thread that waits. Python's own
    handler of Ctrl-C would then run as late as what is waited for.
    """
    if sys.platform != "win32":
        signal.siginterrupt(signal.SIGINT, True)
