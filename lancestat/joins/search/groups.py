"""Groups of rows with equal keys: their numbers, and the division of their pairs among tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancestat.errors import KeysDiffer
from lancestat.joins.search.cost_model import LIST_FLOPS, READ_BYTES
from lancestat.joins.search.neighbours import Ints
from lancestat.joins.search.work import Rows

# What a task spends on a group besides its pairs.
GROUP_SECONDS = 5e-4
# Fewer queries than this make poor use of what is read of a group's right rows.
SMALLEST_PIECE = 512
# Tasks for each core, so that none waits long for the last ones.
_PER_CORE = 4


def key_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """Return the type in which keys of two columns are compared, None where they cannot be.

    Keys are equal where Spark's `=` is true. Integers of all sizes compare with each other, and so
    do decimals; everything else compares with its like only.
    """
    left, right = (
        type.value_type if pa.types.is_dictionary(type) else type for type in (left, right)
    )
    common, other = _compared(left), _compared(right)
    if common is not None and other is not None and pa.types.is_decimal(common):
        scales = (common.scale, other.scale) if pa.types.is_decimal(other) else ()
        return pa.decimal256(76, max(scales)) if scales else None
    if common != other:
        return None
    return pa.decimal128(20, 0) if pa.uint64() in (left, right) else common


def _compared(type: pa.DataType) -> pa.DataType | None:
    """Return the type in which keys of this type are compared with each other."""
    types = pa.types
    if types.is_timestamp(type):
        # Spark sees microseconds, of which several values of nanoseconds may be one.
        zone = None if type.tz is None else "UTC"
        return None if type.unit == "ns" else pa.timestamp("us", zone)
    if types.is_decimal(type):
        return pa.decimal256(76, type.scale)
    tests = (
        (types.is_integer, pa.int64()),
        (types.is_string, pa.large_string()),
        (types.is_large_string, pa.large_string()),
        (types.is_string_view, pa.large_string()),
        (types.is_binary, pa.large_binary()),
        (types.is_large_binary, pa.large_binary()),
        (types.is_binary_view, pa.large_binary()),
        (types.is_fixed_size_binary, pa.large_binary()),
        (types.is_boolean, pa.bool_()),
        (types.is_date, pa.date32()),
    )
    return next((compared for holds, compared in tests if holds(type)), None)


KEY_KINDS = (
    "keys are integers, strings, booleans, dates, timestamps up to microseconds, binary or decimals"
)


def compared_key_types(
    left: Sequence[str],
    right: Sequence[str],
    left_types: Sequence[pa.DataType],
    right_types: Sequence[pa.DataType],
) -> tuple[pa.DataType, ...]:
    """Return the types in which pairs of keys are compared."""
    types = []
    for name, other, type, other_type in zip(left, right, left_types, right_types, strict=True):
        common = key_type(type, other_type)
        if common is None:
            raise KeysDiffer(
                f"the left key '{name}' is of type {type}, the right key '{other}' of type "
                f"{other_type}, which cannot be compared",
                hint=f"{KEY_KINDS}, and of one kind on both sides",
            )
        types.append(common)
    return tuple(types)


def key_table(columns: Sequence[pa.ChunkedArray], types: Sequence[pa.DataType]) -> pa.Table:
    """Return the columns of keys in the types in which they are compared, named by number."""
    pairs = zip(columns, types, strict=True)
    return pa.table({str(at): column.cast(type) for at, (column, type) in enumerate(pairs)})


def distinct_keys(keys: pa.Table) -> pa.Table:
    return keys.drop_null().group_by(keys.column_names).aggregate([])


@dataclass(frozen=True, slots=True)
class Groups:
    """The combinations of keys that both sides have, by number; travels to Spark's workers.

    `values` are the keys that occur in each column. A combination is looked up column by column:
    `codes[n]` are the sorted codes of the first n + 2 columns, and the last ones its number.
    """

    values: tuple[pa.Array, ...]
    codes: tuple[Ints, ...]

    @classmethod
    def common(cls, left: Sequence[pa.Table], right: Sequence[pa.Table]) -> Groups:
        """Number the keys that are among `distinct_keys` of both sides."""
        on_left, on_right = cls._of(distinct_keys(pa.concat_tables(left))), pa.concat_tables(right)
        common = on_right.filter(pa.array(on_left.assign(on_right) >= 0))
        return cls._of(distinct_keys(common))

    @classmethod
    def _of(cls, keys: pa.Table) -> Groups:
        values = tuple(pc.unique(column) for column in keys.columns)
        codes: list[Ints] = []
        known = _code(keys.column(0), values[0])
        for column, among in zip(keys.columns[1:], values[1:], strict=True):
            known = known * max(1, len(among)) + _code(column, among)
            codes.append(np.unique(known))
            known = np.searchsorted(codes[-1], known)
        return cls(values, tuple(codes))

    def __len__(self) -> int:
        return len(self.codes[-1] if self.codes else self.values[0])

    def assign(self, keys: pa.Table) -> Ints:
        """Return the number of each row's group, -1 where there is none."""
        known = _code(keys.column(0), self.values[0])
        columns = zip(keys.columns[1:], self.values[1:], self.codes, strict=True)
        for column, values, codes in columns:
            code = _code(column, values)
            both = known * max(1, len(values)) + code
            at = np.minimum(np.searchsorted(codes, both), max(0, len(codes) - 1))
            is_known = (known >= 0) & (code >= 0) & bool(len(codes))
            is_known[is_known] = codes[at[is_known]] == both[is_known]
            known = np.where(is_known, at, -1)
        return known


