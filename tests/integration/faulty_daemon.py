"""Spark's Python daemon, whose workers take faults from a folder.

A file `<folder>/<point>-<number>` makes the next task that gets to that point do what the file
says, once; it is moved to `<folder>/struck` first. A file `<folder>/<point>` does so every time.
Points come after their work and before its report, where most can get lost.
"""

from __future__ import annotations

import errno
import functools
import os
import signal
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

FOLDER = "LANCESTAT_TEST_FAULTS"
REPOSITORY = Path(__file__).parents[2]


def configuration(folder: Path) -> dict[str, str]:
    """Return the configuration that makes workers of Spark read faults from a folder."""
    return {
        "spark.python.daemon.module": "tests.integration.faulty_daemon",
        f"spark.executorEnv.{FOLDER}": str(folder),
        "spark.executorEnv.PYTHONPATH": str(REPOSITORY),
    }


def arm(folder: Path) -> None:
    """Wrap the work of each stage; in this process alone."""
    from lancestat.joins.output import lance_output
    from lancestat.joins.search import ivf
    from lancestat.joins.spark import sides
    from lancestat.joins.spark.cells import CellResult, ExactCells
    from lancestat.joins.spark.ivf import IvfCells
    from lancestat.joins.spark.materialize import Materializer
    from lancestat.tables.analyze import ScanTask

    points: list[tuple[str, Any, str]] = [
        ("read", ScanTask, "read_all"),
        ("scratch", sides.SideWriter, "write"),
        ("layout", ivf, "write_lists"),
        ("probe", ExactCells, "nearest"),
        ("probe", IvfCells, "nearest"),
        ("merge", CellResult, "merged"),
        ("write", lance_output, "_fragments_of"),
        ("materialize", Materializer, "write"),
    ]
    for point, owner, name in points:
        setattr(owner, name, striking(folder, point, getattr(owner, name)))


def striking(folder: Path, point: str, work: Any) -> Any:
    """The same work, after which faults strike."""

    @functools.wraps(work)
    def struck(*arguments: Any, **options: Any) -> Any:
        done = work(*arguments, **options)
        strike(folder, point)
        return done

    return struck


def strike(folder: Path, point: str) -> None:
    """Strike with the next fault of a point, if there is one."""
    always = folder / point
    if always.exists():
        act(folder, point, always.read_text())
    for fault in sorted(folder.glob(f"{point}-*")):
        struck = folder / "struck" / fault.name
        try:
            fault.rename(struck)
        except FileNotFoundError:
            continue
        act(folder, point, struck.read_text())


def act(folder: Path, point: str, fault: str) -> None:
    match fault:
        case "kill worker":
            os.kill(os.getpid(), signal.SIGKILL)
        case "kill executor":
            os.kill(parent(os.getppid()), signal.SIGKILL)
            time.sleep(60)
        case "kill machine":
            # Spark's worker process of this machine, and its executor.
            executor = parent(os.getppid())
            os.kill(parent(executor), signal.SIGKILL)
            os.kill(executor, signal.SIGKILL)
            time.sleep(60)
        case "raise":
            raise ValueError("a disk went away")
        case "no room":
            raise OSError(errno.ENOSPC, "No space left on device")
        case "pause":
            daemon_id = os.getppid()
            (folder / "reached" / f"{point} {os.getpid()}").touch()
            while os.getppid() == daemon_id and not (folder / "go on").exists():
                time.sleep(0.02)
        case _:
            raise AssertionError(fault)


def parent(process: int) -> int:
    """The process that started another."""
    status = Path(f"/proc/{process}/stat").read_text()
    return int(status.rpartition(")")[2].split()[1])


class Faults:
    """The folder of faults, for tests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("struck", "reached"):
            (folder / name).mkdir(parents=True)

    def plan(self, point: str, *faults: str) -> None:
        """Let the next tasks at a point have these faults, one after the other."""
        for number, fault in enumerate(faults):
            draft = self.folder / "draft"
            draft.write_text(fault)
            draft.rename(self.folder / f"{point}-{number}")

    def always(self, point: str, fault: str) -> None:
        (self.folder / point).write_text(fault)

    def end(self) -> int:
        """Remove the remaining faults, and return how many have struck."""
        struck = list((self.folder / "struck").iterdir())
        for path in [*struck, *self.folder.iterdir()]:
            if path.is_file():
                path.unlink()
        return len(struck)

    def wait_for(self, point: str, times: int = 1, seconds: float = 120) -> None:
        """Until so many processes pause there."""
        deadline = time.monotonic() + seconds
        while len(list((self.folder / "reached").glob(f"{point} *"))) < times:
            assert time.monotonic() < deadline, f"nobody got to {point}"
            time.sleep(0.02)

    def go_on(self) -> None:
        """Let those that pause go on."""
        (self.folder / "go on").touch()


def main() -> None:
    # On a cluster lancestat comes with the job, and PySpark is installed nowhere.
    if find_spec("lancestat") is not None:
        from lancestat.spark.daemon import leave_archives

        leave_archives()
    import pyspark.daemon

    work = pyspark.daemon.worker

    def worker(*arguments: Any) -> Any:
        # After the fork, since Lance must not be used before it.
        arm(Path(os.environ[FOLDER]))
        return work(*arguments)

    pyspark.daemon.worker = worker
    pyspark.daemon.manager()


if __name__ == "__main__":
    main()
