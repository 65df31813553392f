"""Finds what Spark needs on this machine: Java, and Spark's own folder with its defaults."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from lancestat.errors import JavaMissing, JavaTooOld

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
    locations of this system.

    Raises:
        JavaMissing: there is none.
        JavaTooOld: it is older than Spark accepts.
    """
    java = _configured_java()
    if java.version < OLDEST_JAVA:
        raise JavaTooOld(
            f"Spark needs Java {OLDEST_JAVA} or newer, and {java.path} is Java {java.version}",
            hint=f"install OpenJDK {OLDEST_JAVA} and set JAVA_HOME to its folder",
        )
    return java


def _configured_java() -> Java:
    hint = f"install OpenJDK {OLDEST_JAVA} (Debian: apt install openjdk-{OLDEST_JAVA}-jre-headless)"
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
