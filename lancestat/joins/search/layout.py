"""Kept layouts: what a right side by list was made of, what it has now, how far it drifted."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from lancestat.formats import count

# A layout is trained again when more than this share of the live rows came after it was trained,
MOST_ADDED = 0.5
# or of its rows are deleted,
MOST_DELETED = 0.3
# or added rows are so many times as far from their centroids as the trained ones were,
FARTHEST = 1.5
# or its lists are so many times as unequal as they were,
MOST_UNEQUAL = 2.0
# or it is in more pieces than this, beyond those that it was written in.
MOST_PIECES = 64


@dataclass(frozen=True, slots=True)
class RightFragment:
    """A fragment of the right side that has live rows.

    `content` digests what its data files hold in the columns that a layout is made of, whichever of
    its rows are deleted; `rows` are the live ones.
    """

    id: int
    content: str
    physical_rows: int
    rows: int


@dataclass(frozen=True, slots=True)
class RightContent:
    """The content of a right side that can be laid out: `key` names what a layout is for.

    Layouts of one key hold the same columns of one table under one filter, for one metric. The
    content that they were made of is recorded with them, fragment by fragment.
    """

    key: str
    fragments: tuple[RightFragment, ...]


def owner_prefix(state_uri: str) -> str:
    """Return how the keys of a project's layouts begin: a digest of where its state is."""
    return f"{_digest(state_uri, 6)}-"


def layout_key(state_uri: str, table_uri: str, vector: str, metric: str, filter: str | None) -> str:
    """Return the key of layouts of a table's vectors; nothing secret can be read from it.

    Args:
        state_uri: The canonical URI of the project's state.
        table_uri: The canonical URI of the table.
        vector: The column of vectors.
        metric: Its lists depend on it.
        filter: The filter of the side as it is declared.
    """
    meaning = json.dumps([table_uri, vector, metric, filter])
    return f"{owner_prefix(state_uri)}{_digest(meaning, 16)}"


def _digest(text: str, size: int) -> str:
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=size).hexdigest()


@dataclass(frozen=True, slots=True)
class LaidFragment:
    """A fragment whose rows were put into lists: its content, and its live rows at that time."""

    content: str
    rows: int


@dataclass(frozen=True, slots=True)
class Quality:
    """Rows in lists: how many, the sum of their errors, and how unequal the lists are.

    The error of a row is its distance from the centroid of its list (`Centroids.errors`).
    `imbalance` is the mean length of the list that a row is in, by the mean length of all lists.
    """

    rows: int
    error: float
    imbalance: float

    @property
    def mean_error(self) -> float:
        """The mean error of a row."""
        return self.error / self.rows if self.rows else 0.0


@dataclass(frozen=True, slots=True)
class LayoutRecord:
    """What is recorded of a layout.

    `sources` are in the order of their slots, by which the places of rows name fragments; the
    first `first_sources` were there when it was trained. `trained` describes the rows that were
    laid out with the centroids, `now` all rows that are in the lists; `pieces` is the number of
    fragments that these are in, and `first_pieces` what it was at first.
    """

    dimension: int
    lists: int
    sources: tuple[LaidFragment, ...]
    first_sources: int
    trained: Quality
    now: Quality
    first_pieces: int
    pieces: int


@dataclass(frozen=True, slots=True)
class Coverage:
    """What a layout has of a right side.

    `fragments` has, for each slot, the number of the fragment among those of the side, -1 where the
    side has no such fragment any more. `missing` are the numbers of those that are to be put in,
    with `new_rows` live rows; `rows` are in the layout, of which `added_rows` came after it was
    trained, and `deleted_rows` of the layout have gone.
    """

    fragments: tuple[int, ...]
    missing: tuple[int, ...]
    rows: int
    added_rows: int
    new_rows: int
    deleted_rows: int


def cover(
    record: LayoutRecord, content: RightContent, distrusted: frozenset[int] = frozenset()
) -> Coverage:
    """Compare a layout with the content of the side that is to be searched.

    Deleted rows stay in a layout and are masked. A fragment that has more live rows than when it
    was laid out, since an earlier version of the table was restored, counts as missing.

    Args:
        record: What the layout was made of.
        content: What the side holds.
        distrusted: Slots whose fragments count as missing.
    """
    slots: dict[str, list[int]] = {}
    for slot, laid in enumerate(record.sources):
        if slot not in distrusted:
            slots.setdefault(laid.content, []).append(slot)
    fragments = [-1] * len(record.sources)
    missing, kept, added = [], 0, 0
    for number, fragment in enumerate(content.fragments):
        # A fragment that was put in twice is in the later slot.
        holders = slots.get(fragment.content)
        slot = holders.pop() if holders else -1
        if slot < 0 or fragment.rows > record.sources[slot].rows:
            missing.append(number)
            continue
        fragments[slot] = number
        kept += fragment.rows
        added += fragment.rows if slot >= record.first_sources else 0
    laid_out = sum(laid.rows for laid in record.sources)
    return Coverage(
        tuple(fragments),
        tuple(missing),
        kept,
        added,
        sum(content.fragments[number].rows for number in missing),
        laid_out - kept,
    )


@dataclass(frozen=True, slots=True)
class KeptLists:
    """A kept layout as the cost model sees it.

    `rows` of the right side are in its lists and `new_rows` are not. `why_anew` says why it has to
    be trained again, None where it has not.
    """

    lists: int
    rows: int
    new_rows: int
    why_anew: str | None = None


def kept_lists(record: LayoutRecord, coverage: Coverage) -> KeptLists:
    """Return a layout as the cost model sees it."""
    return KeptLists(record.lists, coverage.rows, coverage.new_rows, drift(record, coverage))


def drift(record: LayoutRecord, coverage: Coverage) -> str | None:
    """Return why a layout has to be trained again, with the number that says so; None if not."""
    live = coverage.rows + coverage.new_rows
    laid_out = sum(laid.rows for laid in record.sources)
    added = record.now.rows - record.trained.rows
    share = (coverage.added_rows + coverage.new_rows) / live if live else 0.0
    if share > MOST_ADDED:
        return f"{_percent(share)} of its rows came after it was trained"
    gone = coverage.deleted_rows / laid_out if laid_out else 0.0
    if gone > MOST_DELETED:
        return f"{_percent(gone)} of the rows in its lists are deleted"
    if added >= record.lists and record.trained.mean_error > 0:
        error = (record.now.error - record.trained.error) / added
        if error > FARTHEST * record.trained.mean_error:
            times = error / record.trained.mean_error
            return f"added rows are {times:.1f} times as far from its centroids as the first ones"
    if record.now.imbalance > MOST_UNEQUAL * record.trained.imbalance:
        times = record.now.imbalance / record.trained.imbalance
        return f"its lists are {times:.1f} times as unequal as they were"
    if record.pieces > record.first_pieces + MOST_PIECES:
        return f"it is in {count(record.pieces, 'piece')}"
    return None


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
