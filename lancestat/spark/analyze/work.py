"""Cuts the scans of one table into work items that keep every core busy to the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lancestat.plan.actions import TableVersion
from lancestat.plan.stages import Scan
from lancestat.state.identity import weight

ITEMS_PER_CORE = 4
LIGHTEST_ITEM = 4 << 20
HEAVIEST_ITEM = 256 << 20
PARTIALS_PER_JOB = 32_768

_CELL_WEIGHT = 1
_FRAGMENT_WEIGHT = 128 << 10


@dataclass(frozen=True, slots=True)
class TableScan:
    """What Spark is to read of one table; `node` names it in Spark's user interface."""

    node: str
    table: TableVersion
    scans: tuple[Scan, ...]

    @property
    def column_names(self) -> dict[str, str]:
        """Column name by the key of its partials."""
        return {self.table.stored_key(field): field.name for field in self.table.fields}


@dataclass(frozen=True, slots=True)
class Slice:
    """A range of live rows of one scan.

    `scan` is an index into the scans that were split, `count` None reads to the end of the
    fragment, `row_bytes` estimates the bytes on disk of a row, and `parts` is the number of slices
    that the scan was cut into.
    """

    scan: int
    fragment_id: int
    offset: int
    count: int | None
    row_bytes: int
    parts: int


@dataclass(frozen=True, slots=True)
class WorkItem:
    """What one Spark task reads."""

    slices: tuple[Slice, ...]
    weight: int


def weigh(scan: Scan) -> int:
    """The cost of a scan, in bytes read from disk or their equivalent in processor time.

    Well compressed columns still cost time per cell, and tiny fragments the time to open them.
    """
    return _FRAGMENT_WEIGHT + scan.size_bytes + _CELL_WEIGHT * scan.rows * len(scan.fields)


def split(
    scans: Sequence[Scan],
    cores: int,
    *,
    lightest: int = LIGHTEST_ITEM,
    heaviest: int = HEAVIEST_ITEM,
) -> tuple[WorkItem, ...]:
    """Cut heavy scans by rows and group light ones, heaviest item first.

    Every row of every scan is in exactly one slice. No item weighs more than
    `max(lightest, total / (cores * ITEMS_PER_CORE))`, nor than `heaviest`, up to the weight of a
    row. Taken heaviest first by idle cores, the items end within one item's time of each other
    (R. L. Graham, Bounds on Multiprocessing Timing Anomalies, 1969).
    """
    total = sum(weigh(scan) for scan in scans)
    limit = min(heaviest, max(lightest, -(-total // (max(1, cores) * ITEMS_PER_CORE))))
    items: list[WorkItem] = []
    group: list[Slice] = []
    group_weight = 0
    for index, scan in enumerate(scans):
        weight = weigh(scan)
        parts = min(-(-weight // limit), max(1, scan.rows))
        if parts > 1:
            items.extend(_cut(index, scan, parts))
            continue
        if group and group_weight + weight > limit:
            items.append(WorkItem(tuple(group), group_weight))
            group, group_weight = [], 0
        group.append(_slice(index, scan, 0, None, 1))
        group_weight += weight
    if group:
        items.append(WorkItem(tuple(group), group_weight))
    return tuple(sorted(items, key=lambda item: -item.weight))


def jobs(scans: Sequence[Scan], limit: int = PARTIALS_PER_JOB) -> Iterator[Sequence[Scan]]:
    """Consecutive scans that yield at most `limit` partials together, but at least one scan.

    A partial with quantiles counts as the several that it is as large as.

    A job's results are held in the driver at once; this bounds them for tables of any size.
    """
    start = count = 0
    for index, scan in enumerate(scans):
        if count and count + weight(scan.fields) > limit:
            yield scans[start:index]
            start, count = index, 0
        count += weight(scan.fields)
    if start < len(scans):
        yield scans[start:]


def _cut(index: int, scan: Scan, parts: int) -> Iterator[WorkItem]:
    weight = weigh(scan)
    for part in range(parts):
        start, end = scan.rows * part // parts, scan.rows * (part + 1) // parts
        count = None if part == parts - 1 else end - start
        share = weight * (end - start) // scan.rows
        yield WorkItem((_slice(index, scan, start, count, parts),), share)


def _slice(index: int, scan: Scan, offset: int, count: int | None, parts: int) -> Slice:
    return Slice(index, scan.fragment_id, offset, count, scan.size_bytes // (scan.rows or 1), parts)
