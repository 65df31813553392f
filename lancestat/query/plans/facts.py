"""What is known of the rows that an operator gives: how many, and of their columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from lancestat.lake.snapshot import Field
from lancestat.tables.statistics.column_type import ColumnType
from lancestat.tables.statistics.sketches import QuantileSketch

# A guess at the share of rows that pass a condition of which nothing is known.
UNKNOWN_SHARE = 1 / 3
# Distinct counts are estimates: so close to the rows, every row has a value of its own.
_NEARLY_ALL = 0.97


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
    """

    distinct: float
    nulls: float = 0.0
    low: float | None = None
    high: float | None = None
    quantiles: QuantileSketch | None = None
    origin: tuple[int, str] | None = None
    rows_per_value: float = 1.0
    type: ColumnType | None = None
    field: Field | None = None

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
    attributes. `unique` are sets of columns that no two rows have in common.
    """

    rows: float
    at_most: float
    evidence: str
    columns: Mapping[str, ColumnFacts] = field(default_factory=dict)
    unique: frozenset[frozenset[str]] = frozenset()

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


# The distinct tuples of columns of one scan, of rows where none is null; None where not kept.
JointDistinct = Callable[[int, frozenset[str]], float | None]


def no_groups(scan: int, names: frozenset[str]) -> None:
    """Return the joint count of columns where none are kept, as so far of every table: None."""


def snapped(distinct: float, rows: float) -> float:
    """Return a distinct count, all rows where it is as close to them as a sketch can tell."""
    return rows if rows and distinct >= _NEARLY_ALL * rows else distinct


def tuples(
    facts: Facts, ids: Iterable[str], joint: JointDistinct, *, rows: float | None = None
) -> tuple[float, str]:
    """Return the distinct tuples of some columns, and what that rests on.

    Of columns of one table it is their joint count where that is kept, in proportion to what
    conditions have left of each. Else counts are multiplied, up to the rows of the table. With
    `rows` it is the number to expect among so many rows, without that in the whole domain.
    """
    by_scan: dict[int | None, dict[str, ColumnFacts]] = {}
    for id in dict.fromkeys(ids):
        column = facts.of(id)
        by_scan.setdefault(column.origin and column.origin[0], {})[id] = column
    total, words = 1.0, []
    for scan, columns in by_scan.items():
        count, how = _of_one_scan(scan, list(columns.values()), joint, rows)
        total *= count
        words += [how] if how else []
    return max(1.0, total), " and ".join(dict.fromkeys(words))


def _of_one_scan(
    scan: int | None, columns: list[ColumnFacts], joint: JointDistinct, rows: float | None
) -> tuple[float, str]:
    if len(columns) == 1:
        [column] = columns
        return (column.distinct if rows is None else column.among(rows)), ""
    product = math.prod(column.distinct for column in columns)
    if scan is None:
        return product if rows is None else min(product, rows), "product of distinct counts"
    most = max(columns[0].distinct * columns[0].rows_per_value, *(c.distinct for c in columns))
    names = frozenset(column.origin[1] for column in columns if column.origin)
    known = joint(scan, names)
    if known is None:
        count, how = min(product, most), "product of distinct counts"
        if rows is not None:
            # Columns of one table that are grouped together mostly depend on each other.
            ordered = sorted((column.distinct for column in columns), reverse=True)
            powers = (count ** (0.5**index) for index, count in enumerate(ordered))
            count, how = min(count, math.prod(powers)), "distinct counts, damped"
    else:
        count, how = min(known, product), f"joint count of {len(columns)} columns"
    if rows is None:
        return count, how
    per_tuple = max(1.0, most / count)
    whole = ColumnFacts(count, rows_per_value=per_tuple)
    return whole.among(rows), how
