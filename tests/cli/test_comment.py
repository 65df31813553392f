from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import FakeProject, Lancestat
from tests.review.github_stub import GitHubStub, Reply, serving

TOKEN = "ghs_TheTokenThatNobodyMaySee0123456789"
FORBIDDEN = Reply(403, {"message": "Resource not accessible by integration"})
PAGE = "https://github.example/o/r/pull/7#issuecomment-1"


@pytest.fixture
def stub() -> Iterator[GitHubStub]:
    with serving(GitHubStub()) as served:
        yield served


@pytest.fixture
def job(
    stub: GitHubStub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, project: FakeProject
) -> dict[str, str]:
    """The environment of a job for pull request 7 of `o/r`; a summary and a body lie there."""
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "event.json").write_text(json.dumps({"pull_request": {"number": 7}}))
    (tmp_path / "diff.md").write_text("### one change\n")
    return {
        "GITHUB_TOKEN": TOKEN,
        "GITHUB_API_URL": stub.url,
        "GITHUB_REPOSITORY": "o/r",
        "GITHUB_EVENT_PATH": str(tmp_path / "event.json"),
        "no_proxy": "127.0.0.1",
    }


def test_the_outcome_of_the_comment_is_printed(
    lancestat: Lancestat, job: dict[str, str], stub: GitHubStub
) -> None:
    first = lancestat("comment", "--body-file", "diff.md", **job)
    assert (first.exit_code, first.stdout, first.stderr) == (0, f"created  {PAGE}\n", "")
    again = lancestat("comment", "--body-file", "diff.md", "--output", "json", **job)
    expected = {"format_version": 1, "command": "comment", "outcome": "unchanged", "url": PAGE}
    assert json.loads(again.stdout) == expected
    assert stub.bodies == ["<!-- lancestat:diff:shop -->\n### one change\n"]


def test_the_body_may_come_from_standard_input(
    lancestat: Lancestat, job: dict[str, str], stub: GitHubStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    from click.testing import CliRunner

    from lancestat.cli.main import cli

    text = "### übrigens\n".encode() + b"\xff"
    result = CliRunner().invoke(cli, ["comment", "--body-file", "-"], input=text, env=job)
    assert result.exit_code == 0, result.output
    assert stub.bodies == ["<!-- lancestat:diff:shop -->\n### übrigens\n\ufffd\n"]


def test_without_changes_the_output_says_that_no_comment_was_made(
    lancestat: Lancestat, job: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "diff.md").write_text("")
    result = lancestat("comment", "--body-file", "diff.md", **job)
    assert (result.exit_code, result.stdout) == (0, "not needed\n")


def test_a_token_that_may_only_read_gives_one_warning_and_the_summary(
    lancestat: Lancestat, job: dict[str, str], stub: GitHubStub, tmp_path: Path
) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("of another step\n")
    comment = ("comment", "--body-file", "diff.md")
    stub.script = [None, FORBIDDEN]
    result = lancestat(*comment, **job, GITHUB_STEP_SUMMARY=str(summary))
    assert (result.exit_code, result.stdout) == (0, "")
    [line] = result.stderr.splitlines()
    assert line.startswith("warning: no comment was written, because the token is read-only")
    assert summary.read_text() == "of another step\n### one change\n"
    stub.script = [None, FORBIDDEN]
    result = lancestat(*comment, "--output", "json", **job)
    document = json.loads(result.stdout)
    assert (result.exit_code, document["outcome"], document["url"]) == (0, "not_allowed", None)
    # In a job the warning is on its page.
    stub.script = [None, Reply(403, {"message": "100%\n::error::no ##[error]no"})]
    result = lancestat(*comment, **job, GITHUB_ACTIONS="true")
    assert result.exit_code == 0
    [line] = result.stderr.splitlines()
    assert line.startswith("::warning title=lancestat::no comment was written")
    assert line.endswith("403 100%25 ::error::no #\\x23[error]no")


def test_under_strict_a_read_only_token_is_an_error(
    lancestat: Lancestat, job: dict[str, str], stub: GitHubStub
) -> None:
    stub.script = [None, FORBIDDEN]
    result = lancestat("comment", "--body-file", "diff.md", "--strict", **job)
    assert result.exit_code == 1
    assert result.stderr.startswith("LS613  GitHub refused POST")
    assert "pull-requests: write" in result.stderr


def test_a_missing_body_file_is_wrong_usage(
    lancestat: Lancestat, job: dict[str, str], stub: GitHubStub
) -> None:
    result = lancestat("comment", "--body-file", "nowhere.md", **job)
    assert (result.exit_code, stub.seen) == (2, [])
    assert result.stderr == "LS616  cannot read nowhere.md: No such file or directory\n"


def test_the_token_is_never_shown(
    lancestat: Lancestat,
    job: dict[str, str],
    stub: GitHubStub,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    echo = {"message": f"Bearer {TOKEN}", "errors": [{"message": f"token {TOKEN}"}]}
    away = {"Location": f"https://elsewhere.example/?token={TOKEN}"}
    summary = tmp_path / "summary.md"
    for reply in (Reply(401, echo), Reply(403, echo), Reply(422, echo), Reply(302, None, away)):
        for position in (0, 1):
            stub.script = [None] * position + [reply]
            result = lancestat(
                *("--verbose", "comment", "--body-file", "diff.md"),
                **job,
                GITHUB_STEP_SUMMARY=str(summary),
            )
            assert result.stderr
            assert TOKEN not in result.output
    assert TOKEN not in caplog.text
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in files if TOKEN in path.read_text()]


def test_a_dry_run_prints_what_would_be_posted(
    lancestat: Lancestat, job: dict[str, str], stub: GitHubStub
) -> None:
    """Neither a token nor a pull request is needed, and GitHub is not asked."""
    dry = lancestat("comment", "--body-file", "diff.md", "--dry-run")
    assert (dry.exit_code, dry.stderr) == (0, "")
    assert stub.bodies == []
    posted = lancestat("comment", "--body-file", "diff.md", **job)
    assert posted.exit_code == 0
    assert [dry.stdout] == stub.bodies
    as_json = lancestat("comment", "--body-file", "diff.md", "--dry-run", "--output", "json")
    assert json.loads(as_json.stdout) == {
        "format_version": 1,
        "command": "comment",
        "outcome": "dry_run",
        "url": None,
        "body": dry.stdout,
    }
