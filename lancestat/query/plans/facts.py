"""What is known of the rows that an operator gives: how many, and of their columns."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from lancestat.lake.snapshot import Field
from lancestat.query.plans.frequencies import Frequencies
from lancestat.query.plans.sampled import SampledRows
from lancestat.tables.statistics.column_type import ColumnType
from lancestat.tables.statistics.common_values import CommonValues
from lancestat.tables.statistics.sketches import QuantileSketch

# A guess at the share of rows that pass a condition of which nothing is known.
UNKNOWN_SHARE = 1 / 3
# Distinct counts are estimates: so close to the rows, every row has a value of its own.
_NEARLY_ALL = 0.97


# A scan, by index, and a column there.
Origin = tuple[int, str]


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """A column of an operator's rows.

    Attributes:
        distinct: Its distinct values among those that conditions on the column itself leave.
        nulls: The share of rows that are null.
        low: The least value, in the form of a column's bounds, for numbers and moments.
        high: The greatest.
        quantiles: Of the whole table, where they are kept.
        origin: The scan that it comes from, by index, and the column there.
        rows_per_value: Of the table: how many rows have each value.
        type: That of the table's column.
        mean_count: Of a count of rows of groups: its mean.
        counted_in: Columns of scans in whose rows its values occur as often as here, relative to
            each other, or as the product of those where there are several; `origin` if None. With
            none each value occurs as often as any other.
        frequencies: Of the table's common values, where they are kept.
    """

    distinct: float
    nulls: float = 0.0
    low: float | None = None
    high: float | None = None
    quantiles: QuantileSketch | None = None
    origin: Origin | None = None
    rows_per_value: float = 1.0
    type: ColumnType | None = None
    field: Field | None = None
    mean_count: float | None = None
    counted_in: frozenset[Origin] | None = None
    frequencies: Frequencies | None = None

    @property
    def is_even(self) -> bool:
        """Whether each value occurs equally often, whatever its rows in the table."""
        return self.counted_in is not None and not self.counted_in

    @property
    def counts(self) -> frozenset[Origin]:
        """The columns of scans that say how often its values occur."""
        if self.counted_in is not None:
            return self.counted_in
        return frozenset() if self.origin is None else frozenset((self.origin,))

    def among(self, rows: float) -> float:
        """Return the distinct values to expect in `rows` rows.

        Each value is missed if none of its rows is among them.

        Source: S. B. Yao, Approximating block accesses in database organizations, CACM 20 (1977).
        """
        total = self.distinct * self.rows_per_value
        left = rows * (1 - self.nulls)
        if not total or left >= total:
            return self.distinct
        return self.distinct * -math.expm1(self.rows_per_value * math.log1p(-left / total))

    def equals_one(self, values: float = 1.0) -> ColumnFacts:
        """Return the column where it has one value, or `values` of them, and no null."""
        return replace(self, distinct=min(self.distinct, values), nulls=0.0)


@dataclass(frozen=True, slots=True)
class Facts:
    """The rows of an operator: `rows` are expected, and by the evidence `at_most` so many.

    `evidence` says in words what the estimate rests on. `columns` are by the numbers of Spark's
    attributes. `unique` are sets of columns that no two rows have in common. `samples` are those of
    the scans below, by index, as conditions on each scan leave them; of those in `chosen` a
    condition has left fewer rows by a value that only the query finds out. The rows of scans in
    `determined` follow from some columns of another scan, to which they were joined by a key.
    `groups` have the common values of several columns of the one table that is read.
    """

    rows: float
    at_most: float
    evidence: str
    columns: Mapping[str, ColumnFacts] = field(default_factory=dict)
    unique: frozenset[frozenset[str]] = frozenset()
    samples: Mapping[int, SampledRows] = field(default_factory=dict)
    chosen: frozenset[int] = frozenset()
    determined: Mapping[int, Sequence[ColumnFacts]] = field(default_factory=dict)
    groups: Mapping[tuple[str, ...], CommonValues] = field(default_factory=dict)

    def with_rows(self, rows: float, at_most: float, evidence: str) -> Facts:
        """Return the same columns in fewer or more rows."""
        return replace(self, rows=max(rows, 0.0), at_most=max(at_most, rows), evidence=evidence)

    def of(self, id: str) -> ColumnFacts:
        """Return a column; one that is computed of nothing known has another value in every row."""
        return self.columns.get(id) or ColumnFacts(max(1.0, self.rows))

    def is_unique(self, ids: Iterable[str]) -> bool:
        """Whether no two rows have the same values in these columns."""
        given = frozenset(ids)
        return any(columns <= given for columns in self.unique)


class Kept(Protocol):
    """What a project keeps of columns together; scans are by index."""

    def distinct(self, scan: int, names: frozenset[str]) -> float | None:
        """Return the distinct tuples of columns of a scan, of rows where none is null, if kept."""

    def is_contained(self, pairs: Collection[tuple[Origin, Origin]]) -> bool:
        """Return whether each row of the first columns is proven to have one of the second's."""


def snapped(distinct: float, rows: float) -> float:
    """Return a distinct count, all rows where it is as close to them as a sketch can tell."""
    return rows if rows and distinct >= _NEARLY_ALL * rows else distinct


def narrowed(facts: Facts, id: str) -> ColumnFacts:
    """Return a column with the bounds of the rows that conditions leave, where all are known."""
    column = facts.of(id)
    if column.origin is None or column.type is None or column.low is None:
        return column
    sample = facts.samples.get(column.origin[0])
    bounds = sample and sample.bounds(column.origin[1], column.type)
    return replace(column, low=bounds[0], high=bounds[1]) if bounds else column


