"""Groups rows by pairs of them, and gives the groups ids that last over runs. NumPy alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Groups:
    """Rows in groups of two and more: `rows` are distinct and ascending, `labels` their groups.

    Groups are numbered from 0 by their first rows.
    """

    rows: Ints
    labels: Ints

    def __len__(self) -> int:
        return int(self.labels.max()) + 1 if len(self.labels) else 0

    @property
    def sizes(self) -> Ints:
        sizes: Ints = np.bincount(self.labels, minlength=len(self))
        return sizes


def components(left: Ints, right: Ints) -> Groups:
    """Return the connected components of a graph whose edges are pairs of rows.

    Each round hooks roots to the smallest of their neighbours and then flattens the trees, so that
    paths and stars take few rounds. Memory follows the pairs, and not the rows of the table.
    """
    rows, ends = _numbered(np.concatenate([left, right]))
    parents = np.arange(len(rows), dtype=ends.dtype)
    one, other = ends[: len(left)], ends[len(left) :]
    while len(one):
        low, high = np.minimum(one, other), np.maximum(one, other)
        np.minimum.at(parents, high, low)
        while True:
            above = parents[parents]
            if np.array_equal(above, parents):
                break
            parents = above
        one, other = parents[one], parents[other]
        is_apart = one != other
        one, other = one[is_apart], other[is_apart]
    # The root of a tree is its smallest row.
    numbers = np.cumsum(parents == np.arange(len(rows))) - 1
    return Groups(rows, numbers[parents])


# An array over all rows up to the last one is used where it has at most so many for each value.
_DENSE = 16


def _numbered(values: Ints) -> tuple[Ints, NDArray[np.signedinteger]]:
    """Return distinct values in their order, and the number of each value among these."""
    narrow = np.int32 if len(values) < 1 << 31 else np.int64
    if not len(values):
        return values, values.astype(narrow)
    most = int(values.max()) + 1
    if values.min() >= 0 and most <= _DENSE * len(values):
        is_there = np.zeros(most, np.bool_)
        is_there[values] = True
        distinct = np.flatnonzero(is_there)
        number = np.empty(most, narrow)
        number[distinct] = np.arange(len(distinct), dtype=narrow)
        return distinct, number[values]
    # NumPy's `unique` takes several times as long.
    order = np.argsort(values)
    in_order = values[order]
    is_first = np.ones(len(values), np.bool_)
    is_first[1:] = in_order[1:] != in_order[:-1]
    numbers = np.empty(len(values), narrow)
    numbers[order] = np.cumsum(is_first) - 1
    return in_order[is_first], numbers


def first_of_each(labels: Ints, ranks: Sequence[Ints]) -> Ints:
    """Return the index of the first member of each group, by ranks, of which the first decides.

    Of members with equal ranks the one with the smallest index is first.
    """
    by_rank = np.lexsort((*reversed(ranks), labels))
    kept: Ints = by_rank[_starts(labels[by_rank])]
    return kept


def _starts(*columns: Ints) -> Ints:
    """Return where values, or tuples of them, begin that are sorted."""
    is_first = np.ones(len(columns[0]), np.bool_)
    is_first[1:] = False
    for values in columns:
        is_first[1:] |= values[1:] != values[:-1]
    return np.flatnonzero(is_first)


@dataclass(frozen=True, slots=True)
class Members:
    """The members of groups: `hashes` identify rows over runs, `is_kept` is set once in a group.

    Rows of equal hashes are interchangeable. `groups` are ids, or numbers of groups from 0.
    """

    hashes: Ints
    groups: Ints
    is_kept: Mask


def lasting_ids(before: Members, now: Members, highest: int) -> tuple[Ints, int]:
    """Return an id for each group of `now`, by its number, and the highest id ever given.

    Two groups share as many rows as they have of the same hashes. A group takes the id of the
    earlier one with which it shares the most rows, of several the smallest. Of groups that take one
    id the one with the most of the earlier rows keeps it, of several the one with the row that was
    kept, and then the first. Other groups get new ids, in their order, after the highest one.
    """
    count = int(now.groups.max(initial=-1)) + 1
    ids = np.full(count, -1, np.int64)
    _, codes = _numbered(np.concatenate([before.hashes, now.hashes]))
    codes = codes.astype(np.int64)
    then, here = codes[: len(before.hashes)], codes[len(before.hashes) :]
    group, id, rows = _shared(_counted(then, before.groups), _counted(here, now.groups))
    # The best earlier group of each group, and then the best group of each of those.
    best = np.lexsort((id, -rows, group))
    best = best[_starts(group[best])]
    group, id, rows = group[best], id[best], rows[best]
    is_kept = before.is_kept
    has_kept = _among(
        (group, _at(id, before.groups[is_kept], then[is_kept])), (now.groups, here), len(codes)
    )
    winners = np.lexsort((group, ~has_kept, -rows, id))
    winners = winners[_starts(id[winners])]
    ids[group[winners]] = id[winners]
    highest = max(highest, int(before.groups.max(initial=0)))
    is_new = ids < 0
    new = int(np.count_nonzero(is_new))
    ids[is_new] = highest + 1 + np.arange(new)
    return ids, highest + new


# Distinct pairs of two numbers, sorted, and how many rows have each.
_Counts = tuple[Ints, Ints, Ints]


def _shared(before: _Counts, now: _Counts) -> _Counts:
    """Return present groups with earlier ids, and how many rows they share, by hashes with both."""
    starts = np.searchsorted(before[0], now[0])
    many = np.searchsorted(before[0], now[0], side="right") - starts
    at_now = np.repeat(np.arange(len(many)), many)
    at_before = np.arange(len(at_now)) - np.repeat(np.cumsum(many) - many - starts, many)
    rows = np.minimum(before[2][at_before], now[2][at_now])
    return _summed(now[1][at_now], before[1][at_before], rows)


def _counted(codes: Ints, groups: Ints) -> _Counts:
    return _summed(codes, groups, np.ones(len(codes), np.int64))


def _summed(first: Ints, second: Ints, counts: Ints) -> _Counts:
    """Add up the counts of equal pairs."""
    order = np.lexsort((second, first))
    first, second, counts = first[order], second[order], counts[order]
    at = _starts(first, second)
    return first[at], second[at], np.add.reduceat(counts, at) if len(at) else counts


def _at(asked: Ints, keys: Ints, values: Ints) -> Ints:
    """Return the values of keys, -1 of those that are not there."""
    if not len(keys):
        return np.full(len(asked), -1, np.int64)
    order = np.argsort(keys)
    at = order[np.minimum(np.searchsorted(keys[order], asked), len(keys) - 1)]
    return np.where(keys[at] == asked, values[at], -1)


def _among(asked: tuple[Ints, Ints], pairs: tuple[Ints, Ints], codes: int) -> Mask:
    """Whether pairs of a group and a code, which is -1 for none, are among others."""
    found: Mask = np.isin(asked[0] * codes + asked[1], pairs[0] * codes + pairs[1])
    return found & (asked[1] >= 0)
