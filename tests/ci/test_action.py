from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.ci.composite import Ran
from tests.ci.conftest import PROJECT, SPECS, TOKEN, Repository
from tests.ci.warm import ROOT
from tests.review.github_stub import GitHubStub, Reply

pytestmark = pytest.mark.whole

Act = Callable[..., Ran]

ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
STEPS: list[dict[str, Any]] = ACTION["runs"]["steps"]
SCRIPTS = [step for step in STEPS if "run" in step]
LOOSER = SPECS.replace("24h", "48h")
ISOLATE = 'source "$GITHUB_ACTION_PATH/ci/isolate.sh"'
MARKER = "<!-- lancestat:diff:shop -->\n"


def test_every_step_leaves_the_workspace_before_it_runs_a_program() -> None:
    assert [step["id"] for step in SCRIPTS if not step["run"].startswith(ISOLATE)] == ["judge"]
    for step in SCRIPTS:
        assert step["run"].count(" -I -m ") == step["run"].count(" -m "), step["id"]
        assert set(re.findall(r"/bin/(\w+)", step["run"])) <= {"python"}, step["id"]


def test_no_untrusted_value_is_interpolated_into_a_script() -> None:
    assert SCRIPTS
    for step in SCRIPTS:
        assert "${{" not in step["run"]


def test_only_the_comment_step_receives_the_token() -> None:
    holders = [step["id"] for step in STEPS if "token" in str(step.get("env", step.get("with")))]
    assert holders == ["comment"]


def test_every_action_that_is_used_is_pinned() -> None:
    used = [step["uses"] for step in STEPS if "uses" in step]
    assert used
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@v[0-9]+", name) for name in used)


def test_a_change_is_reported_in_a_comment_and_in_the_summary(
    act: Act, repository: Repository, github: GitHubStub
) -> None:
    repository.commit({"statistics/specs/shop.yml": LOOSER})
    job = act()
    assert job.code == 0, job.log
    assert job.steps == ["install", "validate", "diff", "comment"]
    assert job.outputs["changed"] == "true"
    [body] = github.bodies
    assert body == MARKER + job.summary
    assert "staleness\\_loosened" in body or "staleness_loosened" in body
    assert Path(job.outputs["markdown-file"]).read_text() == job.summary


def test_the_comment_follows_the_change(
    act: Act, repository: Repository, github: GitHubStub
) -> None:
    repository.commit({"statistics/specs/shop.yml": LOOSER})
    act()
    repository.commit({"statistics/specs/shop.yml": f"# as it was\n{SPECS}"})
    job = act()
    assert job.code == 0, job.log
    assert job.outputs["changed"] == "false"
    [body] = github.bodies
    assert "Nothing changes" in body


def test_without_changes_no_comment_is_made(
    act: Act, repository: Repository, github: GitHubStub
) -> None:
    repository.commit({"README.md": "of another part of the repository"})
    job = act()
    assert (job.code, job.outputs["changed"]) == (0, "false"), job.log
    assert github.bodies == []


def test_a_risk_named_in_fail_on_fails_the_job_after_the_comment(
    act: Act, repository: Repository, github: GitHubStub
) -> None:
    repository.commit({"statistics/specs/shop.yml": LOOSER})
    job = act(fail_on="dataset_moved, staleness_loosened", target="dev")
    assert (job.code, job.steps[-2:]) == (3, ["comment", "judge"])
    assert "::error title=lancestat::" in job.log
    assert len(github.bodies) == 1


def test_other_risks_do_not_fail_the_job(act: Act, repository: Repository) -> None:
    repository.commit({"statistics/specs/shop.yml": LOOSER})
    job = act(fail_on="dataset_moved", comment="false")
    assert (job.code, job.steps) == (0, ["install", "validate", "diff"]), job.log


def test_a_fork_reads_the_change_in_the_summary(
    act: Act, repository: Repository, github: GitHubStub
) -> None:
    repository.commit({"statistics/specs/shop.yml": LOOSER})
    github.script = [None, Reply(403, {"message": "Resource not accessible by integration"})]
    job = act()
    assert job.code == 0, job.log
    [warning] = [line for line in job.log.splitlines() if line.startswith("::warning")]
    assert "the token is read-only" in warning
    assert job.summary.count("### lancestat") == 1


def test_an_invalid_project_fails_first_with_the_locations_of_its_errors(
    act: Act, repository: Repository, github: GitHubStub
) -> None:
    repository.commit({"statistics/specs/shop.yml": SPECS.replace("owner", "ownr")})
    job = act()
    assert (job.code, job.steps[-1]) == (1, "validate")
    assert "LS103 specs/shop.yml:4:5" in job.log
    assert github.seen == []


