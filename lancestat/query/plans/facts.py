"""What is known of the rows that an operator gives: how many, and of their columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from lancestat.lake.snapshot import Field
from lancestat.query.plans.frequencies import Frequencies
from lancestat.query.plans.sampled import SampledRows
from lancestat.tables.statistics.column_type import ColumnType, Kind
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
        quantiles: Of the fragments that are read, where they are kept.
        origin: The scan that it comes from, by index, and the column there.
        rows_per_value: Of the table: how many rows have each value.
        type: That of the table's column.
        mean_count: Of a count of rows of groups: its mean.
        of_groups: Returns the counts or sums of sampled groups, as `SampledRows.of_groups`.
        spread: Of a sum of groups: returns its mean and variance, as `spread_of_groups`.
        extreme_of: The name of the column whose least or greatest values in groups it has.
        counted_in: Columns of scans in whose rows its values occur as often as here, relative to
            each other, or as the product of those where there are several; `origin` if None. With
            none each value occurs as often as any other.
        frequencies: Of the table's common values, where they are kept.
        domain: Of a key of groups: the distinct values that it had before rows of some were lost.
        parts: Of a union: the columns of its inputs. Of several groupings: those of each.
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
    of_groups: Callable[[], npt.NDArray[np.float64] | None] | None = None
    spread: Callable[[], tuple[float, float] | None] | None = None
    extreme_of: str | None = None
    counted_in: frozenset[Origin] | None = None
    frequencies: Frequencies | None = None
    domain: float = 1.0
    parts: tuple[ColumnFacts, ...] = ()

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
    `groups` have the common values of several columns of the one table that is read. `parts` are
    the inputs of a union below, or the input of several groupings, once for each.
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
    parts: Sequence[Facts] = ()

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

    def with_null(self, scan: int, names: frozenset[str]) -> float | None:
        """Return the rows of a scan in which one of some columns is null, if that is kept."""

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


def _counted(column: ColumnFacts) -> ColumnFacts:
    """Return a column with no more distinct values than there are between its bounds."""
    if column.type is None or column.low is None or column.high is None:
        return column
    if column.type.kind is Kind.FLOAT or not 0 <= column.high - column.low < column.distinct:
        return column
    return replace(column, distinct=column.high - column.low + 1)


def tuples(
    facts: Facts, ids: Iterable[str], kept: Kept, *, rows: float | None = None
) -> tuple[float, str]:
    """Return the distinct tuples of some columns, and what that rests on.

    Of columns of one table it is their joint count where that is kept, else what a sample tells,
    else the product of their counts, up to the rows of the table. With `rows` it is the number of
    groups to expect among so many rows, in which null is a value; without, that in the whole
    domain.
    """
    by_scan: dict[int, list[ColumnFacts]] = {}
    others: list[ColumnFacts] = []
    united: list[str] = []
    for id in dict.fromkeys(ids):
        column = _counted(narrowed(facts, id))
        if rows is not None and facts.parts and len(column.parts) == len(facts.parts):
            united.append(id)
        elif column.origin is None:
            others.append(column)
        else:
            by_scan.setdefault(column.origin[0], []).append(column)
    counts = [] if rows is None or not united else [_united(facts, united, kept, rows)]
    if others:
        product = math.prod(column.distinct for column in others)
        how = "product of distinct counts" if len(others) > 1 else ""
        # Of several together not even the domain is known, but that they were in rows once.
        most = max(column.rows_per_value * column.distinct for column in others)
        limit = rows if rows is not None else most if len(others) > 1 else product
        counts.append((min(product, limit), how))
    if rows is None:
        counts += [_domain(facts, scan, columns, kept) for scan, columns in by_scan.items()]
    else:
        counts += _of_scans(facts, by_scan, kept, rows)
    words = dict.fromkeys(how for _, how in counts if how)
    return max(1.0, math.prod(count for count, _ in counts)), " and ".join(words)


def _united(facts: Facts, ids: Sequence[str], kept: Kept, rows: float) -> tuple[float, str]:
    """Return the groups among some rows of a union, as if no two inputs had the same."""
    total = max(1.0, sum(part.rows for part in facts.parts))
    counts, words = [], []
    for index, part in enumerate(facts.parts):
        columns = {id: facts.of(id).parts[index] for id in ids}
        several = [id for id, column in columns.items() if column.distinct > 1 or column.nulls]
        of_part = replace(part, columns=columns)
        count, how = tuples(of_part, several, kept, rows=rows * part.rows / total)
        counts.append(min(count, rows * part.rows / total))
        words += [how] if how else []
    product = math.prod(facts.of(id).distinct for id in ids)
    return min(math.fsum(counts), product), ", ".join(dict.fromkeys(words))


def _of_scans(
    facts: Facts, by_scan: Mapping[int, Sequence[ColumnFacts]], kept: Kept, rows: float
) -> list[tuple[float, str]]:
    """Return the groups among some rows that columns of each scan make.

    Where the rows of several follow from keys of the same scan, these are at most those of its
    keys together: sales of a day to a customer are fewer than days and customers.
    """
    named = {scan: _names(columns) for scan, columns in by_scan.items()}
    by_base: dict[int, list[tuple[int, float, str]]] = {}
    keys: dict[int, list[ColumnFacts]] = {}
    for scan, columns in by_scan.items():
        # Of two that follow from each other, one counts.
        own = named.pop(scan)
        if _follows(facts, scan, named):
            continue
        named[scan] = own
        base, of_base = _base(facts, scan)
        keys.setdefault(base, []).extend(of_base or columns)
        by_base.setdefault(base, []).append((scan, *_groups_of(facts, scan, columns, kept, rows)))
    counts = []
    for base, found in by_base.items():
        count = math.prod(count for _, count, _ in found)
        how = " and ".join(dict.fromkeys(how for _, _, how in found if how))
        if len(found) > 1:
            fewer, words = _groups(facts, base, keys[base], kept, rows)
            count, how = (fewer, words or how) if fewer < count else (count, how)
        counts.append((count, how))
    return counts


def _base(facts: Facts, scan: int) -> tuple[int, Sequence[ColumnFacts]]:
    """Return the scan from whose keys the rows of another follow at last, and these keys."""
    found: Sequence[ColumnFacts] = ()
    for base, keys in _bases(facts, scan):
        scan, found = base, keys
    return scan, found


def _bases(facts: Facts, scan: int) -> Iterator[tuple[int, Sequence[ColumnFacts]]]:
    """Yield the scans from whose keys the rows of another follow, one after the other."""
    seen = {scan}
    while keys := facts.determined.get(scan, ()):
        scans = {key.origin[0] for key in keys if key.origin is not None}
        if len(scans) != 1 or scans & seen or any(key.origin is None for key in keys):
            return
        [scan] = scans
        seen.add(scan)
        yield scan, keys


def _names(columns: Iterable[ColumnFacts]) -> frozenset[str]:
    return frozenset(column.origin[1] for column in columns if column.origin)


def _limits(columns: Sequence[ColumnFacts]) -> tuple[float, float]:
    """Return how many tuples of columns of one table there are at least, and at most."""
    least = max(column.distinct for column in columns)
    most = max(least, *(column.distinct * column.rows_per_value for column in columns))
    return least, min(math.prod(column.distinct for column in columns), most)


def _domain(
    facts: Facts, scan: int, columns: Sequence[ColumnFacts], kept: Kept
) -> tuple[float, str]:
    if len(columns) == 1:
        return columns[0].distinct, ""
    # Rows without null that have the values which are left of each column, if those are not rare.
    rows = min(column.distinct * column.rows_per_value for column in columns)
    most = min(rows, math.prod(column.distinct for column in columns))
    known, sample = kept.distinct(scan, _names(columns)), facts.samples.get(scan)
    if sample is not None and (known is None or sample.is_whole):
        # Conditions on other columns leave fewer of them, and of those of the other side as well.
        counted = sample.whole().distinct(_names(columns))
        if counted is not None:
            return min(counted, most), _sampled_words(sample)
    if known is not None:
        return min(known, most), f"joint count of {len(columns)} columns"
    return most, "product of distinct counts"


def _sampled_words(sample: SampledRows) -> str:
    return "rows of the table" if sample.is_whole else f"sample of {sample.size:,} rows"


def _follows(facts: Facts, scan: int, named: Mapping[int, frozenset[str]]) -> bool:
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
    for base, keys in _bases(facts, scan):
        fewer, words = _groups(facts, base, keys, kept, rows)
        if fewer < count:
            count, how = fewer, words or how
    return count, how


def _null_groups(columns: Sequence[ColumnFacts], rows: float | None) -> float:
    """Return the groups of columns of one table in which one is null, of so many rows with a null.

    Where that is not kept, columns are null independently of each other.

    Source: A. F. Cardenas, Analysis and performance of inverted data base structures, CACM 18
        (1975): each row has any of the tuples there may be.
    """
    values = math.prod(column.distinct for column in columns)
    domain = math.prod(column.distinct + (column.nulls > 0) for column in columns) - values
    if domain <= 0:
        return 0.0
    if rows is None:
        all = max(c.distinct * c.rows_per_value / max(1 - c.nulls, 1e-9) for c in columns)
        rows = all * (1 - math.prod(1 - column.nulls for column in columns))
    return max(min(rows, 1.0), domain * -math.expm1(-rows / domain))


def _groups(
    facts: Facts, scan: int, columns: Sequence[ColumnFacts], kept: Kept, rows: float
) -> tuple[float, str]:
    """Return the groups among some rows that columns of one table make."""
    least, most = _limits(columns)
    whole = max(most, *(column.distinct * column.rows_per_value for column in columns))
    sample = facts.samples.get(scan)
    names = _names(columns)
    known = kept.distinct(scan, names) if len(columns) > 1 else columns[0].distinct
    null_groups = _null_groups(columns, kept.with_null(scan, names))
    counted = None
    if sample is not None and (known is None or sample.is_filtered):
        counted = sample.distinct(names)
    if sample is not None and counted is not None:
        limit = most if known is None else min(known, most)
        floor = 1.0 if sample.is_filtered else least
        count, whole = max(counted, floor), sample.rows
        if not sample.is_whole:
            count = min(count, limit + null_groups)
        how = _sampled_words(sample)
    elif known is not None:
        count, how = min(known, most) + null_groups, ""
        how = f"joint count of {len(columns)} columns" if len(columns) > 1 else ""
    else:
        # Columns of one table that are grouped together mostly depend on each other.
        ordered = sorted((column.distinct for column in columns), reverse=True)
        powers = math.prod(count ** (0.5**index) for index, count in enumerate(ordered))
        count, how = min(most, powers), "distinct counts, damped"
    per_tuple = max(1.0, whole / max(1.0, count))
    nulls = 0.0 if null_groups or len(columns) > 1 else columns[0].nulls
    return ColumnFacts(count, nulls, rows_per_value=per_tuple).among(rows), how
