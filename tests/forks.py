"""Run code in forks of one prepared process, since imports take longer than the code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

# The code defines `main`, which a fork calls for each line with arguments.
_SERVER = """
import json, os, sys, traceback

exec(sys.argv[1])
for line in sys.stdin:
    pid = os.fork()
    if not pid:
        try:
            main(*json.loads(line))
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


@dataclass
class Forks:
    """A process that has run the imports, and forks for each call."""

    process: subprocess.Popen[str]

    def call(self, *arguments: object) -> int:
        """Call `main` in a fork, and return its exit code, negative where a signal ended it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps(arguments), file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline())


@contextmanager
def forks(code: str) -> Iterator[Forks]:
    """Start a process that runs the code, which does its imports and defines `main`."""
    with subprocess.Popen(
        [sys.executable, "-c", _SERVER, code],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield Forks(process)
