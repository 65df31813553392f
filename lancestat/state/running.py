"""Marks of runs that go on, by which runs whose process was killed are found.

A run is recorded when it ends. Until then it has a file below the state,
`running/HOST-PID-STARTED-TIME-RUN`, which holds its record as it would be if it ended now: all of
its nodes interrupted. Where that process no longer runs, this is the run's record.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from lancestat import codec
from lancestat.lake.storage import Storage, storage_at
from lancestat.lake.temporary_files import TAG, Lease, this_process
from lancestat.state.layout import StateFolder
from lancestat.state.run_rows import run_batch, run_schema, runs_of
from lancestat.state.values import RunRecord

_FOLDER = "running"
_NAME = re.compile(rf"({TAG})-(\d+)-([0-9a-f]+)")


@dataclass(frozen=True, slots=True)
class RunMark:
    """The mark of a run: the name of its file, and whether its process may still run."""

    name: str
    run_id: str
    may_run: bool


@dataclass(frozen=True, slots=True)
class RunMarks:
    """The marks of the runs of one state."""

    folder: StateFolder

    def add(self, run: RunRecord) -> None:
        """Mark a run of this process as begun.

        Raises:
            StateUnreachable: the state cannot be reached.
        """
        # A look first: a write alone would make a bucket that is missing in some stores.
        self.folder.layouts()
        name = f"{this_process().tag}-{int(run.started_at.timestamp())}-{run.run_id}"
        [*rows] = run_batch(run, run_schema()).to_pylist()
        with self.folder.reached():
            self._storage().write(f"{_FOLDER}/{name}", codec.encode(rows), make_folder=True)

    def all(self) -> tuple[RunMark, ...]:
        """Return the marks, those of this host's dead processes too."""
        with self.folder.reached():
            return tuple(_marks(self._storage()))

    def read(self, marks: Iterable[RunMark]) -> list[RunRecord]:
        """Return what some marks hold; one that is gone or does not decode is left out."""
        with self.folder.reached():
            storage = self._storage()
            texts = [storage.read(f"{_FOLDER}/{mark.name}") for mark in marks]
        return [run for text in texts if text is not None for run in _decoded(text)]

    def remove(self, marks: Iterable[RunMark]) -> None:
        """Remove marks of runs that are recorded."""
        with self.folder.reached():
            storage = self._storage()
            for mark in marks:
                storage.remove_file(f"{_FOLDER}/{mark.name}")
            storage.remove_empty(_FOLDER)

    def _storage(self) -> Storage:
        return storage_at(self.folder.uri, self.folder.options)


def _marks(storage: Storage) -> Iterator[RunMark]:
    for name in sorted(storage.files(_FOLDER)):
        named = _NAME.fullmatch(name)
        if named is not None:
            yield RunMark(name, named[3], Lease.of_tag(named[1], int(named[2])).is_held())


def _decoded(text: str) -> list[RunRecord]:
    try:
        rows: list[Mapping[str, object]] = json.loads(text)
        return runs_of(rows)
    except (ValueError, TypeError, KeyError):
        return []
