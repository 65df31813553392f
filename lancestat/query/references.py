"""References: whether the values of columns are among those of another table's, as far as known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lancestat.formats import count
from lancestat.query.fragments import FragmentStatistics
from lancestat.spec.model import Reference
from lancestat.tables.relations import Containment
from lancestat.tables.statistics.bounds import BOUND_BYTES, Bound
from lancestat.tables.statistics.column_type import ColumnType, Kind
from lancestat.tables.statistics.common_values import encode_values
from lancestat.tables.statistics.partial import ColumnPartial

_WHOLE = frozenset({Kind.INTEGER, Kind.DATE})


@dataclass(frozen=True, slots=True)
class ReferenceSide:
    """One side of a reference: what is known of a table's rows, and the types of its columns."""

    fragments: FragmentStatistics
    types: Mapping[str, ColumnType]

    def partial(self, names: Sequence[str]) -> ColumnPartial | None:
        """Return the partial of a column, or of a group."""
        if len(names) == 1:
            return self.fragments.partial(names[0])
        return self.fragments.group_partial(frozenset(names))

    def all_values(self, names: Sequence[str]) -> frozenset[bytes] | None:
        """Return the stored forms of all values in the order of `names`, None where not all known.

        NaN has one stored form, and is not equal to itself.
        """
        partial, order = self.partial(names), self.fragments.tuple_order(names)
        if partial is None or partial.common is None or not partial.common.is_exact:
            return None
        places = [order.index(name) for name in names]
        return frozenset(
            encode_values(tuple(one.values[place] for place in places))
            for one in partial.common.listed
        )


def containment(reference: Reference, left: ReferenceSide, right: ReferenceSide) -> Containment:
    """Judge a reference of the table `left` to the table `right`; exact where it is not None.

    It is refuted by a bound that lies outside, by a value that is missing among all values of the
    other side, and by more values than that has rows. It is proven where all values of both sides
    are known, and where the other side is a proven key of integers without gaps.
    """
    ours, theirs = left.partial(reference.columns), right.partial(reference.to)
    if ours is None or theirs is None:
        which = "this table" if ours is None else f"'{reference.table}'"
        return Containment(None, f"the state does not know all rows of {which} as they are")
    if not ours.values:
        return Containment(True, "no row refers to anything")
    pairs = list(zip(reference.columns, reference.to, strict=True))
    if any(left.types[name] != right.types[other] for name, other in pairs):
        return Containment(None, "the types of the columns differ")
    if len(pairs) == 1 or not ours.nulls:
        for name, other in pairs:
            bounds = left.partial([name]), right.partial([other])
            if _is_outside(*bounds):
                return Containment(False, f"values of {name} are outside the range of {other}")
    return _by_values(reference, left, right) or _by_counts(reference, ours, theirs, left.types)


def _by_values(
    reference: Reference, left: ReferenceSide, right: ReferenceSide
) -> Containment | None:
    """Judge by the values that are known one by one."""
    ours, theirs = left.all_values(reference.columns), right.all_values(reference.to)
    if theirs is None or ours is None:
        return None
    missing = len(ours - theirs)
    if missing:
        what = count(missing, "value is", "values are")
        return Containment(False, f"{what} not in '{reference.table}'")
    return Containment(True, f"all {count(len(ours), 'value')} are in '{reference.table}'")


def _by_counts(
    reference: Reference,
    ours: ColumnPartial,
    theirs: ColumnPartial,
    types: Mapping[str, ColumnType],
) -> Containment:
    if ours.key is not None and ours.key.is_proven and ours.values > theirs.values:
        more = f"{count(ours.values)} values are more than {count(theirs.values, 'row')}"
        return Containment(False, f"{more} of '{reference.table}'")
    kinds = {types[name].kind for name in reference.columns}
    if len(reference.columns) == 1 and kinds <= _WHOLE and _is_dense(theirs):
        return Containment(True, f"'{reference.table}' has every value of the range, each once")
    distinct = f"about {count(ours.distinct)} distinct values, and {count(theirs.distinct)} there"
    return Containment(None, f"nothing proves or refutes it: {distinct}")


def _is_outside(ours: ColumnPartial | None, theirs: ColumnPartial | None) -> bool:
    if ours is None or theirs is None or ours.nans or theirs.nans:
        return False
    if not theirs.values:
        return bool(ours.values)
    return _is_beyond(ours.minimum, theirs.minimum, -1) or _is_beyond(
        ours.maximum, theirs.maximum, 1
    )


def _is_beyond(ours: Bound | None, theirs: Bound | None, sign: int) -> bool:
    """Whether the exact extreme of a side is beyond a bound of the other, below (-1) or above."""
    if isinstance(ours, bytes) and isinstance(theirs, bytes):
        # Bounds of that length may be shortened: the value itself is not known.
        is_exact = len(ours) < BOUND_BYTES
        return is_exact and (ours < theirs if sign < 0 else ours > theirs)
    if isinstance(ours, int | float) and isinstance(theirs, int | float):
        return ours < theirs if sign < 0 else ours > theirs
    return False


def _is_dense(partial: ColumnPartial) -> bool:
    """Whether every integer of the range is a value of exactly one row."""
    low, high = partial.minimum, partial.maximum
    is_key = partial.key is not None and partial.key.is_proven
    is_range = isinstance(low, int) and isinstance(high, int)
    return is_key and is_range and partial.values == high - low + 1  # type: ignore[operator]
