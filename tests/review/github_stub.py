"""GitHub's two endpoints for comments, on loopback."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests import http_server

BOT = {"login": "github-actions[bot]", "type": "Bot"}


@dataclass
class Reply:
    """An answer in place of the one of GitHub."""

    status: int
    payload: object = None
    headers: Mapping[str, str] = field(default_factory=dict)
    # Whether the request is carried out all the same.
    is_done: bool = False
    # The connection ends without an answer.
    hangs_up: bool = False
    raw: bytes | None = None


@dataclass
class Seen:
    method: str
    path: str
    headers: dict[str, str]
    payload: Any


@dataclass
class GitHubStub:
    """Comments of one pull request; `script` answers first, in its order."""

    comments: list[dict[str, Any]] = field(default_factory=list)
    script: list[Reply | None] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    author: Mapping[str, str] = field(default_factory=lambda: BOT)
    user: Mapping[str, str] | None = None
    url: str = ""
    page_size: int = 100
    next_url: Callable[[str], str] = lambda url: url

    def add(self, body: str, user: Mapping[str, str] = BOT) -> dict[str, Any]:
        number = len(self.comments) + 1
        page = f"https://github.example/o/r/pull/7#issuecomment-{number}"
        comment = {"id": number, "body": body, "user": dict(user), "html_url": page}
        self.comments.append(comment)
        return comment

    @property
    def bodies(self) -> list[str]:
        return [comment["body"] for comment in self.comments]

    @property
    def asked(self) -> list[str]:
        return [f"{seen.method} {seen.path}" for seen in self.seen]

    def answer(self, method: str, path: str, payload: Any) -> Reply:
        parts = urlsplit(path)
        match method, parts.path.split("/")[1:]:
            case "GET", ["user"] if self.user:
                return Reply(200, self.user)
            case "GET", ["user"]:
                return Reply(403, {"message": "Resource not accessible by integration"})
            case "GET", ["repos", "o", "r", "issues", "7", "comments"]:
                return self._list(parts.query)
            case "POST", ["repos", "o", "r", "issues", "7", "comments"]:
                return Reply(201, self.add(payload["body"], self.author))
            case "PATCH", ["repos", "o", "r", "issues", "comments", number]:
                comment = self.comments[int(number) - 1]
                comment["body"] = payload["body"]
                return Reply(200, comment)
        return Reply(404, {"message": "Not Found"})

    def _list(self, query: str) -> Reply:
        arguments = parse_qs(query)
        size = min(int(arguments["per_page"][0]), self.page_size)
        page = int(arguments["page"][0])
        here = self.comments[(page - 1) * size : page * size]
        headers = {}
        if page * size < len(self.comments):
            path = f"/repos/o/r/issues/7/comments?per_page={size}&page="
            following = self.next_url(f"{self.url}{path}{page + 1}")
            first = f'<{self.url}{path}1>; rel="first"'
            headers["Link"] = f'{first}, <{following}>; rel="next"'
        return Reply(200, here, headers)


@contextmanager
def serving(stub: GitHubStub) -> Iterator[GitHubStub]:
    class Handler(http_server.Handler):
        def _reply(self) -> None:
            body = self.body()
            payload = json.loads(body) if body else None
            stub.seen.append(Seen(self.command, self.path, dict(self.headers), payload))
            scripted = stub.script.pop(0) if stub.script else None
            if scripted is None or scripted.is_done:
                usual = stub.answer(self.command, self.path, payload)
            reply = scripted or usual
            if reply.hangs_up:
                self.close_connection = True
                return
            content = json.dumps(reply.payload).encode() if reply.raw is None else reply.raw
            self.answer(reply.status, content, reply.headers)

        do_GET = do_POST = do_PATCH = _reply  # noqa: N815

    with http_server.serving(Handler) as stub.url:
        yield stub
