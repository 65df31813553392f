"""Row counts and ranges, and how a scan is split into the tasks of a Spark job."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from lancestat.lake.snapshot import Fragment

if TYPE_CHECKING:
    import lance


@dataclass(frozen=True, slots=True)
class RowRange:
    """Rows of one fragment from `offset` on: `count` of them, all that are left when None.

    Under a filter on the scan they are physical rows, else live rows.
    """

    fragment_id: int
    offset: int = 0
    count: int | None = None


# The row ranges that one Spark task reads for a query, in order.
ScanPartition = tuple[RowRange, ...]


@dataclass(frozen=True, slots=True)
class TaskSizes:
    """The sizes of the tasks of a job; weights are bytes read, or work that takes as long.

    A job has `per_core` tasks for each core: fewer where they would be lighter than `lightest`,
    more where they would be heavier than `heaviest`. Opening a fragment weighs `per_fragment`. A
    task may end at a fragment's end if that is off by no more than the share `slack` of a task.
    """

    per_core: int
    lightest: int
    heaviest: int
    per_fragment: int
    slack: float

    def tasks(self, weight: float, cores: int) -> int:
        """Return into how many tasks something of a weight is split."""
        cores = max(1, cores)
        count = min(cores * self.per_core, int(weight // self.lightest))
        if weight > self.heaviest * cores * self.per_core:
            # So many that no core waits for the last round.
            count = -(-int(weight // self.heaviest + 1) // cores) * cores
        return max(1, count)


# Queries: weights are decoded bytes.
QUERY = TaskSizes(
    per_core=2, lightest=16 << 20, heaviest=256 << 20, per_fragment=1 << 20, slack=0.125
)
# Analyses: weights are bytes on disk. Tasks are taken heaviest first and end close to each other.
ANALYSIS = TaskSizes(
    per_core=4, lightest=2 << 20, heaviest=256 << 20, per_fragment=128 << 10, slack=0
)


@dataclass(frozen=True, slots=True)
class Span:
    """The first rows of a fragment with their weight; `is_whole` when they are all of them."""

    fragment_id: int
    rows: int
    weight: float
    is_whole: bool = True


def split(
    spans: Sequence[Span], cores: int, sizes: TaskSizes
) -> list[tuple[tuple[int, RowRange], ...]]:
    """Split spans into tasks of about equal weight: small ones together, large ones in ranges.

    Args:
        spans: What is to be read, in order.
        cores: How many tasks run concurrently.
        sizes: How large the tasks are to be.

    Returns:
        The ranges of each task, each with the index of its span, in the order of the spans. Every
            row
        is in one range; a span without rows is in one, too.
    """
    if not spans:
        return []
    ends = list(accumulate(span.weight for span in spans))
    cuts = _cuts(spans, ends, sizes.tasks(ends[-1], cores), sizes.slack)
    tasks = (tuple(_ranges(spans, *bounds)) for bounds in pairwise(cuts))
    return [task for task in tasks if task]


def split_fragments(
    fragments: Sequence[Fragment],
    *,
    row_bytes: float,
    cores: int,
    is_filtered: bool = False,
    limit: int | None = None,
) -> list[ScanPartition]:
    """Split the fragments that a query reads into the parts of its tasks.

    Args:
        fragments: What is to be read.
        row_bytes: Decoded bytes per row of the projected columns.
        cores: How many tasks run concurrently.
        is_filtered: Whether a filter is pushed into the scan; ranges are then of physical rows.
        limit: Read no more rows than this in total, unless a filter is pushed.
    """
    live = [fragment for fragment in fragments if fragment.rows > 0]
    counts = [
        (fragment.id, fragment.physical_rows if is_filtered else fragment.rows) for fragment in live
    ]
    taken = _limited(counts, None if is_filtered else limit)
    spans = [
        Span(id, rows, QUERY.per_fragment + rows * row_bytes, is_whole)
        for id, rows, is_whole in taken
    ]
    return [tuple(rows for _, rows in task) for task in split(spans, cores, QUERY)]


def _limited(
    counts: Iterable[tuple[int, int]], limit: int | None
) -> Iterator[tuple[int, int, bool]]:
    """Yield fragments with the rows to read of them, and whether that is all of them."""
    left = limit
    for id, rows in counts:
        if left is None or rows <= left:
            yield id, rows, True
        elif left > 0:
            yield id, left, False
        left = None if left is None else max(0, left - rows)


# A place in a sequence of spans: an index of spans, and a row of that span.
_Cut = tuple[int, int]


def _cuts(spans: Sequence[Span], ends: Sequence[float], count: int, slack: float) -> list[_Cut]:
    share = ends[-1] / count
    cuts = [(0, 0)]
    for number in range(1, count):
        target = number * share
        index = bisect_right(ends, target)
        start = ends[index - 1] if index else 0.0
        nearest = min(target - start, ends[index] - target)
        if nearest < share * slack:
            cut = (index if nearest == target - start else index + 1, 0)
        else:
            cut = (index, int(spans[index].rows * (target - start) / (ends[index] - start)))
        cuts.append(max(cuts[-1], cut))
    return [*cuts, (len(spans), 0)]


def _ranges(spans: Sequence[Span], start: _Cut, stop: _Cut) -> Iterator[tuple[int, RowRange]]:
    for index in range(start[0], min(stop[0] + 1, len(spans))):
        span = spans[index]
        first = start[1] if index == start[0] else 0
        last = stop[1] if index == stop[0] else span.rows
        if last > first or (span.rows == 0 and index < stop[0]):
            to_the_end = last == span.rows and span.is_whole
            yield index, RowRange(span.fragment_id, first, None if to_the_end else last - first)


def count_rows(fragment: lance.LanceFragment, filter: str | None = None) -> int:
    """Return the number of live rows, or of those that pass a filter in Lance's SQL.

    `LanceFragment.count_rows` holds Python's lock while it waits for what it reads, and blocks for
    ever where other threads scan at the same time.
    """
    return int(fragment.scanner(columns=[], filter=filter, with_row_id=True).count_rows())
