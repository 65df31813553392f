"""A proxy on loopback before an object store, which injects faults into its answers."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

HOST = "127.0.0.1"
ACTIONS = (
    "500", "503", "500 done", "slow", "silent", "silent done", "reset", "reset done", "cut",
)  # fmt: skip
# Longer than clients here are patient.
_SILENCE_SECONDS = 30.0


@dataclass
class Plan:
    """From request `first` on, `count` requests meet an action."""

    action: str = ""
    first: int = 0
    count: int = 0
    delay_seconds: float = 1.0
    seen: int = 0
    struck: int = 0

    def next(self) -> str:
        """The action that the next request meets, none for most."""
        number, self.seen = self.seen, self.seen + 1
        if not self.action or not self.first <= number < self.first + self.count:
            return ""
        self.struck += 1
        return self.action


@dataclass
class Proxy:
    """Forward requests to the store at `upstream` with the faults of `plan`."""

    upstream: str
    plan: Plan = field(default_factory=Plan)
    endpoint: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection, until it is to end."""
        try:
            while await self._answer(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError, EOFError):
            pass
        finally:
            with suppress(OSError):
                writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        request = await _message(reader, is_answer_to=None)
        if request is None:
            return False
        plan = self.plan
        action = plan.next()
        if action == "slow":
            await asyncio.sleep(plan.delay_seconds)
        elif action in ("500", "503"):
            return await _write(writer, _failure(action))
        elif action == "silent":
            await asyncio.sleep(_SILENCE_SECONDS)
            return False
        elif action == "reset":
            return _reset(writer)
        answer = await self._forward(request)
        if action == "500 done":
            return await _write(writer, _failure("500"))
        if action == "silent done":
            await asyncio.sleep(_SILENCE_SECONDS)
            return False
        if action == "reset done":
            return _reset(writer)
        if action == "cut":
            head, body = answer
            await _write(writer, (head, body[: len(body) // 2]))
            return _reset(writer)
        return await _write(writer, answer)

    async def _forward(self, request: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
        parts = urlsplit(self.upstream)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        try:
            await _write(writer, request)
            answer = await _message(reader, is_answer_to=request[0].split(b" ", 1)[0])
            if answer is None:
                raise EOFError
            return answer
        finally:
            writer.close()


async def _message(
    reader: asyncio.StreamReader, is_answer_to: bytes | None
) -> tuple[bytes, bytes] | None:
    """A head with its empty line, and a body; None when the connection has ended."""
    while True:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return None
        if is_answer_to is None or b" 100 " not in head.split(b"\r\n", 1)[0]:
            break
    fields = _fields(head)
    if is_answer_to is None and b"100-continue" in fields.get(b"expect", b""):
        raise EOFError("no client here asks before it sends")
    if b"chunked" in fields.get(b"transfer-encoding", b""):
        return head, await _chunks(reader)
    has_body = is_answer_to != b"HEAD"
    length = int(fields.get(b"content-length", b"0")) if has_body else 0
    return head, await reader.readexactly(length)


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while True:
        line = await reader.readuntil(b"\r\n")
        size = int(line.split(b";")[0], 16)
        body += line + await reader.readexactly(size + 2)
        if not size:
            return body


def _fields(head: bytes) -> dict[bytes, bytes]:
    lines = head.split(b"\r\n")[1:]
    pairs = (line.partition(b":") for line in lines if b":" in line)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def _failure(status: str) -> tuple[bytes, bytes]:
    words = {"500": ("Internal Server Error", "InternalError"), "503": ("Slow Down", "SlowDown")}
    reason, code = words[status]
    body = f"<Error><Code>{code}</Code><Message>{reason}</Message></Error>".encode()
    head = f"HTTP/1.1 {status} {reason}\r\nContent-Type: application/xml\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode(), body


async def _write(writer: asyncio.StreamWriter, message: tuple[bytes, bytes]) -> bool:
    writer.write(message[0] + message[1])
    await writer.drain()
    return True


def _reset(writer: asyncio.StreamWriter) -> bool:
    """End the connection with an RST, as a host that has gone away."""
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
    return False


@contextmanager
def proxy(upstream: str) -> Iterator[Proxy]:
    """A proxy that runs in a thread while the block does."""
    made = Proxy(upstream)
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(made.serve, HOST, 0, limit=1 << 20))
    made.endpoint = f"http://{HOST}:{server.sockets[0].getsockname()[1]}"
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0.01))
        loop.close()


def random_plan(rng: random.Random, requests: int) -> Plan:
    """A plan for a command that usually makes so many requests."""
    action = rng.choice(ACTIONS)
    # One is repeated by most clients; many are not.
    count = rng.choice((1, 1, 2, 5, 10_000))
    if action.startswith("silent"):
        count = min(count, 2)
    if action == "slow":
        count = min(count, 5)
    return Plan(action, rng.randrange(max(requests, 1)), count, rng.uniform(0.2, 1.0))
