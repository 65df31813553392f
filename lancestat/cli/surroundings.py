"""What lancestat needs of the machine: Python, Java, libraries."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module, metadata
from pathlib import Path

from lancestat.cli.check import Check
from lancestat.errors import LancestatError

PYTHON_NEEDED = (3, 10)
_REQUIREMENT = re.compile(r"([A-Za-z0-9_.\-]+)>=([0-9.]+)$")
# Modules whose native code a wrong build of the machine or of a neighbour would break.
_NATIVE = {
    "faiss-cpu": "faiss",
    "numpy": "numpy",
    "polars": "polars",
    "polars-hash": "polars_hash",
    "pyarrow": "pyarrow",
    "pylance": "lance",
}


def check_surroundings(environment: Mapping[str, str] | None = None) -> Iterator[Check]:
    """Check Python, Java and every library, each on a line of its own."""
    known = os.environ if environment is None else environment
    yield check_python()
    yield check_java()
    yield from check_libraries()
    yield from check_spark_home(known)


def check_python() -> Check:
    """Whether this interpreter is new enough."""
    found = platform.python_version()
    if sys.version_info[:2] >= PYTHON_NEEDED:
        return Check("Python", True, found)
    return Check("Python", False, found, "use Python 3.10 or newer")


def check_java() -> Check:
    """Whether the Java that Spark would start is there and new enough."""
    from lancestat.spark.java import find_java

    try:
        java = find_java()
    except LancestatError as error:
        return Check("Java", False, error.message, error.hint or "install Java 17")
    return Check("Java", True, f"{java.version} at {java.path}")


def check_libraries() -> Iterator[Check]:
    """Whether what lancestat requires is installed, new enough and can be loaded."""
    for requirement in metadata.requires("lancestat") or ():
        wanted = _REQUIREMENT.match(requirement)
        if wanted:
            yield check_library(wanted[1], wanted[2])


def check_library(name: str, needed: str) -> Check:
    """Look at one distribution."""
    advice = f"pip install '{name}>={needed}'"
    try:
        found = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Check(name, False, "not installed", advice)
    if _numbers(found) < _numbers(needed):
        return Check(name, False, f"{found}, lancestat needs {needed} or newer", advice)
    if name in _NATIVE:
        try:
            import_module(_NATIVE[name])
        except Exception as error:
            broken = f"{found} does not load: {' '.join(str(error).split())}"
            return Check(name, False, broken, f"pip install --force-reinstall '{name}>={needed}'")
    return Check(name, True, found)


def check_spark_home(environment: Mapping[str, str]) -> Iterator[Check]:
    """Whether SPARK_HOME, if set, names a Spark of the version that pyspark has."""
    home = environment.get("SPARK_HOME")
    if not home:
        return
    release = Path(home) / "RELEASE"
    if not Path(home).is_dir():
        yield Check("SPARK_HOME", False, f"{home} does not exist", "unset SPARK_HOME")
        return
    text = release.read_text("utf-8", errors="replace") if release.is_file() else ""
    named = re.search(r"Spark ([0-9.]+)", text)
    try:
        ours = metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        return
    if named and named[1] != ours:
        finding = f"{home} is Spark {named[1]}, the pyspark library {ours}"
        yield Check("SPARK_HOME", False, finding, "unset SPARK_HOME, or install the same pyspark")
    else:
        yield Check("SPARK_HOME", True, home)


def _numbers(version: str) -> tuple[int, ...]:
    """`10.2.1rc1` as (10, 2, 1), without trailing zeros, so that 14 and 14.0 are equal."""
    found = re.match(r"[0-9]+(?:\.[0-9]+)*", version)
    numbers = [int(part) for part in found[0].split(".")] if found else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
