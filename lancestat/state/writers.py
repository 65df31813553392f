"""Who writes to a state now, so that a sweep can tell what will be committed from what never will.

The files of a commit lie in a dataset's folder before the commit names them, and those that a
killed process has left look the same. So each writer leaves a file below the state while it writes,
`writers/HOST-PID-STARTED-TIME-RANDOM`, and a sweep removes files without a commit only where no
writer may still run.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lancestat.lake.storage import Storage, storage_at
from lancestat.lake.temporary_files import is_mark_alive, process_mark
from lancestat.state.failure import is_lance_failure, unreachable
from lancestat.state.layout import StateFolder

_FOLDER = "writers"
# Or the draft of such a file, whose owner stands at its end.
_NAME = re.compile(r"(?:\..*\.draft-)?([0-9a-f]{12}-\d+-\d+)(?:-(\d+))?-[0-9a-f]{12}")
# After that time nobody on another host still writes.
_ABANDONED_AFTER_SECONDS = 7 * 24 * 3600


@dataclass(frozen=True, slots=True)
class Writers:
    """The writers of one state."""

    folder: StateFolder

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Be a writer while the block runs.

        Raises:
            StateError: LS301 the state cannot be reached.
        """
        # A look first: a write alone would make a bucket that is missing in some stores.
        self.folder.layouts()
        path = f"{_FOLDER}/{process_mark()}-{int(time.time())}-{secrets.token_hex(6)}"
        with self._reached():
            storage = self._storage()
            storage.write(path, "", make_folder=True)
        try:
            yield
        finally:
            with self._reached():
                _remove(storage, path)

    def may_run(self) -> bool:
        """Whether any writer may still run; the marks of those that have ended are removed."""
        with self._reached():
            storage = self._storage()
            ended = [name for name in storage.files(_FOLDER) if _has_ended(name)]
            for name in ended:
                _remove(storage, f"{_FOLDER}/{name}")
            return bool(storage.files(_FOLDER))

    def _storage(self) -> Storage:
        return storage_at(self.folder.uri, self.folder.options)

    @contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            if not is_lance_failure(error):
                raise
            raise unreachable(self.folder.uri, error, self.folder.options) from None


def _remove(storage: Storage, path: str) -> None:
    storage.remove_file(path)
    storage.remove_empty(_FOLDER)


def _has_ended(name: str) -> bool:
    named = _NAME.fullmatch(name)
    if named is None:
        return False
    alive = is_mark_alive(named[1])
    if alive is not None:
        return not alive
    return named[2] is not None and time.time() - int(named[2]) > _ABANDONED_AFTER_SECONDS
