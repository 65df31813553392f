"""Cuts the scans of a table into jobs, and what tasks read of them into ranges of rows."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

from lancestat.lake.snapshot import ANALYSIS, RowRange, Span, TaskSizes
from lancestat.lake.snapshot import split as split_spans
from lancestat.state.values import partial_key, weight
from lancestat.tables.action import Scan

PARTIALS_PER_JOB = 65_536

_CELL_WEIGHT = 1


@dataclass(frozen=True, slots=True)
class ScanRange:
    """Live rows of one scan.

    `scan` is an index into the scans that were split, `row_bytes` estimates the bytes on disk of a
    row, `weight` is the range's part of the cost of the scan, `fields` are those of its keys that
    are read, and `count` is the number of its rows.
    """

    scan: int
    rows: RowRange
    row_bytes: int
    weight: float
    fields: frozenset[str]
    count: int

    @property
    def is_whole(self) -> bool:
        """Whether it has all rows of its fragment."""
        return self.rows.offset == 0 and self.rows.count is None

    @property
    def is_small(self) -> bool:
        """Whether it is a fragment that takes more time for calls than for its rows."""
        return self.is_whole and self.count <= _SMALL_ROWS


# What one task reads.
WorkItem = tuple[ScanRange, ...]


def weigh(scan: Scan, sizes: TaskSizes = ANALYSIS) -> int:
    """Return the cost of a scan, in bytes read from disk or their equivalent in processor time.

    Well compressed columns still cost time per cell, and tiny fragments the time to open them.
    """
    return sizes.per_fragment + scan.size_bytes + _CELL_WEIGHT * scan.rows * len(scan.fields)


def split(scans: Sequence[Scan], cores: int, sizes: TaskSizes = ANALYSIS) -> tuple[WorkItem, ...]:
    """Split heavy scans by rows and put light ones together, heaviest item first.

    Every row of every scan is in exactly one range for each of its keys. Only who sees all rows of
    a fragment finds repeated ones: of a scan that is split, keys that ask for that have a range of
    their own. Taken heaviest first by idle cores, the items end within one item's time of each
    other (R. L. Graham, Bounds on Multiprocessing Timing Anomalies, 1969).
    """
    spans = [Span(scan.fragment_id, scan.rows, weigh(scan, sizes)) for scan in scans]
    tasks = split_spans(spans, cores, sizes)

    parts = Counter(index for task in tasks for index, _ in task)
    whole = [_whole_fields(scan.fields) if parts[i] > 1 else None for i, scan in enumerate(scans)]

    def scan_range(index: int, rows: RowRange) -> ScanRange:
        scan, span, alone = scans[index], spans[index], whole[index] or NO_KEYS
        count = span.rows - rows.offset if rows.count is None else rows.count
        weight = span.weight * (count / span.rows if span.rows else 1)
        row_bytes = scan.size_bytes // (scan.rows or 1)
        return ScanRange(index, rows, row_bytes, weight, scan.fields - alone, count)

    ranges = ([scan_range(index, rows) for index, rows in task] for task in tasks)
    items = [kept for task in ranges if (kept := _by_columns(task))]
    for index, fields in enumerate(whole):
        if fields:
            scan, rows = scans[index], RowRange(scans[index].fragment_id)
            cells = _CELL_WEIGHT * scan.rows * len(fields)
            row_bytes = scan.size_bytes // scan.rows
            items.append((ScanRange(index, rows, row_bytes, cells, fields, scan.rows),))
    return tuple(sorted(items, key=lambda item: -sum(part.weight for part in item)))


NO_KEYS: frozenset[str] = frozenset()


def _by_columns(parts: Iterable[ScanRange]) -> WorkItem:
    """Return an item's ranges, those of the same columns one after the other."""
    by_columns: dict[frozenset[str], list[ScanRange]] = defaultdict(list)
    for part in parts:
        by_columns[part.fields].append(part)
    by_columns.pop(NO_KEYS, None)
    return tuple(chain.from_iterable(by_columns.values()))


@lru_cache(maxsize=1024)
def _whole_fields(fields: frozenset[str]) -> frozenset[str]:
    return frozenset(key for key in fields if partial_key(key).is_unique)


_SMALL_ROWS = 8_192
# Fewer ranges than that are read one by one: there is little to gain.
_FEW = 8
_ROWS_AT_ONCE = 65_536
_BYTES_AT_ONCE = 16 << 20
# So few columns are always read together: every scan of a fragment takes time of its own.
_COLUMNS_TOGETHER = 8
# What is read at once of small fragments is so much more where it takes several scans.
_MORE_AT_ONCE = 4


def most_divisions(columns: int) -> int:
    """Return by how many scans so many columns may be read."""
    return max(1, columns // _COLUMNS_TOGETHER)


def together(item: WorkItem) -> Iterator[WorkItem]:
    """Cut an item into ranges that are read by themselves, and runs of small fragments."""
    run: list[ScanRange] = []
    rows = size_bytes = 0
    for part in item:
        part_bytes = part.count * part.row_bytes
        most_bytes = _BYTES_AT_ONCE * min(_MORE_AT_ONCE, most_divisions(len(part.fields)))
        fits = (
            bool(run)
            and run[-1].is_small
            and part.is_small
            and part.fields == run[0].fields
            and rows + part.count <= _ROWS_AT_ONCE
            and size_bytes + part_bytes <= most_bytes
        )
        if not fits:
            yield from _pieces(run)
            run, rows, size_bytes = [], 0, 0
        run.append(part)
        rows, size_bytes = rows + part.count, size_bytes + part_bytes
    yield from _pieces(run)


def _pieces(run: Sequence[ScanRange]) -> Iterator[WorkItem]:
    if len(run) >= _FEW:
        yield tuple(run)
    else:
        yield from ((part,) for part in run)


def jobs(
    scans: Sequence[Scan],
    limit: int = PARTIALS_PER_JOB,
    most_bytes: int | None = None,
    fold: int = 1,
) -> Iterator[Sequence[Scan]]:
    """Yield consecutive scans that have at most `limit` partials together, but at least one scan.

    A partial with quantiles counts as the several that it is as large as. Tasks return the partials
    of `fold` small fragments as one, and those of others one by one.

    The driver holds a job's results; this bounds them for tables of any size. Where `most_bytes`
    is given, a job reads no more than that, but for a single scan.
    """
    start = size_bytes = 0
    count = 0.0
    for index, scan in enumerate(scans):
        returned = weight(scan.fields) / (fold if scan.rows <= _SMALL_ROWS else 1)
        is_full = count + returned > limit or (
            most_bytes is not None and size_bytes + scan.size_bytes > most_bytes
        )
        if count and is_full:
            yield scans[start:index]
            start, count, size_bytes = index, 0, 0
        count += returned
        size_bytes += scan.size_bytes
    if start < len(scans):
        yield scans[start:]
