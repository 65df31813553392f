"""Fingerprints: the identity of a column's content in one fragment, of a schema and of a table.

Also the bytes on disk that columns take.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from lancestat.lake.snapshot import DataFile, Field, Fragment, Snapshot, connector_type

if TYPE_CHECKING:
    import lance
    import pyarrow as pa


# 16 bytes: digest of the data files and overlays that hold the fields, and of the deletion file.
Fingerprint = bytes

_DIGEST_SIZE = 16


def field_key(field: Field) -> str:
    """Return a field's identity inside a fingerprint: `<field id>:<Spark type>`."""
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
    """Return the fingerprints of `fields` in every fragment of the snapshot, in fragment order.

    A fingerprint digests what decides the values of its columns in a fragment: the data files and
    overlays that hold one of the fields, the deletion file and the number of physical rows. Equal
    fingerprints mean equal values, also for a column that no file holds, which is all null.
    `fields` are leaves, and each is in exactly one group of a fragment.
    """
    layout = _Layout(fields)
    return [
        ColumnGroup(fragment.id, _fingerprint(fragment, holders), keys)
        for fragment in snapshot.fragments
        for holders, keys in layout.split(fragment)
    ]


def with_joint(
    groups: Iterable[ColumnGroup], joint: Mapping[str, Sequence[str]]
) -> list[ColumnGroup]:
    """Return the groups with keys for columns together, such as `a+b` for those of `a` and `b`.

    Args:
        groups: Those of fragments, one fragment after the other.
        joint: The field keys by each new key.

    Columns that share a file share its fingerprint with the new key. That of others digests theirs.
    """
    cache: dict[tuple[frozenset[str], ...], list[tuple[str, tuple[int, ...]]]] = {}
    sets: dict[frozenset[str], frozenset[str]] = {}
    made: list[ColumnGroup] = []
    for _, parts in groupby(groups, key=attrgetter("fragment_id")):
        of_fragment = list(parts)
        layout = tuple(group.fields for group in of_fragment)
        if layout not in cache:
            cache[layout] = list(_places(layout, joint))
        more: dict[Fingerprint, set[str]] = {group.fingerprint: set() for group in of_fragment}
        for key, places in cache[layout]:
            prints = [of_fragment[place].fingerprint for place in places]
            is_one = len(set(prints)) == 1
            joined = prints[0] if is_one else _digest(*(one.hex() for one in prints))
            more.setdefault(joined, set()).add(key)
        for group in of_fragment:
            fields = group.fields.union(more.pop(group.fingerprint, ()))
            made.append(replace(group, fields=sets.setdefault(fields, fields)))
        for fingerprint, keys in more.items():
            fields = frozenset(keys)
            fields = sets.setdefault(fields, fields)
            made.append(ColumnGroup(of_fragment[0].fragment_id, fingerprint, fields))
    return made


