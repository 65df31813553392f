"""What some columns of a dataset hold in every fragment, in row order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from lancestat.lake.fingerprint import ColumnGroup, column_groups
from lancestat.lake.snapshot import Field, Snapshot

if TYPE_CHECKING:
    import lance

_DIGEST_SIZE = 16


@dataclass(frozen=True, slots=True)
class FragmentContent:
    """A fragment that has live rows, and a digest of what it holds: equal ones, equal rows."""

    id: int
    rows: int
    digest: bytes


def leaves(dataset: lance.LanceDataset, columns: Iterable[str]) -> tuple[Field, ...]:
    """What data files hold of some columns, as fields of their own.

    The files of a struct or a list name their innermost fields only. The type of a leaf is that of
    its column, with the leaf's path: a column that gets the name of another is another column.
    """
    wanted = set(columns)
    found = zip(dataset.lance_schema.fields(), dataset.schema, strict=True)
    return tuple(
        Field(leaf.id(), column.name, column.type, column.nullable, f"{path} {column.type}")
        for lance_field, column in found
        if column.name in wanted
        for path, leaf in _leaves(lance_field, column.name)
    )


def _leaves(field: Any, path: str) -> Iterator[tuple[str, Any]]:
    children = field.children()
    if not children:
        yield path, field
    for child in children:
        yield from _leaves(child, f"{path}.{child.name()}")


def fragment_contents(snapshot: Snapshot, columns: Sequence[Field]) -> tuple[FragmentContent, ...]:
    """The content of `leaves` in every fragment that has live rows, in row order.

    What only touches other columns, or moves the version without moving rows, changes nothing.
    """
    live = {fragment.id: fragment.rows for fragment in snapshot.fragments if fragment.rows}
    fragments = tuple(each for each in snapshot.fragments if each.id in live)
    groups = column_groups(replace(snapshot, fragments=fragments), columns)
    keys: dict[frozenset[str], bytes] = {}
    return tuple(
        FragmentContent(id, live[id], _digest(parts, keys))
        for id, parts in groupby(groups, key=attrgetter("fragment_id"))
    )


def _digest(groups: Iterable[ColumnGroup], keys: dict[frozenset[str], bytes]) -> bytes:
    parts = []
    for group in groups:
        key = keys.get(group.fields)
        if key is None:
            key = keys[group.fields] = "\0".join(sorted(group.fields)).encode()
        parts.append(group.fingerprint + key)
    return hashlib.blake2b(b"\0\0".join(sorted(parts)), digest_size=_DIGEST_SIZE).digest()


def rows_digest(contents: Sequence[FragmentContent]) -> str:
    """A digest over fragments in their order: equal ones, equal rows at equal places."""
    digest = hashlib.blake2b(digest_size=_DIGEST_SIZE)
    for content in contents:
        digest.update(content.digest + content.rows.to_bytes(8, "little"))
    return digest.hexdigest()
