"""Digests of plans' values: equal exactly when the values are, whatever process makes them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime, timezone
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Any

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
        plain = _PLAIN.get(type(value))
        if plain is not None:
            return plain(value)
        match value:
            case tuple() | frozenset():
                return self._once(value)
            case Enum():
                return self.encode(value.value)
            case datetime():
                return b"t" + value.astimezone(timezone.utc).isoformat().encode()
            case Mapping():
                pairs = (map(self.encode, pair) for pair in value.items())
                return _hashed(b"m", sorted(_framed(key) + found for key, found in pairs))
        if is_dataclass(value) and not isinstance(value, type):
            return self._dataclass(value)
        # Arrow's types say what they are.
        return b"o" + f"{type(value).__name__} {value}".encode()

    def _once(self, value: tuple[object, ...] | frozenset[object]) -> bytes:
        known = self._known.get(id(value))
        if known is not None:
            return known[1]
        parts = map(self.encode, value)
        is_tuple = isinstance(value, tuple)
        encoded = _hashed(b"(", parts) if is_tuple else _hashed(b"{", sorted(parts))
        self._known[id(value)] = (value, encoded)
        return encoded

    def _dataclass(self, value: DataclassInstance) -> bytes:
        parts = [type(value).__name__.encode()]
        for name, key, is_ordered in _told(type(value)):
            found = getattr(value, name)
            parts.append(key)
            if is_ordered:
                parts.append(self.encode(found))
            else:
                parts.append(_hashed(b"{", sorted(map(self.encode, found))))
        return _hashed(b"<", parts)


def _spelled(value: object) -> bytes:
    return repr(value).encode()


_PLAIN: Mapping[type, Callable[[Any], bytes]] = {
    type(None): _spelled,
    bool: _spelled,
    int: _spelled,
    float: _spelled,
    str: lambda text: b"s" + text.encode(errors="surrogatepass"),
    bytes: lambda found: b"b" + found,
}


@lru_cache(maxsize=256)
def _told(kind: type[DataclassInstance]) -> tuple[tuple[str, bytes, bool], ...]:
    """The fields of a dataclass that decide what it means and hold no secrets.

    With each, the key that stands for it, and whether its order counts.
    """
    left_out = _TALK.get(kind, frozenset()) | _NOTES
    unordered = _UNORDERED.get(kind, frozenset())
    told = (field.name for field in fields(kind) if field.repr and field.name not in left_out)
    return tuple((name, name.encode(), name not in unordered) for name in told)


def _hashed(mark: bytes, parts: Iterable[bytes]) -> bytes:
    whole = mark + b"".join(map(_framed, parts))
    return mark + hashlib.blake2b(whole, digest_size=_DIGEST_SIZE).digest()


def _framed(part: bytes) -> bytes:
    return b"%d:%b" % (len(part), part)
