"""Keeps the sums of partials over groups of a table's fragments, from which readers rule some out.

Groups that still hold are taken over, and what is new is summed up from partials.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain, islice

from lancestat.lake.fingerprint import Fingerprint
from lancestat.lake.snapshot import Pin
from lancestat.state.partials import (
    MOST_GROUPS,
    Group,
    block_digest,
    block_keys,
    contents,
    count_blocks,
    group_digest,
    group_fragments,
    slices,
)
from lancestat.state.store import LanceState, StateReader
from lancestat.state.values import BlockKey, SummaryBlock, TableSummary
from lancestat.tables.action import TableVersion
from lancestat.tables.coverage import Coverage, Fingerprints, Reuse
from lancestat.tables.statistics.partial import ColumnPartial, merge
from lancestat.tables.stored import add_summary, read_blocks, read_partials

# Many partials are merged in one step: two by two takes ten times as long.
_MERGED_AT_ONCE = 64


@dataclass(slots=True)
class RunningMerge:
    """A merge of parts of which `left` are still to come."""

    left: int = 0
    _parts: list[ColumnPartial] = field(default_factory=list)

    def add(self, partial: ColumnPartial, times: int = 0) -> None:
        """Merge a partial that is one of those to come that many times, else one known before."""
        self._merge([partial] * (times or 1))
        self.left -= times

    def add_sum(self, partial: ColumnPartial, parts: int) -> None:
        """Merge the sum of so many parts that are to come."""
        self._merge([partial])
        self.left -= parts

    def _merge(self, parts: list[ColumnPartial]) -> None:
        self._parts += parts
        if len(self._parts) > _MERGED_AT_ONCE:
            self._parts = [merge(self._parts)]

    def settle(self) -> None:
        """Merge the parts so far into one."""
        self._parts = [merge(self._parts)] if self._parts else []

    @property
    def partial(self) -> ColumnPartial | None:
        """The parts so far together, None where there are none."""
        return merge(self._parts) if self._parts else None


# Fragments, with their merged partials by field key.
GroupPartials = tuple[Group, Mapping[str, ColumnPartial]]


@dataclass(frozen=True)
class _Offer:
    """Groups of a summary whose content is unchanged, for fields that have the same.

    `groups` are their indices in the summary. `covered` counts the fragments by fingerprint.
    """

    groups: tuple[int, ...]
    covered: Counter[Fingerprint]

    def times(self, item: Reuse) -> int | None:
        """Return how often an item's content is offered, None where it is partly, or too often."""
        times = {self.covered[fingerprint] for fingerprint in item.fingerprints}
        return times.pop() if len(times) == 1 and max(times) <= item.times else None


_Offers = dict[str, _Offer]


def reuse_groups(
    state: StateReader, table: TableVersion, coverage: Coverage
) -> tuple[Sequence[GroupPartials], Coverage]:
    """Take groups of two and more fragments from the stored summary, as far as they still hold.

    Returns:
        Those groups with their partials, and the coverage of the other fragments.
    """
    reuse = coverage.reuse
    summary = state.summary(table.identity) if reuse else None
    if summary is None or all(len(group) == 1 for group in summary.groups):
        return (), coverage
    offers = _offers(table, summary)
    asked = _asked(reuse, offers)
    if asked is None:
        return (), coverage
    # What is to be scanned or carried over must not be counted twice.
    offers = {
        key: offer for key, offer in offers.items() if asked[key] == sum(offer.covered.values())
    }
    groups = _fetch(state, table.identity, summary, offers)
    if not groups:
        return (), coverage
    return groups, replace(coverage, reuse=_left(reuse, offers))


def _offers(table: TableVersion, summary: TableSummary) -> _Offers:
    """By field key; those of one class share theirs."""
    offers: _Offers = {}
    for fields, fingerprints in contents(table.groups).items():
        now = [
            group_digest(group, fingerprints) if len(group) > 1 else None
            for group in summary.groups
        ]
        shared: dict[tuple[int, ...], _Offer] = {}
        for key in fields & summary.contents.keys():
            then = summary.contents[key]
            unchanged = tuple(
                index for index, digest in enumerate(now) if digest and digest == then[index]
            )
            if unchanged and unchanged not in shared:
                fragments = chain.from_iterable(summary.groups[index] for index in unchanged)
                covered = Counter(map(fingerprints.__getitem__, fragments))
                shared[unchanged] = _Offer(unchanged, covered)
            if unchanged:
                offers[key] = shared[unchanged]
    return offers


