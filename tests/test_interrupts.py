"""Ctrl-C reaches a thread that waits, whatever libraries have been loaded."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

WAITS = """
import os, signal, sys, threading, time
from importlib import import_module
from queue import SimpleQueue

def load():
    import_module({module!r})
    assert "polars" in sys.modules
    print("loaded", flush=True)

threading.Thread(target=load, daemon=True).start()
SimpleQueue().get()
"""


@pytest.mark.parametrize("module", ["lancestat.polars", "lancestat.tables.statistics.hashing"])
def test_an_interrupt_reaches_a_thread_that_waits_while_another_loads_polars(module: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WAITS.format(module=module)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "loaded\n"
        process.send_signal(signal.SIGINT)
        try:
            _, stderr = process.communicate(timeout=60)
        finally:
            process.kill()
    assert "KeyboardInterrupt" in stderr
