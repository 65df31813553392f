"""Keeps the comment on a pull request up to date, by GitHub's REST interface."""

from __future__ import annotations

import http.client
import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from email.message import Message
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, quote, urljoin, urlsplit

from lancestat.errors import (
    CommentError,
    GitHubAnswerInvalid,
    GitHubNotConfigured,
    GitHubRedirected,
    GitHubRefused,
    GitHubUnreachable,
    InDoubt,
    ReadOnlyToken,
)
from lancestat.formats import StringEnum
from lancestat.redact import redact_line
from lancestat.review.values import NO_CHANGES

ATTEMPTS = 5
LONGEST_PAUSE_SECONDS = 60.0
_REDIRECTS = 5
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


# The JSON of an answer, and the address of its next page.
Answer = tuple[Any, str | None]


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect by itself, which would take the token along."""

    def redirect_request(self, *_: object, **__: object) -> None:
        return None


class GitHub:
    """A client of one host, which retries, and sends the token to no other host.

    Args:
        root: The address of the interface, as GITHUB_API_URL gives it.
        token: Sent with every request and shown nowhere.
        sleep: Waits between attempts.
        timeout_seconds: How long one request may be silent.
    """

    def __init__(
        self,
        root: str,
        token: str,
        *,
        sleep: Callable[[float], None] = time.sleep,
        timeout_seconds: float = 20.0,
    ) -> None:
        self._root = root.rstrip("/")
        self._origin = _checked_origin(self._root)
        self._token = _checked_token(token)
        self._sleep = sleep
        self._timeout_seconds = timeout_seconds
        self._opener = urllib.request.build_opener(_NoRedirects)

    def __repr__(self) -> str:
        return f"GitHub({self._root!r})"

    def get(self, path: str) -> Answer:
        """Read `path`, which may be the whole address of a next page."""
        return self._ask("GET", path)

    def patch(self, path: str, payload: Mapping[str, object]) -> Any:
        """Update the resource at `path`."""
        return self._ask("PATCH", path, payload)[0]

    def post(self, path: str, payload: Mapping[str, object]) -> Any:
        """Create a resource at `path`; not retried, since that could create two."""
        return self._ask("POST", path, payload)[0]

    def pause(self, attempt: int, wanted_seconds: float | None = None) -> None:
        """Wait before attempt `attempt` + 1: as long as GitHub asks, or longer each time."""
        self._sleep(2.0**attempt if wanted_seconds is None else wanted_seconds)

    def _ask(self, method: str, path: str, payload: Mapping[str, object] | None = None) -> Answer:
        url = self._same_host(urljoin(f"{self._root}/", path.removeprefix("/")))
        for attempt in range(ATTEMPTS):
            try:
                return self._send(method, url, payload)
            except _Busy as busy:
                if busy.may_be_done and method == "POST":
                    raise InDoubt(busy.message) from None
                is_last = attempt == ATTEMPTS - 1
                if is_last or (busy.wait_seconds or 0.0) > LONGEST_PAUSE_SECONDS:
                    hint = "run the job again later"
                    raise GitHubUnreachable(busy.message, hint=hint) from None
                self.pause(attempt, busy.wait_seconds)
        raise AssertionError("unreachable")

    def _send(self, method: str, url: str, payload: Mapping[str, object] | None) -> Answer:
        for _ in range(_REDIRECTS):
            try:
                with self._opener.open(
                    self._request(method, url, payload), timeout=self._timeout_seconds
                ) as response:
                    return self._understood(response)
            except urllib.error.HTTPError as error:
                with error:
                    target = error.headers.get("Location")
                    if not (300 <= error.code < 400 and target):
                        raise self._refusal(method, url, error) from None
                    url = self._same_host(urljoin(url, target))
            except (OSError, http.client.HTTPException) as error:
                # URLError among them; a silent server is a TimeoutError.
                reason = getattr(error, "reason", None) or error
                raise _Busy(self._redacted(f"{self._origin} does not answer: {reason}")) from None
        raise GitHubRedirected(self._redacted(f"{url} redirects again and again"))

    def _request(
        self, method: str, url: str, payload: Mapping[str, object] | None
    ) -> urllib.request.Request:
        headers = {
            "Accept": "application/vnd.github+json",
            "Authorization": f"Bearer {self._token}",
            "User-Agent": "lancestat",
            "X-GitHub-Api-Version": "2022-11-28",
        }
        body = None
        if payload is not None:
            body = json.dumps(payload).encode("ascii")
            headers["Content-Type"] = "application/json"
        return urllib.request.Request(url, body, headers, method=method)

    def _understood(self, response: http.client.HTTPResponse) -> Answer:
        try:
            value = json.loads(response.read())
        except ValueError:
            message = f"{self._origin} answered {response.status} with what is not JSON"
            hint = "is this the address of GitHub's REST interface?"
            raise GitHubAnswerInvalid(message, hint=hint) from None
        return value, _next_page(response.headers.get("Link"))

    def _refusal(self, method: str, url: str, error: urllib.error.HTTPError) -> Exception:
        reason = self._redacted(_message(error))
        path = urlsplit(url).path
        text = f"GitHub refused {method} {path}: {error.code} {reason}"
        is_limited = error.code == 429 or (
            error.code == 403
            and (
                "Retry-After" in error.headers or error.headers.get("X-RateLimit-Remaining") == "0"
            )
        )
        if is_limited:
            return _Busy(text, _wait_seconds(error.headers), may_be_done=False)
        if error.code >= 500:
            return _Busy(text, _wait_seconds(error.headers))
        if error.code == 403:
            hint = "the job needs 'permissions: {pull-requests: write}'; forks never have it"
            return ReadOnlyToken(text, hint=hint)
        return GitHubRefused(text, hint=_HINTS.get(error.code))

    def _same_host(self, url: str) -> str:
        try:
            parts = urlsplit(url)
            origin = _origin(parts)
        except ValueError:
            origin = "an address that cannot be read"
        if origin != self._origin:
            message = self._redacted(
                f"{self._origin} leads to {origin}, where the token is not sent"
            )
            raise GitHubRedirected(message)
        return url

    def _redacted(self, text: str) -> str:
        return redact_line(text, [self._token])


_HINTS = {
    401: "is GITHUB_TOKEN the job's token, and not expired?",
    404: "do the repository and the pull request exist, and may the token read them?",
    410: "the conversation has been removed",
    422: "GitHub takes at most 65,536 characters",
}


class _Busy(Exception):  # noqa: N818 - not an error before it lasts
    def __init__(
        self, message: str, wait_seconds: float | None = None, *, may_be_done: bool = True
    ) -> None:
        super().__init__(message)
        self.message = message
        self.wait_seconds = wait_seconds
        self.may_be_done = may_be_done


def _checked_origin(root: str) -> str:
    try:
        parts = urlsplit(root)
        origin = _origin(parts)
    except ValueError:
        parts, origin = SplitResult("", "", "", "", ""), ""
    is_safe = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)
    if not is_safe or not parts.hostname or parts.username is not None:
        message = (
            f"GITHUB_API_URL is {redact_line(root)!r}; expected https://HOST with an optional path"
        )
        raise GitHubNotConfigured(message)
    return origin


def _origin(parts: SplitResult) -> str:
    port = parts.port or {"https": 443, "http": 80}.get(parts.scheme)
    is_usual = port in (None, 443 if parts.scheme == "https" else 80)
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}" + ("" if is_usual else f":{port}")


def _checked_token(token: str) -> str:
    token = token.strip()
    if not token:
        hint = "in a workflow: env: {GITHUB_TOKEN: ${{ github.token }}}"
        raise GitHubNotConfigured("GITHUB_TOKEN is not set", hint=hint)
    if not all("!" <= char <= "~" for char in token):
        message = "GITHUB_TOKEN holds spaces or characters that no token has"
        raise GitHubNotConfigured(message)
    return token


def _message(error: urllib.error.HTTPError) -> str:
    """Return GitHub's reason for a refusal: its `message`, and the fields that are wrong."""
    try:
        body = json.loads(error.read(100_000))
        parts = [str(body["message"])]
        parts += [str(item.get("message") or item.get("code")) for item in body.get("errors", ())]
        return "; ".join(parts)
    except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError, AttributeError):
        return str(error.reason)


