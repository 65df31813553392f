from __future__ import annotations

import re
import subprocess
import sys
from importlib import metadata
from typing import Any

import yaml

from tests.ci.conftest import ROOT

WORKFLOW: dict[Any, Any] = yaml.safe_load((ROOT / "examples/ci/github.yml").read_text("utf-8"))
GITLAB: dict[str, Any] = yaml.safe_load((ROOT / "examples/ci/gitlab.yml").read_text("utf-8"))
HOOKS: list[dict[str, Any]] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))


def test_the_workflow_runs_on_pull_requests_with_no_more_rights_than_it_needs() -> None:
    # YAML 1.1, which PyYAML reads, takes the key `on` for true.
    assert WORKFLOW[True] == "pull_request"
    assert WORKFLOW["permissions"] == {"contents": "read", "pull-requests": "write"}
    assert all("permissions" not in job for job in WORKFLOW["jobs"].values())


def test_every_action_of_the_workflow_is_pinned() -> None:
    used = [step["uses"] for job in WORKFLOW["jobs"].values() for step in job["steps"]]
    assert len(used) == 2
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@v[0-9]+", name) for name in used)


def test_the_workflow_fetches_the_base_and_gives_inputs_that_there_are() -> None:
    checkout, review = WORKFLOW["jobs"]["review"]["steps"]
    assert checkout["with"]["fetch-depth"] == 0
    assert set(review["with"]) <= set(ACTION["inputs"])


def test_risk_words_of_the_examples_are_known() -> None:
    from lancestat.review.values import Risk

    review = WORKFLOW["jobs"]["review"]["steps"][1]
    variables = GITLAB["lancestat"]["variables"]
    for words in (review["with"]["fail-on"], variables["LANCESTAT_FAIL_ON"]):
        assert {Risk(word) for word in words.split(",")}


def test_the_gitlab_job_is_a_script_that_bash_understands() -> None:
    job = GITLAB["lancestat"]
    script = "\n".join([*job["before_script"], *job["script"]])
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    assert "$CI_MERGE_REQUEST_DIFF_BASE_SHA" in script


def test_the_hook_runs_the_command_and_passes_no_files() -> None:
    [hook] = HOOKS
    assert hook["id"] == "lancestat-validate"
    assert (hook["language"], hook["pass_filenames"]) == ("python", False)
    scripts = {script.name for script in metadata.entry_points(group="console_scripts")}
    assert hook["entry"].split()[0] in scripts
    command = [sys.executable, "-m", *hook["entry"].split()]
    done = subprocess.run(
        command, cwd=ROOT / "examples" / "project", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("valid ")
