"""The values that the state stores, and the identities of what they describe."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from itertools import product
from typing import Generic, TypeVar
from urllib.parse import urlsplit

from lancestat.codec import Instant
from lancestat.lake.files import local_path
from lancestat.lake.fingerprint import Fingerprint

Partial = TypeVar("Partial")
Decoded = TypeVar("Decoded")
Record = TypeVar("Record")


@dataclass(frozen=True, slots=True)
class StoredPartials(Generic[Partial]):
    """Partials by field key for the content that `fingerprints` names (sorted; usually one)."""

    fingerprints: tuple[Fingerprint, ...]
    partials: Mapping[str, Partial]


@dataclass(frozen=True, slots=True)
class PartialIndex:
    """An index of a table's stored partials: field keys (`lake.fingerprint.field_key`) by content.

    `singles` are of one fragment, `groups` of several together, by their fingerprints: when a
    compaction rewrites fragments into more than one new fragment, their merged partials are known,
    and those of each are not. Equal field sets are one object.
    """

    singles: Mapping[Fingerprint, frozenset[str]]
    groups: Mapping[tuple[Fingerprint, ...], frozenset[str]]


# What a run remembers of a node: a key that no other node has, and JSON.
StoredRecord = tuple[str, str]


@dataclass(frozen=True, slots=True)
class NodeRun:
    """One node's outcome in one run.

    `digest` is that of the node's meaning (`spec.digest.node_digest`), `result` its object in the
    JSON of `lancestat run`. `full_refresh` is set where everything was to be made again.
    """

    node: str
    kind: str
    digest: str
    result: Mapping[str, object]
    record: StoredRecord | None
    full_refresh: bool = False


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run that ended, with one entry per node.

    Of a run whose process was killed `finished_at` is when it started. Earlier releases did not
    record the `project`.
    """

    run_id: str
    command: str
    target: str
    started_at: Instant
    finished_at: Instant
    status: str
    nodes: tuple[NodeRun, ...]
    project: str = ""

    def is_of(self, project: str, target: str) -> bool:
        """Whether it is a run of a project's target, as far as that is recorded."""
        return self.target == target and self.project in ("", project)


@dataclass(frozen=True, slots=True)
class TableSummary:
    """The groups of a table's fragments, and the content whose merged partials are stored.

    It was made for `version`, whose manifest `manifest` identifies (`lake.snapshot.Pin`): it holds
    for that manifest without further proof, and for any other where digests agree. `groups` are the
    ids of the fragments in each, ascending; `blocks` count the consecutive groups that are stored
    together. `contents` has, by field key, one `state.partials.group_digest` per group, empty where
    nothing is stored.
    """

    version: int
    manifest: str | None
    groups: tuple[tuple[int, ...], ...]
    blocks: tuple[int, ...]
    contents: Mapping[str, tuple[bytes, ...]]


# Of a stored block: its field, and its content as `state.partials.block_digest`.
BlockKey = tuple[str, bytes]
# The partials of consecutive groups of fragments, one for each.
SummaryBlock = tuple[BlockKey, tuple[Partial, ...]]


_ALIASES = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}
# In these URIs the container stands where other schemes have the user.
_CONTAINER_BEFORE_HOST = {"abfs", "abfss", "wasb", "wasbs"}


def table_identity(uri: str) -> str:
    """Return 24 hex digits that identify the dataset at `uri`, however its URI is written."""
    return _digest(canonical_uri(uri))


def result_identity(kind: str, uri: str) -> str:
    """Return the identity of what nodes of a kind write to `uri`, never that of a table.

    A result in Parquet is a link, which each run points elsewhere, so that it is not followed.
    """
    path = local_path(uri)
    place = canonical_uri(uri) if path is None else f"{os.path.realpath(path.parent)}/{path.name}"
    return f"{kind} {_digest(place)}"


def _digest(place: str) -> str:
    return sha256(place.encode(errors="surrogatepass")).hexdigest()[:24]


def canonical_uri(uri: str) -> str:
    """`uri` in the one form that all its spellings share; never holds user, password or query.

    Local paths are absolute, normalised and without symbolic links.
    """
    path = local_path(uri)
    if path is not None:
        return os.path.realpath(path)
    parts = urlsplit(uri)
    scheme = _ALIASES.get(parts.scheme.lower(), parts.scheme.lower())
    user, at, host = parts.netloc.rpartition("@")
    if at and scheme in _CONTAINER_BEFORE_HOST:
        host = f"{user.partition(':')[0]}@{host}"
    segments = "/".join(segment for segment in parts.path.split("/") if segment)
    return f"{scheme}://{host.lower()}/{segments}"


