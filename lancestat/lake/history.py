"""What the commits between two versions did to the rows."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from lancestat.lake.snapshot import Fragment

if TYPE_CHECKING:
    import lance


class Effect(str, Enum):
    """What one commit did, as far as its transaction proves it."""

    ROWS_UNCHANGED = "rows_unchanged"
    SCHEMA_ONLY = "schema_only"
    REWRITTEN = "rewritten"
    APPENDED = "appended"
    DELETED = "deleted"
    COLUMNS_WRITTEN = "columns_written"
    CHANGED = "changed"
    UNKNOWN = "unknown"


# Effects after which every row that was there is still there with the same values, and no other is.
ROW_PRESERVING = frozenset({Effect.ROWS_UNCHANGED, Effect.SCHEMA_ONLY, Effect.REWRITTEN})


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Fragments whose live rows a compaction moved, unchanged and together, into new fragments.

    `field_ids` are the top-level columns that the table had then, which are all that was moved: a
    column that has one of the other ids in `old` is not the column that has it in `new`.
    """

    old: tuple[Fragment, ...]
    new: tuple[Fragment, ...]
    field_ids: frozenset[int]


@dataclass(frozen=True, slots=True)
class Commit:
    """One version: how it came about. `operation` is Lance's name for it, for messages.

    `rewrites` is what a compaction moved, as far as the manifests before and after confirm it.
    """

    version: int
    effect: Effect
    operation: str
    rewrites: tuple[Rewrite, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class History:
    """The commits after version `since` up to and including `until`, oldest first.

    When there were more than could be read, the newest are here.
    """

    since: int
    until: int
    commits: tuple[Commit, ...]

    @property
    def is_complete(self) -> bool:
        """Whether every version in between is here and known."""
        expected = range(self.since + 1, self.until + 1)
        whole = [commit.version for commit in self.commits] == list(expected)
        return whole and self.since <= self.until and Effect.UNKNOWN not in self.effects

    @property
    def effects(self) -> frozenset[Effect]:
        """What occurred, in no order."""
        return frozenset(commit.effect for commit in self.commits)

    @property
    def rows_unchanged(self) -> bool:
        """Whether both ends are proven to hold the same rows, in whatever fragments."""
        return self.is_complete and self.effects <= ROW_PRESERVING

    @property
    def rewrites(self) -> tuple[Rewrite, ...]:
        """All confirmed moves in the order of their commits: one may move what another made."""
        return tuple(rewrite for commit in self.commits for rewrite in commit.rewrites)


def commits_since(
    dataset: lance.LanceDataset,
    version: int,
    until: int | None = None,
    *,
    limit: int = 500,
    threads: int = 8,
) -> History:
    """Read what happened to a dataset after `version`, from its transactions.

    A commit whose transaction is missing, unreadable or of a kind not known here is UNKNOWN, which
    is an answer and not an error.

    Args:
        dataset: Open, at any version.
        version: The version that is known already.
        until: The last version to judge; the dataset's own when None.
        limit: How many commits are read at most, the newest first.
        threads: How many transactions are read at once.
    """
    from lancestat.lake.transaction import read_commit

    last = dataset.version if until is None else until
    versions = range(max(version + 1, last + 1 - limit), last + 1)
    if not versions:
        return History(version, last, ())
    with ThreadPoolExecutor(max_workers=min(threads, len(versions))) as pool:
        commits = pool.map(lambda each: read_commit(dataset, each), versions)
        return History(version, last, tuple(commits))
