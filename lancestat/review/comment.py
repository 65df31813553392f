"""Keeps the comment on a pull request up to date."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from lancestat.errors import CommentError, GitHubAnswerInvalid, GitHubNotConfigured, InDoubt
from lancestat.formats import StringEnum
from lancestat.redact import redact_line
from lancestat.review.github import ATTEMPTS
from lancestat.review.values import NO_CHANGES

if TYPE_CHECKING:
    from lancestat.review.github import GitHub

_REPOSITORY = re.compile(r"(?!\.)[\w.\-]+/(?!\.\.?$)[\w.\-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class PullRequest:
    """A pull request of a `repository`, which is written OWNER/NAME."""

    repository: str
    number: int

    @property
    def comments(self) -> str:
        """The path of its conversation: to GitHub, a pull request is an issue as well."""
        return f"/repos/{self.repository}/issues/{self.number}/comments"


def pull_request(environment: Mapping[str, str], number: int | None = None) -> PullRequest:
    """The pull request of a job.

    Args:
        environment: Of the process; GITHUB_REPOSITORY and GITHUB_EVENT_PATH are read.
        number: The pull request's number; that of the job's event when None.

    Raises:
        GitHubNotConfigured: when there is none.
    """
    repository = environment.get("GITHUB_REPOSITORY", "")
    if not _REPOSITORY.fullmatch(repository):
        problem = f"is {redact_line(repository)!r}" if repository else "is not set"
        message = f"GITHUB_REPOSITORY {problem}; expected OWNER/NAME"
        raise GitHubNotConfigured(message)
    if number is None:
        number = _number(environment)
    return PullRequest(repository, number)


def _number(environment: Mapping[str, str]) -> int:
    path = environment.get("GITHUB_EVENT_PATH", "")
    hint = "give --number, or let the job run on pull_request"
    try:
        event = json.loads(Path(path).read_text("utf-8")) if path else {}
    except (OSError, ValueError):
        message = "GITHUB_EVENT_PATH does not name a file with the job's event"
        raise GitHubNotConfigured(message, hint=hint) from None
    request = event.get("pull_request") if isinstance(event, dict) else None
    number = request.get("number") if isinstance(request, dict) else None
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        name = redact_line(environment.get("GITHUB_EVENT_NAME", "")) or "this job's"
        message = f"the event ({name}) is not about a pull request"
        raise GitHubNotConfigured(message, hint=hint)
    return number


MAX_CHARACTERS = 65_536
"""The most characters that GitHub takes in one comment."""

_MAX_PAGES = 100


class Outcome(StringEnum):
    """The outcome of keeping a comment."""

    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    NOT_NEEDED = "not_needed"
    DRY_RUN = "dry_run"
    NOT_ALLOWED = "not_allowed"


@dataclass(frozen=True, slots=True)
class CommentResult:
    """The outcome, and the page of the comment where there is one; of a dry run the text."""

    outcome: Outcome
    url: str | None = None
    body: str | None = None


def marker(project: str) -> str:
    """The hidden line at the start of the comment of a project, one for each in a repository."""
    # Two hyphens would end an HTML comment.
    return f"<!-- lancestat:diff:{quote(project).replace('--', '-%2D')} -->"


def upsert_comment(github: GitHub, pull: PullRequest, project: str, markdown: str) -> CommentResult:
    """Set the comment of a project to `markdown`: the existing one, or a new one.

    Where nothing changes, a comment that is there says so, and none is made. A comment is ours
    when it starts with the project's marker and was written by a bot, as all are that a job's
    token or an app writes, or by the owner of the token. So neither an answer that quotes ours
    nor one whose author pasted the marker is written over.

    Raises:
        CommentError: GitHub refuses or cannot be reached.
    """
    start, body = marker(project), comment_body(project, markdown)
    for attempt in range(ATTEMPTS):
        ours = _find(github, pull, start)
        if ours is not None:
            return _update(github, pull, ours, body)
        if has_no_changes(markdown):
            return CommentResult(Outcome.NOT_NEEDED)
        try:
            made = github.post(pull.comments, {"body": body}).value
            return CommentResult(Outcome.CREATED, _page(made))
        except InDoubt:
            # The comment may have been made: look for it before making another.
            if attempt == ATTEMPTS - 1:
                raise
            github.pause(attempt)
    raise AssertionError("unreachable")


def comment_body(project: str, markdown: str) -> str:
    """Return the text of a project's comment, as GitHub gets it."""
    return fitted(f"{marker(project)}\n{markdown.strip() or 'Nothing changes.'}\n")


def has_no_changes(markdown: str) -> bool:
    """Whether a diff's Markdown has no change."""
    return not markdown.strip() or NO_CHANGES in markdown.splitlines()


def fitted(body: str) -> str:
    """A body that GitHub takes: cut at the end of a line where it is too long."""
    if len(body) <= MAX_CHARACTERS:
        return body
    note = "\n\n(cut: GitHub takes no more)\n"
    whole, _, _ = body[: MAX_CHARACTERS - len(note)].rpartition("\n")
    return whole + note


def _find(github: GitHub, pull: PullRequest, start: str) -> dict[str, Any] | None:
    """Return the first comment of ours, so that of two made at once only one is updated."""
    owner = _Owner(github)
    for comment in _comments(github, pull):
        body, user = comment.get("body"), comment.get("user")
        if isinstance(body, str) and _starts_with(body, start) and owner.wrote(user):
            return comment
    return None


def _starts_with(body: str, start: str) -> bool:
    return body.startswith(start) and body[len(start) :][:1] in ("", "\n", "\r")


def _comments(github: GitHub, pull: PullRequest) -> Iterator[dict[str, Any]]:
    next_url: str | None = f"{pull.comments}?per_page=100&page=1"
    for _ in range(_MAX_PAGES):
        if next_url is None:
            return
        answer = github.get(next_url)
        if not isinstance(answer.value, list):
            raise GitHubAnswerInvalid("GitHub's list of comments is no list")
        yield from (comment for comment in answer.value if isinstance(comment, dict))
        next_url = answer.next_url


@dataclass(slots=True)
class _Owner:
    """The owner of the token; requested only when a person's comment has the marker."""

    github: GitHub
    login: str | None = None
    is_known: bool = False

    def wrote(self, user: object) -> bool:
        """Whether a comment by `user` is ours."""
        if not isinstance(user, dict):
            return False
        if user.get("type") == "Bot":
            return True
        if not self.is_known:
            self.is_known, self.login = True, self._ask()
        return self.login is not None and user.get("login") == self.login

    def _ask(self) -> str | None:
        try:
            value = self.github.get("/user").value
        except CommentError:
            # Tokens of jobs and apps have no owner, and a bot writes their comments.
            return None
        login = value.get("login") if isinstance(value, dict) else None
        return login if isinstance(login, str) else None


def _update(github: GitHub, pull: PullRequest, ours: dict[str, Any], body: str) -> CommentResult:
    if _lines(ours["body"]) == _lines(body):
        return CommentResult(Outcome.UNCHANGED, _page(ours))
    number = ours.get("id")
    if not isinstance(number, int):
        raise GitHubAnswerInvalid("a comment in GitHub's list has no number")
    path = f"/repos/{pull.repository}/issues/comments/{number}"
    return CommentResult(Outcome.UPDATED, _page(github.patch(path, {"body": body}).value))


def _lines(body: str) -> list[str]:
    return body.rstrip().splitlines()


def _page(comment: object) -> str | None:
    url = comment.get("html_url") if isinstance(comment, dict) else None
    return url if isinstance(url, str) and url.startswith("https://") else None
