"""What `make` does about programs that the machine lacks: `.ci/machine`."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.ci.warm import ROOT

Machine = Callable[..., subprocess.CompletedProcess[str]]
APT = "chromium fonts-dejavu-core"


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A PATH with what every system has, and programs that log how they are called."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("bash", "env", "uname"):
        path = shutil.which(name)
        assert path
        (folder / name).symlink_to(path)
    return folder


def program(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f'#!/bin/bash\necho "{name} $*" >> "{folder.parent}/log"\n{text}\n')
    (folder / name).chmod(0o755)


def machine(programs: Path, *needs: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": str(programs), "HOME": str(programs.parent), **variables}
    command = [str(programs / "bash"), str(ROOT / ".ci" / "machine"), *needs]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def log(programs: Path) -> list[str]:
    path = programs.parent / "log"
    return path.read_text().splitlines() if path.exists() else []


def test_root_installs_what_is_missing_after_saying_why(programs: Path) -> None:
    program(programs, "id", "echo 0")
    program(programs, "apt-get", "")
    program(programs, "apt-cache", "")
    ran = machine(programs, "browser", "jdk")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == ""
    assert ran.stderr.splitlines() == [
        "missing: Chromium, in which the tests open the pages of `lancestat docs`",
        "missing: a JDK, whose javac the tests use; Spark runs on it",
        f"installing with apt-get: {APT} openjdk-17-jdk-headless",
    ]
    update, install = (line for line in log(programs) if line.startswith("apt-get"))
    assert update == "apt-get -qq update"
    assert install.endswith(f"{APT} openjdk-17-jdk-headless")


def test_a_release_without_java_17_gets_the_next_one(programs: Path) -> None:
    program(programs, "id", "echo 0")
    program(programs, "apt-get", "")
    program(programs, "apt-cache", "[[ $2 == openjdk-21-* ]]")
    ran = machine(programs, "jdk")
    assert ran.stderr.endswith("installing with apt-get: openjdk-21-jdk-headless\n")


def test_sudo_is_used_where_it_asks_for_no_password(programs: Path) -> None:
    program(programs, "id", "echo 1000")
    program(programs, "sudo", "")
    program(programs, "apt-get", "")
    program(programs, "apt-cache", "")
    assert machine(programs, "browser").returncode == 0
    assert [line for line in log(programs) if "install" in line] == [
        "sudo -n env DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes "
        f"--no-install-recommends -o DPkg::Lock::Timeout=300 {APT}"
    ]


@pytest.mark.parametrize("has_sudo", [True, False])
def test_who_may_not_install_is_told_the_command(has_sudo: bool, programs: Path) -> None:
    program(programs, "id", "echo 1000")
    program(programs, "apt-get", "")
    program(programs, "apt-cache", "")
    if has_sudo:
        program(programs, "sudo", "echo a password is required >&2; exit 1")
    ran = machine(programs, "browser")
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1] == f"to install: sudo apt-get install {APT}"
    assert not [line for line in log(programs) if line.startswith("apt-get")]


@pytest.mark.parametrize(
    ("manager", "command"),
    [
        ("dnf", "sudo dnf install chromium java-17-openjdk-devel"),
        ("brew", "brew install chromium openjdk@17"),
    ],
)
def test_other_systems_have_a_command_of_their_own(
    manager: str, command: str, programs: Path
) -> None:
    program(programs, manager, "")
    ran = machine(programs, "browser", "jdk")
    assert (ran.returncode, ran.stderr.splitlines()[-1]) == (1, f"to install: {command}")
    assert log(programs) == []


def test_nothing_is_done_where_nothing_is_missing(programs: Path) -> None:
    for name in ("id", "apt-get", "chromium", "javac", "java", "python3"):
        program(programs, name, "")
    ran = machine(programs, "venv", "java", "jdk", "browser")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    assert log(programs) == ["python3 -c import ensurepip, venv"]


def test_java_home_and_the_browser_may_be_named(programs: Path, tmp_path: Path) -> None:
    (tmp_path / "jdk" / "bin").mkdir(parents=True)
    for name in ("java", "javac"):
        program(tmp_path / "jdk" / "bin", name, "")
    variables = {"JAVA_HOME": str(tmp_path / "jdk"), "LANCESTAT_CHROMIUM": "/bin/true"}
    assert machine(programs, "java", "jdk", "browser", **variables).returncode == 0


def test_an_unnamed_need_is_refused(programs: Path) -> None:
    assert machine(programs, "everything").returncode == 2


def test_ci_is_make_test_alone() -> None:
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    code = [line for line in lines if line and not line.startswith(("#", "set ", "cd "))]
    assert code == ["export CI=true", "exec make test"]
    dry = subprocess.run(
        ["make", "-n", "test"], cwd=ROOT, env=dict(os.environ), capture_output=True, text=True
    )
    assert "jdk browser clocks" in dry.stdout
