"""Measure the cost of an estimate when a filter leaves some fragments of a huge table.

    python benchmarks/groups.py [--tiny]

The table exists as values: 100,000 fragments of 200 columns in the order of the first, which is the
time. The state is real, with full sketches. Measured are the summary's first use, the cost of the
remaining fragments and their partials after pruning to 1 %, 25 % and all of the groups, the same
file by file, and the proof that is needed when the table has changed. Parts run in their own
processes, so that their peak memory is their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from measure import Measures, peak_megabytes, run_parts, timed

if TYPE_CHECKING:
    from lancestat.lake.snapshot import Snapshot
    from lancestat.query.fragments import FragmentStatistics, GroupedStatistics, RemainingFragments
    from lancestat.query.predicates.filter import Filter
    from lancestat.state.store import LanceState
    from lancestat.state.values import SummaryBlock, TableSummary
    from lancestat.tables.statistics.partial import ColumnPartial
    from lancestat.tables.statistics.sketches import Sketch

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
ROWS = 100_000
SHARES = {"1 %": 0.01, "25 %": 0.25, "all": 1.0}
REPEATS = 7


def size(tiny: bool) -> tuple[int, int]:
    """Fragments and columns of the table."""
    return (600, 20) if tiny else (100_000, 200)


def widths(tiny: bool) -> tuple[int, ...]:
    """Return the numbers of projected columns."""
    return (1, 16, size(tiny)[1])


def make(folder: Path, tiny: bool) -> Measures:
    """Write the summary."""
    from lancestat.tables.stored import add_summary

    now = table_of(*size(tiny))
    seconds, summary = timed(lambda: summary_of(now))
    state = opened(folder)
    write_seconds, _ = timed(lambda: add_summary(state, "t", summary, blocks_of(summary, now)))
    stored = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return {
        "groups": len(summary.groups),
        "digests of all fragments, seconds": seconds,
        "write of all blocks, seconds": write_seconds,
        "stored MB": stored / 2**20,
    }


def grouped(folder: Path, tiny: bool) -> Measures:
    """Estimates by group."""
    now = table_of(*size(tiny))
    opened(folder).summary("none")
    before = peak_megabytes()
    seconds, _ = timed(lambda: known_of(folder, now))
    measures = {"by group: summary found, seconds": seconds}
    for width in widths(tiny):
        names = [field.name for field in now.fields[:width]]
        known = known_of(folder, now)
        seconds, _ = timed(partial(known.load, names))
        measures[f"by group: first use of {width} columns, seconds"] = seconds
        for share, part in SHARES.items():
            task = partial(estimated, known, names, time_filter(now, part))
            measures[f"by group: {share} of groups, {width} columns, ms"] = median_ms(task)
    measures["by group: peak MB before, the table itself"] = before
    measures["by group: peak MB with all columns"] = peak_megabytes()
    return measures


def median_ms(task: Callable[[], object]) -> float:
    """Milliseconds, the median of a few."""
    return median(timed(task)[0] for _ in range(REPEATS)) * 1000


def known_of(folder: Path, now: Snapshot) -> GroupedStatistics:
    """Return the grouped statistics of the state, with no column loaded."""
    from lancestat.query.fragments import GroupedStatistics, load_groups

    known = load_groups(opened(folder), "t", now)
    assert isinstance(known, GroupedStatistics)
    return known


def moved(folder: Path, tiny: bool) -> Measures:
    """Return the proof that groups are unchanged."""
    now = replace(table_of(*size(tiny)), version=3)
    known = known_of(folder, now)
    seconds, _ = timed(lambda: estimated(known, ["column_0"], time_filter(now, 0.01)))
    return {"table moved on: first use of 1 column, seconds": seconds}


def by_file(folder: Path, tiny: bool) -> Measures:
    """Estimates from the partials of every file, once these are in memory."""
    from lancestat.tables.statistics.partial import decode, encode, merge

    fragments, _ = size(tiny)
    stored = [encode(part) for part in full_partials(64)]
    measures = {}
    for share, part in SHARES.items():
        files = max(1, round(fragments * part))
        wanted = (decode(stored[number % len(stored)]) for number in range(files))
        seconds, merged = timed(partial(merge_stream, wanted, merge))
        assert merged.rows == files * ROWS
        measures[f"by file: {share} of files, 1 column, ms"] = seconds * 1000
    return measures


def merge_stream(
    partials: Iterator[ColumnPartial], merge: Callable[[list[ColumnPartial]], ColumnPartial]
) -> ColumnPartial:
    """Merge some at a time, so that not all sketches are in memory."""
    merged = next(partials)
    batch = [merged]
    for part in partials:
        batch.append(part)
        if len(batch) == 256:
            batch = [merge(batch)]
    return merge(batch)


def estimated(
    known: FragmentStatistics, names: list[str], filters: list[Filter]
) -> list[ColumnPartial | None]:
    """Return the partials that an estimate needs."""
    left: FragmentStatistics | RemainingFragments = known.prune(filters) or known
    partials = [left.partial(name) for name in names]
    assert all(column_partial is not None and column_partial.rows for column_partial in partials)
    return partials


def time_filter(now: Snapshot, share: float) -> list[Filter]:
    """Leaves a share of the table's time."""
    from lancestat.query.predicates.filter import Comparison, Operator

    return [Comparison("column_0", Operator.LESS, int(len(now.fragments) * share))]


