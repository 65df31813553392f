"""The jar for sessions that lancestat does not start."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lancestat.errors import JarNotWritten
from lancestat.lake.temporary_files import temporary_folder
from lancestat.spark.compiler import EXTENSION_NAME, write_jar
from lancestat.spark.start import (
    require_classic,
    running_session,
    start_session,
    stop_session,
)
from lancestat.spark.versions import has_nearest_by_join
from lancestat.spec.model import Target


@dataclass(frozen=True, slots=True)
class ExtensionJar:
    """A jar that was written, and the version of Spark that it is for."""

    size_bytes: int
    spark: str


def write_extension_jar(path: Path, *, is_replaced: bool = False) -> ExtensionJar:
    """Write the jar for the Spark that is installed here, or that runs in this process.

    Args:
        path: Ends with `.jar`.
        is_replaced: Whether a file that is there is replaced.

    Raises:
        JarNotWritten: it cannot be written, something is in the way, or Spark has no NEAREST BY.
        RunError: Spark does not start.
    """
    _require_free_place(path, is_replaced=is_replaced)
    if not has_nearest_by_join():
        raise JarNotWritten("this Spark has no NEAREST BY, for which the jar is")
    running = running_session()
    with temporary_folder() as folder:
        target = Target("jar", str(folder), spark_master="local[1]")
        spark = running or start_session(target, "lancestat jar", is_short_lived=True)
        try:
            require_classic(spark)
            write_jar(spark, path)
            version = str(spark.version)
        except OSError as error:
            reason = error.strerror or str(error)
            raise JarNotWritten(f"cannot write {path}: {reason}") from None
        finally:
            if running is None:
                stop_session(spark, ends_process=False)
    return ExtensionJar(path.stat().st_size, version)


def jar_settings(path: str) -> dict[str, str]:
    """Return the Spark settings with which a session has the jar and its rule."""
    return {"spark.jars": path, "spark.sql.extensions": EXTENSION_NAME}


def _require_free_place(path: Path, *, is_replaced: bool) -> None:
    if path.suffix != ".jar":
        raise JarNotWritten(f"Spark would not load {path}: its name must end with .jar")
    if not path.parent.is_dir():
        raise JarNotWritten(f"cannot write {path}: there is no folder {path.parent}")
    in_the_way = path.exists() or path.is_symlink()
    if in_the_way and (not is_replaced or not path.is_file()):
        hint = "give --force to replace it" if path.is_file() else "name a file with --out"
        raise JarNotWritten(f"{path} is there already, and was left as it is", hint=hint)
