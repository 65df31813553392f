"""The place of a join's result."""

from __future__ import annotations

import os
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path

from lancestat.knn.output_failure import refused
from lancestat.lake.uri import local_path
from lancestat.state.identity import canonical_uri


def place_digest(uri: str) -> str:
    """32 hex digits that stand for a place, however its URI is written, and show nothing of it."""
    text = canonical_uri(uri).encode(errors="surrogatepass")
    return blake2b(text, digest_size=16).hexdigest()


def require_outside_datasets(uri: str, options: Mapping[str, str]) -> None:
    """Refuse a place on this machine that is inside another Lance dataset.

    Lance takes what lies in certain folders of a dataset for parts of it: branches, manifests,
    indexes. A cleanup of the outer dataset would also remove files of the result.

    Raises:
        RunError: LS570 the place is inside a dataset.
    """
    path = local_path(uri)
    if path is None:
        return
    for folder in Path(os.path.realpath(path)).parents:
        if any((folder / "_versions").glob("*.manifest")):
            raise refused(uri, f"a place inside the Lance dataset {folder}", options)
