"""What makes a folder scratch: a marker that says whose it is, and a heartbeat."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from types import TracebackType

from lancestat.lake.storage import Storage
from lancestat.lake.temporary_files import Process
from lancestat.redact import clean

_log = logging.getLogger("lancestat.knn")

MARKER = ".lancestat-scratch"
HEARTBEAT = ".heartbeat"
FORMAT_VERSION = 1
BEAT_EVERY = timedelta(seconds=30)
DEAD_AFTER = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Marker:
    """Whose a scratch folder is, and when it was last known to be in use."""

    application: str
    process: Process
    created_at: datetime
    beat_at: datetime

    def is_live(self, now: datetime, dead_after: timedelta = DEAD_AFTER) -> bool:
        """Whether the join may still run: its process does, or its heart beat lately."""
        alive = self.process.is_alive()
        return now - self.beat_at < dead_after if alive is None else alive


def encode(application: str, process: Process, created_at: datetime) -> str:
    """The marker's text."""
    return json.dumps(
        {
            "format_version": FORMAT_VERSION,
            "application": application,
            "process": asdict(process),
            "created_at": created_at.isoformat(),
        }
    )


def read_marker(store: Storage, folder: str) -> Marker | None:
    """The marker of a folder, None where there is none.

    Raises:
        ValueError: It cannot be understood.
    """
    text = store.read(f"{folder}/{MARKER}")
    if text is None:
        return None
    try:
        found = json.loads(text)
        if found["format_version"] != FORMAT_VERSION:
            raise ValueError(f"it has format {found['format_version']!r}")
        created_at = _instant(found["created_at"])
        process = found["process"]
        owner = Process(str(process["host"]), int(process["pid"]), process["started"])
        return Marker(
            str(found["application"]), owner, created_at, _beat(store, folder, created_at)
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it lacks {error}") from None


def _beat(store: Storage, folder: str, created_at: datetime) -> datetime:
    text = store.read(f"{folder}/{HEARTBEAT}")
    try:
        return max(created_at, _instant(text)) if text else created_at
    except ValueError:
        return created_at


def _instant(text: str) -> datetime:
    instant = datetime.fromisoformat(text)
    if instant.tzinfo is None:
        raise ValueError(f"{text!r} has no zone")
    return instant


class Heartbeat:
    """Beats in a thread of its own while the block runs."""

    def __init__(
        self,
        store: Storage,
        folder: str,
        clock: Callable[[], datetime],
        every: timedelta = BEAT_EVERY,
    ) -> None:
        self._store = store
        self._path = f"{folder}/{HEARTBEAT}"
        self._clock = clock
        self._every = every
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lancestat-heartbeat", daemon=True)

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(self._every.total_seconds()):
            try:
                self._store.write(self._path, self._clock().isoformat())
            except Exception as error:
                # The join itself may still succeed.
                _log.warning("the heartbeat of scratch failed: %s", clean(str(error)))
