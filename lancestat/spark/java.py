"""Finds the Java that Spark's launcher would start."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from lancestat.errors import RunError

OLDEST_JAVA = 17


@dataclass(frozen=True, slots=True)
class Java:
    """A Java executable and its major version."""

    path: Path
    version: int


def find_java() -> Java:
    """The Java of JAVA_HOME, else of PATH, as Spark's `bin/spark-class` picks it.

    Raises:
        RunError: there is none (LS520), or it is older than Spark accepts (LS521).
    """
    java = Java(path := _executable(), _version(path))
    if java.version < OLDEST_JAVA:
        raise RunError(
            "LS521",
            f"Spark needs Java {OLDEST_JAVA} or newer, and {path} is Java {java.version}",
            hint=f"install OpenJDK {OLDEST_JAVA} and set JAVA_HOME to its folder",
        )
    return java


def _executable() -> Path:
    hint = f"install OpenJDK {OLDEST_JAVA} (Debian: apt install openjdk-{OLDEST_JAVA}-jre-headless)"
    home = os.environ.get("JAVA_HOME")
    if home:
        path = Path(home) / "bin" / "java"
        if shutil.which(path) is None:
            raise RunError("LS520", f"JAVA_HOME is {home}, which holds no bin/java", hint=hint)
        return path
    found = shutil.which("java")
    if found is None:
        raise RunError("LS520", "Spark needs Java, and no java is on the PATH", hint=hint)
    return Path(found)


def _version(path: Path) -> int:
    try:
        shown = subprocess.run(
            [path, "-version"], capture_output=True, text=True, timeout=60, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError) as error:
        raise RunError("LS520", f"{path} does not run: {error}") from error
    # "1.8.0_392" is Java 8, "17.0.15" is Java 17 (JEP 223).
    found = re.search(r'version "(?:1\.)?(\d+)', shown)
    if found is None:
        raise RunError("LS520", f"{path} does not say its version: {shown.strip()[:200]!r}")
    return int(found.group(1))
