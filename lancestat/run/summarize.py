"""The summary of a table: partials of groups of fragments, made anew only where content is new."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from lancestat.lake.fingerprint import Fingerprint
from lancestat.lake.pin import Pin
from lancestat.plan.actions import TableWork
from lancestat.state.grouping import (
    MOST_GROUPS,
    Group,
    block_digest,
    contents,
    count_blocks,
    group_digest,
    group_fragments,
    slices,
)
from lancestat.state.summary_rows import block_keys
from lancestat.state.values import BlockKey, StateWriter, SummaryBlock, TableSummary
from lancestat.stats.partial import ColumnPartial, merge

Fingerprints = tuple[Fingerprint, ...]
# What is asked of the state at once; up to here it reads nothing but that.
_FETCHED_AT_ONCE = 4096


def store_summary(state: StateWriter, work: TableWork, pin: Pin) -> None:
    """Store the summary of a table whose partials are stored, unless the same is there already.

    Args:
        state: Where the table's partials are.
        work: What was done to the table.
        pin: A version of the content that the work describes: the one just published.
    """
    before = state.summary(work.table)
    draft = _Draft(work, before)
    summary = TableSummary(pin.version, pin.manifest, draft.groups, draft.blocks, draft.digests)
    if summary != before:
        state.add_summary(work.table, summary, draft.new_blocks(state))


@dataclass(slots=True)
class _Sum:
    """A running merge of the parts of one field in one group; `left` are still to come."""

    left: int = 0
    partial: ColumnPartial | None = None

    def add(self, partial: ColumnPartial, times: int = 1) -> None:
        known = [] if self.partial is None else [self.partial]
        self.partial = merge([*known, *[partial] * times])


# One field in one group.
_Cell = tuple[int, str]
# What a fetched partial goes into, and how many times.
_Takers = dict[tuple[Fingerprints, str], dict[_Cell, int]]


class _Draft:
    """A summary while it is made of the one before, the table's fragments and their partials."""

    def __init__(self, work: TableWork, before: TableSummary | None) -> None:
        self._work = work
        self._fingerprints: dict[str, Mapping[int, Fingerprint]] = {}
        for fields, fingerprints in contents(work.groups).items():
            self._fingerprints.update(dict.fromkeys(fields, fingerprints))
        self._joint = _joint_keys(work)
        fragments = {group.fragment_id for group in work.groups}
        self.groups = group_fragments(fragments, self._joint_fragments(), MOST_GROUPS)
        self.blocks = count_blocks(self.groups)
        self.digests = _digests(self.groups, self._fingerprints)
        self._before = _Before(before, self.groups, self._fingerprints)

    def new_blocks(self, state: StateWriter) -> Iterator[SummaryBlock]:
        """The blocks that are not stored yet; holds the sketches of one block of all fields."""
        stored = set(self._before.stored)
        for place in slices(self.blocks):
            keys = {
                field: key
                for field, digests in self.digests.items()
                for key in [BlockKey(field, block_digest(digests[place]))]
                if key not in stored
            }
            stored.update(keys.values())
            if keys:
                yield from self._make(state, range(place.start, place.stop), keys)

    def _make(
        self, state: StateWriter, places: range, keys: Mapping[str, BlockKey]
    ) -> Iterator[SummaryBlock]:
        sums = {(place, key): _Sum() for place in places for key in keys}
        known = self._take_pieces(state, sums)
        takers: _Takers = defaultdict(lambda: defaultdict(int))
        for cell, sum in sums.items():
            sum.left = self._ask(cell, known[cell], takers)
        self._add_partials(state, sums, takers)
        for name, key in keys.items():
            found = [sums[place, name] for place in places]
            partials = [sum.partial for sum in found if sum.partial is not None and not sum.left]
            # A block of which something is gone is left to the next run.
            if len(partials) == len(found):
                yield SummaryBlock(key, tuple(partials))

    def _take_pieces(
        self, state: StateWriter, sums: Mapping[_Cell, _Sum]
    ) -> Mapping[_Cell, set[int]]:
        """Add what the summary before knows; gives the fragments that it covers."""
        wanted: dict[BlockKey, list[tuple[_Cell, Group, int]]] = defaultdict(list)
        for cell in sums:
            for group, key, offset in self._before.pieces(cell):
                if not self._splits_joint(group, cell[1]):
                    wanted[key].append((cell, group, offset))
        known: dict[_Cell, set[int]] = defaultdict(set)
        if not wanted:
            return known
        for block in state.summary_blocks(self._work.table, list(wanted)):
            for cell, group, offset in wanted[block.key]:
                sums[cell].add(block.partials[offset])
                known[cell].update(group)
        return known

    def _splits_joint(self, group: Group, key: str) -> bool:
        """Whether a fragment's sum with others is known, and some of those are not in the group."""
        if not self._joint:
            return False
        of = self._fingerprints[key]
        members = {of[fragment] for fragment in group}
        return any(not members.issuperset(self._joint.get((each, key), ())) for each in members)

    def _ask(self, cell: _Cell, known: set[int], takers: _Takers) -> int:
        """Ask for the partials of all other fragments of a cell; gives how many are to come."""
        place, key = cell
        fingerprints = self._fingerprints[key]
        joint: set[Fingerprints] = set()
        count = 0
        for fragment in self.groups[place]:
            if fragment in known:
                continue
            asked = self._joint.get((fingerprints[fragment], key), (fingerprints[fragment],))
            if asked in joint:
                continue
            if len(asked) > 1:
                joint.add(asked)
            takers[asked, key][cell] += 1
            count += 1
        return count

    def _add_partials(
        self, state: StateWriter, sums: Mapping[_Cell, _Sum], takers: _Takers
    ) -> None:
        wanted: dict[Fingerprints, set[str]] = defaultdict(set)
        for fingerprints, key in takers:
            wanted[fingerprints].add(key)
        rest = iter(wanted.items())
        while some := dict(islice(rest, _FETCHED_AT_ONCE)):
            asked = {fingerprints: frozenset(keys) for fingerprints, keys in some.items()}
            for stored in state.partials(self._work.table, asked):
                for key, partial in stored.partials.items():
                    for cell, times in takers[stored.fingerprints, key].items():
                        sums[cell].add(partial, times)
                        sums[cell].left -= times

    def _joint_fragments(self) -> Iterator[Sequence[int]]:
        if not self._joint:
            return
        fragment_of = {group.fingerprint: group.fragment_id for group in self._work.groups}
        for fingerprints in set(self._joint.values()):
            yield [fragment_of[each] for each in fingerprints]


