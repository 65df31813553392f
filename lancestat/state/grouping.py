"""Groups of consecutive fragments: which fragments are summed up together, and stored together."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from lancestat.lake.fingerprint import ColumnGroup, Fingerprint

Group = tuple[int, ...]

# A query reads every group, so these bound its cost; a table of no more fragments than that has
# one group for each.
MOST_GROUPS = 512
# Groups are stored some at a time, so that an append writes the last block anew and no other.
_BLOCK_RANGES = 16
_BLOCK_GROUPS = 64

_DIGEST_SIZE = 16


def group_fragments(
    ids: Iterable[int], joint: Iterable[Collection[int]], most: int
) -> tuple[Group, ...]:
    """Cut fragments into at most `most` groups, each of one range of ids.

    Ranges are aligned to a power of two, so that appends and dropped fragments leave all other
    groups as they are. Groups that share a set of `joint`, of which only the sum is known, are one.
    """
    ordered = sorted(ids)
    width = _width(ordered, most)
    groups: dict[int, list[int]] = {}
    for fragment in ordered:
        groups.setdefault(fragment // width, []).append(fragment)
    for members in joint:
        first, *others = sorted({fragment // width for fragment in members})
        home = _home(groups, first, min(members))
        for other in others:
            other_home = _home(groups, other, max(members))
            if other_home != home:
                groups[home] = sorted(groups[home] + groups.pop(other_home))
    return tuple(tuple(groups[key]) for key in sorted(groups, key=lambda key: groups[key][0]))


def _home(groups: Mapping[int, Collection[int]], key: int, member: int) -> int:
    """Return the key of a fragment's group after others were joined to it."""
    if key in groups:
        return key
    return next(home for home, ids in groups.items() if member in ids)


def count_blocks(groups: Sequence[Group]) -> tuple[int, ...]:
    """Count the groups of each block: consecutive, of one range of ids, and at most 64."""
    firsts = [group[0] for group in groups]
    width = _width(firsts, _BLOCK_RANGES)
    counts: list[int] = []
    last = None
    for first in firsts:
        if first // width == last and counts[-1] < _BLOCK_GROUPS:
            counts[-1] += 1
        else:
            counts.append(1)
            last = first // width
    return tuple(counts)


def _width(ordered: Sequence[int], most: int) -> int:
    """The smallest power of two that leaves at most `most` aligned ranges of ids in use."""
    width = 1
    ranges = list(ordered)
    while len(ranges) > most:
        width *= 2
        ranges = list(dict.fromkeys(number // 2 for number in ranges))
    return width


def slices(counts: Iterable[int]) -> Iterator[slice]:
    """Yield slices of consecutive lengths."""
    start = 0
    for count in counts:
        yield slice(start, start + count)
        start += count


def contents(groups: Iterable[ColumnGroup]) -> dict[frozenset[str], dict[int, Fingerprint]]:
    """Fingerprints by fragment id, for classes of fields whose fingerprints are the same in all."""
    by_fields: dict[frozenset[str], dict[int, Fingerprint]] = {}
    for group in groups:
        by_fields.setdefault(group.fields, {})[group.fragment_id] = group.fingerprint
    sets_of: dict[str, list[frozenset[str]]] = {}
    for fields in by_fields:
        for key in fields:
            sets_of.setdefault(key, []).append(fields)
    classes: dict[tuple[frozenset[str], ...], list[str]] = {}
    for key, sets in sets_of.items():
        classes.setdefault(tuple(sets), []).append(key)
    by_keys = {}
    for shared, keys in classes.items():
        merged: dict[int, Fingerprint] = {}
        for fields in shared:
            merged.update(by_fields[fields])
        by_keys[frozenset(keys)] = merged
    return by_keys


def group_digest(group: Group, fingerprints: Mapping[int, Fingerprint]) -> bytes | None:
    """The identity of a group's content, None when one of its fragments is not there."""
    members = [fingerprints.get(fragment) for fragment in group]
    known = [fingerprint for fingerprint in members if fingerprint is not None]
    return _digest(known) if len(known) == len(members) else None


def block_digest(group_digests: Iterable[bytes]) -> bytes:
    """The identity of the content of a block of groups."""
    return _digest(group_digests)


def _digest(parts: Iterable[bytes]) -> bytes:
    return hashlib.blake2b(b"".join(parts), digest_size=_DIGEST_SIZE).digest()
