"""The default scratch root of joins, and the check that all workers share it."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Mapping
from getpass import getuser
from pathlib import Path
from typing import TYPE_CHECKING

from lancestat.errors import ScratchNotShared, ScratchUntrusted, ScratchUnusable
from lancestat.spark.versions import is_connect
from lancestat.spec.spark_master import is_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# In place of a master, of which a client of Spark Connect knows nothing.
CONNECT = "Spark Connect"

# Processes of `local-cluster[...]` share this machine's files, but it stands in for a cluster, so
# it has a cluster's requirements.


def scratch_root(declared: str | None, spark: SparkSession) -> str:
    """Return the scratch root of a session's joins: a path or a URI that all its workers reach."""
    if is_connect(spark):
        return root_for(declared, CONNECT, {})
    conf = {"spark.local.dir": str(spark.conf.get("spark.local.dir", ""))}
    return root_for(declared, spark.sparkContext.master, conf)


def root_for(declared: str | None, master: str, conf: Mapping[str, str]) -> str:
    """Return the scratch root of joins under a master.

    Args:
        declared: The target's `scratch`, which is taken as it is.
        master: As Spark spells it, or `CONNECT`.
        conf: Spark's configuration, for `spark.local.dir`.
    """
    if declared is not None:
        return declared
    require_shared(declared, master)
    root = default_root(conf)
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = root.lstat()
    except OSError as error:
        raise ScratchUnusable(
            f"the scratch folder {root} cannot be used: {error.strerror}",
            hint="set the target's 'scratch'",
        ) from None
    if not _is_own_folder(status):
        raise ScratchUntrusted(
            f"the scratch folder {root} is a link, or belongs to somebody else",
            hint="remove it, or set the target's 'scratch'",
        )
    return str(root)


def require_shared(declared: str | None, master: str | None) -> None:
    """Refuse a cluster without scratch that all its executors share; no session is needed.

    Args:
        declared: The target's `scratch`.
        master: As Spark spells it, or `CONNECT`; None where only its own configuration tells.
    """
    if declared is None and master is not None and not is_local(master):
        name = master if master == CONNECT else f"'{master}'"
        raise ScratchNotShared(
            f"a join on {name} needs scratch that all executors share, and none is declared",
            hint="set the target's 'scratch' to a shared folder or an object-store URI",
        )


def known_roots(declared: str | None, conf: Mapping[str, str]) -> list[str]:
    """Return the roots that may hold a user's scratch: the declared one, and sessions' default."""
    roots = [declared] if declared is not None else []
    default = default_root(conf)
    try:
        is_own = _is_own_folder(default.lstat())
    except OSError:
        return roots
    return [*roots, str(default)] if is_own and str(default) not in roots else roots


def default_root(conf: Mapping[str, str]) -> Path:
    """Return the folder for this user's scratch under Spark's local one, without a session.

    Spark's own order: the first of `SPARK_LOCAL_DIRS`, else of `spark.local.dir`, else the system's
    folder for temporary files.
    """
    dirs = os.environ.get("SPARK_LOCAL_DIRS") or conf.get("spark.local.dir") or ""
    first = next(
        (folder.strip() for folder in dirs.split(",") if folder.strip()), tempfile.gettempdir()
    )
    owner = os.getuid() if hasattr(os, "getuid") else getuser()
    return Path(first).absolute() / f"lancestat-{owner}"


def _is_own_folder(status: os.stat_result) -> bool:
    owner = os.getuid() if hasattr(os, "getuid") else status.st_uid
    return stat.S_ISDIR(status.st_mode) and status.st_uid == owner
