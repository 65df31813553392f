from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.ci.conftest import SPECS, Repository
from tests.ci.warm import ROOT

pytestmark = pytest.mark.whole

WORKFLOW: dict[Any, Any] = yaml.safe_load((ROOT / "examples/ci/github.yml").read_text("utf-8"))
GITLAB: dict[str, Any] = yaml.safe_load((ROOT / "examples/ci/gitlab.yml").read_text("utf-8"))
HOOKS: list[dict[str, Any]] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))


def test_the_workflow_runs_on_pull_requests_with_no_more_rights_than_it_needs() -> None:
    # YAML 1.1, which PyYAML reads, takes the key `on` for true.
    assert WORKFLOW[True] == "pull_request"
    assert WORKFLOW["permissions"] == {"contents": "read", "pull-requests": "write"}
    assert all("permissions" not in job for job in WORKFLOW["jobs"].values())


def test_the_workflow_fetches_the_base_and_uses_existing_inputs() -> None:
    checkout, review = WORKFLOW["jobs"]["review"]["steps"]
    assert checkout["with"]["fetch-depth"] == 0
    assert set(review["with"]) <= set(ACTION["inputs"])


def test_the_gitlab_job_is_a_script_that_bash_understands() -> None:
    job = GITLAB["lancestat"]
    script = "\n".join([*job["before_script"], *job["script"]])
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    assert "$CI_MERGE_REQUEST_DIFF_BASE_SHA" in script


def run_gitlab_job(
    repository: Repository, base: str, folder: Path
) -> subprocess.CompletedProcess[str]:
    """Run the job's script with a pip that installs nothing and a server that has no requests."""
    job = GITLAB["lancestat"]
    script = "\n".join(["set -e", *job["before_script"], *job["script"]])
    bin_folder = folder / "bin"
    bin_folder.mkdir()
    (bin_folder / "apt-get").write_text("#!/bin/sh\n")
    python = f"""#!/bin/bash
[[ "$1 $2" == "-I -m" ]] || exit 9
[[ $3 != venv ]] || {{ mkdir -p "$4/bin"; cp "$0" "$4/bin/python"; exit; }}
[[ $3 != pip ]] || exit 0
exec "{sys.executable}" -I -c 'import sys; sys.path.insert(0, "{ROOT}"); sys.argv[0:3] = []
from lancestat.cli.main import main; main()' "$@"
"""
    (bin_folder / "python").write_text(python)
    for program in bin_folder.iterdir():
        program.chmod(0o755)
    environment = {
        **{key: str(value) for key, value in job["variables"].items()},
        "PATH": f"{bin_folder}:{os.environ['PATH']}",
        "PYTHONPATH": ".",
        "LANCESTAT_TARGET": "dev",
        "CI_MERGE_REQUEST_DIFF_BASE_SHA": base,
    }
    return subprocess.run(
        ["bash"], input=script, cwd=repository.folder, env=environment, capture_output=True,
        text=True, check=False,
    )  # fmt: skip


@pytest.fixture
def merge_request(tmp_path: Path) -> Repository:
    """A repository on the branch of a merge request, with a project in `statistics/`."""
    return Repository.begun(tmp_path / "tree")


def test_the_gitlab_job_runs_nothing_of_the_work_tree(
    merge_request: Repository, tmp_path: Path
) -> None:
    base = merge_request.git("rev-parse", "HEAD").strip()
    traps = ("venv/__init__.py", "pip/__init__.py", "json.py", "lancestat/__init__.py", "click.py")
    sprung = tmp_path / "sprung"
    trap = f"open({str(sprung)!r}, 'w')\n"
    merge_request.commit(
        {**dict.fromkeys(traps, trap), "statistics/specs/shop.yml": SPECS.replace("24h", "48h")}
    )
    victim = tmp_path / "victim"
    victim.write_text("kept")
    for name in ("lancestat.md", "note.json"):
        (merge_request.folder / name).symlink_to(victim)
    completed = run_gitlab_job(merge_request, base, tmp_path)
    assert completed.returncode == 3, completed.stderr
    assert not sprung.exists()
    assert victim.read_text() == "kept"
    assert "staleness_loosened" in (merge_request.folder / "lancestat.md").read_text()


def test_a_broken_base_does_not_bar_the_merge_request_that_repairs_it(
    merge_request: Repository, tmp_path: Path
) -> None:
    merge_request.commit({"statistics/specs/shop.yml": "tables: [{}]\n"})
    base = merge_request.git("rev-parse", "HEAD").strip()
    merge_request.commit({"statistics/specs/shop.yml": SPECS})
    completed = run_gitlab_job(merge_request, base, tmp_path)
    assert completed.returncode == 0, completed.stderr
    # The artifact, the notes and the log say that, and why.
    assert "nothing was compared" in (merge_request.folder / "lancestat.md").read_text()
    assert "LS1" in completed.stderr


def test_a_base_that_was_not_fetched_fails_the_gitlab_job(
    merge_request: Repository, tmp_path: Path
) -> None:
    completed = run_gitlab_job(merge_request, "0" * 40, tmp_path)
    assert completed.returncode == 2, completed.stderr


def test_the_hook_runs_the_command_and_passes_no_files() -> None:
    [hook] = HOOKS
    assert hook["id"] == "lancestat-validate"
    assert (hook["language"], hook["pass_filenames"]) == ("python", False)
    scripts = {script.name for script in metadata.entry_points(group="console_scripts")}
    assert hook["entry"].split()[0] in scripts
    command = [sys.executable, "-m", *hook["entry"].split()]
    completed = subprocess.run(
        command, cwd=ROOT / "examples" / "project", capture_output=True, text=True, check=False
    )
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.startswith("valid ")
