"""Decides which versions of a result in Lance are past."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta, timezone
from itertools import islice, pairwise
from typing import TYPE_CHECKING

from lancestat.joins.output.lance_mark import is_result
from lancestat.joins.output.writer import GRACE
from lancestat.lake.history import read_commit

if TYPE_CHECKING:
    from lance import LanceDataset


def past_versions(dataset: LanceDataset, keep: int | timedelta, now: datetime) -> list[int]:
    """Return the versions before the oldest result that is kept, but for those in use until now.

    Args:
        dataset: A result, open at its latest version.
        keep: How many results to keep, or for how long. The newest one is kept in any case.
        now: The time from which ages count.
    """
    committed = {
        version["version"]: version["timestamp"].astimezone(timezone.utc)
        for version in dataset.versions()
    }
    results = _results(dataset, committed)
    newest = next(results, None)
    if newest is None:
        return []
    if isinstance(keep, int):
        older = list(islice(results, keep - 1))
    else:
        older = [number for number in results if committed[number] >= now - keep]
    first = min([newest, *older])
    return [
        number
        for number, following in pairwise(sorted(committed))
        if number < first and committed[following] < now - GRACE
    ]


def _results(dataset: LanceDataset, committed: Mapping[int, datetime]) -> Iterator[int]:
    """Yield the versions that joins have committed, the newest first."""
    for number in sorted(committed, reverse=True):
        if is_result(read_commit(dataset, number)):
            yield number
