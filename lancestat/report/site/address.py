"""Where the page of a node is: file names that every file system takes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping

from lancestat.report.values import NodeReport, TableReport

_PLAIN = re.compile(r"[a-z0-9]+(?:[_-][a-z0-9]+)*")
_OTHER = re.compile(r"[^a-z0-9_]+")
_LIKE_HASHED = re.compile(r".*-[0-9a-f]{12}")
_LONGEST = 60
# Windows opens devices under these names, whatever the suffix.
_RESERVED = frozenset(
    ("con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10)))
)


def slug(name: str) -> str:
    """A lower-case ASCII file name without suffix, different for different names.

    A short name of lower-case letters and digits is itself; any other gets a digest of the whole.
    """
    is_plain = _PLAIN.fullmatch(name) and len(name) <= _LONGEST
    if is_plain and name not in _RESERVED and not _LIKE_HASHED.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    readable = _OTHER.sub("-", name.lower())[:_LONGEST].strip("-_")
    return f"{readable or 'node'}-{digest}"


def addresses(nodes: Iterable[NodeReport]) -> Mapping[str, str]:
    """The page of each node, relative to the site's folder."""
    return {node.spec.name: f"{_folder(node)}/{slug(node.spec.name)}.html" for node in nodes}


def _folder(node: NodeReport) -> str:
    return "tables" if isinstance(node, TableReport) else "joins"