class _Before:
    """What the summary before has of groups that are parts of the groups now."""

    def __init__(
        self,
        summary: TableSummary | None,
        groups: Sequence[Group],
        fingerprints: Mapping[str, Mapping[int, Fingerprint]],
    ) -> None:
        self._summary = summary or TableSummary(0, None, (), (), {})
        self.stored = frozenset(block_keys(self._summary))
        counts = self._summary.blocks
        self._places: dict[int, list[int]] = defaultdict(list)
        group_of = {each: place for place, group in enumerate(groups) for each in group}
        for place, group in enumerate(self._summary.groups):
            homes = {group_of.get(each, -1) for each in group}
            if len(homes) == 1:
                self._places[homes.pop()].append(place)
        self._blocks = [
            block for block, count in zip(slices(counts), counts, strict=True) for _ in range(count)
        ]
        self._now = _digests(self._summary.groups, fingerprints)

    def pieces(self, cell: _Cell) -> Iterator[tuple[Group, BlockKey, int]]:
        """Groups of unchanged content in a cell: fragments, the block, and the place in it."""
        home, key = cell
        then = self._summary.contents.get(key)
        if then is None:
            return
        for place in self._places.get(home, ()):
            block = self._blocks[place]
            content = BlockKey(key, block_digest(then[block]))
            if then[place] and then[place] == self._now[key][place] and content in self.stored:
                yield self._summary.groups[place], content, place - block.start


def _digests(
    groups: Sequence[Group], fingerprints: Mapping[str, Mapping[int, Fingerprint]]
) -> dict[str, tuple[bytes, ...]]:
    """A digest per group and field, empty where a fragment is gone; shared by like fields."""
    shared: dict[int, tuple[bytes, ...]] = {}
    digests = {}
    for key, found in fingerprints.items():
        if id(found) not in shared:
            shared[id(found)] = tuple(group_digest(group, found) or b"" for group in groups)
        digests[key] = shared[id(found)]
    return digests


def _joint_keys(work: TableWork) -> dict[tuple[Fingerprint, str], Fingerprints]:
    """Where only the sum over several fragments is known: that sum's key, by member and field."""
    joint: dict[tuple[Fingerprint, str], Fingerprints] = {}
    sums = [(item.fingerprints, item.fields) for item in work.coverage.reuse]
    sums += [(tuple(sorted(carry.new)), carry.fields) for carry in work.coverage.carries]
    for fingerprints, fields in sums:
        if len(fingerprints) > 1:
            joint.update(((each, key), fingerprints) for each in fingerprints for key in fields)
    return joint
