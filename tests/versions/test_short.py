"""The demo and the tests of what differs, on each version of Spark; `make matrix` runs the rest."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.versions.environments import REPOSITORY, VERSIONS, WARNINGS, environment, runs_here

pytestmark = pytest.mark.spark

FILES = ("tests/integration/test_versions.py", "tests/integration/test_demo.py")


@pytest.mark.parametrize("version", [version for version in VERSIONS if runs_here(version)])
def test_a_version_of_spark_does_the_demo(version: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *WARNINGS, *FILES],
        cwd=REPOSITORY,
        env=environment(version),
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-2000:]
