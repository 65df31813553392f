"""Polars, as lancestat loads it: with its hash functions, and such that Ctrl-C reaches what waits.

Everything here imports it as `from lancestat.polars import pl`.
"""

from __future__ import annotations

import signal
import sys

import polars as pl
import polars_hash  # noqa: F401  (registers the `nchash` namespace)

__all__ = ["pl"]

# Polars installs a handler of SIGINT that calls Python's, but has the system resume a thread that
# waits: Python's own handler of Ctrl-C would then run as late as what is waited for.
if sys.platform != "win32":
    signal.siginterrupt(signal.SIGINT, True)