Splits = Callable[[frozenset[str]], list[tuple[_Offer | None, frozenset[str]]]]


def _splits(offers: _Offers) -> Splits:
    """Return what splits sets of field keys by what is offered for them; most items are alike."""

    @cache
    def split(fields: frozenset[str]) -> list[tuple[_Offer | None, frozenset[str]]]:
        by_offer: dict[int, list[str]] = defaultdict(list)
        for key in fields:
            by_offer[id(offers.get(key))].append(key)
        return [(offers.get(keys[0]), frozenset(keys)) for keys in by_offer.values()]

    return split


def _asked(reuse: Sequence[Reuse], offers: _Offers) -> Counter[str] | None:
    """Count the offered fragments that the plan takes as stored, by field key.

    None when one is counted on twice, or a stored sum is partly offered.
    """
    splits = _splits(offers)
    seen: dict[Fingerprint, frozenset[str]] = {}
    counts: Counter[tuple[int, frozenset[str]]] = Counter()
    for item in reuse:
        for fingerprint in item.fingerprints:
            before = seen.get(fingerprint)
            if before is not None and before & item.fields:
                return None
            seen[fingerprint] = item.fields if before is None else before | item.fields
        for offer, keys in splits(item.fields):
            if offer is not None:
                times = offer.times(item)
                if times is None:
                    return None
                counts[id(offer), keys] += times * len(item.fingerprints)
    asked: Counter[str] = Counter()
    for (_, keys), count in counts.items():
        asked.update(dict.fromkeys(keys, count))
    return asked


def _left(reuse: Sequence[Reuse], offers: _Offers) -> tuple[Reuse, ...]:
    """Return what is still to be read one by one."""
    splits = _splits(offers)
    left = []
    for item in reuse:
        for offer, keys in splits(item.fields):
            times = item.times - (offer.times(item) or 0 if offer else 0)
            if times:
                left.append(Reuse(item.fingerprints, keys, times))
    return tuple(left)


def _fetch(
    state: StateReader, table: str, summary: TableSummary, offers: _Offers
) -> list[GroupPartials] | None:
    """The groups that are offered, None when one of them is gone."""
    # Equal content, such as of a column that is null everywhere, is one block of several groups.
    places_by_block: dict[BlockKey, list[tuple[int, int]]] = defaultdict(list)
    for key, offer in offers.items():
        digests = summary.contents[key]
        for block in slices(summary.blocks):
            groups = range(block.start, block.stop)
            places = [(index, index - block.start) for index in offer.groups if index in groups]
            if places:
                places_by_block[key, block_digest(digests[block])] += places
    partials: dict[int, dict[str, ColumnPartial]] = defaultdict(dict)
    for stored_key, stored in read_blocks(state, table, list(places_by_block)):
        for index, offset in places_by_block.pop(stored_key):
            partials[index][stored_key[0]] = stored[offset]
    if places_by_block:
        return None
    return [(summary.groups[index], of_group) for index, of_group in partials.items()]


# Partials per read of the state, which up to that many reads nothing else.
_FETCHED_AT_ONCE = 4096


def store_summary(
    state: LanceState,
    table: TableVersion,
    coverage: Coverage,
    pin: Pin,
    *,
    at_hand: Iterable[GroupPartials],
    is_new: bool,
) -> None:
    """Store the summary of a table whose partials are stored, unless the same is there already.

    `pin` is a version of the same content, the one just published, `at_hand` are partials of some
    of its fragments. Of a table that the state did not know (`is_new`) no summary is looked for.
    """
    before = None if is_new else state.summary(table.identity)
    draft = _Draft(table, coverage, before, at_hand)
    summary = TableSummary(pin.version, pin.manifest, draft.groups, draft.blocks, draft.digests)
    if summary != before:
        add_summary(state, table.identity, summary, draft.new_blocks(state))


