"""The leases of those who write to a state, which protect files that are not committed yet.

The files of a commit lie in a dataset's folder before the commit names them, and those that a
killed process has left look the same. So each writer keeps a file below the state while it writes,
`writers/HOST-PID-STARTED-TIME-RANDOM`, and garbage collection removes files without a commit
only where no writer may still run.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lancestat.lake.storage import Storage, storage_at
from lancestat.lake.temporary_files import TAG, Lease, abandoned, this_process
from lancestat.state.layout import StateFolder

_FOLDER = "writers"
# Or the draft of such a file, whose owner stands at its end.
_NAME = re.compile(rf"(?:\..*\.draft-)?({TAG})(?:-(\d+))?-[0-9a-f]{{12}}")


@dataclass(frozen=True, slots=True)
class Writers:
    """The writers of one state."""

    folder: StateFolder

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the lease of a writer while the block runs.

        Raises:
            StateUnreachable: the state cannot be reached.
        """
        # A look first: a write alone would make a bucket that is missing in some stores.
        self.folder.layouts()
        path = f"{_FOLDER}/{this_process().tag}-{int(time.time())}-{secrets.token_hex(6)}"
        with self.folder.reached():
            storage = self._storage()
            storage.write(path, "", make_folder=True)
        try:
            yield
        finally:
            with self.folder.reached():
                _remove(storage, path)

    def may_run(self) -> bool:
        """Return whether any writer may still run; leases that have ended are removed."""
        with self.folder.reached():
            storage = self._storage()
            for name in list(abandoned(_leases(storage))):
                _remove(storage, f"{_FOLDER}/{name}")
            return bool(storage.files(_FOLDER))

    def _storage(self) -> Storage:
        return storage_at(self.folder.uri, self.folder.options)


def _remove(storage: Storage, path: str) -> None:
    storage.remove_file(path)
    storage.remove_empty(_FOLDER)


def _leases(storage: Storage) -> Iterator[tuple[str, Lease]]:
    for name in storage.files(_FOLDER):
        named = _NAME.fullmatch(name)
        if named is not None:
            yield name, Lease.of_tag(named[1], int(named[2]) if named[2] else None)
