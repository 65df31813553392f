"""Files below the state that stand for running processes: those that write, and those of runs.

The files of a commit lie in a dataset's folder before the commit names them, and those that a
killed process has left look the same. So each writer keeps a file `writers/HOST-PID-STARTED-TIME-
RANDOM` while it writes, and garbage collection removes files without a commit only where no writer
may still run.

A run is recorded when it ends. Until then `running/HOST-PID-STARTED-TIME-RUN` holds its record as
it would be if it ended now, with all nodes interrupted. Where that process no longer runs, this is
the run's record.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from lancestat import codec
from lancestat.lake.temporary_files import TAG, Lease, this_process
from lancestat.state.layout import StateFolder
from lancestat.state.run_records import run_batch, run_schema, runs_of
from lancestat.state.values import RunRecord


@dataclass(frozen=True, slots=True)
class LeaseFile:
    """The file of a lease; `suffix` ends its name, `is_held` is whether its process may run."""

    path: str
    suffix: str
    is_held: bool


@dataclass(frozen=True, slots=True)
class LeaseFolder:
    """The lease files of one kind. Methods raise StateUnreachable where the state is."""

    state: StateFolder
    name: str
    # Also the draft of such a file, whose owner stands at its end.
    _PATTERN = re.compile(rf"(?:\..*\.draft-)?({TAG})(?:-(\d+))?-([0-9a-f]+)")

    def add(self, started_at: float, suffix: str, text: str = "") -> str:
        """Write the lease file of this process and return its path."""
        # A look first: a write alone would make a bucket that is missing in some stores.
        self.state.layouts()
        path = f"{self.name}/{this_process().tag}-{int(started_at)}-{suffix}"
        with self.state.reached():
            self.state.storage.write(path, text, make_folder=True)
        return path

    def files(self) -> list[LeaseFile]:
        """Return all lease files, also of this host's dead processes."""
        with self.state.reached():
            names = sorted(self.state.storage.files(self.name))
        return [
            LeaseFile(
                f"{self.name}/{name}",
                match[3],
                Lease.of_tag(match[1], int(match[2]) if match[2] else None).is_held(),
            )
            for name in names
            if (match := self._PATTERN.fullmatch(name))
        ]

    def remove(self, paths: Iterable[str]) -> None:
        """Remove lease files, and the folder once it is empty."""
        with self.state.reached():
            for path in paths:
                self.state.storage.remove_file(path)
            self.state.storage.remove_empty(self.name)


@dataclass(frozen=True, slots=True)
class Writers:
    """The writers of one state."""

    folder: LeaseFolder

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the lease of a writer while the block runs.

        Raises:
            StateUnreachable: the state cannot be reached.
        """
        path = self.folder.add(time.time(), secrets.token_hex(6))
        try:
            yield
        finally:
            self.folder.remove([path])

    def may_run(self) -> bool:
        """Return whether any writer may still run; leases that have ended are removed."""
        self.folder.remove([file.path for file in self.folder.files() if not file.is_held])
        with self.folder.state.reached():
            return bool(self.folder.state.storage.files(self.folder.name))


@dataclass(frozen=True, slots=True)
class RunMarks:
    """The runs of one state that have begun and are not recorded."""

    folder: LeaseFolder

    def add(self, run: RunRecord) -> None:
        """Mark a run of this process as begun.

        Raises:
            StateUnreachable: the state cannot be reached.
        """
        [*rows] = run_batch(run, run_schema()).to_pylist()
        self.folder.add(run.started_at.timestamp(), run.run_id, codec.encode(rows))

    def read(self, marks: Iterable[LeaseFile]) -> list[RunRecord]:
        """Return the runs of some marks; one that is gone or does not decode is left out."""
        with self.folder.state.reached():
            texts = [self.folder.state.storage.read(mark.path) for mark in marks]
        return [run for text in texts if text is not None for run in _decoded(text)]


def _decoded(text: str) -> list[RunRecord]:
    try:
        rows: list[Mapping[str, object]] = json.loads(text)
        return runs_of(rows)
    except (ValueError, TypeError, KeyError):
        return []
