"""How many rows pass a filter that Spark does not estimate, from a sample of the rows.

Spark's `FilterEstimation` takes conditions such as `contains` for true of every row, and joins are
then ordered as if the filter were not there. These conditions are counted in a sample instead.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lancestat.lake.filter import And, Contains, EndsWith, Filter, Not, StartsWith
from lancestat.lake.open import is_failure

if TYPE_CHECKING:
    import lance
    import pyarrow as pa

# The standard error of a share of 5 % is 0.7 %.
SAMPLE_ROWS = 1_000
# Reading a sample is not worth it where the whole table is small.
LEAST_ROWS = 20_000

_log = logging.getLogger("lancestat.read")

Match = StartsWith | EndsWith | Contains


@dataclass(frozen=True, slots=True)
class _Condition:
    """A match, or that there is none."""

    match: Match
    wanted: bool


@dataclass(frozen=True, slots=True)
class Sampler:
    """Counts in a sample of one table at one version; each answer is remembered.

    Args:
        open: Opens the dataset at that version.
        rows: Its live rows.
    """

    open: Callable[[], lance.LanceDataset]
    rows: int
    _shares: dict[tuple[_Condition, ...], float | None] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def share(self, filters: Sequence[Filter]) -> float | None:
        """The share of rows that pass those filters which Spark does not estimate.

        Of the rows in which the filtered columns are not null, since Spark estimates those. None
        when there are no such filters, when the table is small, or when it cannot be read.
        """
        wanted = tuple(sorted(conditions(filters), key=repr))
        if not wanted or self.rows < LEAST_ROWS:
            return None
        with self._lock:
            if wanted not in self._shares:
                self._shares[wanted] = self._counted(wanted)
            return self._shares[wanted]

    def _counted(self, wanted: Sequence[_Condition]) -> float | None:
        places = sorted(random.Random(0).sample(range(self.rows), SAMPLE_ROWS))
        columns = sorted({each.match.column for each in wanted})
        try:
            sample = self.open().take(places, columns=columns)
        except BaseException as error:
            if not is_failure(error):
                raise
            _log.warning("no sample could be read: %s", type(error).__name__)
            return None
        return _share(sample, wanted)


def conditions(filters: Sequence[Filter]) -> list[_Condition]:
    """The conditions of a conjunction that Spark takes for true of every row."""
    found = []
    waiting = list(filters)
    while waiting:
        each = waiting.pop()
        match each:
            case And(left, right):
                waiting += [left, right]
            case StartsWith() | EndsWith() | Contains():
                found.append(_Condition(each, True))
            case Not(StartsWith() | EndsWith() | Contains() as inner):
                found.append(_Condition(inner, False))
            case _:
                continue
    return found


def _share(sample: pa.Table, wanted: Sequence[_Condition]) -> float | None:
    import pyarrow as pa
    import pyarrow.compute as pc

    passing, valid = pa.scalar(True), pa.scalar(True)
    for condition in wanted:
        column = sample.column(condition.match.column).cast(pa.string())
        found = _matched(column, condition.match)
        passing = pc.and_(passing, found if condition.wanted else pc.invert(found))
        valid = pc.and_(valid, pc.is_valid(column))
    counted = pc.sum(valid).as_py() or 0
    if not counted:
        return None
    # Nothing found in the sample is no proof of nothing: half a row stands for it.
    return max(0.5, pc.sum(pc.fill_null(passing, False)).as_py() or 0) / counted


def _matched(column: pa.ChunkedArray, match: Match) -> pa.ChunkedArray:
    import pyarrow.compute as pc

    if isinstance(match, StartsWith):
        return pc.starts_with(column, match.prefix)
    if isinstance(match, EndsWith):
        return pc.ends_with(column, match.suffix)
    return pc.match_substring(column, match.part)
