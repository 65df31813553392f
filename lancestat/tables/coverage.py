"""Covers fragments from stored partials, also over compactions, and lists what must be read."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from typing import ClassVar, TypeVar

from lancestat.lake.fingerprint import ColumnGroup, Fingerprint
from lancestat.state.values import PartialIndex

T = TypeVar("T")

Fingerprints = tuple[Fingerprint, ...]
NO_FIELDS: frozenset[str] = frozenset()


# Fragments of a table mostly have the same columns: remembering the few differences there are keeps
# 100,000 fragments from holding 100,000 sets.
@lru_cache(maxsize=1024)
def _without(fields: frozenset[str], others: frozenset[str]) -> frozenset[str]:
    return fields - others


@lru_cache(maxsize=1024)
def _common(fields: frozenset[str], others: frozenset[str]) -> frozenset[str]:
    return fields & others


@lru_cache(maxsize=1024)
def _either(fields: frozenset[str], others: frozenset[str]) -> frozenset[str]:
    return fields | others


@dataclass(frozen=True, slots=True)
class Reuse:
    """Stored partials that go in as they are, `times` over where equal content repeats."""

    fingerprints: Fingerprints
    fields: frozenset[str]
    times: int = 1


@dataclass(frozen=True, slots=True)
class Carry:
    """Stored partials of old content whose sum describes the `new` content made of it.

    `sources` are the fingerprints that stored rows cover; one that is listed twice counts twice.
    """

    UNORDERED: ClassVar[frozenset[str]] = frozenset({"sources"})
    sources: tuple[Fingerprints, ...]
    new: Fingerprints
    fields: frozenset[str]


# The content of the analyzed columns before and after one step of a compaction.
Rewritten = tuple[tuple[ColumnGroup, ...], tuple[ColumnGroup, ...]]


# By fragment, the sums that it is part of: their fragments and their fields.
Joint = Mapping[Fingerprint, list[tuple[Fingerprints, frozenset[str]]]]


@dataclass(frozen=True, slots=True)
class Coverage:
    """`missing` pairs a column group with the fields of it that nothing covers."""

    UNORDERED: ClassVar[frozenset[str]] = frozenset({"reuse", "carries", "missing"})
    reuse: tuple[Reuse, ...]
    carries: tuple[Carry, ...]
    missing: tuple[tuple[ColumnGroup, frozenset[str]], ...]

    def stored_keys(self) -> dict[Fingerprints, frozenset[str]]:
        """Return the rows to fetch from the state: the fields by fingerprints."""
        keys: dict[Fingerprints, frozenset[str]] = {}
        for item in self.reuse:
            keys[item.fingerprints] = _either(item.fields, keys.get(item.fingerprints, NO_FIELDS))
        for carry in self.carries:
            for source in carry.sources:
                keys[source] = _either(carry.fields, keys.get(source, NO_FIELDS))
        return keys

    def joint(self) -> Joint:
        """Return the sums over several fragments without known parts, by member."""
        joint: dict[Fingerprint, list[tuple[Fingerprints, frozenset[str]]]] = defaultdict(list)
        sums = [(item.fingerprints, item.fields) for item in self.reuse]
        sums += [(tuple(sorted(carry.new)), carry.fields) for carry in self.carries]
        for members, fields in sums:
            if len(members) > 1:
                for member in members:
                    joint[member].append((members, fields))
        return joint


def cover(
    groups: Sequence[ColumnGroup], index: PartialIndex, rewrites: Sequence[Rewritten]
) -> Coverage:
    """Cover every (fragment, column) of `groups` exactly once, from what is stored where possible.

    `rewrites` are the compactions between the stored content and now, oldest first.
    """
    times = Counter(group.fingerprint for group in groups)
    reuse: list[Reuse] = []
    missing: dict[Fingerprint, frozenset[str]] = {}
    for (fingerprint, fields), count in _contents(groups).items():
        stored = index.singles.get(fingerprint, NO_FIELDS)
        rest = _without(fields, stored)
        if rest:
            missing[fingerprint] = _either(rest, missing.get(fingerprint, NO_FIELDS))
        if len(rest) < len(fields):
            reuse.append(Reuse((fingerprint,), _common(fields, stored), count))
    carries: list[Carry] = []
    if missing:
        claim = _Claims(missing, times)
        for fingerprints, keys in index.groups.items():
            fields = claim.take(fingerprints, keys)
            if fields:
                reuse.append(Reuse(fingerprints, fields))
        for carry in trace((*rewrites, *_joined(rewrites, groups, index)), index):
            fields = claim.take(carry.new, carry.fields)
            if fields:
                carries.append(Carry(carry.sources, carry.new, fields))
    left = (
        (group, _common(group.fields, missing.get(group.fingerprint, NO_FIELDS)))
        for group in groups
    )
    return Coverage(tuple(reuse), tuple(carries), tuple(pair for pair in left if pair[1]))


def _contents(groups: Iterable[ColumnGroup]) -> Counter[tuple[Fingerprint, frozenset[str]]]:
    """Content by fingerprint and fields; all-null columns that no file holds repeat theirs."""
    return Counter((group.fingerprint, group.fields) for group in groups)


@dataclass
class _Claims:
    """The content still missing; a claim takes fields from all its members or none."""

    missing: dict[Fingerprint, frozenset[str]]
    times: Mapping[Fingerprint, int]

    def take(self, members: Fingerprints, fields: frozenset[str]) -> frozenset[str]:
        for member in members:
            fields = _common(fields, self.missing.get(member, NO_FIELDS))
            if not fields or self.times[member] != 1:
                return NO_FIELDS
        for member in members:
            rest = _without(self.missing[member], fields)
            if rest:
                self.missing[member] = rest
            else:
                del self.missing[member]
        return fields


def trace(rewrites: Sequence[Rewritten], index: PartialIndex) -> list[Carry]:
    """Follow stored partials through compactions, step by step.

    A step may take what an earlier step made. Old content that is not wholly known is not carried.
    """
    known = _Known(index)
    carries: list[Carry] = []
    for before, after in rewrites:
        new_of = _fingerprints_by_field(after)
        for old, fields in _field_classes(_fingerprints_by_field(before)):
            for sources, covered in known.sources(old, fields):
                by_new: dict[Fingerprints, set[str]] = {}
                for key in covered:
                    by_new.setdefault(new_of.get(key, ()), set()).add(key)
                for new, keys in by_new.items():
                    if new:
                        carry = Carry(sources, new, frozenset(keys))
                        known.learn(carry)
                        carries.append(carry)
    return carries


def _joined(
    rewrites: Sequence[Rewritten], groups: Sequence[ColumnGroup], index: PartialIndex
) -> Iterator[Rewritten]:
    """Yield compactions as one where they take apart what a stored row describes together.

    Such a row says nothing of any of them, but of all, with the fragments that are as they were.
    What compacts the result of another compaction is left out.
    """
    if not rewrites or not index.groups:
        return
    made = {group.fingerprint for _, after in rewrites for group in after}
    step_of = {
        group.fingerprint: number
        for number, (before, _) in enumerate(rewrites)
        if made.isdisjoint(group.fingerprint for group in before)
        for group in before
    }
    standing: dict[Fingerprint, list[ColumnGroup]] = defaultdict(list)
    for group in groups:
        standing[group.fingerprint].append(group)
    by_fields: dict[frozenset[str], list[set[int | Fingerprint]]] = defaultdict(list)
    for members, fields in index.groups.items():
        places = {step_of.get(member, member) for member in members}
        is_apart = any(isinstance(place, int) for place in places) and len(places) > 1
        if is_apart and all(isinstance(place, int) or place in standing for place in places):
            by_fields[fields].append(places)
    for fields, rows in by_fields.items():
        for cluster in _clusters(rows):
            parts = [
                rewrites[place] if isinstance(place, int) else (standing[place], standing[place])
                for place in sorted(cluster, key=str)
            ]
            before, after = (
                tuple(replace(group, fields=_common(group.fields, fields)) for group in side)
                for side in map(chain.from_iterable, zip(*parts, strict=True))
            )
            yield before, after


def _clusters(rows: Iterable[set[T]]) -> Iterable[set[T]]:
    """Return the unions of sets that have elements in common."""
    cluster_of: dict[T, set[T]] = {}
    for row in rows:
        some = {id(c): c for c in (cluster_of.setdefault(one, {one}) for one in row)}
        largest, *others = sorted(some.values(), key=len, reverse=True)
        for one in chain.from_iterable(others):
            cluster_of[one] = largest
        largest.update(*others)
    return {id(cluster): cluster for cluster in cluster_of.values()}.values()


def _fingerprints_by_field(groups: Iterable[ColumnGroup]) -> dict[str, Fingerprints]:
    by_field: dict[str, list[Fingerprint]] = {}
    for group in groups:
        for key in group.fields:
            by_field.setdefault(key, []).append(group.fingerprint)
    return {key: tuple(fingerprints) for key, fingerprints in by_field.items()}


def _field_classes(
    by_field: Mapping[str, Fingerprints],
) -> list[tuple[Fingerprints, frozenset[str]]]:
    classes: dict[Fingerprints, set[str]] = {}
    for key, fingerprints in by_field.items():
        classes.setdefault(fingerprints, set()).add(key)
    return [(fingerprints, frozenset(keys)) for fingerprints, keys in classes.items()]


@dataclass
class _Known:
    """Content whose partials stored rows give, alone or as a sum over several fragments."""

    index: PartialIndex
    carried: dict[Fingerprint, list[Carry]] = field(default_factory=dict)
    joint: dict[Fingerprint, list[Carry]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for fingerprints, fields in self.index.groups.items():
            self.learn(Carry((fingerprints,), fingerprints, fields))

    def learn(self, carry: Carry) -> None:
        known = self.carried if len(carry.new) == 1 else self.joint
        known.setdefault(carry.new[0], []).append(carry)

    def sources(
        self, old: Fingerprints, fields: frozenset[str]
    ) -> list[tuple[tuple[Fingerprints, ...], frozenset[str]]]:
        """The stored rows that sum up to all of `old`, with the fields for which they do."""
        sums = [_Sum(fields, Counter(old), [])]
        for joint in chain.from_iterable(self.joint.get(one, ()) for one in dict.fromkeys(old)):
            members = Counter(joint.new)
            sums = [each for one in sums for each in one.plus(members, joint.sources, joint.fields)]
        for fingerprint in dict.fromkeys(old):
            for rows, covered in self._singles(fingerprint):
                sums = [
                    each
                    for one in sums
                    for count in [one.left[fingerprint]]
                    for each in one.plus({fingerprint: count}, rows * count, covered)
                ]
        return [(tuple(one.rows), one.fields) for one in sums if not any(one.left.values())]

    def _singles(
        self, fingerprint: Fingerprint
    ) -> Iterator[tuple[tuple[Fingerprints, ...], frozenset[str]]]:
        yield ((fingerprint,),), self.index.singles.get(fingerprint, NO_FIELDS)
        for carry in self.carried.get(fingerprint, ()):
            yield carry.sources, carry.fields


@dataclass
class _Sum:
    """Stored rows of some fields that sum up to some content, less what is `left` of it."""

    fields: frozenset[str]
    left: Counter[Fingerprint]
    rows: list[Fingerprints]

    def plus(
        self,
        members: Mapping[Fingerprint, int],
        rows: Sequence[Fingerprints],
        fields: frozenset[str],
    ) -> Iterator[_Sum]:
        """Yield the sum with the rows of members where that needs them, by fields if not of all."""
        common = _common(self.fields, fields)
        is_needed = any(members.values()) and all(
            self.left[one] >= count for one, count in members.items()
        )
        if not common or not is_needed:
            yield self
            return
        if rest := _without(self.fields, common):
            yield _Sum(rest, Counter(self.left), list(self.rows))
        self.fields = common
        self.rows.extend(rows)
        self.left.subtract(members)
        yield self
