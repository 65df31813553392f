"""Commands in processes of their own, which are up at once and can be killed at any moment."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

REPOSITORY = Path(__file__).parents[2]
FAKETIME = next(iter(Path("/usr/lib").glob("*/faketime/libfaketime.so.1")), None)
# Nothing that is tried takes as long, unless it hangs.
PATIENCE_SECONDS = 180.0
# Where joins of children put a copy of their left side, as Spark's do with files.
SCRATCH = "LANCESTAT_TEST_SCRATCH"


@dataclass(frozen=True)
class Ended:
    """The end of a child; `steps` are None when it was killed, as it is when it hangs."""

    status: int
    seconds: float
    output: str
    steps: int | None
    hangs: bool

    @property
    def killed(self) -> bool:
        return os.WIFSIGNALED(self.status)

    @property
    def code(self) -> int:
        return os.waitstatus_to_exitcode(self.status)


@dataclass
class Server:
    """One process that forks children. `environment` is what it starts with."""

    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    def __enter__(self) -> Server:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.server"],
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY), **self.environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # A buffer would hold answers for which `has_answer` then waits.
            bufsize=0,
        )
        self._answer()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.close()
        self.process.wait(PATIENCE_SECONDS)
        self.process.stdout.close()

    def start(
        self,
        commands: Sequence[Sequence[str]],
        folder: Path,
        environment: Mapping[str, str],
        kill_at: int | None = None,
    ) -> Child:
        """Run commands in a folder, one after the other until one fails."""
        log = self.folder / "child.log"
        log.with_suffix(".steps").unlink(missing_ok=True)
        self._ask(
            {
                "commands": [list(arguments) for arguments in commands],
                "folder": str(folder),
                "environment": dict(environment),
                "log": str(log),
                "kill_at": kill_at,
            }
        )
        started = time.monotonic()
        return Child(self, self._answer()["pid"], log, started)

    def has_answer(self, seconds: float) -> bool:
        """Return whether a line arrives within that time."""
        assert self.process.stdout
        # `select` refuses the numbers of files in a process that has many open.
        waiting = select.poll()
        waiting.register(self.process.stdout, select.POLLIN | select.POLLHUP)
        return bool(waiting.poll(seconds * 1000))

    def _ask(self, request: Mapping[str, Any]) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(request).encode() + b"\n")

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line, "the server of children has ended"
        answer: dict[str, Any] = json.loads(line)
        return answer


@dataclass(frozen=True)
class Child:
    """A command that runs."""

    server: Server
    pid: int
    log: Path
    started: float

    def kill(self) -> None:
        """End it, unless it has ended."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> Ended:
        """Until it has ended; one that hangs is killed."""
        hangs = not self.server.has_answer(PATIENCE_SECONDS)
        if hangs:
            self.kill()
        status = self.server._answer()["status"]
        steps = self.log.with_suffix(".steps")
        return Ended(
            status,
            time.monotonic() - self.started,
            self.log.read_text(errors="replace"),
            int(steps.read_text()) if steps.exists() else None,
            hangs,
        )
