"""What the sides of a join hold now, next to what they held when they were last joined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from lancestat.knn.work import SideWork
from lancestat.lake.content import FragmentContent, rows_digest
from lancestat.state.values import InputRecord


@dataclass(frozen=True, slots=True)
class JoinInput:
    """A side of a join as it is now.

    Equal digests mean equal rows; `digest` is None where that cannot be proven. The digest of a
    query means that only if the run that recorded it proved so (`InputRecord.unproven`): its text
    and the content of the tables that it may name are the same. Of a Lance table
    `fragments` are known too, None of other sides. `columns` are those that the output shows and
    `rows` how many there are, None where only a run can tell. `index` is the metric of a vector
    index. `notes` are for people.
    """

    work: SideWork
    digest: str | None
    fragments: tuple[FragmentContent, ...] | None = None
    columns: tuple[str, ...] | None = None
    rows: int | None = None
    dimension: int | None = None
    index: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def is_table(self) -> bool:
        """Whether rows keep their places from run to run, as those of a Lance table do."""
        return self.fragments is not None

    def to_record(self) -> InputRecord:
        """What to remember of it."""
        ids = [fragment.id for fragment in self.fragments or ()]
        return InputRecord(self.digest or "", len(ids), max(ids, default=-1), self.rows)


class Change(Enum):
    """What happened to a side."""

    NONE = "none"
    APPENDED = "appended"
    OTHER = "other"


def change(now: JoinInput, then: InputRecord) -> Change:
    """What happened to a side since it was recorded: rows came behind all others, or anything.

    Rows that came to a side which had none are anything: there is nothing to go on from.
    """
    if now.digest is None or not then.digest:
        return Change.OTHER
    if now.work.sql is not None and then.unproven != ():
        return Change.OTHER
    if now.digest == then.digest:
        return Change.NONE
    return Change.APPENDED if appended(now, then) else Change.OTHER


def appended(now: JoinInput, then: InputRecord) -> Sequence[FragmentContent]:
    """The fragments that came behind those recorded; none where these are not as they were."""
    fragments, count = now.fragments or (), then.fragments
    old, new = fragments[:count], fragments[count:]
    if not old or rows_digest(old) != then.digest:
        return ()
    # Fragments are numbered in the order in which they were written.
    return new if all(each.id > then.last_fragment for each in new) else ()
