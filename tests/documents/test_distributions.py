"""What is released: the sdist, and the wheel as users install it."""

from __future__ import annotations

import subprocess
import tarfile
import zipfile
from pathlib import Path

from lancestat import __version__
from tests.documents.clean import ROOT, CleanEnvironment, Distributions


def test_the_wheel_holds_the_package_its_schemas_and_the_starter(
    distributions: Distributions,
) -> None:
    names = set(zipfile.ZipFile(distributions.wheel).namelist())
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "lancestat").rglob("*.py")}
    sources = {path.relative_to(ROOT).as_posix() for path in (ROOT / "lancestat").rglob("*.java")}
    assert sources and modules | sources <= names
    assert {
        "lancestat/schemas/lancestat_specs.schema.json",
        "lancestat/templates/specs/tables.yml",
    } <= names
    assert not [name for name in names if not name.startswith("lancestat")]


def test_both_are_of_the_version_that_the_package_has(distributions: Distributions) -> None:
    assert distributions.wheel.name == f"lancestat-{__version__}-py3-none-any.whl"
    assert distributions.sdist.name == f"lancestat-{__version__}.tar.gz"
    with tarfile.open(distributions.sdist) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert {"README.md", "LICENSE", "CHANGELOG.md", "docs/index.md", "Makefile"} <= names
    assert not [name for name in names if name.split("/")[0] in {".venv", "site", "dist"}]


def test_the_clean_environment_runs_the_wheel(clean: CleanEnvironment, tmp_path: Path) -> None:
    script = "import lancestat, pyspark; print(lancestat.__file__, pyspark.__file__, sep='\\n')"
    ended = subprocess.run(
        [str(clean.python), "-c", script],
        cwd=tmp_path,
        env=clean.variables(tmp_path),
        capture_output=True,
        text=True,
        check=True,
    )
    package, spark = ended.stdout.splitlines()
    assert Path(package).is_relative_to(clean.folder)
    assert not Path(spark).is_relative_to(clean.folder)
    version = subprocess.run(
        ["lancestat", "--version"],
        env=clean.variables(tmp_path),
        capture_output=True,
        text=True,
        check=True,
    )
    assert version.stdout == f"lancestat {__version__}\n"
