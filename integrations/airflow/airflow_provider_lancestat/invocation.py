"""A command of lancestat: its process, what it logs and what it leaves."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.sdk.types import Logger

Event = Mapping[str, Any]
"""A line of lancestat's log in JSON."""

Result = Mapping[str, Any]
"""How a node ended, in the JSON of `run`."""

# What a run needs to stop and to record how far it got.
_STOP_SECONDS = 60


@dataclass(frozen=True)
class Ended:
    """How a command ended: what it printed, its artifacts by name, its last line of text."""

    exit_code: int
    output: Mapping[str, Any]
    artifacts: Mapping[str, Any]
    last_text: str

    @property
    def nodes(self) -> Sequence[Result]:
        """The nodes of the result."""
        nodes: Sequence[Result] = self.output.get("nodes", ())
        return nodes

    @property
    def failure(self) -> str | None:
        """Why the command failed before it came to a node; None if it did not."""
        if "nodes" in self.output:
            return None
        lines = [failure_line(error) for error in self.output.get("errors", ())]
        said = f": {self.last_text}" if self.last_text else ""
        return "\n".join(lines) or f"lancestat ended with exit code {self.exit_code}{said}"


class LancestatInvocation:
    """One process of lancestat's command line, with what it says in a log.

    Args:
        command: The executable, the command and its options.
        env: Variables beside those of this process.
        logger: The log that gets a line for each event.
    """

    def __init__(self, command: Sequence[str], env: Mapping[str, str], logger: Logger) -> None:
        self._command = command
        self._env = env
        self._logger = logger
        self._process: subprocess.Popen[str] | None = None
        self._last_text = ""

    def run(self) -> Ended:
        """Run the command until it ends, and return how; a failure of it is not raised.

        Raises:
            OSError: The executable cannot be started.
        """
        with tempfile.TemporaryDirectory(prefix="lancestat-") as folder:
            artifacts, printed = Path(folder, "artifacts"), Path(folder, "output.json")
            options = ["--log-format", "json", "--output", "json", "--artifacts", str(artifacts)]
            with printed.open("wb") as stdout:
                self._process = process = subprocess.Popen(
                    [*self._command, *options],
                    stdin=subprocess.DEVNULL,
                    stdout=stdout,
                    stderr=subprocess.PIPE,
                    encoding="utf-8",
                    errors="replace",
                    env={**os.environ, **self._env},
                )
            try:
                assert process.stderr is not None
                self._log(process.stderr)
                exit_code = process.wait()
            finally:
                _stop(process)
            return Ended(
                exit_code,
                json.loads(printed.read_text("utf-8") or "{}"),
                {
                    path.name: json.loads(path.read_text("utf-8"))
                    for path in artifacts.glob("*.json")
                },
                self._last_text,
            )

    def terminate(self) -> None:
        """Let the process record how far it got and end, as Ctrl-C does; `run` waits for that."""
        if self._process is not None and self._process.returncode is None:
            self._logger.info("lancestat is told to stop")
            self._process.terminate()

    def _log(self, lines: IO[str]) -> None:
        for line in lines:
            try:
                event = json.loads(line)
            except ValueError:
                # Spark's JVM writes text.
                self._last_text = line.rstrip() or self._last_text
                self._logger.info("%s", line.rstrip())
                continue
            if text := _words(event):
                self._logger.log(logging.getLevelName(event["level"].upper()), "%s", text)


def selectors(option: str, words: str | Iterable[str] | None) -> list[str]:
    """Return the options of selectors, `--select a --select b`; of None or no word, none."""
    words = [words] if isinstance(words, str) else words or ()
    return [part for word in words if word for part in (option, word)]


def project_options(
    project_dir: str, target: str | None, variables: Mapping[str, Any] | None
) -> list[str]:
    """Return the options that name a project and how it is configured."""
    options = ["--project-dir", project_dir]
    if target:
        options += ["--target", target]
    if variables:
        options += ["--vars", json.dumps(variables)]
    return options


def failure_line(failure: Result) -> str:
    """Return the code, the message and the hint of a failure in a line."""
    hint = f" (hint: {failure['hint']})" if failure["hint"] else ""
    return f"{failure['code']}  {failure['message']}{hint}"


def _stop(process: subprocess.Popen[str]) -> None:
    """Let a process that still runs, since waiting for it ended early, record how far it got."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.stderr is not None:
        process.stderr.close()


def _words(event: Event) -> str | None:
    """Return what an event says in a line, None where it says too little to be one."""
    match event.get("event"):
        case "stage" if not event["rows_done"]:
            return f"{event['node']}: {event['stage']}"
        case "node_finished":
            return _result_words(event["result"])
        case "finding":
            return f"{event['node']}: check {event['check']}: {event['detail']}"
        case None | "warning" | "cancelling":
            return str(event.get("message", "cancelling"))
        case _:
            return None


def _result_words(result: Result) -> str:
    match result["status"]:
        case "success":
            words = f"{result['action']}, {', '.join(result['reasons'])}"
        case "error":
            words = failure_line(result)
        case status:
            words = f"{status}, {result['message']}"
    return f"{result['name']}: {words}"
