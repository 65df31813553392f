"""A process that has imported everything, and forks a child for each command that it is given.

It has not used Lance, whose threads a fork would lose. One child runs at a time. Requests and
answers are lines of JSON: `{"commands": [["run"]], "folder": ...}` gives `{"pid": ...}` when the
child starts and `{"status": ...}` when it has ended.

A child scans and joins by itself, where `lancestat` would start Spark. It counts the steps by which
it changes files, and is killed before one of them. Steps of Python are audit events; a call of
Lance has one step before and one after it, and only random moments strike within.
"""

from __future__ import annotations

import faulthandler
import functools
import json
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.faults.children import PATIENCE_SECONDS, SCRATCH

_STEPS = frozenset(
    ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "shutil.copyfile")
)
_OURS = "tests.faults.step"
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_count = 0


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

    import tests.joins.joined
    import tests.runs.world  # noqa: F401


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
        without_spark()
        watch(request["kill_at"])
        for arguments in request["commands"]:
            code = run(arguments)
            if code:
                break
        report(Path(request["log"]))
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


def without_spark() -> None:
    """Scan and join in this process, with the left rows of a join in scratch meanwhile.

    The partials of tables are folded as if summaries had two groups.
    """
    import lance
    import pytest

    import lancestat.tables.folding
    from lancestat.errors import JobFailed
    from lancestat.joins.scratch.folder import scratch
    from lancestat.joins.search.work import ROW_ADDRESS
    from tests.joins.joined import joined, opened, rows_of
    from tests.runs.world import scan_locally

    def join(work: Any, on_stage: Any) -> Any:
        try:
            with scratch(os.environ[SCRATCH], f"local-{os.getpid()}") as place:
                # Lance stores no column of the name of its own.
                left = rows_of(work.left, None).drop_columns(ROW_ADDRESS)
                lance.write_dataset(left, f"{place}/left.lance")
                return joined(work)
        except (OSError, ValueError, RuntimeError) as error:
            # Jobs of Spark report errors of Lance in a task like this.
            raise JobFailed(f"joining '{work.node}' failed: {error}") from None

    patch = pytest.MonkeyPatch()
    patch.setattr(lancestat.tables.folding, "MOST_GROUPS", 2)
    scan_locally(patch, open_join=opened(join))


def watch(kill_at: int | None) -> None:
    """Count steps from now on, and end this process before step `kill_at`."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _STEPS or event == _OURS or (event == "open" and _writes(arguments)):
            global _count
            _count += 1
            if _count == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    wrap_lance()
    sys.addaudithook(hook)


def report(log: Path) -> None:
    """Leave the number of steps beside the log: whole, or not at all where a kill comes first."""
    count = _count
    written = log.with_suffix(".counting")
    written.write_text(str(count))
    written.replace(log.with_suffix(".steps"))


def _writes(arguments: tuple[Any, ...]) -> bool:
    flags = arguments[2]
    return isinstance(flags, int) and bool(flags & _WRITING)


def wrap_lance() -> None:
    """Tell of Lance's steps."""
    import lance
    import lance.file
    import lance.fragment
    from lance.dataset import DatasetOptimizer

    dataset, session = lance.LanceDataset, lance.file.LanceFileSession
    for name in ("delete", "cleanup_old_versions"):
        setattr(dataset, name, _step(getattr(dataset, name)))
    dataset.commit = staticmethod(_step(dataset.commit))
    for name in ("upload_file", "delete_file"):
        setattr(session, name, _step(getattr(session, name)))
    lance.fragment.write_fragments = _step(lance.fragment.write_fragments)
    DatasetOptimizer.compact_files = _step(DatasetOptimizer.compact_files)


def _step(work: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(work)
    def stepped(*arguments: Any, **options: Any) -> Any:
        sys.audit(_OURS)
        done = work(*arguments, **options)
        sys.audit(_OURS)
        return done

    return stepped


if __name__ == "__main__":
    main()
