"""Groups rows by pairs of them, and gives the groups ids that last over runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lancestat.polars import pl

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
    kept: Ints = by_rank[np.flatnonzero(np.diff(labels[by_rank], prepend=-1))]
    return kept


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
    then = pl.DataFrame({"hash": before.hashes, "id": before.groups})
    here = pl.DataFrame({"hash": now.hashes, "group": now.groups})
    hashes = then.group_by("hash", "id").len().join(here.group_by("hash", "group").len(), "hash")
    shared = hashes.group_by("group", "id").agg(rows=pl.min_horizontal("len", "len_right").sum())
    order = ["group", "rows", "id"]
    best = shared.sort(order, descending=[False, True, False]).unique("group", keep="first")
    kept = then.filter(pl.Series(before.is_kept)).join(here, "hash").select("group", "id").unique()
    order = ["id", "rows", "has_kept", "group"]
    winners = (
        best.join(kept.with_columns(has_kept=True), ["group", "id"], "left")
        .sort(order, descending=[False, True, True, False], nulls_last=True)
        .unique("id", keep="first")
    )
    ids = np.full(int(now.groups.max(initial=-1)) + 1, -1, np.int64)
    ids[winners["group"].to_numpy()] = winners["id"].to_numpy()
    highest = max(highest, int(before.groups.max(initial=0)))
    is_new = ids < 0
    new = int(np.count_nonzero(is_new))
    ids[is_new] = highest + 1 + np.arange(new)
    return ids, highest + new
