from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.ci.composite import Ran, run_action
from tests.ci.warm import ROOT, warm_lancestat
from tests.review.github_stub import GitHubStub, serving

TOKEN = "ghs_TheTokenThatNobodyMaySee0123456789"

PROJECT = "name: shop\ntargets: {dev: {state: state}}\n"
SPECS = """\
tables:
  - name: orders
    uri: warehouse/orders.lance
    owner: data@example.com
    policy: {allow.stale: {max_age: 24h}}
"""


@dataclass
class Repository:
    """A pull request's work tree: `origin/main` is its base, HEAD its last commit."""

    folder: Path

    @classmethod
    def begun(cls, folder: Path) -> Repository:
        """A repository on the branch `feature`, with a project in `statistics/`."""
        folder.mkdir()
        repository = cls(folder)
        repository.git("init", "--quiet", "--initial-branch=feature")
        repository.commit(
            {"statistics/lancestat_project.yml": PROJECT, "statistics/specs/shop.yml": SPECS}
        )
        return repository

    def git(self, *words: str) -> str:
        nobody = {"NAME": "n", "EMAIL": "e@example.com"}
        environment = {
            "PATH": os.environ["PATH"],
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_SYSTEM": os.devnull,
            **{f"GIT_{who}_{k}": v for who in ("AUTHOR", "COMMITTER") for k, v in nobody.items()},
        }
        command = ["git", "-C", str(self.folder), *words]
        return subprocess.run(
            command, env=environment, check=True, capture_output=True, text=True
        ).stdout

    def commit(self, files: Mapping[str, str | None]) -> None:
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if text is None:
                path.unlink()
            else:
                path.write_text(text)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", "a change")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """A repository whose base holds a project in `statistics/`."""
    work_tree = Repository.begun(tmp_path / "work tree")
    work_tree.git("update-ref", "refs/remotes/origin/main", "HEAD")
    return work_tree


@pytest.fixture
def github() -> Iterator[GitHubStub]:
    with serving(GitHubStub()) as served:
        yield served


@pytest.fixture(scope="session")
def lancestat() -> Iterator[str]:
    """A command line that runs `lancestat`."""
    with warm_lancestat() as command:
        yield command


@pytest.fixture
def act(
    tmp_path: Path, repository: Repository, github: GitHubStub, lancestat: str
) -> Callable[..., Ran]:
    """Run the action in a job for pull request 7; inputs as keywords, with `_` for `-`."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    event = temporary / "event.json"
    event.write_text(json.dumps({"pull_request": {"number": 7}}))
    action = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))

    def run(
        *,
        pull_request: bool = True,
        base_ref: str = "main",
        python: Path | None = None,
        environment: Mapping[str, str] | None = None,
        **inputs: str,
    ) -> Ran:
        known = {
            "github.token": TOKEN,
            "github.base_ref": base_ref if pull_request else "",
            "github.event.pull_request": "a pull request" if pull_request else "",
            "steps.python.outputs.python-path": str(python or _python(temporary, lancestat)),
            "inputs.project-dir": "statistics",
            **{f"inputs.{name.replace('_', '-')}": value for name, value in inputs.items()},
        }
        given = {
            "GITHUB_ACTION_PATH": str(ROOT),
            "GITHUB_API_URL": github.url,
            "GITHUB_REPOSITORY": "o/r",
            "GITHUB_EVENT_PATH": str(event),
            "no_proxy": "127.0.0.1",
            **(environment or {}),
        }
        return run_action(action, known, given, work_tree=repository.folder, temporary=temporary)

    return run


def _python(folder: Path, lancestat: str) -> Path:
    """Write a Python whose virtual environments have lancestat, and a pip that logs arguments."""
    path = folder / "python"
    lines = [
        "#!/bin/bash",
        '[[ "$1 $2 $3" == "-I -m venv" ]] || exit 9',
        'mkdir -p "$4/bin"',
        'cat > "$4/bin/python" <<"END"',
        "#!/bin/bash",
        '[[ "$1 $2" == "-I -m" ]] || exit 9',
        f'[[ $3 != pip ]] || {{ shift 3; printf "%s\\n" "$@" > "{folder}/pip"; exit; }}',
        "[[ $3 == lancestat ]] || exit 9",
        f'exec {lancestat} "${{@:4}}"',
        "END",
        'chmod +x "$4/bin/python"',
    ]
    path.write_text("\n".join(lines) + "\n")
    path.chmod(0o755)
    return path
