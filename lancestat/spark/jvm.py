"""Finds Java and starts Spark's JVM, with an archive of the classes that Spark loads.

With the archive the JVM starts in half the time. `lancestat debug --warm-up` makes it, in the
user's cache folder, for one Java and one Spark. Java maps the file into memory and trusts its
content: a file that has been cut or changed crashes the JVM, and one of another user runs their
code. So its name holds a checksum, which every start compares, and nobody else may be able to write
it or a folder above it. Java itself does without an archive of other jars, of another class path or
of another build of Java.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import time
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, wraps
from importlib.util import find_spec
from pathlib import Path

from lancestat.errors import ClassArchiveNotMade, JavaMissing, JavaTooOld, RunError, SparkNotStarted
from lancestat.lake.files import new_draft, remove, remove_drafts, temporary_folder
from lancestat.redact import redact_line

OLDEST_JAVA = 17


@dataclass(frozen=True, slots=True)
class Java:
    """A Java executable, its major version, and what it prints as its whole version."""

    path: Path
    version: int
    build: str = field(default="", compare=False)

    @property
    def home(self) -> Path:
        """The folder that JAVA_HOME would name."""
        return self.path.parent.parent


def find_java() -> Java:
    """Return the Java of JAVA_HOME, else of PATH, as Spark's `bin/spark-class` does.

    If PATH has none that Spark accepts, return the oldest one that it accepts in the usual
    locations of this system. JavaMissing without one, JavaTooOld if Spark does not accept it.
    """
    java = _configured_java()
    if java.version < OLDEST_JAVA:
        raise JavaTooOld(
            f"Spark needs Java {OLDEST_JAVA} or newer, and {java.path} is Java {java.version}",
            hint=f"install OpenJDK {OLDEST_JAVA} and set JAVA_HOME to its folder",
        )
    return java


def _configured_java() -> Java:
    hint = (
        f"install OpenJDK {OLDEST_JAVA} or newer "
        "(Debian 12: apt install openjdk-17-jre-headless, Debian 13: openjdk-21-jre-headless)"
    )
    home = os.environ.get("JAVA_HOME")
    if home:
        path = Path(home) / "bin" / "java"
        if shutil.which(path) is None:
            raise JavaMissing(f"JAVA_HOME is {home}, which holds no bin/java", hint=hint)
        return _run_version(path)
    on_path: Java | JavaMissing = JavaMissing(
        "Spark needs Java, and no java is on the PATH nor where it is usually installed", hint=hint
    )
    path_of_java = shutil.which("java")
    if path_of_java is not None:
        try:
            on_path = _run_version(Path(path_of_java))
        except JavaMissing as error:
            # macOS has a program of this name that only says that there is no Java.
            on_path = error
    if isinstance(on_path, Java) and on_path.version >= OLDEST_JAVA:
        return on_path
    installed = [java for java in _installed_javas() if java.version >= OLDEST_JAVA]
    if installed:
        return min(installed, key=lambda java: java.version)
    if isinstance(on_path, Java):
        return on_path
    raise on_path


# Folders that hold folders which JAVA_HOME could name, with the pattern of these.
_USUAL_HOMES = (
    ("/usr/lib/jvm", "*"),
    ("/usr/java", "*"),
    ("/opt/java", "*"),
    ("/Library/Java/JavaVirtualMachines", "*/Contents/Home"),
    ("~/Library/Java/JavaVirtualMachines", "*/Contents/Home"),
    ("/opt/homebrew/opt", "openjdk*"),
    ("/usr/local/opt", "openjdk*"),
    ("/home/linuxbrew/.linuxbrew/opt", "openjdk*"),
    ("~/.sdkman/candidates/java", "*"),
    ("~/.jdks", "*"),
)


def _installed_javas() -> Iterator[Java]:
    seen = set()
    for folder, pattern in _USUAL_HOMES:
        for home in sorted(Path(folder).expanduser().glob(pattern)):
            path = home / "bin" / "java"
            if shutil.which(path) is not None and path.resolve() not in seen:
                seen.add(path.resolve())
                with suppress(JavaMissing):
                    yield _run_version(path)


def _run_version(path: Path) -> Java:
    try:
        printed = subprocess.run(
            [path, "-version"], capture_output=True, text=True, timeout=60, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError) as error:
        raise JavaMissing(f"{path} does not run: {error}") from error
    # "1.8.0_392" is Java 8, "17.0.15" is Java 17 (JEP 223).
    version = re.search(r'version "(?:1\.)?(\d+)', printed)
    if version is None:
        raise JavaMissing(f"{path} printed no version: {printed.strip()[:200]!r}")
    # Before them it may repeat the options in its environment.
    return Java(path, int(version[1]), printed[printed.rfind("\n", 0, version.start()) + 1 :])


def spark_home() -> Path | None:
    """Return the folder of the Spark that PySpark starts; PySpark is not imported."""
    home = os.environ.get("SPARK_HOME")
    if home:
        return Path(home)
    package = find_spec("pyspark")
    return Path(package.origin).parent if package is not None and package.origin else None


def spark_defaults() -> str:
    """Return Spark's default properties, which it ignores where it is given a file of them.

    Since Spark 4.0 an option of spark-submit would load them. PySpark is not imported.
    """
    folder, home = os.environ.get("SPARK_CONF_DIR"), spark_home()
    if not folder and home is None:
        return ""
    path = Path(folder or f"{home}/conf") / "spark-defaults.conf"
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


_LAST_LINES = 3


_NOISE = re.compile(r"^\s+at |^WARNING|^NOTE: Picked up|^Using Spark's|^$|WARN |\bINFO ")


_CAUSE = re.compile(r"error|exception|unable|fail", re.IGNORECASE)


_SECRET = re.compile(r"secret|password|token|key|credential", re.IGNORECASE)


# The second compiler of the JVM pays off after minutes; in a run's short life it takes the
# processor from the workers: 0.8 s of 3.7 s for an analysis of TPC-H lineitem at scale 1.
_FIRST_COMPILER_ONLY = "-XX:TieredStopAtLevel=1"


def start_jvm(
    master: str | None, conf: Mapping[str, str], *, quiet: bool, is_short_lived: bool
) -> None:
    """Start the JVM for PySpark's next session, unless spark-submit started it.

    `conf` reaches the JVM in a private file, since command lines are public. `quiet` keeps what the
    JVM prints. A short-lived JVM of a local master does not optimise its code for a long life.
    RunError if there is no Java, it is too old, or the JVM ended immediately.
    """
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway

    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    java = find_java()
    properties = {**conf, **({"spark.master": master} if master else {})}
    options = os.environ.get("JDK_JAVA_OPTIONS", "")
    submit_options = [archive_options(java, conf), os.environ.get("SPARK_SUBMIT_OPTS", "")]
    if is_short_lived and (master is None or master.startswith("local")):
        # Options of the command line come after these, so a user's own choice wins.
        options = f"{_FIRST_COMPILER_ONLY} {options}".strip()
    with (
        tempfile.TemporaryFile() as log,
        _properties_file(properties) as path,
        changed_environment(
            **({} if shutil.which("java") == str(java.path) else {"JAVA_HOME": str(java.home)}),
            JDK_JAVA_OPTIONS=options or None,
            SPARK_SUBMIT_OPTS=" ".join(filter(None, submit_options)) or None,
            **utf8_locale(os.environ),
            PYSPARK_PYTHON=os.environ.get("PYSPARK_PYTHON", sys.executable),
            # `workers_python` runs on the driver too, to plan reads of Python data sources.
            PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
            PYSPARK_SUBMIT_ARGS=f"--properties-file '{path}' "
            + os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"),
        ),
        warnings.catch_warnings(),
    ):
        # Lance warns of every fork; this one becomes another program at once.
        warnings.filterwarnings("ignore", message=".*fork", category=UserWarning)
        try:
            output = {"stdout": log, "stderr": subprocess.STDOUT} if quiet else None
            gateway = launch_gateway(popen_kwargs=output)
        except Exception as error:
            log.seek(0)
            printed = log.read().decode(errors="replace") or str(error)
            raise not_started(printed, conf) from None
    SparkContext._ensure_initialized(gateway=gateway)


def utf8_locale(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what has to change in an environment for Java to find files by any name.

    Java takes the encoding of file names from the locale, and that of `C` is ASCII. Python uses
    UTF-8 there, and where only LANG says `C`, it has corrected that for what it starts.
    """
    is_ascii = environment.get("LC_ALL") in ("C", "POSIX")
    return {"LC_ALL": "C.UTF-8"} if is_ascii else {}


