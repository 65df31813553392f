"""Sums over groups of fragments in place of their partials, where the content is what it was.

Without them a run that adds one fragment to a table of 100,000 would read all partials of the
others: tens of gigabytes for 200 columns.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from lancestat.lake.fingerprint import Fingerprint
from lancestat.plan.actions import TableWork
from lancestat.plan.coverage import Coverage, Reuse
from lancestat.state.grouping import block_digest, contents, group_digest, slices
from lancestat.state.values import BlockKey, StateReader, TableSummary
from lancestat.stats.partial import ColumnPartial, merge


@dataclass(frozen=True, slots=True)
class Reused:
    """What is known of a table by group, and the work that is left without it."""

    partials: Mapping[str, ColumnPartial]
    work: TableWork


@dataclass(frozen=True)
class _Offer:
    """Groups of a summary whose content is unchanged, for fields that have the same.

    `covered` counts the fragments by fingerprint.
    """

    places: tuple[int, ...]
    covered: Counter[Fingerprint]


_Offers = dict[str, _Offer]


def reuse_groups(state: StateReader, work: TableWork) -> Reused:
    """Take groups of two and more fragments from the stored summary, as far as they still hold."""
    nothing = Reused({}, work)
    reuse = work.coverage.reuse
    summary = state.summary(work.table) if reuse else None
    if summary is None or all(len(group) == 1 for group in summary.groups):
        return nothing
    offers = _offers(work, summary)
    asked = _asked(reuse, offers)
    if asked is None:
        return nothing
    # What is to be scanned or carried over must not be counted twice.
    offers = {
        key: offer for key, offer in offers.items() if asked[key] == sum(offer.covered.values())
    }
    partials = _fetch(state, work.table, summary, offers)
    if not partials:
        return nothing
    left = Coverage(_left(reuse, offers), work.coverage.carries, work.coverage.missing)
    return Reused(partials, replace(work, coverage=left))


def _offers(work: TableWork, summary: TableSummary) -> _Offers:
    """By field key; those of one class share theirs."""
    offers: _Offers = {}
    for fields, fingerprints in contents(work.groups).items():
        now = [
            group_digest(group, fingerprints) if len(group) > 1 else None
            for group in summary.groups
        ]
        shared: dict[tuple[int, ...], _Offer] = {}
        for key in fields & summary.contents.keys():
            then = summary.contents[key]
            places = tuple(place for place, each in enumerate(now) if each and each == then[place])
            if places and places not in shared:
                fragments = chain.from_iterable(summary.groups[place] for place in places)
                covered = Counter(map(fingerprints.__getitem__, fragments))
                shared[places] = _Offer(places, covered)
            if places:
                offers[key] = shared[places]
    return offers


class _Splits:
    """Sets of field keys by what is offered for them; remembered, since most items are alike."""

    def __init__(self, offers: _Offers) -> None:
        self._offers = offers
        self._known: dict[frozenset[str], list[tuple[_Offer | None, frozenset[str]]]] = {}

    def of(self, fields: frozenset[str]) -> list[tuple[_Offer | None, frozenset[str]]]:
        found = self._known.get(fields)
        if found is None:
            by_offer: dict[int, list[str]] = defaultdict(list)
            for key in fields:
                by_offer[id(self._offers.get(key))].append(key)
            found = self._known[fields] = [
                (self._offers.get(keys[0]), frozenset(keys)) for keys in by_offer.values()
            ]
        return found


def _asked(reuse: Sequence[Reuse], offers: _Offers) -> Counter[str] | None:
    """How many of the offered fragments the plan counts on as stored, by field key.

    None when one is counted on twice, or a stored sum is partly offered.
    """
    splits = _Splits(offers)
    seen: dict[Fingerprint, frozenset[str]] = {}
    counts: Counter[tuple[int, frozenset[str]]] = Counter()
    for item in reuse:
        for each in item.fingerprints:
            before = seen.get(each)
            if before is not None and before & item.fields:
                return None
            seen[each] = item.fields if before is None else before | item.fields
        for offer, keys in splits.of(item.fields):
            if offer is not None:
                times = _times(item, offer)
                if times is None:
                    return None
                counts[id(offer), keys] += times * len(item.fingerprints)
    asked: Counter[str] = Counter()
    for (_, keys), count in counts.items():
        asked.update(dict.fromkeys(keys, count))
    return asked


def _times(item: Reuse, offer: _Offer) -> int | None:
    """How often what an item reuses is offered, None where only a part of it is, or too much."""
    times = {offer.covered[each] for each in item.fingerprints}
    return times.pop() if len(times) == 1 and max(times) <= item.times else None


def _left(reuse: Sequence[Reuse], offers: _Offers) -> tuple[Reuse, ...]:
    """What is still to be read one by one."""
    splits = _Splits(offers)
    left = []
    for item in reuse:
        for offer, keys in splits.of(item.fields):
            times = item.times - (_times(item, offer) or 0 if offer else 0)
            if times:
                left.append(Reuse(item.fingerprints, keys, times))
    return tuple(left)


def _fetch(
    state: StateReader, table: str, summary: TableSummary, offers: _Offers
) -> dict[str, ColumnPartial] | None:
    """The merged groups by field key, None when one of them is gone."""
    # Equal content, such as of a column that is null everywhere, is one block in several places.
    wanted: dict[BlockKey, list[int]] = defaultdict(list)
    for key, offer in offers.items():
        digests = summary.contents[key]
        for block in slices(summary.blocks):
            places = [place - block.start for place in offer.places if _within(place, block)]
            if places:
                wanted[BlockKey(key, block_digest(digests[block]))] += places
    partials: dict[str, ColumnPartial] = {}
    for found in state.summary_blocks(table, list(wanted)):
        key = found.key.field
        known = [partials[key]] if key in partials else []
        places = wanted.pop(found.key)
        partials[key] = merge([*known, *(found.partials[place] for place in places)])
    return None if wanted else partials


def _within(place: int, block: slice) -> bool:
    return bool(block.start <= place < block.stop)
