"""A REST catalog on loopback that answers as a test wants, however little sense that makes."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

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

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self._answer()

        def _answer(self) -> None:
            question = Question(self.path)
            asked.append(question)
            answer = lie(question)
            body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Keep the test's output clean."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
