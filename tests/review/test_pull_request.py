from __future__ import annotations

import json
from pathlib import Path

import pytest

from lancestat.errors import CommentError
from lancestat.review.comment import PullRequest, pull_request


def environment(tmp_path: Path, event: object) -> dict[str, str]:
    path = tmp_path / "event.json"
    path.write_text(event if isinstance(event, str) else json.dumps(event))
    return {
        "GITHUB_REPOSITORY": "some-owner/some.repo",
        "GITHUB_EVENT_PATH": str(path),
        "GITHUB_EVENT_NAME": "push",
    }


def test_the_event_names_the_pull_request(tmp_path: Path) -> None:
    request = pull_request(environment(tmp_path, {"pull_request": {"number": 12}}))
    assert request == PullRequest("some-owner/some.repo", 12)
    assert request.comments == "/repos/some-owner/some.repo/issues/12/comments"


def test_a_number_that_is_given_wins_and_needs_no_event() -> None:
    assert pull_request({"GITHUB_REPOSITORY": "o/r"}, 3) == PullRequest("o/r", 3)


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"ref": "refs/heads/main"},
        {"pull_request": None},
        {"pull_request": {"number": "12"}},
        {"pull_request": {"number": True}},
        {"pull_request": {"number": 0}},
        {"number": 12},
        [],
        None,
    ],
)
def test_an_event_of_another_kind_is_one_clear_error(event: object, tmp_path: Path) -> None:
    with pytest.raises(CommentError, match=r"^LS610  the event \(push\) is not about") as raised:
        pull_request(environment(tmp_path, event))
    assert "--number" in str(raised.value.hint)


@pytest.mark.parametrize("event", ["", "{", "\x00"])
def test_an_event_that_cannot_be_read_is_one_clear_error(event: str, tmp_path: Path) -> None:
    with pytest.raises(CommentError, match=r"^LS610  GITHUB_EVENT_PATH does not name"):
        pull_request(environment(tmp_path, event))


def test_no_event_at_all_is_one_clear_error() -> None:
    with pytest.raises(CommentError, match=r"^LS610 .*not about a pull request"):
        pull_request({"GITHUB_REPOSITORY": "o/r"})
    with pytest.raises(CommentError, match=r"^LS610  GITHUB_EVENT_PATH does not name"):
        pull_request({"GITHUB_REPOSITORY": "o/r", "GITHUB_EVENT_PATH": "nowhere"})


@pytest.mark.parametrize(
    "repository", ["", "o", "o/r/s", "../user", "o/..", "o/r?x=1", "o/r\n", "/"]
)
def test_a_repository_that_would_lead_elsewhere_is_refused(repository: str) -> None:
    with pytest.raises(CommentError, match=r"^LS610  GITHUB_REPOSITORY is .*expected OWNER/NAME"):
        pull_request({"GITHUB_REPOSITORY": repository}, 1)