def not_started(output: str, conf: Mapping[str, str]) -> RunError:
    """Return the error with the cause from the JVM's output, without secrets of `conf`."""
    secrets = [value for key, value in conf.items() if _SECRET.search(key)]
    return SparkNotStarted(
        f"Spark did not start: {redact_line(cause_in(output), secrets)}",
        hint="check the target's spark section, and `lancestat debug`",
    )


def cause_in(output: str) -> str:
    """Return the lines of a JVM's output that say why it ended."""
    lines = [line.strip() for line in output.splitlines() if not _NOISE.search(line)]
    causes = [line for line in lines if _CAUSE.search(line)]
    return " ".join((causes or lines)[:_LAST_LINES]) or "it exited without output"


@contextmanager
def _properties_file(properties: Mapping[str, str]) -> Iterator[Path]:
    with temporary_folder() as folder:
        path = folder / "spark.properties"
        path.touch(mode=0o600)
        lines = (f"{_escaped(key)}={_escaped(value)}\n" for key, value in properties.items())
        path.write_text(spark_defaults() + "\n" + "".join(lines), encoding="utf-8")
        yield path


@contextmanager
def changed_environment(**changes: str | None) -> Iterator[None]:
    """Change variables while the block runs, for this process's Python and what it starts.

    What this thread sets within, as PySpark does, stays in `os.environ`. Threads of Lance call
    `getenv` all the time, and a `setenv` frees the memory that it reads.
    """
    _keep_from_c()
    before = {name: os.environ.get(name) for name in changes}
    _python_alone.depth = getattr(_python_alone, "depth", 0) + 1
    try:
        _set_variables(changes)
        yield
    finally:
        _set_variables(before)
        _python_alone.depth -= 1


_python_alone = threading.local()


@cache
def _keep_from_c() -> None:
    """Make `os.environ` skip the C library in threads that change variables for Python alone."""

    def unless_alone(change: Callable[..., None]) -> Callable[..., None]:
        @wraps(change)
        def changed(*arguments: bytes) -> None:
            if not getattr(_python_alone, "depth", 0):
                change(*arguments)

        return changed

    os.putenv, os.unsetenv = unless_alone(os.putenv), unless_alone(os.unsetenv)


def _set_variables(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


# With these PySpark and spark-submit look for a server, also where a master is given.
CONNECT_VARIABLES = ("SPARK_REMOTE", "SPARK_API_MODE", "SPARK_CONNECT_MODE")


def _escaped(text: str) -> str:
    # java.util.Properties: backslashes escape, and so these characters stand for themselves.
    text = re.sub(r"([\\ :=#!])", r"\\\1", text)
    return text.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")


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
    """Return options with which Spark's JVM uses the archive, "" where there is none to use."""
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

    ClassArchiveNotMade if there is no safe folder for it, or it cannot be written.
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
    """Put an archive that Java has written in place of older ones, and return its path."""
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
    """Return why another user could change what is at a path, None where nobody can."""
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
