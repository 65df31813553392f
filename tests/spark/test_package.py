"""Archives for Spark's workers: what is in them, what is in the way, and who may use them."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import lance
import pyarrow as pa
import pytest
from click.testing import CliRunner

from lancestat.cli.command import ExitCode
from lancestat.cli.debug import Check, check_package
from lancestat.cli.main import cli
from lancestat.errors import (
    PackageNotWritten,
    PackageOfOtherVersions,
    PackageUnreadable,
    ScratchNotShared,
)
from lancestat.joins.scratch.folder import require_visible, scratch
from lancestat.project import Project
from lancestat.spark import package
from lancestat.spark import session as spark_session
from lancestat.spark.package import package_settings, require_same_versions, write_package
from lancestat.spark.session import uses_package, workers_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# One small dependency stands for all, which take half a minute to compress.
SMALL = "click"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {name: metadata.distribution(name) for name in ("lancestat", SMALL)}
    monkeypatch.setattr(package, "_distributions", lambda: found)


@pytest.mark.usefixtures("small")
def test_the_modules_of_a_package_can_be_imported_by_a_bare_python(tmp_path: Path) -> None:
    written = write_package(tmp_path / "a.tar.gz")
    (tmp_path / "unpacked").mkdir()
    subprocess.run(["tar", "-xf", written.path, "-C", tmp_path / "unpacked"], check=True)
    script = "import click, lancestat; print(click.__file__, lancestat.__file__)"

    # -S: without anything that is installed.
    ended = subprocess.run(
        [sys.executable, "-S", "-c", script],
        cwd=tmp_path,
        env={"PYTHONPATH": "unpacked"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert ended.stdout.count(str(tmp_path / "unpacked")) == 2
    assert written.packages[SMALL] == metadata.version(SMALL)
    assert written.size_bytes == written.path.stat().st_size


@pytest.mark.usefixtures("small")
def test_a_package_is_reproducible_and_holds_nothing_of_this_machine(tmp_path: Path) -> None:
    first = write_package(tmp_path / "a.tar.gz").path
    second = write_package(tmp_path / "other-name.tar.gz").path

    assert first.read_bytes() == second.read_bytes()
    places = {str(Path(place)).encode() for place in (sys.prefix, Path.home(), tmp_path)}
    with tarfile.open(first) as archive:
        members = archive.getmembers()
        assert {(m.mtime, m.uid, m.gid, m.uname, m.gname, m.isfile()) for m in members} == {
            (0, 0, 0, "", "", True)
        }
        for member in members:
            file = archive.extractfile(member)
            assert file is not None
            content = file.read()
            assert not [place for place in places if place in content], member.name
    names = {Path(member.name).name for member in members}
    assert not names & {"RECORD", "direct_url.json", "INSTALLER"}
    assert not [name for name in names if name.endswith((".pyc", ".pth"))]


@pytest.mark.usefixtures("small")
def test_a_file_in_the_way_stays_unless_it_is_to_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"
    path.write_text("mine")

    with pytest.raises(PackageNotWritten, match="is there already, and was left as it is") as error:
        write_package(path)

    assert error.value.hint == "give --force to replace it"
    assert path.read_text() == "mine"
    write_package(path, is_replaced=True)
    require_same_versions(str(path))
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.tar.gz"]


@pytest.mark.usefixtures("small")
def test_a_package_that_cannot_be_completed_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_package(tmp_path / "a.tar.gz").path
    before = path.read_bytes()
    monkeypatch.setattr(package, "_files", lambda _: {"x": tmp_path / "absent"})

    with pytest.raises(PackageNotWritten, match=r"cannot pack .*absent: No such file"):
        write_package(path, is_replaced=True)

    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.tar.gz"]


def test_a_place_that_cannot_be_written_is_named_before_anything_is_packed(tmp_path: Path) -> None:
    (tmp_path / "folder.tar.gz").mkdir()
    for place, reason in {
        tmp_path / "absent" / "lancestat.tar.gz": f"there is no folder {tmp_path / 'absent'}",
        tmp_path / "folder.tar.gz": "hint: name a file with --out",
    }.items():
        ended = CliRunner().invoke(cli, ["package", "--out", str(place)])
        assert ended.exit_code == ExitCode.USAGE
        assert "packing" not in ended.output
        assert reason in ended.output
        with pytest.raises(PackageNotWritten):
            write_package(place)


@pytest.mark.parametrize("name", ["a.zip", "lancestat", "a.tar"])
def test_a_name_that_spark_would_not_unpack_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(PackageNotWritten, match=r"its name must end with \.tar\.gz"):
        write_package(tmp_path / name)


def test_all_that_lancestat_requires_is_packed_but_spark() -> None:
    found = package._distributions()

    assert {"lancestat", "pylance", "pyarrow", "polars", "polars-hash", "numpy"} <= found.keys()
    assert "markupsafe" in found, "jinja2 needs it"
    assert not found.keys() & {"pyspark", "py4j", "pytest"}


@pytest.mark.usefixtures("small")
def test_a_package_of_other_versions_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(write_package(tmp_path / "a.tar.gz").path)
    require_same_versions(path)
    now = package._contents(package._distributions())
    later = {**now, "packages": {**now["packages"], SMALL: "99.0"}, "python": "3.99"}
    monkeypatch.setattr(package, "_contents", lambda _: later)

    with pytest.raises(PackageOfOtherVersions) as error:
        require_same_versions(path)

    assert f"{SMALL} {metadata.version(SMALL)} instead of 99.0" in error.value.message
    assert "instead of 3.99" in error.value.message
    require_same_versions("s3://bucket/a.tar.gz")


@pytest.mark.parametrize("content", [None, b"", b"no archive"])
def test_a_file_that_is_no_package_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "a.tar.gz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(PackageUnreadable, match=r"a\.tar\.gz cannot be read: "):
        require_same_versions(str(path))


PROJECT = """\
name: shop
targets:
  prod:
    spark:
      master: {master}
      package: absent.tar.gz
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose table is up to date, with a cluster and a package that is not there."""
    monkeypatch.setattr(spark_session, "running_session", lambda: None)
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / "a.yml").write_text("tables: [{name: orders, uri: orders.lance}]")
    lance.write_dataset(pa.table({"a": [1]}), tmp_path / "orders.lance")
    declare_master(tmp_path, "local[2]")
    assert Project.load(tmp_path).run().status.value == "success"
    declare_master(tmp_path, "spark://nowhere:7077")
    return tmp_path


def declare_master(folder: Path, master: str) -> None:
    (folder / "lancestat_project.yml").write_text(PROJECT.format(master=master))


@pytest.mark.parametrize("command", ["run", "retry"])
def test_a_missing_package_is_one_error_with_its_place_even_where_nothing_is_to_be_done(
    shop: Path, command: str
) -> None:
    ended = CliRunner().invoke(cli, ["--project-dir", str(shop), command])
    assert ended.exit_code == ExitCode.FAILURE
    path = shop / "absent.tar.gz"
    notes, _, error = ended.stderr.rpartition("LS535")
    assert "LS" not in notes
    assert f"LS535{error}" == (
        f"LS535 lancestat_project.yml:6:16  the package {path} cannot be read: No such file or "
        f"directory\n      hint: write it: lancestat package --force --out {path}\n"
    )


def test_reviews_need_no_package(shop: Path) -> None:
    for command in ("validate", "plan", "status"):
        ended = CliRunner().invoke(cli, ["--project-dir", str(shop), command])
        assert ended.exit_code == ExitCode.SUCCESS, ended.output


def test_a_package_that_is_not_used_may_be_missing(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = cast("SparkSession", SimpleNamespace(createDataFrame=None))
    assert Project.load(shop).run(session=session).status.value == "success"
    target = Project.load(shop).spec.target
    assert uses_package(target)
    monkeypatch.setenv("SPARK_REMOTE", "sc://nowhere")
    assert uses_package(target), "a master is named"
    assert not uses_package(replace(target, spark_master=None))
    import pyspark  # noqa: F401

    monkeypatch.setattr(spark_session, "running_session", lambda: session)
    assert not uses_package(target)


def test_debug_reports_a_missing_package_once_and_with_its_place(shop: Path) -> None:
    ended = CliRunner().invoke(cli, ["--project-dir", str(shop), "debug", "--output", "json"])
    assert ended.exit_code == ExitCode.FAILURE
    checks = {check["subject"]: check for check in json.loads(ended.stdout)["checks"]}
    assert "Spark" not in checks
    check = checks["package"]
    assert not check["passed"]
    assert check["finding"].startswith("lancestat_project.yml:6:16  the package ")
    assert check["advice"].startswith("write it: lancestat package")


@pytest.mark.usefixtures("small")
def test_debug_tells_whether_the_package_fits(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_package(shop / "absent.tar.gz").path
    target = Project.load(shop).spec.target
    assert list(check_package(target)) == [Check("package", True, str(path))]
    now = package._contents(package._distributions())
    monkeypatch.setattr(package, "_contents", lambda _: {**now, "python": "3.99"})
    [check] = check_package(target)
    assert not check.passed
    assert "instead of 3.99" in check.finding
    declare_master(shop, "local[2]")
    [check] = check_package(Project.load(shop).spec.target)
    assert check.passed
    assert check.finding.startswith("not used")


def test_settings_keep_what_is_configured() -> None:
    conf = {"spark.archives": "models.zip#models", "spark.executorEnv.PYTHONPATH": "models"}

    assert package_settings("a.tar.gz", conf) == {
        "spark.archives": "models.zip#models,a.tar.gz#lancestat",
        "spark.executorEnv.PYTHONPATH": "models:lancestat",
    }


def test_workers_elsewhere_run_their_own_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    like_this = f"python{sys.version_info.major}.{sys.version_info.minor}"

    assert workers_python("local[2]", {}) == sys.executable
    assert workers_python("spark://host:7077", {}) == like_this
    assert workers_python("yarn", {"spark.pyspark.python": "./env/bin/python"}).startswith("./env")
    monkeypatch.setenv("PYSPARK_PYTHON", "python3")
    assert workers_python("k8s://https://host", {}) == "python3"


def test_workers_that_do_not_see_the_drivers_scratch_refuse_it(tmp_path: Path) -> None:
    with scratch(str(tmp_path), "app") as folder:
        require_visible(f"{folder}/left.lance")
    require_visible("s3://bucket/scratch/app/run/left.lance")

    with pytest.raises(ScratchNotShared, match=r"is not shared: .* does not see what the driver"):
        require_visible(f"{tmp_path}/app/run/left.lance")
