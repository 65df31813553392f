"""The steps of the action in a workspace with files that could be run in place of lancestat's.

Here Python, its virtual environment, pip and git are the real ones. What pip installs is a wheel
that leads to the code under test.
"""

from __future__ import annotations

import os
import site
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

import pip
import pytest

from tests.ci.composite import Ran
from tests.ci.conftest import PROJECT, SPECS, Repository
from tests.ci.warm import ROOT
from tests.examples import each, sample
from tests.review.github_stub import GitHubStub

pytestmark = pytest.mark.whole

Act = Callable[..., Ran]

# Modules that Python, pip or lancestat import, and files that tools read.
MODULES = (
    "venv/__init__.py", "venv/__main__.py", "ensurepip/__init__.py", "ensurepip/__main__.py",
    "pip/__init__.py", "pip/__main__.py", "sitecustomize.py", "usercustomize.py", "json.py",
    "os.py", "encodings/__init__.py", "lancestat/__init__.py", "lancestat/__main__.py",
    "lancestat/cli/main.py", "click/__init__.py", "yaml/__init__.py", "jinja2/__init__.py",
    "logging/__init__.py", "setup.py", "hatchling/build.py", "lib/python3/site.py",
)  # fmt: skip
PROGRAMS = ("git", "mktemp", "cat", "grep", "env", "python", "python3", "pip", "lancestat", "ls")
LOOSER = SPECS.replace("24h", "48h") + '    description: "x\\n<!-- lancestat:no-changes -->\\ny"\n'


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """A package whose installation makes this checkout and its libraries importable."""
    path = tmp_path / "lancestat-0.0-py3-none-any.whl"
    about = "lancestat-0.0.dist-info"
    places = [str(ROOT), sysconfig.get_path("purelib"), *site.getsitepackages()]
    with ZipFile(path, "w") as file:
        file.writestr("lancestat_here.pth", "\n".join(dict.fromkeys(places)))
        file.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: lancestat\nVersion: 0.0\n")
        file.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{about}/RECORD", "lancestat_here.pth,,\n")
    return path


@pytest.fixture
def sprung(tmp_path: Path, repository: Repository) -> Path:
    """Fills the workspace with traps; each writes its own name into this file."""
    sprung = tmp_path / "sprung"
    here = repository.folder
    for name in MODULES:
        trap(here / name, f"open({str(sprung)!r}, 'a').write({name!r} + '\\n')\n")
    (here / "lancestat.pth").write_text(f"import os; os.system('echo pth >> {sprung}')\n")
    for folder in ("bin", "node_modules/.bin"):
        for name in PROGRAMS:
            trap(here / folder / name, f"#!/bin/sh\necho {folder}/{name} >> '{sprung}'\n")
    program = trap(here / "trap", f"#!/bin/sh\necho git >> '{sprung}'\n")
    (here / "pip.conf").write_text("[global]\nindex-url = http://127.0.0.1:9\ntarget = stolen\n")
    (here / ".netrc").write_text("machine 127.0.0.1 login a password b\n")
    (here / "requirements.txt").write_text("./\n")
    build = '[build-system]\nrequires = []\nbuild-backend = "setup"\nbackend-path = ["."]\n'
    (here / "pyproject.toml").write_text(build)
    (here / "setup.cfg").write_text("[install]\nprefix = stolen\n")
    (here / ".gitattributes").write_text("* filter=evil diff=evil\n")
    # A bare repository in the project's folder, and folders that are named like the base.
    bare = {
        "HEAD": "ref: refs/heads/main\n",
        "objects/x": "",
        "refs/x": "",
        "config": evil(program),
    }
    for name, text in bare.items():
        trap(here / "statistics" / name, text)
    for base in ("origin/main...", "refs/remotes/origin/main...", "refs/remotes/origin/main"):
        for place in ("", "statistics/"):
            trap(here / place / base / "lancestat_project.yml", PROJECT)
            trap(here / place / base / "specs/shop.yml", LOOSER)
    repository.commit({"statistics/specs/shop.yml": LOOSER})
    # As far as a checkout's own configuration can be hostile.
    keys = ("core.fsmonitor", "core.pager", "diff.external", "filter.evil.clean", "core.sshCommand")
    for key in keys:
        repository.git("config", key, str(program))
    repository.git("config", "alias.rev-parse", f"!{program}")
    for hook in ("post-index-change", "reference-transaction", "post-checkout"):
        trap(here / ".git/hooks" / hook, program.read_text())
    sprung.unlink(missing_ok=True)
    return sprung