def _code(column: pa.ChunkedArray, values: pa.Array) -> Ints:
    codes = pc.fill_null(pc.index_in(column, values, skip_nulls=True), -1)
    numbers: Ints = codes.to_numpy().astype(np.int64)
    return numbers


@dataclass(frozen=True, slots=True)
class GroupCell:
    """Whole groups, or with `rows` some left rows of one group, by their places in it.

    `left_count` of their left rows have right rows in their group.
    """

    groups: range
    left_count: int
    rows: Rows | None = None


def group_cells(
    left_rows: Ints, right_rows: Ints, *, dimension: int, largest: int, cores: int
) -> Iterator[GroupCell]:
    """Divide the pairs of groups, by their numbers of rows, into cells that take about as long.

    A group that takes longer than a cell, or has more than the `largest` number of left rows that a
    task may hold, is split over its left rows; small groups go together.
    """
    pairs = left_rows * right_rows
    seconds = 2.0 * dimension * pairs / LIST_FLOPS
    seconds += 4 * dimension * (left_rows + right_rows) / READ_BYTES + GROUP_SECONDS
    seconds[pairs == 0] = 0
    share = max(float(seconds.sum()) / (cores * _PER_CORE), GROUP_SECONDS)
    start, held, time = 0, 0, 0.0
    for group in np.flatnonzero(pairs).tolist():
        rows, needed = int(left_rows[group]), float(seconds[group])
        is_large = rows > largest or needed > share
        if held and (is_large or held + rows > largest or time + needed > share):
            yield GroupCell(range(start, group), held)
            start, held, time = group, 0, 0.0
        if is_large:
            for piece in _pieces(rows, needed / share, largest):
                yield GroupCell(range(group, group + 1), len(piece), piece)
            start = group + 1
            continue
        if not held:
            start = group
        held, time = held + rows, time + needed
    if held:
        yield GroupCell(range(start, len(left_rows)), held)


def _pieces(rows: int, shares: float, largest: int) -> Iterator[Rows]:
    fewest = -(-rows // largest)
    count = max(fewest, min(int(np.ceil(shares)), rows // SMALLEST_PIECE), 1)
    edges = [rows * number // count for number in range(count + 1)]
    return (Rows(start, stop) for start, stop in pairwise(edges))