@pytest.mark.parametrize(
    ("base", "text"),
    [
        ({"statistics/lancestat_project.yml": None}, "every node is new"),
        ({"statistics/specs/shop.yml": "tables: [{}]\n"}, "nothing was compared"),
    ],
)
def test_a_project_that_is_missing_or_broken_in_the_base_is_accepted(
    base: dict[str, str | None], text: str, act: Act, repository: Repository, github: GitHubStub
) -> None:
    repository.commit(base)
    repository.git("update-ref", "refs/remotes/origin/main", "HEAD")
    repository.commit(
        {"statistics/lancestat_project.yml": PROJECT, "statistics/specs/shop.yml": SPECS}
    )
    job = act(fail_on="staleness_loosened,coverage_lost,dataset_moved")
    assert job.code == 0, job.log
    [body] = github.bodies
    assert text in body


def test_a_base_that_was_not_fetched_is_one_clear_error(act: Act, repository: Repository) -> None:
    repository.git("update-ref", "-d", "refs/remotes/origin/main")
    job = act()
    assert (job.code, job.steps[-1]) == (2, "diff")
    assert "origin/main" in job.log


def test_without_a_pull_request_the_project_is_validated(act: Act, github: GitHubStub) -> None:
    job = act(pull_request=False)
    assert (job.code, job.steps) == (0, ["install", "validate"]), job.log
    assert job.outputs == {"changed": "", "markdown-file": ""}


def test_a_base_can_be_named_without_a_pull_request(
    act: Act, repository: Repository, github: GitHubStub
) -> None:
    repository.commit({"statistics/specs/shop.yml": LOOSER})
    job = act(pull_request=False, base="HEAD~1")
    assert (job.code, job.steps[-1], job.outputs["changed"]) == (0, "diff", "true"), job.log
    assert github.seen == []


@pytest.mark.parametrize(
    ("requirement", "asked"), [("", str(ROOT)), ("lancestat==0.1.0", "lancestat==0.1.0")]
)
def test_the_requested_requirement_is_installed(
    requirement: str, asked: str, act: Act, tmp_path: Path
) -> None:
    job = act(pull_request=False, requirement=requirement, project_dir="nowhere")
    assert job.steps == ["install", "validate"]
    assert (tmp_path / "temporary" / "pip").read_text().splitlines()[-1] == asked


HOSTILE = "\"; touch pwned; $(touch pwned) `touch pwned` ' && touch pwned #"


@pytest.mark.parametrize("name", ["project_dir", "target", "base", "fail_on", "requirement"])
def test_no_input_is_executed(name: str, act: Act, repository: Repository, tmp_path: Path) -> None:
    act(**{name: HOSTILE})
    assert not [*tmp_path.rglob("pwned")]


def test_the_name_of_a_branch_is_not_executed(
    act: Act, repository: Repository, tmp_path: Path
) -> None:
    repository.commit({"statistics/specs/shop.yml": LOOSER})
    base = "a;touch${IFS}pwned;$(touch${IFS}pwned)"
    repository.git("update-ref", f"refs/remotes/origin/{base}", "HEAD~1")
    job = act(base=f"origin/{base}")
    assert (job.code, job.outputs["changed"]) == (0, "true"), job.log
    assert not [*tmp_path.rglob("pwned")]


def test_a_project_that_reads_the_token_gets_none(
    act: Act, repository: Repository, github: GitHubStub
) -> None:
    asks = PROJECT.replace("shop", "\"{{ env_var('GITHUB_TOKEN', 'none') }}\"")
    repository.commit({"statistics/lancestat_project.yml": asks})
    job = act()
    assert job.code == 0, job.log
    [body] = github.bodies
    assert body.startswith("<!-- lancestat:diff:none -->")
    assert TOKEN not in body


def test_the_token_is_nowhere_but_in_requests(
    act: Act, repository: Repository, github: GitHubStub, tmp_path: Path
) -> None:
    repository.commit({"statistics/specs/shop.yml": LOOSER})
    echo = {"message": f"no: Bearer {TOKEN}", "errors": [{"message": TOKEN}]}
    github.script = [None, Reply(422, echo)]
    job = act()
    assert job.code == 1
    assert {seen.headers["Authorization"] for seen in github.seen} == {f"Bearer {TOKEN}"}
    assert TOKEN not in job.log + job.summary + str(job.outputs)
    assert [step for step, own in job.environments.items() if TOKEN in own.values()] == ["comment"]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in files if TOKEN.encode() in path.read_bytes()]
