"""Table statistics for Lance tables: declared in YAML, run on Spark, and only for what changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lancestat.version import __version__

if TYPE_CHECKING:
    from lancestat import errors, events
    from lancestat.joins.knn_join import knn_join
    from lancestat.joins.nearest_by import register
    from lancestat.presentation.display import explain
    from lancestat.project import Project
    from lancestat.query.read.relation import read_table

__all__ = [
    "Project",
    "__version__",
    "errors",
    "events",
    "explain",
    "knn_join",
    "read_table",
    "register",
]

_PUBLIC_MODULES = frozenset(("errors", "events"))

_MODULES = {
    "Project": "lancestat.project",
    "explain": "lancestat.presentation.display",
    "knn_join": "lancestat.joins.knn_join",
    "read_table": "lancestat.query.read.relation",
    "register": "lancestat.joins.nearest_by",
}


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in _PUBLIC_MODULES:
        return import_module(f"lancestat.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module 'lancestat' has no attribute '{name}'")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
