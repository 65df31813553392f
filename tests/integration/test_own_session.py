"""Scripts with a session of their own, whose workers would run another Python than lancestat."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import lance
import pytest

from lancestat.spark import versions
from tests.interpreted import short_lived
from tests.runs.world import orders, write_project

pytestmark = pytest.mark.spark

REPOSITORY = Path(__file__).parents[2]

_OF_ANOTHER_VERSION = """
import sys
from collections import namedtuple
Version = namedtuple("Version", "major minor micro releaselevel serial")
sys.version_info = Version(3, 99, 0, "final", 0)
"""


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """The folder of a `python3` that has no packages."""
    command = [sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")]
    subprocess.run(command, check=True)
    return tmp_path / "bare" / "bin"


def ended(folder: Path, path: Path, *settings: str, **variables: str) -> Any:
    """Run the script in a Python that is named by its path, as `venv/bin/python script.py`."""
    lance.write_dataset(orders(0, 100), folder / "orders.lance", max_rows_per_file=25)
    write_project(folder, "orders", min_bytes="1B")
    # Workers look for modules in the folder that Spark starts in, and in PYTHONPATH.
    script = shutil.copy(Path(__file__).with_name("own_session.py"), folder)
    modules = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    kept = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    completed = subprocess.run(
        [sys.executable, script, str(folder), *settings],
        env={
            **kept,
            **short_lived(),
            "PATH": os.pathsep.join([str(path), kept["PATH"]]),
            "PYTHONPATH": os.pathsep.join(name for name in modules if name != str(REPOSITORY)),
            **variables,
        },
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )
    assert completed.returncode == 0, completed.stderr[-4_000:]
    # The JVM may write to stdout, too, such as that it cannot use an archive of classes.
    return json.loads(completed.stdout.splitlines()[-1])


EXPECTED: dict[str, Any] = {
    "run": [["orders", "success", None]],
    "query": [98, 99],
    "join": 4,
    **({"format": 100} if versions.has_python_sources() else {}),
}


def test_own_functions_run_in_the_python_that_runs_lancestat(tmp_path: Path, bare: Path) -> None:
    assert ended(tmp_path, bare) == {**EXPECTED, "left alone": "python3"}


def test_the_python_that_a_setting_names_is_the_one(tmp_path: Path, bare: Path) -> None:
    [[_, status, error]] = ended(tmp_path, bare, f"spark.pyspark.python={bare}/python3")["run"]
    assert status == "error"
    assert f"run {bare}/python3, which has no module 'lancestat'" in error


def test_a_python_without_lancestat_is_named_with_what_mends_it(tmp_path: Path, bare: Path) -> None:
    [[_, status, error]] = ended(tmp_path, bare, PYSPARK_PYTHON=f"{bare}/python3")["run"]
    assert status == "error"
    assert error.startswith("LS537 ")
    message, hint = error.split("\n")
    assert f"Spark's workers run {bare}/python3, which has no module 'lancestat'" in message
    assert f"lancestat runs in {sys.executable}" in message
    assert hint.strip() == f"hint: before Spark starts: export PYSPARK_PYTHON={sys.executable}"


def test_another_minor_version_is_named_in_two_lines(tmp_path: Path, bare: Path) -> None:
    packages = sysconfig.get_path("purelib", vars={"base": str(bare.parent)})
    Path(packages, "sitecustomize.py").write_text(_OF_ANOTHER_VERSION)
    [[_, status, error]] = ended(tmp_path, bare, PYSPARK_PYTHON=f"{bare}/python3")["run"]
    assert status == "error"
    assert error.startswith("LS545 ")
    message, hint = error.split("\n")
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert f"Spark's workers run Python 3.99 ({bare}/python3)" in message
    assert f"lancestat runs in Python {ours} ({sys.executable})" in message
    assert hint.strip() == f"hint: before Spark starts: export PYSPARK_PYTHON={sys.executable}"
