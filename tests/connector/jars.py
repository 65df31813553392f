"""The jars of the real Lance connector for Spark, and of the libraries that it needs.

The connector's own jars come from a folder, each named `lance-spark-BUILD-sparkLINE.jar`, such as
`lance-spark-071-spark43.jar` of release 0.7.1 for Spark 4.3. The libraries come from Maven, by the
names in `pom.xml`, when a test first needs them; they are kept in the checkout.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import uuid
from dataclasses import dataclass
from pathlib import Path

import pyspark

REPOSITORY = Path(__file__).parents[2]
# Names the folder of the connector's jars.
VARIABLE = "LANCESTAT_CONNECTOR_JARS"
LIBRARIES = REPOSITORY / ".connector-jars"
POM = Path(__file__).parent / "pom.xml"

_NAME = re.compile(r"lance-spark-(\w+)-spark(\d)(\d+)\.jar")
# Of a name such as guava-33.3.1-jre.jar; Spark's Scala libraries have a version before it too.
_VERSION = re.compile(r"(_[0-9.]+)?-[0-9][^/]*\.jar")


@dataclass(frozen=True)
class ConnectorJar:
    """A build of the connector: what it is called, and the line of Spark that it is for."""

    path: Path
    build: str
    spark: str


def connector_jars() -> list[ConnectorJar]:
    """Return the builds in the folder, none where there is no such folder."""
    found = []
    for path in sorted(_folder().glob("*.jar")):
        named = _NAME.fullmatch(path.name)
        if named:
            found.append(ConnectorJar(path, named[1], f"{named[2]}.{named[3]}"))
    return found


def _folder() -> Path:
    return Path(os.environ.get(VARIABLE, REPOSITORY.parent / "shared" / "connector"))


def why_not(jar: ConnectorJar | None) -> str | None:
    """Return the reason why a build cannot be tested here, None where it can."""
    if jar is None:
        return f"{_folder()} holds no build of the connector; {VARIABLE} names another folder"
    running = ".".join(pyspark.__version__.split(".")[:2])
    if jar.spark != running:
        return f"{jar.path.name} is for Spark {jar.spark}, and this is {running}"
    if not LIBRARIES.exists() and shutil.which("mvn") is None:
        return "the libraries that the connector needs come from Maven, which is not installed"
    return None


def class_path(jar: ConnectorJar) -> list[Path]:
    """Return the jars for Spark's class path: the connector, and what neither brings."""
    brought = {
        _VERSION.sub("", path.name) for path in (Path(pyspark.__file__).parent / "jars").iterdir()
    }
    libraries = sorted(_libraries().iterdir())
    return [jar.path, *(path for path in libraries if _VERSION.sub("", path.name) not in brought)]


def _libraries() -> Path:
    """Return the folder of libraries, which Maven fetches where it is missing."""
    if not LIBRARIES.exists():
        partial = REPOSITORY / f"{LIBRARIES.name}-{uuid.uuid4().hex}"
        command = [
            "mvn",
            "--batch-mode",
            "--quiet",
            f"--file={POM}",
            "dependency:copy-dependencies",
        ]
        command += ["-DincludeScope=runtime", f"-DoutputDirectory={partial}"]
        ended = subprocess.run(command, capture_output=True, text=True)
        if ended.returncode:
            shutil.rmtree(partial, ignore_errors=True)
            raise RuntimeError(f"Maven did not fetch the connector's libraries:\n{ended.stdout}")
        try:
            partial.rename(LIBRARIES)
        except OSError:
            # Another process was faster.
            shutil.rmtree(partial)
    return LIBRARIES


if __name__ == "__main__":
    _libraries()
