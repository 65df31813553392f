"""When the rows of a table last changed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from lancestat.lake.history import ROW_PRESERVING, Commit, commits_since
from lancestat.lake.manifest import committed_at
from lancestat.lake.open import is_failure
from lancestat.lake.transaction import read_commit

if TYPE_CHECKING:
    import lance

# Mostly the newest commit published statistics, and the one before it wrote rows: these are read
# one by one, which takes less time than to read several at once.
_ONE_BY_ONE = 2
_STEP = 4


def rows_changed_at(dataset: lance.LanceDataset, *, limit: int = 200) -> datetime:
    """When the newest commit that changed rows was made, by the clock of who made it.

    Commits that only moved rows or changed settings are passed by. A commit of which nothing is
    known counts as a change; where it is gone, the time of the one after it stands for it. Where
    none of the `limit` newest commits changed rows, the time is that of the oldest of them.

    Args:
        dataset: Open, at the version that is of interest.
        limit: How many commits are looked at.
    """
    oldest = max(1, dataset.version - limit + 1)
    for commit in _commits(dataset, oldest):
        if commit.effect not in ROW_PRESERVING:
            return _committed_at(dataset, commit.version)
    return _committed_at(dataset, oldest)


def _commits(dataset: lance.LanceDataset, oldest: int) -> Iterator[Commit]:
    """The commits down to version `oldest`, newest first, more and more of them at once."""
    newest, step = dataset.version, _STEP
    while newest >= oldest:
        if dataset.version - newest < _ONE_BY_ONE:
            yield read_commit(dataset, newest)
            newest -= 1
            continue
        since = max(oldest - 1, newest - step)
        yield from reversed(commits_since(dataset, since, newest).commits)
        newest, step = since, 2 * step


def _committed_at(dataset: lance.LanceDataset, version: int) -> datetime:
    """The time of the first version from `version` on that is still there."""
    for each in range(version, dataset.version):
        try:
            return committed_at(dataset.checkout_version(each))
        except BaseException as error:
            # Cleaned up, or damaged: that is for whoever opens it to tell.
            if not is_failure(error):
                raise
    return committed_at(dataset)
