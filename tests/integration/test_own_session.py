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


def bare(folder: Path) -> Path:
    """Make a `python3` that has no packages, and return its folder."""
    command = [sys.executable, "-m", "venv", "--without-pip", str(folder / "bare")]
    subprocess.run(command, check=True)
    return folder / "bare" / "bin"


def ended(folder: Path, path: Path, *settings: str) -> list[Any]:
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
        },
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )
    assert completed.returncode == 0, completed.stderr[-4_000:]
    # The JVM may write to stdout, too, such as that it cannot use an archive of classes.
    found: list[Any] = json.loads(completed.stdout.splitlines()[-1])
    return found


EXPECTED: dict[str, Any] = {
    "run": [["orders", "success", None]],
    "query": [98, 99],
    "join": 4,
    **({"format": 100} if versions.has_python_sources() else {}),
}


def test_own_functions_run_in_the_python_that_runs_lancestat(tmp_path: Path) -> None:
    assert ended(tmp_path, bare(tmp_path)) == [{**EXPECTED, "left alone": "python3"}]


def test_another_python_is_named_with_what_mends_it(tmp_path: Path) -> None:
    """Of a setting or of a variable; without lancestat, or of another minor version."""
    path, other = bare(tmp_path), bare(tmp_path / "other")
    packages = sysconfig.get_path("purelib", vars={"base": str(other.parent)})
    Path(packages, "sitecustomize.py").write_text(_OF_ANOTHER_VERSION)
    set, without, older = (
        found["run"][0]
        for found in ended(
            tmp_path,
            path,
            f"spark.pyspark.python={path}/python3",
            f"PYSPARK_PYTHON={path}/python3",
            f"PYSPARK_PYTHON={other}/python3",
        )
    )
    assert {status for _, status, _ in (set, without, older)} == {"error"}
    assert f"run {path}/python3, which has no module 'lancestat'" in set[2]
    export = f"hint: before Spark starts: export PYSPARK_PYTHON={sys.executable}"

    message, hint = without[2].split("\n")
    assert message.startswith("LS537 ")
    assert f"Spark's workers run {path}/python3, which has no module 'lancestat'" in message
    assert f"lancestat runs in {sys.executable}" in message
    assert hint.strip() == export

    message, hint = older[2].split("\n")
    assert message.startswith("LS545 ")
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert f"Spark's workers run Python 3.99 ({other}/python3)" in message
    assert f"lancestat runs in Python {ours} ({sys.executable})" in message
    assert hint.strip() == export
