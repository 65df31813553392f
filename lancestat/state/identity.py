"""The identity of a table in the state: a digest of where it is, without anything secret."""

from __future__ import annotations

import os
from functools import lru_cache
from hashlib import sha256
from urllib.parse import urlsplit

from lancestat.lake.files import local_path

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