# Cells of which partials are merged at the same time, since of each some tens are held.
_CELLS_AT_ONCE = 1024
# One field in one group.
_Cell = tuple[int, str]
# The cells that a fetched partial goes into, and how many times.
_Takers = dict[tuple[Fingerprints, str], dict[_Cell, int]]


class _Draft:
    """A summary that is being made of the last one, the table's fragments and their partials."""

    def __init__(
        self,
        table: TableVersion,
        coverage: Coverage,
        before: TableSummary | None,
        at_hand: Iterable[GroupPartials],
    ) -> None:
        self._table = table
        self._fingerprints: dict[str, Mapping[int, Fingerprint]] = {}
        for fields, fingerprints in contents(table.groups).items():
            self._fingerprints.update(dict.fromkeys(fields, fingerprints))
        self._joint = coverage.joint()
        fragments = {group.fragment_id for group in table.groups}
        self.groups = group_fragments(fragments, self._joint_fragments(), MOST_GROUPS)
        self.blocks = count_blocks(self.groups)
        self.digests = _digests(self.groups, self._fingerprints)
        self._before = _LastSummary(before, self.groups, self._fingerprints)
        self._at_hand: dict[int, list[GroupPartials]] = defaultdict(list)
        home = {fragment: index for index, group in enumerate(self.groups) for fragment in group}
        for piece in at_hand:
            homes = {home[fragment] for fragment in piece[0]}
            if len(homes) == 1:
                self._at_hand[homes.pop()].append(piece)

    def new_blocks(self, state: LanceState) -> Iterator[SummaryBlock[ColumnPartial]]:
        """The blocks that are not stored yet; holds the sketches of one block of all fields."""
        stored = set(self._before.stored)
        for block in slices(self.blocks):
            keys = {
                field: key
                for field, digests in self.digests.items()
                for key in [(field, block_digest(digests[block]))]
                if key not in stored
            }
            stored.update(keys.values())
            if keys:
                yield from self._make(state, range(block.start, block.stop), keys)

    def _make(
        self, state: LanceState, groups: range, keys: Mapping[str, BlockKey]
    ) -> Iterator[SummaryBlock[ColumnPartial]]:
        merges = {(group, key): RunningMerge() for group in groups for key in keys}
        known = self._take_pieces(state, merges)
        cells = iter(merges)
        while some := list(islice(cells, max(1, _CELLS_AT_ONCE // len(keys)) * len(keys))):
            takers: _Takers = defaultdict(lambda: defaultdict(int))
            for cell in some:
                merges[cell].left = self._ask(cell, known[cell], takers)
            self._add_partials(state, merges, takers)
            for cell in some:
                merges[cell].settle()
        for name, key in keys.items():
            group_merges = [merges[group, name] for group in groups]
            partials = [
                merged.partial
                for merged in group_merges
                if merged.partial is not None and not merged.left
            ]
            # A block of which something is gone is left to the next run.
            if len(partials) == len(group_merges):
                yield key, tuple(partials)

    def _take_pieces(
        self, state: LanceState, merges: Mapping[_Cell, RunningMerge]
    ) -> Mapping[_Cell, set[int]]:
        """Add what was read and what the last summary has, and return the fragments covered."""
        known: dict[_Cell, set[int]] = defaultdict(set)
        pieces_by_block: dict[BlockKey, list[tuple[_Cell, Group, int]]] = defaultdict(list)
        for cell in merges:
            home, name = cell
            for group, partials in self._at_hand.get(home, ()):
                if name in partials and not self._splits_joint(group, name):
                    merges[cell].add(partials[name])
                    known[cell].update(group)
            for group, key, offset in self._before.pieces(cell):
                if known[cell].isdisjoint(group) and not self._splits_joint(group, name):
                    pieces_by_block[key].append((cell, group, offset))
        for stored_key, stored in read_blocks(state, self._table.identity, list(pieces_by_block)):
            for cell, group, offset in pieces_by_block[stored_key]:
                merges[cell].add(stored[offset])
                known[cell].update(group)
        return known

    def _splits_joint(self, group: Group, key: str) -> bool:
        """Whether a fragment's sum with others is known, and some of those are not in the group."""
        if not self._joint:
            return False
        fingerprints = self._fingerprints[key]
        members = {fingerprints[fragment] for fragment in group}
        return any(not members.issuperset(self._sum_of(member, key)) for member in members)

    def _sum_of(self, member: Fingerprint, key: str) -> Fingerprints:
        """Return the fragments whose sum alone is known of a field, else this one by itself."""
        for members, fields in self._joint.get(member, ()):
            if key in fields:
                return members
        return (member,)

    def _ask(self, cell: _Cell, known: set[int], takers: _Takers) -> int:
        """Request the partials of all other fragments of a cell, and return how many there are."""
        index, key = cell
        fingerprints = self._fingerprints[key]
        joint: set[Fingerprints] = set()
        count = 0
        for fragment in self.groups[index]:
            if fragment in known:
                continue
            asked = self._sum_of(fingerprints[fragment], key)
            if asked in joint:
                continue
            if len(asked) > 1:
                joint.add(asked)
            takers[asked, key][cell] += 1
            count += 1
        return count

    def _add_partials(
        self, state: LanceState, merges: Mapping[_Cell, RunningMerge], takers: _Takers
    ) -> None:
        def add(fingerprints: Fingerprints, key: str, partial: ColumnPartial) -> None:
            for cell, times in takers[fingerprints, key].items():
                merges[cell].add(partial, times)

        keys_by_fingerprints: dict[Fingerprints, set[str]] = defaultdict(set)
        for fingerprints, key in takers:
            keys_by_fingerprints[fingerprints].add(key)
        rest = iter(keys_by_fingerprints.items())
        while some := dict(islice(rest, _FETCHED_AT_ONCE)):
            asked = {fingerprints: frozenset(keys) for fingerprints, keys in some.items()}
            for stored in read_partials(state, self._table.identity, asked):
                for key, partial in stored.partials.items():
                    add(stored.fingerprints, key, partial)

    def _joint_fragments(self) -> Iterator[Sequence[int]]:
        fragment_of = {group.fingerprint: group.fragment_id for group in self._table.groups}
        sums = {members for of_one in self._joint.values() for members, _ in of_one}
        for members in sums:
            yield [fragment_of[member] for member in members]


class _LastSummary:
    """The groups of the last summary that are parts of the groups now."""

    def __init__(
        self,
        summary: TableSummary | None,
        groups: Sequence[Group],
        fingerprints: Mapping[str, Mapping[int, Fingerprint]],
    ) -> None:
        self._summary = summary or TableSummary(0, None, (), (), {})
        self.stored = frozenset(block_keys(self._summary))
        counts = self._summary.blocks
        self._parts: dict[int, list[int]] = defaultdict(list)
        group_of = {fragment: index for index, group in enumerate(groups) for fragment in group}
        for index, group in enumerate(self._summary.groups):
            homes = {group_of.get(fragment, -1) for fragment in group}
            if len(homes) == 1:
                self._parts[homes.pop()].append(index)
        self._blocks = [
            block for block, count in zip(slices(counts), counts, strict=True) for _ in range(count)
        ]
        self._now = _digests(self._summary.groups, fingerprints)

    def pieces(self, cell: _Cell) -> Iterator[tuple[Group, BlockKey, int]]:
        """Groups of unchanged content in a cell: fragments, the block, and the index in it."""
        home, key = cell
        then = self._summary.contents.get(key)
        if then is None:
            return
        for index in self._parts.get(home, ()):
            block = self._blocks[index]
            content = (key, block_digest(then[block]))
            if then[index] and then[index] == self._now[key][index] and content in self.stored:
                yield self._summary.groups[index], content, index - block.start


def _digests(
    groups: Sequence[Group], fingerprints: Mapping[str, Mapping[int, Fingerprint]]
) -> dict[str, tuple[bytes, ...]]:
    """A digest per group and field, empty where a fragment is gone; shared by like fields."""
    shared: dict[int, tuple[bytes, ...]] = {}
    digests = {}
    for key, by_fragment in fingerprints.items():
        if id(by_fragment) not in shared:
            shared[id(by_fragment)] = tuple(
                group_digest(group, by_fragment) or b"" for group in groups
            )
        digests[key] = shared[id(by_fragment)]
    return digests
