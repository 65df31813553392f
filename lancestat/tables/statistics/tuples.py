"""What is kept of the tuples of a group of columns, and of a column beyond its own statistics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import gt, lt

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancestat.tables.statistics.bounds import Bound, lower_bound, upper_bound
from lancestat.tables.statistics.common_values import (
    CommonValues,
    Values,
    are_listable,
    encode_values,
    pruned,
)
from lancestat.tables.statistics.hashing import SketchBuilder, Words, hash_tuples
from lancestat.tables.statistics.key_proof import (
    MOST_HASHES,
    KeyProof,
    Range,
    Ranges,
    repeated,
    sorted_hashes,
)
from lancestat.tables.statistics.partial import ColumnPartial
from lancestat.tables.statistics.row_values import (
    Codes,
    Rows,
    RowValues,
    all_valid,
    codes_by_column,
    joint_codes,
)

Counts = npt.NDArray[np.int64]
# Returns the values of some rows or tuples of a batch.
ValuesOf = Callable[[Rows], list[Values]]


class TupleReducer:
    """The running statistic of the tuples of some columns, of rows where none of them is null.

    Args:
        columns: How many they are.
        capacity: That of the common values, 0 to keep none.
        is_key: Whether to find out whether tuples repeat.
        keeps_hashes: Whether the proof of a key gets hashes.
    """

    def __init__(
        self,
        columns: int,
        *,
        capacity: int = 0,
        is_key: bool = False,
        keeps_hashes: bool = False,
    ) -> None:
        self._rows = self._nulls = 0
        # A column has its own.
        self._sketch = SketchBuilder() if columns > 1 else None
        self._common = CommonValuesBuilder(capacity) if capacity else None
        self._key = KeyChecker(columns, keeps_hashes) if is_key else None

    def update(self, columns: Sequence[RowValues], rows: int) -> None:
        """Add the rows of a batch."""
        valid = all_valid(columns)
        present = None if valid is None else np.flatnonzero(valid)
        present_rows = rows if present is None else len(present)
        self._rows += rows
        self._nulls += rows - present_rows
        if not present_rows:
            return

        codes = None if self._key else joint_codes(columns)
        if codes is not None:
            self._count(columns, codes, present)
            return

        def values_of(rows: Rows) -> list[Values]:
            taken = rows if present is None else present[rows]
            return list(zip(*(column.bounds(taken) for column in columns), strict=True))

        hashes = hash_tuples([column.hashes for column in columns])
        if present is not None:
            hashes = hashes[present]
        if self._sketch:
            self._sketch.update(hashes)
        if self._common:
            self._common.update(hashes, values_of)
        if self._key:
            self._key.update(columns, hashes, present)

    def _count(self, columns: Sequence[RowValues], codes: Codes, present: Rows | None) -> None:
        """Add the rows of a batch by the codes of their tuples."""
        counts = columns[0].counts if len(columns) == 1 else None
        if counts is None:
            by_row = codes.rows if present is None else codes.rows[present]
            counts = np.bincount(by_row, minlength=codes.size)

        def hashes_of(tuples: Rows) -> Words:
            parts = zip(columns, codes_by_column(tuples, columns), strict=True)
            return hash_tuples([column.hashes_at(part) for column, part in parts])

        def values_of(tuples: Rows) -> list[Values]:
            parts = zip(columns, codes_by_column(tuples, columns), strict=True)
            return list(zip(*(column.bounds_at(part) for column, part in parts), strict=True))

        if self._sketch:
            self._sketch.update(hashes_of(np.flatnonzero(counts > 0)))
        if self._common:
            self._common.add(counts, hashes_of, values_of)

    @property
    def common(self) -> CommonValues | None:
        """The common values, where they are kept."""
        return self._common.finish() if self._common else None

    @property
    def key(self) -> KeyProof | None:
        """The proof of the key, where they are one."""
        return self._key.finish() if self._key else None

    def finish(self) -> ColumnPartial:
        """Return the partial of a group."""
        assert self._sketch is not None, "the partial of a column is that of its reducer"
        return ColumnPartial(
            rows=self._rows,
            nulls=self._nulls,
            nans=0,
            minimum=None,
            maximum=None,
            total_bytes=0,
            max_bytes=0,
            sketch=self._sketch.finish(),
            common=self.common,
            key=self.key,
        )


_BUCKETS = 1 << 16
_BUCKET_SHIFT = np.uint64(48)
# The least share of a batch's rows, over the capacity, that makes a value worth counting.
_SHARE = 4
_NO_HASHES = np.empty(0, np.uint64)
_NO_COUNTS = np.empty(0, np.int64)


class CommonValuesBuilder:
    """Common values while they are counted, by hash.

    A batch is counted in buckets of hashes first: most values of a column with many are in none
    that is worth a look, and cost no more than that.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._unlisted = 0
        # Ascending, with the fewest rows of each, and how many more than `_unlisted` it may have.
        self._hashes, self._lower, self._beyond = _NO_HASHES, _NO_COUNTS, _NO_COUNTS
        # None for those that are too long to be listed.
        self._values: dict[int, bytes | None] = {}

    def update(self, hashes: Words, values_of: ValuesOf) -> None:
        """Count the rows with these hashes, at least one; `values_of` takes indices of them."""
        buckets = (hashes >> _BUCKET_SHIFT).view(np.int64)
        sizes = np.bincount(buckets, minlength=_BUCKETS)
        heavy, unlisted = self._heavy(sizes)
        rows, counts = _of_heavy(hashes, buckets, sizes, heavy)
        is_common = counts > unlisted
        rows = rows[is_common]
        self._merge(hashes[rows], counts[is_common], unlisted, lambda new: values_of(rows[new]))

    def add(self, counts: Counts, hashes_of: Callable[[Rows], Words], values_of: ValuesOf) -> None:
        """Count values of a batch; both functions take indices of those that rows hold."""
        heavy, unlisted = self._heavy(counts)
        hashes = hashes_of(heavy) if len(heavy) else _NO_HASHES
        self._merge(hashes, counts[heavy], unlisted, lambda new: values_of(heavy[new]))

    def _heavy(self, sizes: Counts) -> tuple[Rows, int]:
        """Return where sizes are worth a look, and the greatest of the others."""
        # Of booleans numpy finds those that are true ten times as fast as of integers.
        if np.count_nonzero(sizes) <= 2 * self._capacity:
            return np.flatnonzero(sizes > 0), 0
        is_light = sizes < max(2, int(sizes.sum()) // (_SHARE * self._capacity))
        heavy = np.flatnonzero(~is_light)
        return heavy, int(np.max(sizes, where=is_light, initial=0) if len(heavy) else np.max(sizes))

    def _merge(self, added: Words, counts: Counts, unlisted: int, values_of: ValuesOf) -> None:
        """Merge in different values, each with its hash and its count, as another summary."""
        self._unlisted += unlisted
        if not len(added):
            return
        order = np.argsort(added)
        added, counts = added[order], counts[order]
        places = np.searchsorted(self._hashes, added)
        is_new = np.ones(len(added), np.bool_)
        inside = np.flatnonzero(places < len(self._hashes))
        is_new[inside] = self._hashes[places[inside]] != added[inside]
        known = places[~is_new]
        self._lower[known] += counts[~is_new]
        self._beyond[known] += counts[~is_new] - unlisted
        new = np.flatnonzero(is_new)
        if not len(new):
            return
        for one, values in zip(added[new].tolist(), values_of(order[new]), strict=True):
            self._values[one] = encode_values(values) if are_listable(values) else None
        self._hashes = np.insert(self._hashes, places[new], added[new])
        self._lower = np.insert(self._lower, places[new], counts[new])
        self._beyond = np.insert(self._beyond, places[new], counts[new] - unlisted)
        if len(self._hashes) > 2 * self._capacity:
            self._prune()

    def _prune(self) -> None:
        upper = self._beyond + self._unlisted
        order = np.argpartition(upper, len(upper) - self._capacity)
        left_out, kept = np.split(order, [len(order) - self._capacity])
        kept.sort()
        self._unlisted = max(self._unlisted, int(np.max(upper[left_out])))
        self._hashes, self._lower = self._hashes[kept], self._lower[kept]
        self._beyond = upper[kept] - self._unlisted
        self._values = {one: self._values[one] for one in self._hashes.tolist()}

    def finish(self) -> CommonValues:
        """Return the common values of all rows so far."""
        counts: dict[bytes, tuple[int, int]] = {}
        unlisted = self._unlisted
        upper = self._beyond + unlisted
        bounds = zip(self._hashes.tolist(), self._lower.tolist(), upper.tolist(), strict=True)
        for one, fewest, most in bounds:
            stored = self._values[one]
            if stored is None:
                unlisted = max(unlisted, most)
            else:
                counts[stored] = (fewest, most)
        return pruned(self._capacity, unlisted, counts)


def _of_heavy(hashes: Words, buckets: Rows, sizes: Counts, heavy: Rows) -> tuple[Rows, Counts]:
    """Return a row of each value in the heavy buckets, and how many rows hold it."""
    if not len(heavy):
        return heavy, heavy
    row_of = np.empty(_BUCKETS, np.int32)
    row_of[buckets] = np.arange(len(hashes), dtype=np.int32)
    rows, counts = row_of[heavy].astype(np.int64), sizes[heavy]
    # Mostly a heavy bucket has one value; all others are counted one by one.
    others = np.flatnonzero(hashes != hashes[row_of[buckets]])
    if len(heavy) < np.count_nonzero(sizes):
        others = others[np.isin(buckets[others], heavy, kind="table")]
    if not len(others):
        return rows, counts
    counts = counts - np.bincount(buckets[others], minlength=_BUCKETS)[heavy]
    _, first, times = np.unique(hashes[others], return_index=True, return_counts=True)
    return np.concatenate((rows, others[first])), np.concatenate((counts, times))


# Of the hashes and values that one task compares.
_MOST_BYTES = 256 << 20
_HASH_BYTES = 8


class KeyChecker:
    """Finds out whether tuples repeat: by their hashes, and by value where hashes are equal.

    Values are kept until the end, unless equal hashes prove that they are equal. Beyond 256 MB
    nothing is found out.
    """

    def __init__(self, columns: int, keeps_hashes: bool) -> None:
        self._columns, self._keeps_hashes = columns, keeps_hashes
        self._hashes: list[Words] = []
        self._others: list[Words] = []
        self._values: list[list[pa.Array]] = []
        self._bytes = 0
        self._count = 0
        self._ranges = _RangeBuilder(columns)

    def update(self, columns: Sequence[RowValues], hashes: Words, present: Rows | None) -> None:
        """Add the rows of a batch, at least one: of all its rows, or those in `present`."""
        self._count += len(hashes)
        self._bytes += hashes.nbytes
        if self._bytes > _MOST_BYTES:
            self._hashes, self._others, self._values = [], [], []
            return
        values = [column.comparable(present) for column in columns]
        self._hashes.append(hashes)
        if self._keeps_hashes and self._count <= MOST_HASHES:
            others = hash_tuples([column.other_hashes for column in columns])
            self._others.append(others if present is None else others[present])
        if len(columns) > 1 or not columns[0].is_invertible:
            self._values.append(values)
            self._bytes += sum(array.nbytes for array in values)
        self._ranges.update(columns, values)

    def finish(self) -> KeyProof:
        """Return what is known of all rows so far."""
        if not self._count:
            return KeyProof(False, ((),) * self._columns, b"")
        if self._bytes > _MOST_BYTES:
            return KeyProof(False, (None,) * self._columns)
        if self._is_repeated():
            return repeated(self._columns)
        hashes = None
        if self._keeps_hashes and self._count <= MOST_HASHES:
            hashes = sorted_hashes(np.concatenate(self._hashes), np.concatenate(self._others))
        return KeyProof(False, self._ranges.finish(), hashes)

    def _is_repeated(self) -> bool:
        hashes = np.concatenate(self._hashes)
        ordered = np.sort(hashes)
        twice = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
        if not len(twice) or not self._values:
            return bool(len(twice))
        columns = [pa.chunked_array(parts) for parts in zip(*self._values, strict=True)]
        return any(_has_equal(columns, np.flatnonzero(hashes == one)) for one in twice)


def _has_equal(columns: Sequence[pa.ChunkedArray], rows: Rows) -> bool:
    """Whether two of some rows are equal: NaN equals NaN, and zeros of both signs are equal."""
    seen: set[bytes] = set()
    for row in rows.tolist():
        values = encode_values(tuple(_plain(column[row]) for column in columns))
        if values in seen:
            return True
        seen.add(values)
    return False


def _plain(scalar: pa.Scalar) -> Bound:
    value = scalar.as_py()
    return value if isinstance(value, int | float | bytes) else str(value).encode()


@dataclass
class _RangeBuilder:
    """The least and the greatest tuple, in the order that begins with each column."""

    columns: int
    least: list[Values | None] = field(init=False)
    greatest: list[Values | None] = field(init=False)
    has_nan: bool = False

    def __post_init__(self) -> None:
        self.least, self.greatest = [None] * self.columns, [None] * self.columns

    def update(self, columns: Sequence[RowValues], values: Sequence[pa.Array]) -> None:
        self.has_nan |= any(
            pa.types.is_floating(array.type) and pc.any(pc.is_nan(array)).as_py()
            for array in values
        )
        if self.has_nan:
            return
        for first in range(self.columns):
            order = _order(first, self.columns)
            extremes = pc.min_max(values[first])
            for side, known, is_beyond in (("min", self.least, lt), ("max", self.greatest, gt)):
                before = known[first]
                [head] = columns[first].as_bounds([extremes[side]])
                # Among equal heads the other columns decide.
                if before is None or head == before[0] or is_beyond(head, before[0]):
                    found = _extreme(columns, values, order, side)
                    if before is None or is_beyond(found, before):
                        known[first] = found

    def finish(self) -> tuple[Ranges | None, ...]:
        return tuple(
            None if self.has_nan or (pair := _enclosing(*ends)) is None else (pair,)
            for ends in zip(self.least, self.greatest, strict=True)
        )


def _order(first: int, columns: int) -> tuple[int, ...]:
    return (first, *(index for index in range(columns) if index != first))


def _extreme(
    columns: Sequence[RowValues], values: Sequence[pa.Array], order: Sequence[int], side: str
) -> Values:
    """Return the least (`min`) or the greatest (`max`) tuple, in an order of the columns."""
    left = list(values)
    found: list[Bound] = []
    for index in order:
        extreme = pc.min_max(left[index])[side]
        found += columns[index].as_bounds([extreme])
        rows = pc.indices_nonzero(pc.equal(left[index], extreme))
        left = [array.take(rows) for array in left]
    return tuple(found)


def _enclosing(least: Values | None, greatest: Values | None) -> Range | None:
    """Return a range of short values around two tuples, None where there is none."""
    if least is None or greatest is None:
        return None
    low, high = _shortened(least, lower_bound), _shortened(greatest, upper_bound)
    return None if low is None or high is None else (low, high)


def _shortened(values: Values, shorten: Callable[[bytes], bytes | None]) -> Values | None:
    """Return short values that enclose, up to the first that is not the value itself."""
    short: list[Bound] = []
    for value in values:
        bound = shorten(value) if isinstance(value, bytes) else value
        if bound is None:
            return None
        short.append(bound)
        if bound != value:
            break
    return tuple(short)
