"""An archive of the classes that Spark loads, with which its JVM starts in half the time.

`lancestat debug --warm-up` makes it, in the user's cache folder, for one Java and one Spark. Java
maps the file into memory and trusts its content: a file that has been cut or changed crashes the
JVM, and one of another user runs their code. So its name holds a checksum, which every start
compares, and nobody else may be able to write it or a folder above it. Java itself does without an
archive of other jars, of another class path or of another build of Java.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import sys
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from lancestat.errors import ClassArchiveNotMade
from lancestat.lake.temporary_files import new_draft, remove, remove_drafts
from lancestat.spark.installation import Java, spark_defaults, spark_home

# Options of Java that say how it shares classes, or with which it could not.
_SHARING = re.compile(
    r"-Xshare|SharedArchiveFile|ArchiveClassesAtExit|AutoCreateSharedArchive|SharedClassListFile"
    r"|DumpSharedSpaces|UseSharedSpaces|AOTCache|AOTMode|-javaagent|-agentpath|-agentlib|patch-module"
    r"|upgrade-module-path|limit-modules|-XX:Flags|-XX:VMOptionsFile"
)
_VARIABLES = (
    "JDK_JAVA_OPTIONS",
    "JAVA_TOOL_OPTIONS",
    "_JAVA_OPTIONS",
    "SPARK_SUBMIT_OPTS",
    "PYSPARK_SUBMIT_ARGS",
)
_PROPERTIES = ("spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions")
# Archives that no start has used for so long are removed when another is made.
_UNUSED_SECONDS = 60 * 24 * 3600
_BLOCK_BYTES = 8 << 20


def archive_options(java: Java, conf: Mapping[str, str]) -> str:
    """Return options for Spark's JVM with which it uses the archive, "" where there is none to use.

    Args:
        java: The Java that Spark will run on.
        conf: The target's configuration of Spark.
    """
    if user_sharing_option(conf) is not None:
        return ""
    archive = find_archive(java)
    if archive is None:
        return ""
    with suppress(OSError):
        os.utime(archive)
    # An archive that does not fit is no reason to say anything.
    path = str(archive).replace("\\", "\\\\").replace('"', '\\"')
    return f'"-XX:SharedArchiveFile={path}" -Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off'


def user_sharing_option(conf: Mapping[str, str]) -> str | None:
    """Return the variable or property in which users say how Java shares classes, if any does."""
    for name in _VARIABLES:
        if _SHARING.search(os.environ.get(name, "")):
            return name
    for name in _PROPERTIES:
        if _SHARING.search(conf.get(name, "")):
            return name
    if any(
        _SHARING.search(line)
        for line in spark_defaults().splitlines()
        if line.strip().startswith(_PROPERTIES)
    ):
        return "spark-defaults.conf"
    return None


def find_archive(java: Java) -> Path | None:
    """Return the archive for a Java and the installed Spark if it is there, whole and safe."""
    base = _base(java)
    if base is None:
        return None
    for archive, checksum in _archives(base):
        with suppress(OSError):
            if distrust(archive) is None and _checksum(archive) == checksum:
                return archive
    return None


def new_archive(java: Java) -> Path:
    """Return a path for Java to write an archive to, which `keep_archive` takes.

    Raises:
        ClassArchiveNotMade: There is no safe folder for it, or it cannot be written.
    """
    base = _base(java)
    if base is None:
        raise ClassArchiveNotMade("this system has no folder that only its owner can write")
    try:
        base.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        why = distrust(base.parent)
        if why is None:
            remove_drafts(base)
            draft = new_draft(base)
            draft.touch(mode=0o600)
            draft.unlink()
            return draft
    except OSError as error:
        raise ClassArchiveNotMade(f"{base.parent} cannot be written: {error.strerror}") from error
    raise ClassArchiveNotMade(
        f"{why}, and Java would run what is in the archive",
        hint="correct its owner and mode, or set XDG_CACHE_HOME to a folder that is yours alone",
    )


def keep_archive(java: Java, draft: Path) -> Path:
    """Put an archive that Java has written in place of older ones, and return its path.

    Raises:
        ClassArchiveNotMade: Java has written none, or it cannot be moved.
    """
    base = _base(java)
    assert base is not None
    try:
        draft.chmod(0o600)
        archive = base.with_name(f"{base.name}-{_checksum(draft)}.jsa")
        draft.replace(archive)
    except OSError as error:
        raise ClassArchiveNotMade(f"Java wrote no archive: {error.strerror}") from error
    for other, _ in _archives(base):
        if other != archive:
            remove(other)
    for other in base.parent.glob("spark-*.jsa"):
        with suppress(OSError):
            if time.time() - other.lstat().st_mtime > _UNUSED_SECONDS:
                remove(other)
    return archive


def _base(java: Java) -> Path | None:
    """The path of the archive without its checksum; None where it cannot be kept."""
    home = spark_home()
    # Java splits the path of an archive at colons.
    if home is None or not hasattr(os, "geteuid") or ":" in str(_cache_folder()):
        return None
    core = sorted(path.name for path in (home / "jars").glob("spark-core_*.jar"))
    parts = [str(java.path.resolve()), java.build, str(home), *core]
    key = hashlib.sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest()[:16]
    return _cache_folder() / f"spark-{key}"


def _cache_folder() -> Path:
    root = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not root.is_absolute():
        # The XDG Base Directory Specification has relative paths ignored.
        root = Path("~/Library/Caches" if sys.platform == "darwin" else "~/.cache").expanduser()
    return root.resolve() / "lancestat"


def _archives(base: Path) -> Iterator[tuple[Path, str]]:
    for path in sorted(base.parent.glob(f"{base.name}-*.jsa")):
        yield path, path.stem.removeprefix(f"{base.name}-")


def distrust(path: Path) -> str | None:
    """Return why another user could change what is at a path, None where nobody can.

    Raises:
        OSError: There is nothing.
    """
    own = os.geteuid()
    for place in (path, *path.parents):
        status = os.lstat(place)
        if stat.S_ISLNK(status.st_mode):
            return f"{place} is a link"
        if status.st_uid not in (own, 0):
            return f"{place} belongs to another user"
        is_sticky_above = status.st_mode & stat.S_ISVTX and place != path
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not is_sticky_above:
            return f"{place} can be written by other users"
    return None


def _checksum(path: Path) -> str:
    crc = size = 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            crc = zlib.crc32(block, crc)
            size += len(block)
    return f"{size:x}-{crc:08x}"
