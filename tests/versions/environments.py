"""The versions of Spark to try lancestat on, installed side by side and kept between runs.

    python -m tests.versions.environments

installs that of `make test`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
FOLDER = Path(os.environ.get("LANCESTAT_SPARK_VERSIONS", REPOSITORY / ".spark-versions"))
# The last releases of each line; the newest line is what `make install` installs.
VERSIONS = ("3.5.9", "4.0.5", "4.1.4", "4.2.1")
# That of `make test`: the oldest, which differs most from the newest. A version costs its
# installation, of some 300 MB, and a minute.
OLDEST = VERSIONS[0]
# PySpark 3.5 pickles functions with code that Python 3.12 changed.
NEWEST_PYTHON = {"3.5.9": (3, 11)}


def runs_here(version: str) -> bool:
    """Whether this Python is one that a version of Spark supports."""
    return sys.version_info[:2] <= NEWEST_PYTHON.get(version, sys.version_info[:2])


def environment(version: str) -> dict[str, str]:
    """Return variables with which this Python finds PySpark of a version before its own.

    Everything else is what is installed beside lancestat. No test fails for what that version of
    PySpark itself warns of.
    """
    paths = [str(installed(version)), str(REPOSITORY)]
    return {
        **{name: value for name, value in os.environ.items() if name != "SPARK_HOME"},
        # As in the Makefile, but for the archive, which is of another Spark.
        "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTEST_ADDOPTS": "-p tests.versions.warnings",
    }


def installed(version: str) -> Path:
    """Return the folder that holds PySpark of a version, installed when it is first asked for."""
    folder = FOLDER / version
    if not folder.exists():
        partial = FOLDER / f"{version}-{uuid.uuid4().hex}"
        ended = subprocess.run(
            [".ci/install", sys.executable, "--target", str(partial), f"pyspark=={version}"],
            cwd=REPOSITORY,
            env={**os.environ, "VENV": sys.prefix},
            stderr=subprocess.PIPE,
            text=True,
        )
        if ended.returncode:
            raise RuntimeError(f"PySpark {version} was not installed:\n{ended.stderr}")
        try:
            partial.rename(folder)
        except OSError:
            # Another process was faster.
            shutil.rmtree(partial)
    return folder


if __name__ == "__main__":
    if runs_here(OLDEST):
        installed(OLDEST)
