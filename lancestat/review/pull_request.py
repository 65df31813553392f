"""Which pull request a job works for."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lancestat.lake.clean import clean
from lancestat.review.github import NOT_CONFIGURED, CommentError

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
        environment: Of the process; GITHUB_REPOSITORY and GITHUB_EVENT_PATH are looked at.
        number: The pull request's number; that of the job's event when None.

    Raises:
        CommentError: LS610 when there is none.
    """
    repository = environment.get("GITHUB_REPOSITORY", "")
    if not _REPOSITORY.fullmatch(repository):
        found = f"is {clean(repository)!r}" if repository else "is not set"
        message = f"GITHUB_REPOSITORY {found}; expected OWNER/NAME"
        raise CommentError(NOT_CONFIGURED, message)
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
        raise CommentError(NOT_CONFIGURED, message, hint=hint) from None
    request = event.get("pull_request") if isinstance(event, dict) else None
    number = request.get("number") if isinstance(request, dict) else None
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        name = clean(environment.get("GITHUB_EVENT_NAME", "")) or "this job's"
        message = f"the event ({name}) is not about a pull request"
        raise CommentError(NOT_CONFIGURED, message, hint=hint)
    return number
