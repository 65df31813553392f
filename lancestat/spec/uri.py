"""Paths and URIs as they are written in YAML."""

from __future__ import annotations

import os
import re
from pathlib import Path

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def resolve_uri(root: Path, text: str) -> str:
    """A URI as it is; a path made absolute against `root`, `~` being the home folder.

    ValueError, to be read after the key's name, when no path can look like that.
    """
    if any(ord(char) < 32 or ord(char) == 127 for char in text):
        raise ValueError("holds a control character")
    if not text.strip():
        raise ValueError("is blank")
    if _SCHEME.match(text):
        return text
    try:
        return os.path.normpath(root / Path(text).expanduser())
    except RuntimeError:
        raise ValueError("starts with '~' but names no home folder") from None
