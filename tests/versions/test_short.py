"""What differs between versions, and the path of the demo, on older Sparks."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.examples import profile_option
from tests.versions.environments import OLDEST, REPOSITORY, VERSIONS, environment, runs_here

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    "version",
    [
        pytest.param(version, marks=() if version == OLDEST else pytest.mark.thorough)
        for version in filter(runs_here, VERSIONS)
    ],
)
def test_an_older_spark_has_what_lancestat_uses(version: str) -> None:
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", profile_option()),
            "tests/integration/test_versions.py",
            "tests/integration/test_plan_estimates.py",
            "tests/integration/test_query_log.py",
        ],
        cwd=REPOSITORY,
        env=environment(version),
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-2000:]
