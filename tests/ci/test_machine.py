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


def test_a_release_without_java_17_gets_the_next_one(programs: Path) -> None:
    debian(programs, available="[[ $2 == openjdk-21-* ]]")
    ran = machine(programs, "jdk")
    assert ran.stderr.endswith("installing with apt-get: openjdk-21-jdk-headless\n")


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
    for name in ("id", "apt-get", "chromium", "python3"):
        program(programs, name, "")
    program(programs, "java", JAVA.format("17.0.15"))
    program(programs, "javac", JAVAC.format("17.0.15"))
    ran = machine(programs, "venv", "java", "jdk", "browser")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    assert log(programs) == [
        "python3 -c import ensurepip, venv",
        "java -version",
        "javac -version",
    ]


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


def test_java_is_found_where_it_is_usually_installed(programs: Path) -> None:
    program(programs, "java", JAVA.format("11.0.2"))
    usual = programs.parent / ".jdks" / "new" / "bin"
    usual.mkdir(parents=True)
    program(usual, "java", JAVA.format("21.0.1"))
    assert machine(programs, "java").returncode == 0


def test_a_java_home_that_is_too_old_is_refused(programs: Path, tmp_path: Path) -> None:
    home = tmp_path / "jdk"
    (home / "bin").mkdir(parents=True)
    program(home / "bin", "javac", JAVAC.format("11.0.2"))
    debian(programs)
    ran = machine(programs, "jdk", JAVA_HOME=str(home))
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1] == (
        f"JAVA_HOME is {home}, which has no bin/javac of version 17 or newer: "
        "set it to a folder that has, or unset it"
    )
    assert not [line for line in log(programs) if line.startswith("apt-get")]


@pytest.fixture
def ubuntu(programs: Path) -> Path:
    """A system with apt-get whose Chromium is a snap: the folder of the environment in it."""
    debian(programs)
    (programs.parent / "os").write_text('NAME="Ubuntu"\nID=ubuntu\nID_LIKE=debian\n')
    snap = programs.parent / "snap"
    snap.write_text("#!/bin/bash\nexit 1\n")
    snap.chmod(0o755)
    (programs / "chromium").symlink_to(snap)
    program(programs, "ldconfig", "echo libc.so.6")
    environment = programs.parent / ".venv"
    (environment / "bin").mkdir(parents=True)
    for name in ("python", "npm"):
        program(environment / "bin", name, f'echo "{name} $*" >> "{programs.parent}/log"')
    # What the package from npm does when it is asked for its path.
    program(environment / "bin", "node", 'echo browser > "$TMPDIR/chromium"')
    return environment


def test_ubuntu_gets_what_a_browser_from_npm_needs(ubuntu: Path, programs: Path) -> None:
    ran = machine(programs, "browser")
    assert ran.stderr.endswith("installing with apt-get: libatomic1 libnss3 fonts-dejavu-core\n")
    program(programs, "ldconfig", "echo 'libnss3.so (libc6)  libatomic.so.1 (libc6)'")
    assert machine(programs, "browser").stderr == ""


def test_ubuntu_gets_a_browser_from_npm_once(ubuntu: Path, programs: Path) -> None:
    ran = machine(programs, "chromium")
    assert ran.returncode == 0, ran.stderr
    assert "installing Chromium from npm into .venv" in ran.stderr
    assert (ubuntu / "bin" / "chromium").read_text() == "browser\n"
    assert any("@sparticuz/chromium@" in line for line in log(programs))
    (ubuntu / "bin" / "chromium").chmod(0o755)
    assert machine(programs, "chromium").stderr == ""


def test_a_named_browser_is_taken_on_ubuntu(ubuntu: Path, programs: Path) -> None:
    ran = machine(programs, "browser", "chromium", LANCESTAT_CHROMIUM="/bin/true")
    assert (ran.returncode, ran.stderr) == (0, "")


def test_java_home_and_the_browser_may_be_named(programs: Path, tmp_path: Path) -> None:
    (tmp_path / "jdk" / "bin").mkdir(parents=True)
    program(tmp_path / "jdk" / "bin", "java", JAVA.format("17.0.15"))
    program(tmp_path / "jdk" / "bin", "javac", JAVAC.format("17.0.15"))
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
    assert "jdk browser zones clocks" in dry.stdout
