"""Pins: which version of which dataset was looked at."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lancestat.lake.snapshot import Fragment


@dataclass(frozen=True, slots=True)
class Pin:
    """A version of a dataset, told apart from every other dataset that was or will be at its URI.

    Version numbers alone do not do that: a dataset that is dropped and created again counts from 1,
    and a restored backup counts on from where it was taken. `manifest` identifies the manifest
    (`manifest_identity`). A pin is made when a dataset is observed, and checked whenever it is
    opened again (`lake.open.open_pinned`).
    """

    uri: str
    version: int
    manifest: str


def manifest_identity(committed_at: datetime | None, newest: Fragment | None) -> str:
    """A digest of what tells two manifests of the same version number apart: 32 hex digits.

    These are the commit time, which Lance records in microseconds, and the files of the fragment
    with the highest id, whose names are random. The second tells histories apart whose clocks
    agree, as frozen or coarse ones do. Both are in memory once a manifest has been read.

    Args:
        committed_at: The time of the commit, as the manifest has it.
        newest: The fragment with the highest id, None where there is no fragment.
    """
    at = None if committed_at is None else committed_at.astimezone(timezone.utc).isoformat()
    files = None
    if newest is not None:
        paths = [[file.base_id, file.path] for file in newest.files]
        files = [newest.id, newest.physical_rows, newest.deletion_file, paths]
    text = json.dumps([at, files])
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).hexdigest()
