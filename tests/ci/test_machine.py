"""What `make` does about programs that the machine lacks: `.ci/machine`."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.ci.warm import ROOT

Machine = Callable[..., subprocess.CompletedProcess[str]]
APT = "chromium fonts-dejavu-core"
JAVA = "echo 'openjdk version \"{}\" 2025-04-15' >&2"
JAVAC = "echo javac {}"


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A PATH with what every system has, and programs that log how they are called."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("bash", "env", "grep", "ln", "mkdir", "readlink", "uname"):
        path = shutil.which(name)
        assert path
        (folder / name).symlink_to(path)
    return folder


def program(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f'#!/bin/bash\necho "{name} $*" >> "{folder.parent}/log"\n{text}\n')
    (folder / name).chmod(0o755)


def machine(programs: Path, *needs: str, **variables: str) -> subprocess.CompletedProcess[str]:
    folder = programs.parent
    environment = {
        "PATH": str(programs), "HOME": str(folder), "OS_RELEASE": str(folder / "os"), **variables
    }  # fmt: skip
    command = [str(programs / "bash"), str(ROOT / ".ci" / "machine"), *needs]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def debian(programs: Path, *, user: int = 0, available: str = "true") -> None:
    """Make it a system with apt-get; `available` decides about the package that is $2."""
    program(programs, "id", f"echo {user}")
    program(programs, "apt-get", "")
    program(programs, "apt-cache", available)


def log(programs: Path) -> list[str]:
    path = programs.parent / "log"
    return path.read_text().splitlines() if path.exists() else []


def test_root_installs_what_is_missing_after_saying_why(programs: Path) -> None:
    debian(programs)
    ran = machine(programs, "browser", "jdk")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == ""
    assert ran.stderr.splitlines() == [
        "missing: Chromium, in which the tests open the pages of `lancestat docs`",
        "missing: a JDK of Java 17 or newer, whose javac the tests use; Spark runs on it",
        f"installing with apt-get: {APT} openjdk-17-jdk-headless",
    ]
    update, install = (line for line in log(programs) if line.startswith("apt-get"))
    assert update == "apt-get -qq update"
    assert install.endswith(f"{APT} openjdk-17-jdk-headless")


def test_sudo_is_used_where_it_asks_for_no_password(programs: Path) -> None:
    debian(programs, user=1000)
    program(programs, "sudo", "")
    assert machine(programs, "browser").returncode == 0
    assert [line for line in log(programs) if "install" in line] == [
        "sudo -n env DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes "
        f"--no-install-recommends -o DPkg::Lock::Timeout=300 {APT}"
    ]


@pytest.mark.parametrize("has_sudo", [True, False])
def test_who_may_not_install_is_told_the_command(has_sudo: bool, programs: Path) -> None:
    debian(programs, user=1000)
    if has_sudo:
        program(programs, "sudo", "echo a password is required >&2; exit 1")
    ran = machine(programs, "browser")
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1] == f"to install: sudo apt-get install {APT}"
    assert not [line for line in log(programs) if line.startswith("apt-get")]


def test_nothing_is_done_where_nothing_is_missing(programs: Path) -> None:
    for name in ("id", "apt-get", "chromium", "python3"):
        program(programs, name, "")
    program(programs, "java", JAVA.format("17.0.15"))
    program(programs, "javac", JAVAC.format("17.0.15"))
    ran = machine(programs, "venv", "java", "jdk", "browser")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    assert log(programs) == ["python3 -c import ensurepip, venv", "java -version", "javac -version"]


@pytest.mark.parametrize(
    ("version", "is_enough"),
    [("1.8.0_392", False), ("11.0.2", False), ("17", True), ("21.0.1", True), ("25-ea", True)],
)
def test_an_old_java_is_as_none(version: str, is_enough: bool, programs: Path) -> None:
    program(programs, "dnf", "")
    program(programs, "javac", "echo Picked up options: -Xmx1g >&2\n" + JAVAC.format(version))
    ran = machine(programs, "jdk")
    assert (ran.returncode == 0) is is_enough, ran.stderr
    home = programs.parent / "jdk"
    (home / "bin").mkdir(parents=True)
    program(home / "bin", "java", "echo Picked up options: -Xmx1g >&2\n" + JAVA.format(version))
    ran = machine(programs, "java", JAVA_HOME=str(home))
    assert (ran.returncode == 0) is is_enough, ran.stderr


@pytest.mark.parametrize(
    ("configured", "variables", "index", "certificates"),
    [
        ("", {}, "", ""),
        ("https://a/simple", {"PIP_CERT": "a.pem"}, "https://a/simple", "a.pem"),
        ("https://a/simple", {"PIP_INDEX_URL": "https://b"}, "https://b", ""),
        ("https://a/simple", {"UV_DEFAULT_INDEX": "https://c"}, "https://c", ""),
        ("", {"PIP_CERT": "a.pem", "SSL_CERT_FILE": "c.pem"}, "", "c.pem"),
    ],
)
def test_uv_installs_from_where_pip_would(
    configured: str, variables: dict[str, str], index: str, certificates: str, programs: Path
) -> None:
    program(programs, "python", f"echo '{configured}'; [[ '{configured}' ]]")
    program(programs, "uv", 'echo "$UV_DEFAULT_INDEX|$SSL_CERT_FILE"')
    ran = installed(programs, variables)
    assert (ran.returncode, ran.stdout) == (0, f"{index}|{certificates}\n"), ran.stderr
    assert log(programs)[-1] == "uv pip install --quiet --python other/python -r some.lock"


@pytest.mark.parametrize("code", [0, 1])
def test_pip_installs_what_uv_cannot(code: int, programs: Path) -> None:
    program(programs, "python", f"exit {code}")
    program(programs, "uv", "exit 2")
    ran = installed(programs, {})
    assert (ran.returncode, ran.stderr) == (
        code,
        "uv cannot install that; trying pip, which takes a few minutes\n",
    )
    options = "install --quiet --disable-pip-version-check -r some.lock"
    assert log(programs)[-1] == f"python -m pip --python other/python {options}"


def installed(programs: Path, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    (programs.parent / "venv").mkdir()
    (programs.parent / "venv" / "bin").symlink_to(programs)
    return subprocess.run(
        [str(programs / "bash"), str(ROOT / ".ci" / "install"), "other/python", "-r", "some.lock"],
        cwd=programs.parent,
        env={"PATH": str(programs), "VENV": "venv", **variables},
        capture_output=True,
        text=True,
    )