def _wait_seconds(headers: Message) -> float | None:
    """Return how long `Retry-After` or `X-RateLimit-Reset` asks to wait, None without them."""
    after = headers.get("Retry-After", "")
    if after.isascii() and after.isdigit():
        return float(after)
    try:
        return max(0.0, parsedate_to_datetime(after).timestamp() - time.time())
    except (ValueError, TypeError):
        pass
    reset = headers.get("X-RateLimit-Reset", "")
    if headers.get("X-RateLimit-Remaining") == "0" and reset.isascii() and reset.isdigit():
        return max(0.0, float(reset) - time.time())
    return None


def _next_page(link: str | None) -> str | None:
    """Return the address with `rel="next"` in a Link header (RFC 8288)."""
    for part in (link or "").split(","):
        target, *parameters = part.strip().split(";")
        is_next = any(p.strip() in ('rel="next"', "rel=next") for p in parameters)
        if is_next and target.startswith("<") and target.endswith(">"):
            return target[1:-1]
    return None


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
    """The pull request of a job."""
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
    """
    start, body = marker(project), comment_body(project, markdown)
    for attempt in range(ATTEMPTS):
        ours = _find(github, pull, start)
        if ours is not None:
            return _update(github, pull, ours, body)
        if has_no_changes(markdown):
            return CommentResult(Outcome.NOT_NEEDED)
        try:
            made = github.post(pull.comments, {"body": body})
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
        value, next_url = github.get(next_url)
        if not isinstance(value, list):
            raise GitHubAnswerInvalid("GitHub's list of comments is no list")
        yield from (comment for comment in value if isinstance(comment, dict))


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
            value, _ = self.github.get("/user")
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
    return CommentResult(Outcome.UPDATED, _page(github.patch(path, {"body": body})))


def _lines(body: str) -> list[str]:
    return body.rstrip().splitlines()


def _page(comment: object) -> str | None:
    url = comment.get("html_url") if isinstance(comment, dict) else None
    return url if isinstance(url, str) and url.startswith("https://") else None