def _places(
    layout: Sequence[frozenset[str]], joint: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the groups of a fragment that have the columns of each new key, if all are there."""
    place_of = {field: place for place, fields in enumerate(layout) for field in fields}
    for key, fields in joint.items():
        if all(field in place_of for field in fields):
            yield key, tuple(place_of[field] for field in fields)


def content_digest(groups: Sequence[ColumnGroup]) -> str:
    """Return one digest over all groups, whatever their order and fragment ids.

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
    """Return a digest of named columns: equal means the same rows under the same names."""
    names = "\0".join(f"{field.name}\0{field_key(field)}" for field in fields)
    return f"{content_digest(groups)}-{hashlib.blake2b(names.encode(), digest_size=8).hexdigest()}"


# The indices of those that hold a group's fields, among a fragment's data files and its overlays.
_Holders = tuple[int, ...]


class _Layout:
    """The spread of columns over files; cached, since most fragments of a table look alike."""

    def __init__(self, fields: Sequence[Field]) -> None:
        self._keys = {field.id: field_key(field) for field in fields}
        self._known: dict[tuple[int, ...], list[tuple[_Holders, frozenset[str]]]] = {}
        self._pinned: list[tuple[int, ...]] = []
        self._sets: dict[frozenset[str], frozenset[str]] = {}

    def split(self, fragment: Fragment) -> list[tuple[_Holders, frozenset[str]]]:
        field_ids = [file.field_ids for file in fragment.files]
        field_ids += [overlay.file.field_ids for overlay in fragment.overlays]
        # Identity stands for equality: hashing hundreds of field ids per fragment would cost most.
        identity = tuple(map(id, field_ids))
        groups = self._known.get(identity)
        if groups is None:
            groups = self._known[identity] = self._group(field_ids)
            self._pinned += field_ids
        return groups

    def _group(self, files: Sequence[tuple[int, ...]]) -> list[tuple[_Holders, frozenset[str]]]:
        holders: dict[int, list[int]] = {field_id: [] for field_id in self._keys}
        for index, field_ids in enumerate(files):
            for field_id in set(field_ids) & holders.keys():
                holders[field_id].append(index)
        groups: dict[_Holders, list[str]] = {}
        for field_id, held_by in holders.items():
            groups.setdefault(tuple(held_by), []).append(self._keys[field_id])
        return [(held_by, self._intern(keys)) for held_by, keys in groups.items()]

    def _intern(self, keys: Sequence[str]) -> frozenset[str]:
        keyset = frozenset(keys)
        return self._sets.setdefault(keyset, keyset)


def _fingerprint(fragment: Fragment, holders: _Holders) -> Fingerprint:
    parts = [str(fragment.physical_rows), fragment.deletion_file or ""]
    for index in holders:
        if index < len(fragment.files):
            parts.append(_file(fragment.files[index]))
        else:
            overlay = fragment.overlays[index - len(fragment.files)]
            parts += ["overlay", _file(overlay.file), overlay.coverage]
    return _digest(*parts)


def _file(file: DataFile) -> str:
    return f"{'' if file.base_id is None else file.base_id}:{file.path}"


def _digest(*parts: str) -> bytes:
    # Parts cannot run into each other: neither paths, digests nor field keys hold a zero byte.
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=_DIGEST_SIZE).digest()


def schema_hash(fields: Iterable[Field]) -> str:
    """Return the SHA-256, as 64 hex digits, of all names, Spark types and nullabilities, in order.

    The types are those of the Lance connector for Spark, which computes the same hash and refuses
    statistics with another. A column without a Spark type enters the hash under its Arrow type.
    """
    digest = hashlib.sha256()
    for field in fields:
        type = connector_type(field.type) or f"unsupported:{field.type}"
        digest.update(field.name.encode() + b"\0" + type.encode() + b"\0")
        digest.update(b"\1\0" if field.nullable else b"\0\0")
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class FragmentContent:
    """A fragment that has live rows, and a digest of what it holds: equal ones, equal rows."""

    id: int
    rows: int
    digest: bytes


def leaves(dataset: lance.LanceDataset, columns: Iterable[str]) -> tuple[Field, ...]:
    """Return the parts of some columns that data files hold, as fields of their own.

    The files of a struct or a list name their innermost fields only. The type of a leaf is that of
    its column, with the leaf's path: a column that gets the name of another is another column.
    """
    names = set(columns)
    pairs = zip(dataset.lance_schema.fields(), dataset.schema, strict=True)
    return tuple(
        Field(leaf.id(), column.name, column.type, column.nullable, f"{path} {column.type}")
        for lance_field, column in pairs
        if column.name in names
        for path, leaf in _leaves(lance_field, column.name)
    )


def _leaves(field: Any, path: str) -> Iterator[tuple[str, Any]]:
    children = field.children()
    if not children:
        yield path, field
    for child in children:
        yield from _leaves(child, f"{path}.{child.name()}")


def fragment_contents(snapshot: Snapshot, columns: Sequence[Field]) -> tuple[FragmentContent, ...]:
    """Return the content of `leaves` in every fragment that has live rows, in row order."""
    live = {fragment.id: fragment.rows for fragment in snapshot.fragments if fragment.rows}
    fragments = tuple(fragment for fragment in snapshot.fragments if fragment.id in live)
    groups = column_groups(replace(snapshot, fragments=fragments), columns)
    keys: dict[frozenset[str], bytes] = {}
    return tuple(
        FragmentContent(id, live[id], _content_digest(parts, keys))
        for id, parts in groupby(groups, key=attrgetter("fragment_id"))
    )


def stored_contents(snapshot: Snapshot, columns: Sequence[Field]) -> tuple[FragmentContent, ...]:
    """Return `fragment_contents` as if no row were deleted, `rows` being physical ones."""
    whole = tuple(
        replace(fragment, deletion_file=None, deleted_rows=0)
        for fragment in snapshot.fragments
        if fragment.rows
    )
    return fragment_contents(replace(snapshot, fragments=whole), columns)


