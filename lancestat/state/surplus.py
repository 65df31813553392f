"""Which stored partials nothing needs any more: a pure rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from lancestat.lake.fingerprint import Fingerprint
from lancestat.state.partial_rows import split_fingerprints

# Superseded rows kept per table at least, so that going back to a recent version costs no scan.
SUPERSEDED_KEPT = 64


@dataclass(frozen=True, slots=True)
class StoredRow:
    """A row of the partials dataset without its sketches; `fingerprints` joined as stored."""

    id: int
    fingerprints: bytes


FieldsOf = Callable[[Sequence[int]], Mapping[int, frozenset[str]]]


def surplus(
    rows: Sequence[StoredRow], live: frozenset[Fingerprint], fields_of: FieldsOf
) -> list[int]:
    """Ids of one table's rows to drop; `rows` newest first.

    Dropped are rows whose fields newer rows of the same fingerprints hold all, rows whose
    fingerprints are malformed, and of those with a fingerprint that is not live all but the newest,
    as many as are live but at least 64.
    `fields_of` is asked only for rows that share their fingerprints with others.
    """
    superseded_kept = max(SUPERSEDED_KEPT, len(live))
    duplicates = _duplicates(rows, fields_of)
    dropped: list[int] = []
    for row in rows:
        fingerprints = split_fingerprints(row.fingerprints)
        if row.id in duplicates or not fingerprints:
            dropped.append(row.id)
        elif not live.issuperset(fingerprints):
            superseded_kept -= 1
            if superseded_kept < 0:
                dropped.append(row.id)
    return dropped


def _duplicates(rows: Sequence[StoredRow], fields_of: FieldsOf) -> set[int]:
    shared: dict[bytes, list[int]] = {}
    for row in rows:
        shared.setdefault(row.fingerprints, []).append(row.id)
    several = [ids for ids in shared.values() if len(ids) > 1]
    fields = fields_of([number for ids in several for number in ids]) if several else {}
    duplicates: set[int] = set()
    for ids in several:
        covered: frozenset[str] = frozenset()
        for number in ids:
            if fields[number] <= covered:
                duplicates.add(number)
            covered |= fields[number]
    return duplicates