def table_of(fragments: int, columns: int) -> Snapshot:
    """A table as its manifest would show it."""
    import pyarrow as pa

    from lancestat.lake.snapshot import DataFile, Field, Fragment, Snapshot

    fields = tuple(
        Field(number, f"column_{number}", pa.int64(), True, "bigint") for number in range(columns)
    )
    ids = tuple(range(columns))
    every = tuple(
        Fragment(number, ROWS, 0, (DataFile(f"{number:040x}.lance", ids, 10**7, None),), None, ())
        for number in range(fragments)
    )
    return Snapshot("huge.lance", 2, fields, every, {}, NOW)


def summary_of(now: Snapshot) -> TableSummary:
    """The summary that a run would make of the table."""
    from lancestat.lake.fingerprint import column_groups
    from lancestat.state.partials import (
        MOST_GROUPS,
        contents,
        count_blocks,
        group_digest,
        group_fragments,
    )
    from lancestat.state.values import TableSummary

    groups = group_fragments((fragment.id for fragment in now.fragments), [], MOST_GROUPS)
    digests = {}
    for fields, fingerprints in contents(column_groups(now, now.fields)).items():
        member_digests = tuple(group_digest(group, fingerprints) or b"" for group in groups)
        digests.update(dict.fromkeys(fields, member_digests))
    return TableSummary(2, now.pin.manifest, groups, count_blocks(groups), digests)


def blocks_of(summary: TableSummary, now: Snapshot) -> Iterator[SummaryBlock]:
    """Blocks of partials whose bounds are the ids of their fragments."""
    from lancestat.state.partials import block_digest, slices

    partials = full_partials(61)
    numbers = count()
    for field, digests in summary.contents.items():
        for place in slices(summary.blocks):
            partials_of_group = tuple(
                replace(
                    partials[number % len(partials)],
                    sketch=turned(partials[number % len(partials)].sketch, next(numbers)),
                    rows=ROWS * len(group),
                    minimum=group[0],
                    maximum=group[-1],
                )
                for number, group in enumerate(summary.groups[place])
            )
            yield (field, block_digest(digests[place])), partials_of_group


def turned(sketch: Sketch, by: int) -> Sketch:
    """Another sketch of the same kind: Lance stores equal bytes once."""
    from lancestat.tables.statistics.sketches import Sketch

    registers = sketch.registers
    place = by % len(registers)
    return Sketch.of(registers[place:] + registers[:place])


def full_partials(number: int) -> list[ColumnPartial]:
    """Partials with a sketch of about a million distinct values."""
    import numpy as np

    from lancestat.tables.statistics.partial import ColumnPartial
    from lancestat.tables.statistics.sketches import REGISTERS, Sketch

    random = np.random.default_rng(7)
    ranks = np.minimum(random.geometric(0.5, (number, REGISTERS)) + 7, 50).astype(np.uint8)
    return [
        ColumnPartial(ROWS, 0, 0, 0, 9, 0, 0, Sketch.of(registers.tobytes())) for registers in ranks
    ]


def opened(folder: Path) -> LanceState:
    """The state at a folder."""
    from lancestat.state.store import open_state

    return open_state(str(folder / "state"))


PARTS: dict[str, Callable[[Path, bool], Measures]] = {
    "make": make,
    "grouped": grouped,
    "moved": moved,
    "by_file": by_file,
}


if __name__ == "__main__":
    run_parts(__doc__, PARTS)
