"""The values that the state stores, and the identities of what they describe."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
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

    Of a run whose process was killed `finished_at` is when it started.
    """

    run_id: str
    command: str
    target: str
    started_at: Instant
    finished_at: Instant
    status: str
    nodes: tuple[NodeRun, ...]


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
    return sha256(canonical_uri(uri).encode(errors="surrogatepass")).hexdigest()[:24]


def join_identity(node: str) -> str:
    """Return the identity of a join, which is never that of a table."""
    return f"knn_join {node}"


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


# Spark's types hold no plus sign.
_QUANTILES = "+quantiles"

# 4 kB and 20 kB, in memory.
_PARTIALS_PER_QUANTILES = 5


def quantile_key(field_key: str) -> str:
    """The key of a column's partial with quantiles."""
    return field_key + _QUANTILES


def has_quantiles(key: str) -> bool:
    """Whether a partial stored under this key has quantiles."""
    return key.endswith(_QUANTILES)


def plain_key(key: str) -> str:
    """The field key behind a stored key."""
    return key.removesuffix(_QUANTILES)


# Fragments of a table mostly have the same columns, so that few sets are requested, often.
@lru_cache(maxsize=1024)
def plain_keys(keys: frozenset[str]) -> frozenset[str]:
    """The field keys behind stored keys."""
    return frozenset(map(plain_key, keys))


@lru_cache(maxsize=1024)
def weight(keys: frozenset[str]) -> int:
    """Return how many partials without quantiles take as much memory as those of these keys."""
    return len(keys) + _PARTIALS_PER_QUANTILES * sum(map(has_quantiles, keys))


def covered_keys(keys: frozenset[str]) -> frozenset[str]:
    """Return the keys that partials stored under `keys` serve: also those without quantiles."""
    return keys | plain_keys(keys) if any(map(has_quantiles, keys)) else keys
