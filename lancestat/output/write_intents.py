"""Which files a run has put into a dataset's folder without a commit, for those who clean up.

Names of data files tell nothing about who wrote them, and a task's report is lost when its job
fails. So each task leaves a receipt beside the data: `_lancestat/<run>/<attempt>.json`. What it
has not finished is in the folder `_lancestat/<run>/<attempt>`.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta, timezone

from lancestat.lake.storage import Storage, storage_at
from lancestat.lake.temporary_files import Process, process_mark, process_of

FOLDER = "_lancestat"
_LAST = "last.json"
# After that time nobody on another host still writes.
ABANDONED_AFTER = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Receipts:
    """Receipts of one run: the names of its data files, since when, and whose driver began it."""

    run: str
    files: frozenset[str]
    since: datetime
    owner: Process

    def is_abandoned(self, now: datetime) -> bool:
        """Whether nobody will commit or discard these files any more."""
        alive = self.owner.is_alive()
        return now - self.since > ABANDONED_AFTER if alive is None else not alive


def new_run() -> str:
    """A name for a run's receipts that no other run has, and that tells of its process."""
    return f"{process_mark()}-{secrets.token_hex(8)}"


def new_attempt(number: int) -> str:
    """A name for an attempt at a piece, which no other attempt has."""
    return f"{number:06d}-{secrets.token_hex(4)}"


def leave(
    uri: str,
    run: str,
    attempt: str,
    files: Sequence[str],
    owner: Process,
    options: Mapping[str, str],
) -> None:
    """Leave the receipt of one attempt at a piece, in place of the one that it has left before."""
    storage = storage_at(uri, options)
    receipt = {
        "format_version": 1,
        "files": list(files),
        "written_at": datetime.now(timezone.utc).isoformat(),
        "owner": asdict(owner),
    }
    storage.write(f"{FOLDER}/{run}/{attempt}.json", json.dumps(receipt), make_folder=True)


def withdraw(uri: str, run: str, attempt: str, options: Mapping[str, str]) -> None:
    """Remove what an attempt has left that came to nothing."""
    storage = storage_at(uri, options)
    storage.remove(f"{FOLDER}/{run}/{attempt}", _LAST)
    storage.remove_file(f"{FOLDER}/{run}/{attempt}.json")
    storage.remove_empty(f"{FOLDER}/{run}")
    storage.remove_empty(FOLDER)


def receipts_of(uri: str, run: str, options: Mapping[str, str]) -> Receipts | None:
    """What a run has left, None when there is nothing, or nothing that can be understood."""
    return _read(storage_at(uri, options), run)


def all_receipts(uri: str, options: Mapping[str, str]) -> Iterator[Receipts]:
    """What runs have left there and not cleaned up, those included that go on."""
    storage = storage_at(uri, options)
    for run in storage.children(FOLDER):
        found = _read(storage, run)
        if found is not None:
            yield found


def throw_away(uri: str, run: str, options: Mapping[str, str]) -> None:
    """Remove a run's receipts, when there is nothing left to clean up."""
    storage = storage_at(uri, options)
    storage.remove(f"{FOLDER}/{run}", _LAST)
    storage.remove_empty(FOLDER)


def _read(storage: Storage, run: str) -> Receipts | None:
    found = []
    try:
        for name in storage.files(f"{FOLDER}/{run}"):
            if name.endswith(".json"):
                text = storage.read(f"{FOLDER}/{run}/{name}")
                found.append(json.loads(text or "null"))
        if not found:
            return _nothing_left(run)
        return Receipts(
            run,
            frozenset(file for receipt in found for file in receipt["files"]),
            min(datetime.fromisoformat(receipt["written_at"]) for receipt in found),
            Process(**found[0]["owner"]),
        )
    except (KeyError, TypeError, ValueError):
        return None


def _nothing_left(run: str) -> Receipts | None:
    """Receipts of a run that was killed before it left the first one, or while it removed the last.

    None where the run's name does not tell which process of this host it was.
    """
    owner = process_of(run.rpartition("-")[0])
    if owner is None:
        return None
    return Receipts(run, frozenset(), datetime.now(timezone.utc), owner)
