"""What holds with the real Lance connector for Spark, build by build.

Its jars have to be on the class path when a JVM starts, so the tests in `real` run in a process of
their own for each build.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.connector.jars import REPOSITORY, connector_jars, why_not
from tests.examples import profile_option, sample

pytestmark = pytest.mark.spark

JARS = {jar.build: jar for jar in connector_jars()}
# The last has what the others have, and reads the statistics itself.
BUILDS = sample(sorted(JARS, reverse=True) or ["none"], 1)


@pytest.mark.parametrize("build", BUILDS)
def test_lancestat_and_a_build_of_the_connector_agree(build: str) -> None:
    reason = why_not(JARS.get(build))
    if reason is not None:
        pytest.skip(reason)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    ended = subprocess.run(
        [*command, profile_option(), "tests/connector/real"],
        cwd=REPOSITORY,
        env={**os.environ, "LANCESTAT_CONNECTOR_BUILD": build},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stdout[-6000:] + ended.stderr[-2000:]
