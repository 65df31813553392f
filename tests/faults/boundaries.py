"""Counts the steps by which a process changes files, and kills it before one of them.

Steps of Python are audit events. A call of Lance has one step before and one after it; only random
moments strike within.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

STEPS = frozenset(
    ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "shutil.copyfile")
)
OURS = "tests.faults.step"
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_count = 0


def watch(kill_at: int | None) -> None:
    """Count steps from now on, and end this process before step `kill_at`."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in STEPS or event == OURS or (event == "open" and _writes(arguments)):
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
        sys.audit(OURS)
        done = work(*arguments, **options)
        sys.audit(OURS)
        return done

    return stepped
