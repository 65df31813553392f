"""Table statistics for Lance tables: declared in YAML, run on Spark, and only for what changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lancestat.project import Project

__version__ = "0.1.0"
__all__ = ["Project", "__version__"]


def __getattr__(name: str) -> object:
    if name == "Project":
        from lancestat.project import Project

        return Project
    raise AttributeError(f"module 'lancestat' has no attribute '{name}'")
