"""Pins of real datasets, for tests."""

from __future__ import annotations

import os
from pathlib import Path

import lance

from lancestat.lake.snapshot import Pin, pin_of


def pinned(uri: str | Path, version: int | None = None) -> Pin:
    """Return the pin of the dataset at a URI, at its latest version or at another."""
    return pin_of(lance.dataset(uri, version=version), os.fspath(uri))
