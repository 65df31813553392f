"""A client of GitHub's REST interface, as far as comments need it."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.message import Message
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import SplitResult, urljoin, urlsplit

from lancestat.errors import (
    GitHubAnswerInvalid,
    GitHubNotConfigured,
    GitHubRedirected,
    GitHubRefused,
    GitHubUnreachable,
    InDoubt,
    ReadOnlyToken,
)
from lancestat.redact import redact_line

ATTEMPTS = 5
LONGEST_PAUSE_SECONDS = 60.0
_REDIRECTS = 5
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True)
class Answer:
    """The JSON of an answer, and the address of its next page."""

    value: Any
    next_url: str | None = None


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

    def patch(self, path: str, payload: Mapping[str, object]) -> Answer:
        """Update the resource at `path`."""
        return self._ask("PATCH", path, payload)

    def post(self, path: str, payload: Mapping[str, object]) -> Answer:
        """Create a resource at `path`; not retried, since that could create two.

        Raises:
            InDoubt: it may or may not have been created.
        """
        return self._ask("POST", path, payload)

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
        return Answer(value, _next_page(response.headers.get("Link")))

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
