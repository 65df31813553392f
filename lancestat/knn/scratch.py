"""The scratch folder of a join run: made, kept alive, removed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Scratch:
    """A folder of its own for one join run, below one for the application, below the root."""

    uri: str
    storage_options: Mapping[str, str] = field(repr=False)


@contextmanager
def scratch(
    root: str, application: str, storage_options: Mapping[str, str] | None = None
) -> Iterator[Scratch]:
    """A scratch folder with a heartbeat, which is gone when the block ends, however it does."""
    raise NotImplementedError
    yield


@dataclass(frozen=True, slots=True)
class Swept:
    """A join run's folder that its process left behind."""

    uri: str
    size_bytes: int
    beat_at: datetime | None


def sweep_scratch(
    root: str,
    storage_options: Mapping[str, str] | None = None,
    *,
    now: datetime,
    dry_run: bool = False,
) -> list[Swept]:
    """Remove what killed processes left under a scratch root, and nothing else."""
    raise NotImplementedError
