"""The scratch folder of a join run: made, kept alive, removed."""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone

from lancestat.errors import LancestatError, RunError
from lancestat.lake.error_mapping import is_full
from lancestat.lake.open import is_failure
from lancestat.lake.storage import Storage, storage_at
from lancestat.lake.temporary_files import process_mark, this_process
from lancestat.redact import clean, secret_values
from lancestat.scratch.marker import BEAT_EVERY, MARKER, Heartbeat, encode

_log = logging.getLogger("lancestat.knn")

# Spark kills a cancelled task's Python after two seconds, and until then it may write.
_SETTLE_SECONDS = 2.5
_LOOK_EVERY_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Scratch:
    """A folder of its own for one join run, below one for the application, below the root."""

    uri: str
    storage_options: Mapping[str, str] = field(repr=False)


@contextmanager
def scratch(
    root: str,
    application: str,
    storage_options: Mapping[str, str] | None = None,
    *,
    clock: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    beat_every: timedelta = BEAT_EVERY,
    settle_seconds: float = _SETTLE_SECONDS,
) -> Iterator[Scratch]:
    """A scratch folder with a heartbeat, which is gone when the block ends, however it does.

    Args:
        root: A path or an object-store URI, which all workers share.
        application: Spark's id of the application.
        storage_options: For an object store.
        clock: Tells the time of heartbeats.
        beat_every: Between two heartbeats.
        settle_seconds: How long to watch, after a failure, for what cancelled tasks still write.

    Raises:
        RunError: LS581 no space is left, LS583 the root cannot be written to.
    """
    options = dict(storage_options or {})
    store = storage_at(root, options)
    # The name tells of the process until the marker does.
    folder = f"{_name(application)}/{process_mark()}-{secrets.token_hex(8)}"
    failed = True
    try:
        with _told(root, options, is_making=True):
            store.make(folder)
            store.write(f"{folder}/{MARKER}", encode(application, this_process(), clock()))
        with _told(root, options), Heartbeat(store, folder, clock, beat_every):
            yield Scratch(store.uri(folder), options)
        failed = False
    finally:
        _remove(store, folder, options, settle_seconds if failed else 0.0)


def _name(application: str) -> str:
    return re.sub(r"[^\w.-]", "_", application, flags=re.ASCII).lstrip(".") or "application"


def _remove(store: Storage, folder: str, options: Mapping[str, str], settle_seconds: float) -> None:
    deadline = time.monotonic() + settle_seconds
    application, _, run = folder.rpartition("/")
    try:
        store.remove(folder, MARKER)
        while time.monotonic() < deadline:
            time.sleep(_LOOK_EVERY_SECONDS)
            if run in store.children(application):
                store.remove(folder, MARKER)
        store.remove_empty(application)
    except Exception as error:
        # What ended the join matters more. `lancestat gc` takes this folder for a dead one's.
        reason = clean(str(error), secret_values(options))
        _log.warning("scratch %s was not removed: %s", clean(store.uri(folder)), reason)


@contextmanager
def _told(root: str, options: Mapping[str, str], *, is_making: bool = False) -> Iterator[None]:
    """Say where, when there is no room for scratch, or when it cannot be made."""
    try:
        yield
    except BaseException as error:
        if not is_failure(error):
            raise
        secrets_ = secret_values(options)
        place = clean(root, secrets_)
        if _is_full(error):
            raise RunError(
                "LS581",
                f"no space is left in the scratch folder {place}",
                hint="make room there, or set the target's 'scratch' to a larger place",
            ) from None
        if is_making and not isinstance(error, LancestatError):
            raise RunError(
                "LS583",
                f"the scratch folder {place} cannot be used: {clean(str(error), secrets_)}",
                hint="check the target's 'scratch' and the permissions there",
            ) from None
        raise


def _is_full(error: BaseException) -> bool:
    # A result that does not fit is told by its own code.
    if isinstance(error, LancestatError) and error.code.startswith("LS57"):
        return False
    return is_full(error)
