"""A REST catalog on loopback that answers as a test wants, however little sense that makes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests import http_server

# What a catalog says: a JSON value, or the bytes of a body that need be none.
Answer = Mapping[str, Any] | list[Any] | bytes | None
Lie = Callable[["Question"], Answer]

_PATH = re.compile(r"/v1/(?:namespace|table)/([^/]*)/(.*)")


class Question:
    """A request: `kind` is `tables`, `namespaces` or `describe`, `identifier` what it is about."""

    def __init__(self, path: str) -> None:
        url = urlsplit(path)
        matched = _PATH.fullmatch(url.path)
        assert matched is not None, path
        identifier, operation = matched.groups()
        self.identifier = tuple(part for part in unquote(identifier).split("$") if part)
        self.kind = {"list": "namespaces", "table/list": "tables"}.get(operation, operation)
        [self.token] = parse_qs(url.query).get("page_token", [None])


@contextmanager
def liar(lie: Lie) -> Iterator[tuple[str, list[Question]]]:
    """Serve what `lie` returns; yield the address, and the requests in the order that they come."""
    asked: list[Question] = []

    class Handler(http_server.Handler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            self.body()
            question = Question(self.path)
            asked.append(question)
            answer = lie(question)
            body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.answer(200, body, {"Content-Type": "application/json"})

        do_GET = do_POST = _answer  # noqa: N815

    with http_server.serving(Handler) as address:
        yield address, asked
