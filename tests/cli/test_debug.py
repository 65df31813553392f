from __future__ import annotations

import json
import re
from importlib import metadata
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lancestat.cli import debug as checks
from lancestat.cli.debug import Check
from lancestat.errors import InvalidProject, Location, SparkNotStarted, UnknownKey
from lancestat.project import Project
from lancestat.spark.jvm import Java
from lancestat.spec.model import Target
from tests.cli.conftest import Lancestat
from tests.runs.world import write_project


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    write_project(tmp_path, "orders", {"name": "gone", "uri": "order.lance"})
    lance.write_dataset(pa.table({"a": [1]}), str(tmp_path / "orders.lance"))
    return tmp_path


def test_every_check_passes_or_has_advice(
    shop: Path, lancestat: Lancestat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "find_java", lambda: Java(Path("java"), 17))
    monkeypatch.setattr(checks, "check_spark", lambda target: Check("Spark", True, "starts"))
    result = lancestat("debug", "--output", "json", "--quiet")
    assert (result.exit_code, result.stderr) == (1, "")
    by_subject = {check["subject"]: check for check in json.loads(result.stdout)["checks"]}
    subjects = {"Python", "Java", "pylance", "pyspark", "project", "state", "Spark"}
    assert subjects <= by_subject.keys()
    failed = {name: check for name, check in by_subject.items() if not check["passed"]}
    assert list(failed) == ["table gone"]
    assert failed["table gone"]["advice"] == "did you mean 'orders.lance'?"
    assert by_subject["table orders"]["finding"] == "version 1"


def test_a_result_that_is_not_there_yet_is_no_missing_table(
    shop: Path, lancestat: Lancestat
) -> None:
    side = {"table": "orders", "vector": "v"}
    near = {"name": "near", "left": side, "right": side, "k": 1, "output": {"lance": "near.lance"}}
    project = write_project(
        shop, "orders", "near_rows", {"name": "near_stats", "uri": "near.lance"}, knn_joins=[near]
    )
    found = {check.subject: check for check in checks.check_tables(project.discover())}
    assert found["table near_stats"].passed
    assert found["table near_stats"].finding == "the result of 'near' is not there"
    assert not found["table near_rows"].passed
    for command in (["plan", "--select", "near_stats"], ["status"], ["show", "near_stats"]):
        result = lancestat(*command, "--quiet")
        assert "LS201" in result.output, result.output
        assert "the result of 'near' is not there" in result.output
        assert "run 'near'" in result.output


def test_outside_a_project_the_machine_is_still_checked(lancestat: Lancestat) -> None:
    result = lancestat("debug")
    assert result.exit_code == 1
    assert "no  project" in result.stdout
    assert "lancestat init" in result.stdout


def test_without_java_spark_is_not_started(
    shop: Path, lancestat: Lancestat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(shop))
    result = lancestat("debug")
    assert result.exit_code == 1
    assert "holds no bin/java" in result.stdout
    assert "Spark  " not in result.stdout


def test_a_project_with_many_errors_shows_the_first_and_their_number() -> None:
    errors = [
        UnknownKey("unknown key 'a'", location=Location("specs/x.yml", 2, 1), hint="b?"),
        UnknownKey("unknown key 'c'"),
    ]

    def load() -> Project:
        raise InvalidProject(errors)

    check, project = checks.check_project(load)
    assert project is None
    assert check == Check(
        "project", False, "specs/x.yml:2:1  unknown key 'a' (and 1 more)", "lancestat validate"
    )


def test_a_state_that_is_not_a_folder_fails_its_check(shop: Path) -> None:
    (shop / "state").write_text("a file")
    check = checks.check_state(Project.load(shop))
    assert not check.passed
    assert check.advice


@pytest.mark.parametrize(
    ("name", "needed", "finding"),
    [
        ("click", "99.1", "lancestat needs 99.1 or newer"),
        ("no-such-distribution", "1", "not installed"),
    ],
)
def test_a_missing_or_old_library_has_advice_for_its_installation(
    name: str, needed: str, finding: str
) -> None:
    check = checks.check_library(name, needed)
    assert not check.passed
    assert finding in check.finding
    assert check.advice == f"pip install '{name}>={needed}'"


def test_a_library_that_does_not_load_fails_its_check(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise ImportError("undefined\nsymbol")

    monkeypatch.setattr(checks, "import_module", fail)
    check = checks.check_library("pylance", "1")
    assert not check.passed
    assert check.finding.endswith("does not load: undefined symbol")


def test_all_requirements_are_checked() -> None:
    subjects = {check.subject for check in checks.check_libraries()}
    lines = [line for line in metadata.requires("lancestat") or () if "extra ==" not in line]
    required = {re.split(r"[<>=!~; ]", line)[0] for line in lines}
    assert subjects == required


@pytest.mark.parametrize(
    ("version", "needed", "enough"),
    [("14", "14.0.0", True), ("4.10", "4.9", True), ("4.2rc1", "4.2", True), ("3.9.9", "4", False)],
)
def test_versions_are_compared_as_numbers(
    version: str, needed: str, enough: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: version)
    assert checks.check_library("click", needed).passed is enough


def test_spark_home_must_agree_with_pyspark(tmp_path: Path) -> None:
    (tmp_path / "RELEASE").write_text("Spark 3.1.2 built for Hadoop\n")
    (check,) = checks.check_spark_home({"SPARK_HOME": str(tmp_path)})
    assert not check.passed
    assert "is Spark 3.1.2, the pyspark library" in check.finding
    (check,) = checks.check_spark_home({"SPARK_HOME": str(tmp_path / "none")})
    assert not check.passed
    assert list(checks.check_spark_home({})) == []


@pytest.mark.parametrize(
    ("raised", "finding", "advice"),
    [
        (SparkNotStarted("Spark did not start", hint="wait"), "Spark did not start", "wait"),
        (RuntimeError("refused: k3y-of-the-lake"), "refused: ***", "look at the target's spark"),
    ],
)
def test_a_failed_start_of_spark_shows_no_secrets(
    raised: Exception, finding: str, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(target: Target, app_name: str) -> None:
        raise raised

    monkeypatch.setattr(checks, "running_session", lambda: None)
    monkeypatch.setattr(checks, "start_session", fail)
    target = Target("dev", "state", storage_options={"aws_secret_access_key": "k3y-of-the-lake"})
    assert checks.check_spark(target) == Check("Spark", False, finding, advice)