def tuples(
    facts: Facts, ids: Iterable[str], kept: Kept, *, rows: float | None = None
) -> tuple[float, str]:
    """Return the distinct tuples of some columns, and what that rests on.

    Of columns of one table it is their joint count where that is kept, else what a sample tells,
    else the product of their counts, up to the rows of the table. With `rows` it is the number of
    groups to expect among so many rows, in which null is a value; without, that in the whole
    domain.
    """
    by_scan: dict[int | None, dict[str, ColumnFacts]] = {}
    for id in dict.fromkeys(ids):
        column = facts.of(id)
        by_scan.setdefault(column.origin and column.origin[0], {})[id] = column
    total, words = 1.0, []
    named = {scan: _names(columns.values()) for scan, columns in by_scan.items()}
    for scan, columns in by_scan.items():
        known = list(columns.values())
        if scan is None:
            count = math.prod(column.distinct for column in known)
            how = "product of distinct counts" if len(known) > 1 else ""
            count = count if rows is None else min(count, rows)
        elif rows is None:
            count, how = _domain(facts, scan, known, kept)
        else:
            # Of two that follow from each other, one counts.
            own = named.pop(scan)
            if _follows(facts, scan, named):
                continue
            named[scan] = own
            count, how = _groups_of(facts, scan, known, kept, rows)
        total *= count
        words += [how] if how else []
    return max(1.0, total), " and ".join(dict.fromkeys(words))


def _names(columns: Iterable[ColumnFacts]) -> frozenset[str]:
    return frozenset(column.origin[1] for column in columns if column.origin)


def _limits(columns: Sequence[ColumnFacts]) -> tuple[float, float]:
    """Return how many tuples of columns of one table there are at least, and at most."""
    least = max(column.distinct for column in columns)
    most = max(least, columns[0].distinct * columns[0].rows_per_value)
    return least, min(math.prod(column.distinct for column in columns), most)


def _domain(
    facts: Facts, scan: int, columns: Sequence[ColumnFacts], kept: Kept
) -> tuple[float, str]:
    if len(columns) == 1:
        return columns[0].distinct, ""
    _, most = _limits(columns)
    known = kept.distinct(scan, _names(columns))
    if known is not None:
        return min(known, most), f"joint count of {len(columns)} columns"
    return most, "product of distinct counts"


def _follows(facts: Facts, scan: int, named: Mapping[int | None, frozenset[str]]) -> bool:
    """Whether the rows of a scan follow from columns of others that are grouped by as well."""
    keys = facts.determined.get(scan, ())
    origins = [key.origin for key in keys if key.origin is not None]
    # A scan that was joined to itself is not walked around twice.
    rest = replace(facts, determined={s: k for s, k in facts.determined.items() if s != scan})
    return 0 < len(origins) == len(keys) and all(
        name in named.get(other, ()) or _follows(rest, other, named) for other, name in origins
    )


def _groups_of(
    facts: Facts, scan: int, columns: Sequence[ColumnFacts], kept: Kept, rows: float
) -> tuple[float, str]:
    """Return the groups among some rows, at most those of the keys that the scan's rows follow."""
    count, how = _groups(facts, scan, columns, kept, rows)
    seen = {scan}
    while keys := facts.determined.get(scan, ()):
        scans = {key.origin[0] for key in keys if key.origin is not None}
        if len(scans) != 1 or scans & seen or any(key.origin is None for key in keys):
            break
        [scan] = scans
        seen.add(scan)
        fewer, words = _groups(facts, scan, keys, kept, rows)
        if fewer < count:
            count, how = fewer, words or how
    return count, how


def _groups(
    facts: Facts, scan: int, columns: Sequence[ColumnFacts], kept: Kept, rows: float
) -> tuple[float, str]:
    """Return the groups among some rows that columns of one table make."""
    least, most = _limits(columns)
    with_null = math.prod(1 + 1 / c.distinct if c.nulls else 1.0 for c in columns)
    whole = max(most, columns[0].distinct * columns[0].rows_per_value)
    sample = facts.samples.get(scan)
    names = _names(columns)
    known = kept.distinct(scan, names) if len(columns) > 1 else columns[0].distinct
    counted = None
    if sample is not None and (known is None or sample.is_filtered):
        counted = sample.distinct(names)
    if sample is not None and counted is not None:
        limit = most if known is None else min(known, most)
        floor = 1.0 if sample.is_filtered else least
        count, whole = min(max(counted, floor), limit * with_null), sample.rows
        how = "rows of the table" if sample.is_whole else f"sample of {sample.size:,} rows"
    elif known is not None:
        count, how = min(known, most) * with_null, ""
        how = f"joint count of {len(columns)} columns" if len(columns) > 1 else ""
    else:
        # Columns of one table that are grouped together mostly depend on each other.
        ordered = sorted((column.distinct for column in columns), reverse=True)
        powers = math.prod(count ** (0.5**index) for index, count in enumerate(ordered))
        count, how = min(most, powers), "distinct counts, damped"
    per_tuple = max(1.0, whole / max(1.0, count))
    nulls = 0.0 if with_null > 1 or len(columns) > 1 else columns[0].nulls
    return ColumnFacts(count, nulls, rows_per_value=per_tuple).among(rows), how
