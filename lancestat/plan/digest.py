"""Digests of plans' values: equal exactly when the values are, whatever process makes them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime, timezone
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING

from lancestat.knn.gate import Decision
from lancestat.lake.snapshot import DataFile, Fragment, Snapshot
from lancestat.plan.actions import Action, Blocked, TableWork
from lancestat.plan.coverage import Carry, Coverage
from lancestat.plan.join_actions import Join

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_DIGEST_SIZE = 16

# What an action means does not depend on the order of these: they are worked through in any.
_UNORDERED = {
    TableWork: frozenset({"scans", "groups"}),
    Coverage: frozenset({"reuse", "carries", "missing"}),
    Carry: frozenset({"sources"}),
}
# Sentences and estimates for people: a machine with more cores tells other ones of the same plan.
_TALK = {Join: frozenset({"stages"}), Decision: frozenset({"why", "seconds"})}
_NOTES = frozenset({"notes"})


def action_digest(action: Action) -> str:
    """A digest of all that an action does: 32 hex digits.

    Notes, estimates of time and options that may be secret have no part in it: the options belong
    to the node's meaning (`spec.digest`). A blocked node is known by the code of its error.
    """
    if isinstance(action, Blocked):
        return value_digest((action.node, action.kind, action.error.code))
    return value_digest(action)


def value_digest(value: object) -> str:
    """A digest of a value made of dataclasses, collections, enums, instants and plain values."""
    encoded = _Encoder().encode(value)
    return hashlib.blake2b(encoded, digest_size=_DIGEST_SIZE).hexdigest()


def snapshot_digest(snapshot: Snapshot) -> str:
    """A digest of what a dataset holds: its columns, its fragments' files and its configuration."""
    digest = hashlib.blake2b(digest_size=_DIGEST_SIZE)
    encoder = _Encoder()
    digest.update(encoder.encode((snapshot.fields, snapshot.config)))
    for fragment in snapshot.fragments:
        digest.update(_fragment(fragment, encoder).encode(errors="surrogatepass"))
    return digest.hexdigest()


def _fragment(fragment: Fragment, encoder: _Encoder) -> str:
    files = [_file(file, encoder) for file in fragment.files]
    overlays = [f"{_file(each.file, encoder)} {each.coverage}" for each in fragment.overlays]
    counts = f"{fragment.id} {fragment.physical_rows} {fragment.deleted_rows}"
    return f"{counts} {fragment.deletion_file!r} {files!r} {overlays!r}\n"


def _file(file: DataFile, encoder: _Encoder) -> str:
    return f"{file.path} {file.base_id} {encoder.encode(file.field_ids).hex()}"


class _Encoder:
    """Encodes values so that no two different ones look alike; shared parts are encoded once."""

    def __init__(self) -> None:
        # Sets and tuples of hundreds of columns are one object for many fragments. What is
        # remembered is kept, so that no other object gets its identity.
        self._known: dict[int, tuple[object, bytes]] = {}

    def encode(self, value: object) -> bytes:
        match value:
            case Enum():
                return self.encode(value.value)
            case None | bool() | int() | float():
                return repr(value).encode()
            case str():
                return b"s" + value.encode(errors="surrogatepass")
            case bytes():
                return b"b" + value
            case datetime():
                return b"t" + value.astimezone(timezone.utc).isoformat().encode()
            case tuple() | frozenset():
                return self._once(value)
            case Mapping():
                return _hashed(b"m", sorted(self.encode(pair) for pair in value.items()))
        if is_dataclass(value) and not isinstance(value, type):
            return self._dataclass(value)
        # Arrow's types say what they are.
        return b"o" + f"{type(value).__name__} {value}".encode()

    def _once(self, value: tuple[object, ...] | frozenset[object]) -> bytes:
        known = self._known.get(id(value))
        if known is not None:
            return known[1]
        parts = (self.encode(part) for part in value)
        is_tuple = isinstance(value, tuple)
        encoded = _hashed(b"(", parts) if is_tuple else _hashed(b"{", sorted(parts))
        self._known[id(value)] = (value, encoded)
        return encoded

    def _dataclass(self, value: DataclassInstance) -> bytes:
        unordered = _UNORDERED.get(type(value), frozenset())
        parts = [type(value).__name__.encode()]
        for name in _told(type(value)):
            found = getattr(value, name)
            if name in unordered:
                part = _hashed(b"{", sorted(self.encode(each) for each in found))
            else:
                part = self.encode(found)
            parts += [name.encode(), part]
        return _hashed(b"<", parts)


@lru_cache(maxsize=256)
def _told(kind: type[DataclassInstance]) -> tuple[str, ...]:
    """The fields of a dataclass that decide what it means and hold no secrets."""
    left_out = _TALK.get(kind, frozenset()) | _NOTES
    told = (field.name for field in fields(kind) if field.repr)
    return tuple(name for name in told if name not in left_out)


def _hashed(mark: bytes, parts: Iterable[bytes]) -> bytes:
    digest = hashlib.blake2b(mark, digest_size=_DIGEST_SIZE)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return mark + digest.digest()
