"""Keys of an object store that are lent for some seconds, after which the store refuses them."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow.fs

from tests import http_server
from tests.integration.object_store import HOST, ObjectStore

ID = "lentkeyid"
SECRET = "lentsecretword"
_KNOWN_WITHIN_SECONDS = 30


@dataclass
class Lender:
    """Lends keys of a store at `address`, and tells catalogs there what opens their folders."""

    store: ObjectStore
    lease_seconds: float
    shell: subprocess.Popen[str] = field(repr=False)
    address: str = ""
    lent: list[str] = field(default_factory=list)
    timers: list[threading.Timer] = field(default_factory=list, repr=False)
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def lend(self) -> dict[str, str]:
        """Make a key, and take it back when its lease ends."""
        with self.lock:
            number = len(self.lent) + 1
            key = f"{ID}{number:04}"
            self.lent.append(key)
            self._tell(
                f"s3.configure -user {key} -access_key {key} -secret_key {SECRET}{number:04} "
                f"-buckets {self.store.bucket} -actions Read,Write,List,Tagging -apply"
            )
        self._wait(number, is_known=True)
        timer = threading.Timer(self.lease_seconds, self.take_back, [number])
        timer.daemon = True
        timer.start()
        self.timers.append(timer)
        return {
            "aws_access_key_id": key,
            "aws_secret_access_key": f"{SECRET}{number:04}",
            "expires_at_millis": str(int((time.time() + self.lease_seconds) * 1000)),
        }

    def wait_until_refused(self) -> None:
        """Return once the store refuses every key that has been lent so far."""
        for timer in list(self.timers):
            timer.join()

    def take_back(self, number: int) -> None:
        """Have the store refuse a key from now on."""
        with self.lock:
            self._tell(f"s3.configure -user {ID}{number:04} -delete -apply")
        self._wait(number, is_known=False)

    def _tell(self, line: str) -> None:
        assert self.shell.stdin is not None
        self.shell.stdin.write(line + "\n")
        self.shell.stdin.flush()

    def _wait(self, number: int, *, is_known: bool) -> None:
        deadline = time.monotonic() + _KNOWN_WITHIN_SECONDS
        while self._is_known(number) is not is_known:
            assert time.monotonic() < deadline, f"key {number} is not as it should be"
            time.sleep(0.05)

    def _is_known(self, number: int) -> bool:
        files = pyarrow.fs.S3FileSystem(
            access_key=f"{ID}{number:04}",
            secret_key=f"{SECRET}{number:04}",
            endpoint_override=self.store.endpoint,
            region="us-east-1",
        )
        try:
            files.get_file_info(f"{self.store.bucket}/ready")
        except OSError:
            return False
        return True


@contextmanager
def lending(store: ObjectStore, lease_seconds: float) -> Iterator[Lender]:
    """A lender that answers on loopback while the block runs."""
    shell = subprocess.Popen(
        store.shell,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    lender = Lender(store, lease_seconds, shell)

    class Handler(http_server.Handler):
        def do_GET(self) -> None:  # noqa: N802
            options = lender.lend() if self.path == "/lend" else dict(store.storage_options)
            self.answer(200, json.dumps(options).encode())

    with http_server.serving(Handler, HOST) as lender.address:
        try:
            yield lender
        finally:
            for timer in lender.timers:
                timer.cancel()
            shell.kill()
            shell.wait()
            assert shell.stdin is not None
            shell.stdin.close()