# The key of a stored partial is the field key of its column, or those of a group of columns by
# ascending field id, and then marks of what the partial has beyond other ones: quantiles, common
# values of some capacity, whether values repeat. Spark's types hold no plus sign, and field keys a
# colon, which marks do not.
_PLUS = "+"
_QUANTILES, _COMMON_VALUES, _UNIQUE = "quantiles", "common", "unique"
_MARK = re.compile(f"{_QUANTILES}|{_COMMON_VALUES}[0-9]+|{_UNIQUE}")

# Of 4 kB in memory, the size of a column's partial with nothing beyond.
_PARTIALS_PER_QUANTILES = 5
_CAPACITY_PER_PARTIAL = 32


@dataclass(frozen=True, slots=True)
class PartialKey:
    """The key of a stored partial, in parts.

    `fields` are field keys, of a group in the order of their ids; `common_values` is the capacity
    of these, 0 for none; `is_unique` says that the partial tells whether values repeat.
    """

    fields: tuple[str, ...]
    quantiles: bool = False
    common_values: int = 0
    is_unique: bool = False

    def __str__(self) -> str:
        marks = (
            *([f"{_COMMON_VALUES}{self.common_values}"] if self.common_values else []),
            *([_QUANTILES] if self.quantiles else []),
            *([_UNIQUE] if self.is_unique else []),
        )
        return _PLUS.join((*self.fields, *marks))

    @property
    def is_joint(self) -> bool:
        """Whether it is that of a group of columns."""
        return len(self.fields) > 1


@lru_cache(maxsize=4096)
def partial_key(key: str) -> PartialKey:
    """Return the parts of a stored key."""
    parts = key.split(_PLUS)
    marks = list(filter(_MARK.fullmatch, parts))
    fields = tuple(part for part in parts if part not in marks)
    sizes = [mark.removeprefix(_COMMON_VALUES) for mark in marks]
    capacity = next((int(size) for size in sizes if size.isdecimal()), 0)
    return PartialKey(fields, _QUANTILES in marks, capacity, _UNIQUE in marks)


def joint_key(fields: Iterable[str]) -> str:
    """Return the plain key of a group of columns, given their field keys in any order."""
    return _PLUS.join(sorted(fields, key=lambda field: int(field.partition(":")[0])))


def plain_key(key: str) -> str:
    """The key of the column or the group behind a stored key."""
    return _PLUS.join(partial_key(key).fields)


# Fragments of a table mostly have the same columns, so that few sets are requested, often.
@lru_cache(maxsize=1024)
def field_keys(keys: frozenset[str]) -> frozenset[str]:
    """The field keys of all columns behind stored keys."""
    return frozenset(field for key in keys for field in partial_key(key).fields)


@lru_cache(maxsize=1024)
def weight(keys: frozenset[str]) -> int:
    """Return how many partials with nothing beyond take as much memory as those of these keys."""
    return sum(
        1
        + _PARTIALS_PER_QUANTILES * key.quantiles
        + key.common_values // _CAPACITY_PER_PARTIAL
        + key.is_unique
        for key in map(partial_key, keys)
    )


def is_special(key: str) -> bool:
    """Whether only tables with groups, keys or common values need the partials of a key."""
    parts = partial_key(key)
    return parts.is_joint or parts.common_values > 0 or parts.is_unique


@lru_cache(maxsize=4096)
def served_keys(key: str) -> frozenset[str]:
    """Return the keys that a partial stored under `key` serves: those with fewer marks, too.

    Common values of a larger capacity serve as those of a smaller one.
    """
    whole = partial_key(key)
    capacities = [0]
    capacity = whole.common_values
    while capacity >= LEAST_CAPACITY:
        capacities.append(capacity)
        capacity //= 2
    parts = product({False, whole.quantiles}, capacities, {False, whole.is_unique})
    return frozenset(str(PartialKey(whole.fields, *marks)) for marks in parts) | {key}


def covered_keys(keys: frozenset[str]) -> frozenset[str]:
    """Return the keys that partials stored under `keys` serve."""
    return frozenset().union(*map(served_keys, keys))


# Summaries of common values hold a power of two of them, this one at least.
LEAST_CAPACITY = 128
_SLACK = 2


def capacity_for(size: int) -> int:
    """Return the capacity of summaries that give `size` values: a power of two, at least 128.

    They keep twice as many as are shown, since counts near the last place are then closer.
    """
    return max(LEAST_CAPACITY, 1 << (_SLACK * size - 1).bit_length())
