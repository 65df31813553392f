"""Runs `lancestat` in forks of a process that has imported it, since jobs start it often."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent

# Forks for each connection, takes over its streams, folder and environment, and answers the code.
_SERVER = """
import json, os, select, signal, socket, sys, traceback
import jsonschema
import lancestat.cli.project
import lancestat.cli.review
import lancestat.presentation.markdown
import lancestat.project
import lancestat.review.comment
import lancestat.review.diff
from lancestat.cli.main import main

def run(connection):
    call, streams, _, _ = socket.recv_fds(connection, 1 << 20, 3)
    arguments, folder, environment = json.loads(call)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    # Python looks at the start only whether it can seek in a stream, and pipes cannot.
    sys.stdout = open(1, "w", closefd=False)
    sys.stderr = open(2, "w", closefd=False)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["lancestat", *arguments]
    try:
        main()
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    connection.sendall(str(code).encode())

assert len(os.listdir("/proc/self/task")) == 1, "a fork would lack the other threads"
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print("ready", flush=True)
while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
    connection = listener.accept()[0]
    if not os.fork():
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        run(connection)
        os._exit(0)
    connection.close()
"""

_CLIENT = """
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect(sys.argv[1])
    call = json.dumps([sys.argv[2:], os.getcwd(), dict(os.environ)])
    socket.send_fds(server, [call.encode()], [0, 1, 2])
    sys.exit(int(server.recv(10)))
"""


@contextmanager
def warm_lancestat() -> Iterator[str]:
    """Yield a command line of bash that runs `lancestat` with the arguments after it."""
    with tempfile.TemporaryDirectory() as folder:
        socket, client = f"{folder}/socket", Path(folder, "client.py")
        client.write_text(_CLIENT, encoding="utf-8")
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        # It ends with its standard input, at the latest with this process.
        with subprocess.Popen(
            [sys.executable, "-c", _SERVER, socket],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as server:
            assert server.stdout is not None
            assert server.stdin is not None
            assert server.stdout.readline() == b"ready\n"
            yield f'"{sys.executable}" -I -S "{client}" "{socket}"'
            server.stdin.close()
