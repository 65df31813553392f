"""Spark's Python daemon, with the installed PySpark in place of Spark's archive of it.

Spark has its workers import PySpark from `python/lib/pyspark.zip`. From an archive Python compiles
each module whenever it imports it, and before Python 3.12 it reads the archive's directory once
more for each package in it whenever a path is added, as each worker does for its first task.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib.machinery import PathFinder
from pathlib import Path

SETTING = "spark.python.daemon.module"


def without_archives(path: Iterable[str]) -> list[str]:
    """Return a path of modules without the archives of the Spark that is installed as PySpark.

    Archives of another Spark stay, as all do where PySpark is in no folder of the path.
    """
    entries = list(path)
    found = PathFinder.find_spec("pyspark", [name for name in entries if Path(name).is_dir()])
    if found is None or found.origin is None:
        return entries
    home = Path(found.origin).parent
    return [name for name in entries if home not in Path(name).parents]


def leave_archives() -> None:
    """Have this process, and its forks, import PySpark as it is installed."""
    kept = without_archives(sys.path)
    for name in set(sys.path) - set(kept):
        # Python asks importers of the cache to look again, on the path or not.
        sys.path_importer_cache.pop(name, None)
    sys.path[:] = kept


if __name__ == "__main__":
    leave_archives()
    from pyspark.daemon import manager

    manager()