def trap(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def with_linked_pip(path: Path) -> Path:
    """Write a Python whose virtual environments have the pip of this one."""
    lines = (
        "#!/bin/bash",
        '[[ "$1 $2 $3" == "-I -m venv" ]] || exit 9',
        f'"{sys.executable}" -I -m venv --without-pip "$4"',
        f'ln -s "{Path(pip.__file__).parent}" "$4"/lib/python*/site-packages',
    )
    return trap(path, "\n".join(lines))


def evil(program: Path) -> str:
    return (
        "[core]\n\tbare = true\n\trepositoryformatversion = 1\n[extensions]\n\tpartialClone = x\n"
        f'[remote "x"]\n\turl = .\n\tpromisor = true\n\tuploadpack = {program}\n'
        '[protocol "file"]\n\tallow = always\n'
    )


@pytest.mark.parametrize("leads_back", sample([True, False], 1))
def test_nothing_of_the_workspace_is_run_or_imported(
    leads_back: bool,
    act: Act,
    repository: Repository,
    github: GitHubStub,
    sprung: Path,
    wheel: Path,
    tmp_path: Path,
) -> None:
    """The environment has no such variables, or variables that name the workspace."""
    here = repository.folder
    home = tmp_path / "home"
    home.mkdir()
    link = tmp_path / "link"
    link.symlink_to(here / "bin")
    outside = "/usr/local/bin/:/usr/bin:/bin"
    path = f"bin:{here}/node_modules/.bin::../{here.name}/bin:{tmp_path}/x/../link:{link}:{outside}"
    variables = {"HOME": str(home)}
    back = {
        "PATH": path,
        "CDPATH": str(here),
        "PYTHONPATH": f".:{here}",
        "PYTHONSTARTUP": "json.py",
        "PYTHONUSERBASE": str(here),
        "PYTHONPYCACHEPREFIX": str(here),
        "PIP_CONFIG_FILE": str(here / "pip.conf"),
        "PIP_REQUIREMENT": "requirements.txt",
        "PIP_TARGET": str(here / "stolen"),
        "PIP_INDEX_URL": "http://127.0.0.1:9",
        "NETRC": str(here / ".netrc"),
    }
    variables |= back if leads_back else {}
    # Python takes long to install its pip, which once is enough.
    python = Path(sys.executable) if leads_back else with_linked_pip(tmp_path / "python")
    job = act(python=python, environment=variables, requirement=str(wheel))
    assert not sprung.exists(), sprung.read_text()
    assert job.code == 0, job.log
    assert job.steps == ["install", "validate", "diff", "comment"]
    [body] = github.bodies
    assert "staleness" in body
    assert job.outputs["changed"] == "true"
    output = (tmp_path / "temporary" / "diff.output").read_text().splitlines()
    assert [line.partition("=")[0] for line in output] == ["markdown-file", "changed", "status"]
    assert not (here / "stolen").exists()
    assert repository.git("-c", "core.fsmonitor=false", "status", "--porcelain") == ""


@pytest.mark.parametrize(
    ("name", "branch"),
    [
        ("--output", "--output"),
        ("-", "-"),
        ("--", "--"),
        ("-c", "-c"),
        ("~", "--help"),
        ("a b", "x"),
    ],
)
def test_names_that_look_like_options_are_names(
    name: str, branch: str, act: Act, repository: Repository, github: GitHubStub
) -> None:
    repository.commit({f"{name}/lancestat_project.yml": PROJECT, f"{name}/specs/a.yml": SPECS})
    repository.git("update-ref", f"refs/remotes/origin/{branch}", "HEAD")
    repository.commit({f"{name}/specs/a.yml": LOOSER})
    job = act(project_dir=name, base_ref=branch, fail_on="coverage_lost")
    assert job.code == 0, job.log
    assert job.outputs["changed"] == "true"
    assert len(github.bodies) == 1


@pytest.mark.parametrize(
    ("value", "name"),
    each(["--help", "-h", "--version", "--no-datasets"], ["target", "base", "fail_on"]),
)
def test_inputs_that_look_like_options_are_refused(
    name: str, value: str, act: Act, repository: Repository
) -> None:
    repository.commit({"statistics/specs/shop.yml": LOOSER})
    job = act(**{name: value})
    assert job.code == 2, job.log
    assert "Usage:" not in job.log


def test_a_tag_with_the_name_of_the_branch_is_not_used(act: Act, repository: Repository) -> None:
    repository.commit({"statistics/specs/shop.yml": LOOSER})
    repository.git("update-ref", "refs/tags/origin/main", "HEAD")
    job = act()
    assert job.outputs["changed"] == "true", job.log
    assert "merge base of origin/main and HEAD" in job.summary


def test_python_with_the_option_m_imports_nothing_of_the_current_folder(tmp_path: Path) -> None:
    """`python -m` puts the current folder first on the path of modules."""
    sprung = tmp_path / "sprung"
    here = tmp_path / "shop"
    trap(here / "lancestat_project.yml", PROJECT)
    trap(here / "specs/shop.yml", SPECS)
    for name in ("json.py", "click/__init__.py", "yaml/__init__.py", "jinja2/__init__.py"):
        trap(here / name, f"open({str(sprung)!r}, 'a').write({name!r} + '\\n')\n")
    completed = subprocess.run(
        [sys.executable, "-m", "lancestat", "validate"],
        cwd=here,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (completed.returncode, sprung.exists()) == (0, False), completed.stderr
