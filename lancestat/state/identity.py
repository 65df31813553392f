"""The identity of a table in the state: a digest of where it is, without anything secret."""

from __future__ import annotations

import os
from hashlib import sha256
from urllib.parse import urlsplit

from lancestat.lake.uri import local_path

_ALIASES = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}
# In these URIs the container stands where other schemes have the user.
_CONTAINER_BEFORE_HOST = {"abfs", "abfss", "wasb", "wasbs"}


def table_identity(uri: str) -> str:
    """24 hex digits that stand for the dataset at `uri`, however its URI is written."""
    return sha256(canonical_uri(uri).encode(errors="surrogatepass")).hexdigest()[:24]


def join_identity(node: str) -> str:
    """What stands for a join where tables have their identity; never that of a table."""
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
