"""Fingerprints: the identity of a column's content in one fragment."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from lancestat.lake.snapshot import DataFile, Field, Fragment, Snapshot

# 16 bytes: digest of the data files and overlays that hold the fields, and of the deletion file.
Fingerprint = bytes

_DIGEST_SIZE = 16


def field_key(field: Field) -> str:
    """A field's identity inside a fingerprint: `<field id>:<Spark type>`."""
    return f"{field.id}:{field.spark_type}"


@dataclass(frozen=True, slots=True)
class ColumnGroup:
    """Columns of one fragment that live in the same data files and so share a fingerprint.

    `fields` holds field keys; equal sets are one object, so that planning 100,000 fragments stays
    small.
    """

    fragment_id: int
    fingerprint: Fingerprint
    fields: frozenset[str]


def column_groups(snapshot: Snapshot, fields: Sequence[Field]) -> list[ColumnGroup]:
    """The content of `fields` in every fragment of the snapshot, in fragment order.

    A fingerprint digests what decides the values of its columns in a fragment: every data file and
    overlay that holds one of the fields, the deletion file and the number of physical rows. Equal
    fingerprints mean equal values, also for a column that no file holds: it is null in every row.
    `fields` are leaves (every analyzable column is one); a column occurs in exactly one group of
    each fragment.
    """
    layout = _Layout(fields)
    return [
        ColumnGroup(fragment.id, _fingerprint(fragment, holders), keys)
        for fragment in snapshot.fragments
        for holders, keys in layout.split(fragment)
    ]


def content_digest(groups: Sequence[ColumnGroup]) -> str:
    """One digest over all groups, whatever their order and fragment ids.

    Equal digests mean equal rows in those columns; a fragment that occurs twice counts twice.
    """
    columns: dict[frozenset[str], bytes] = {}
    contents: Counter[bytes] = Counter()
    for group in groups:
        keys = columns.get(group.fields)
        if keys is None:
            keys = columns[group.fields] = _digest(*sorted(group.fields))
        contents[group.fingerprint + keys] += 1
    digest = hashlib.blake2b(digest_size=_DIGEST_SIZE)
    for content in sorted(contents):
        digest.update(content + contents[content].to_bytes(8, "little"))
    return digest.hexdigest()


def table_digest(groups: Sequence[ColumnGroup], fields: Sequence[Field]) -> str:
    """A digest of named columns: equal means the same rows under the same names."""
    names = "\0".join(f"{field.name}\0{field_key(field)}" for field in fields)
    return f"{content_digest(groups)}-{hashlib.blake2b(names.encode(), digest_size=8).hexdigest()}"


# The places, among a fragment's data files and then its overlays, that hold a group's fields.
_Holders = tuple[int, ...]


class _Layout:
    """How columns spread over files; remembered, since most fragments of a table look alike."""

    def __init__(self, fields: Sequence[Field]) -> None:
        self._keys = {field.id: field_key(field) for field in fields}
        self._known: dict[tuple[int, ...], list[tuple[_Holders, frozenset[str]]]] = {}
        self._pinned: list[tuple[int, ...]] = []
        self._sets: dict[frozenset[str], frozenset[str]] = {}

    def split(self, fragment: Fragment) -> list[tuple[_Holders, frozenset[str]]]:
        places = [file.field_ids for file in fragment.files]
        places += [overlay.file.field_ids for overlay in fragment.overlays]
        # Identity stands for equality: hashing hundreds of field ids per fragment would cost most.
        identity = tuple(map(id, places))
        found = self._known.get(identity)
        if found is None:
            found = self._known[identity] = self._group(places)
            self._pinned += places
        return found

    def _group(self, places: Sequence[tuple[int, ...]]) -> list[tuple[_Holders, frozenset[str]]]:
        holders: dict[int, list[int]] = {field_id: [] for field_id in self._keys}
        for place, field_ids in enumerate(places):
            for field_id in set(field_ids) & holders.keys():
                holders[field_id].append(place)
        groups: dict[_Holders, list[str]] = {}
        for field_id, held_by in holders.items():
            groups.setdefault(tuple(held_by), []).append(self._keys[field_id])
        return [(held_by, self._intern(keys)) for held_by, keys in groups.items()]

    def _intern(self, keys: Sequence[str]) -> frozenset[str]:
        keyset = frozenset(keys)
        return self._sets.setdefault(keyset, keyset)


def _fingerprint(fragment: Fragment, holders: _Holders) -> Fingerprint:
    parts = [str(fragment.physical_rows), fragment.deletion_file or ""]
    for place in holders:
        if place < len(fragment.files):
            parts.append(_file(fragment.files[place]))
        else:
            overlay = fragment.overlays[place - len(fragment.files)]
            parts += ["overlay", _file(overlay.file), overlay.coverage]
    return _digest(*parts)


def _file(file: DataFile) -> str:
    return f"{'' if file.base_id is None else file.base_id}:{file.path}"


def _digest(*parts: str) -> bytes:
    # Parts cannot run into each other: neither paths, digests nor field keys hold a zero byte.
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=_DIGEST_SIZE).digest()
