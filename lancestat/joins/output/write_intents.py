"""Write intents: which files a run has put into a dataset's folder before any commit names them.

Names of data files tell nothing about who wrote them, and a task's report is lost when its job
fails. So each task leaves an intent beside the data, `_lancestat/<run>/<attempt>.json`, before the
data is moved into place. What it has not finished is in the folder `_lancestat/<run>/<attempt>`.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from lancestat.lake.files import (
    Lease,
    Process,
    Storage,
    parse_instant,
    process_of,
    storage_at,
    this_process,
)

FOLDER = "_lancestat"
_LAST = "last.json"


@dataclass(frozen=True, slots=True)
class WriteIntents:
    """The intents of one run: the names of its data files, since when, and its driver's process."""

    run: str
    files: frozenset[str]
    since: datetime
    owner: Process

    @property
    def lease(self) -> Lease:
        """While it is held, somebody may still commit or discard these files."""
        return Lease(self.owner, self.since)


def new_run() -> str:
    """Return a name for a run's intents that no other run has, and that tells of its process."""
    return f"{this_process().tag}-{secrets.token_hex(8)}"


def new_attempt(number: int) -> str:
    return f"{number:06d}-{secrets.token_hex(4)}"


def record_intent(
    uri: str,
    run: str,
    attempt: str,
    files: Sequence[str],
    owner: Process,
    options: Mapping[str, str],
) -> None:
    """Write the intent of one attempt at a piece, in place of the one that it has left before."""
    intent = {
        "format_version": 1,
        "files": list(files),
        "written_at": datetime.now(timezone.utc).isoformat(),
        "owner": owner.to_json(),
    }
    path = f"{FOLDER}/{run}/{attempt}.json"
    storage_at(uri, options).write(path, json.dumps(intent), make_folder=True)


def withdraw_intent(uri: str, run: str, attempt: str, options: Mapping[str, str]) -> None:
    """Remove the intent of a failed attempt, with what it has not finished."""
    storage = storage_at(uri, options)
    storage.remove(f"{FOLDER}/{run}/{attempt}", _LAST)
    storage.remove_file(f"{FOLDER}/{run}/{attempt}.json")
    storage.remove_empty(f"{FOLDER}/{run}")
    storage.remove_empty(FOLDER)


def intents_of(uri: str, run: str, options: Mapping[str, str]) -> WriteIntents | None:
    """Return the intents of a run, None where there are none that can be read."""
    return _read(storage_at(uri, options), run)


def all_intents(uri: str, options: Mapping[str, str]) -> Iterator[WriteIntents]:
    """Yield the intents of all runs, those that go on included."""
    storage = storage_at(uri, options)
    for run in storage.children(FOLDER):
        intents = _read(storage, run)
        if intents is not None:
            yield intents


def remove_intents(uri: str, run: str, options: Mapping[str, str]) -> None:
    storage = storage_at(uri, options)
    storage.remove(f"{FOLDER}/{run}", _LAST)
    storage.remove_empty(FOLDER)


def _read(storage: Storage, run: str) -> WriteIntents | None:
    stored = []
    try:
        for name in storage.files(f"{FOLDER}/{run}"):
            if name.endswith(".json"):
                text = storage.read(f"{FOLDER}/{run}/{name}")
                stored.append(json.loads(text or "null"))
        if not stored:
            return _without_files(run)
        return WriteIntents(
            run,
            frozenset(file for intent in stored for file in intent["files"]),
            min(parse_instant(intent["written_at"]) for intent in stored),
            Process.from_json(stored[0]["owner"]),
        )
    except (KeyError, TypeError, ValueError):
        return None


def _without_files(run: str) -> WriteIntents | None:
    """Return the intents of a run that was killed before its first one, or removing its last one.

    None where the run's name does not tell which process of this host it was.
    """
    owner = process_of(run.rpartition("-")[0])
    if owner is None:
        return None
    return WriteIntents(run, frozenset(), datetime.now(timezone.utc), owner)
