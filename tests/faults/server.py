"""A process that has imported everything, and forks a child for each command that it is given.

It has not used Lance, whose threads a fork would lose. One child runs at a time. Requests and
answers are lines of JSON: `{"commands": [["run"]], "folder": ...}` gives `{"pid": ...}` when the
child starts and `{"status": ...}` when it has ended.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

from tests.faults.children import PATIENCE_SECONDS


def main() -> None:
    """Answer requests until there are no more."""
    # Lance warns of any fork; it matters only after its first use.
    warnings.simplefilter("ignore")
    preload()
    answer({"ready": os.getpid()})
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            work(request)
        answer({"pid": pid})
        _, status = os.waitpid(pid, 0)
        answer({"status": status})


def preload() -> None:
    """Import the modules that commands use."""
    import faiss  # noqa: F401
    import lance.file
    import lance.fragment  # noqa: F401
    import polars  # noqa: F401
    import polars_hash  # noqa: F401
    import pyarrow.dataset
    import pyarrow.parquet  # noqa: F401

    import tests.faults.local  # noqa: F401


def answer(value: dict[str, Any]) -> None:
    """Write a line."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def work(request: dict[str, Any]) -> None:
    """Carry out commands in a child until one fails; ends the process."""
    code = 70
    try:
        os.setsid()
        os.environ.update(request["environment"])
        os.chdir(request["folder"])
        log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        # The log shows where the command hangs before the caller's timeout ends.
        faulthandler.dump_traceback_later(PATIENCE_SECONDS * 0.9)
        warnings.simplefilter("ignore")
        from tests.faults import boundaries, local

        local.arm()
        boundaries.watch(request["kill_at"])
        for arguments in request["commands"]:
            code = run(arguments)
            if code:
                break
        boundaries.report(Path(request["log"]))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def run(arguments: list[str]) -> int:
    """The exit code of a command."""
    from lancestat.cli.main import cli

    try:
        cli(arguments, prog_name="lancestat")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0


if __name__ == "__main__":
    main()