def _content_digest(groups: Iterable[ColumnGroup], keys: dict[frozenset[str], bytes]) -> bytes:
    parts = []
    for group in groups:
        key = keys.get(group.fields)
        if key is None:
            key = keys[group.fields] = "\0".join(sorted(group.fields)).encode()
        parts.append(group.fingerprint + key)
    return hashlib.blake2b(b"\0\0".join(sorted(parts)), digest_size=_DIGEST_SIZE).digest()


def rows_digest(contents: Sequence[FragmentContent]) -> str:
    """Return a digest over fragments in their order: equal ones, equal rows at equal places."""
    digest = hashlib.blake2b(digest_size=_DIGEST_SIZE)
    for content in contents:
        digest.update(content.digest + content.rows.to_bytes(8, "little"))
    return digest.hexdigest()


# The least bytes of a value of variable length.
_SHORT_VALUE = 16.0


def fixed_width(arrow_type: pa.DataType) -> float | None:
    """Return the bytes of one value of a type (a boolean: 0.125), None when lengths vary."""
    import pyarrow as pa

    if isinstance(arrow_type, pa.BaseExtensionType):
        return fixed_width(arrow_type.storage_type)
    if pa.types.is_fixed_size_list(arrow_type):
        inner = fixed_width(arrow_type.value_type)
        return None if inner is None else inner * arrow_type.list_size
    if pa.types.is_dictionary(arrow_type):
        return fixed_width(arrow_type.index_type)
    if pa.types.is_null(arrow_type):
        return 0.0
    types = pa.types
    fixed = (types.is_primitive, types.is_decimal, types.is_fixed_size_binary)
    return arrow_type.bit_width / 8 if any(holds(arrow_type) for holds in fixed) else None


class ByteEstimator:
    """Estimates the bytes on disk that reading some columns of a table's fragments touches.

    The size of a file is shared among its columns: fixed-width columns weigh their decoded width,
    and the others what remains, but at least 16 bytes per value. A file of unknown size counts as
    uncompressed. Overlays count as files.
    """

    def __init__(self, fields: Sequence[Field]) -> None:
        self._keys = {field.id: field_key(field) for field in fields}
        self._widths = {field.id: fixed_width(field.type) for field in fields}
        # Keyed by the identity of the field ids, shared by like files; the value keeps them alive.
        self._shapes: dict[tuple[int, frozenset[str]], tuple[_Shape, _Shape, tuple[int, ...]]] = {}

    def estimate(self, fragment: Fragment, keys: frozenset[str]) -> int:
        """Return the bytes that reading the columns of some field keys (`field_key`) touches."""
        files = (*fragment.files, *(overlay.file for overlay in fragment.overlays))
        return round(sum(self._file(file, keys, fragment.physical_rows) for file in files))

    def _file(self, file: DataFile, keys: frozenset[str], rows: int) -> float:
        cached = self._shapes.get((id(file.field_ids), keys))
        if cached is None:
            ours = [field_id for field_id in file.field_ids if self._keys.get(field_id) in keys]
            cached = self._shape(ours), self._shape(file.field_ids), file.field_ids
            self._shapes[id(file.field_ids), keys] = cached
        part, whole, _ = cached
        if part == whole and file.size_bytes is not None:
            return file.size_bytes
        fixed, per_column = rows * whole[0], rows * _SHORT_VALUE
        if file.size_bytes is None:
            return rows * part[0] + per_column * part[1]
        if whole[1]:
            per_column = max(per_column, (file.size_bytes - fixed) / whole[1])
        total = fixed + per_column * whole[1]
        return file.size_bytes * (rows * part[0] + per_column * part[1]) / total if total else 0.0

    def _shape(self, field_ids: Iterable[int]) -> _Shape:
        # Negative ids mark columns that a newer file replaces; nested leaves have no width here.
        widths = [self._widths.get(field_id) for field_id in field_ids if field_id >= 0]
        fixed = [width for width in widths if width is not None]
        return sum(fixed), len(widths) - len(fixed)


# Of some columns of a file, the summed width of fixed-width ones, and the number of others.
_Shape = tuple[float, int]
