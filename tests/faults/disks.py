"""A disk that fills up while a command writes: a real one, a small tmpfs.

It is mounted in a mount namespace of its own, which `enter` starts this program again in.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.faults.bench import Bench, Outcome, bench, defects
from tests.faults.commands import COMMANDS
from tests.faults.shop import check_readers

KIND = "full disks"
SHARES = {
    "run": 40,
    "run of joins": 20,
    "retry": 5,
    "gc": 10,
    "docs": 10,
    "plan --out": 5,
    "init": 5,
    "schema --out": 5,
}
_INSIDE = "LANCESTAT_TEST_OWN_MOUNTS"
_SIZE = "96m"
_NAMESPACE = ("unshare", "--mount", "--propagation", "private")


def namespace() -> tuple[str, ...] | None:
    """The command that starts others where they may mount, None where the system has none."""
    for command in (_NAMESPACE, (*_NAMESPACE, "--user", "--map-root-user")):
        probe = (*command, "mount", "-t", "tmpfs", "tmpfs", "/mnt")
        try:
            if subprocess.run(probe, capture_output=True, check=False).returncode == 0:
                return command
        except FileNotFoundError:
            return None
    return None


def enter(arguments: Sequence[str]) -> int | None:
    """Start this program again where it may mount, and give its exit code; None when inside."""
    if os.environ.get(_INSIDE):
        return None
    command = namespace()
    if command is None:
        raise SystemExit("this system lets nobody mount a tmpfs in a namespace of his own")
    again = [*command, sys.executable, "-m", "tests.faults", *arguments]
    return subprocess.run(again, env={**os.environ, _INSIDE: "1"}, check=False).returncode


@contextmanager
def disk_bench(folder: Path) -> Iterator[Bench]:
    """A bench on a disk of its own, which is gone when the block ends."""
    disk = folder / "disk"
    disk.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={_SIZE}", "tmpfs", str(disk)]
    subprocess.run(mount, check=True)
    try:
        with bench(folder, disk) as made:
            yield made
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def fill(bench: Bench, name: str, rng: random.Random) -> Outcome:
    """Leave so little room that the command may not get through."""
    bench.renew()
    command = COMMANDS[name](bench, rng)
    arguments = command.prepare()
    disk = bench.shop.folder.parent
    need = bench.usual.setdefault(f"{name} needs", (0.0, 600_000))[1]
    free = rng.randrange(need)
    filler = disk / "filler"
    environment = bench.shop.environment()
    with filler.open("wb") as file:
        usage = os.statvfs(disk)
        os.posix_fallocate(file.fileno(), 0, max(usage.f_bavail * usage.f_frsize - free, 1))
    ended = bench.server.start([arguments], bench.shop.folder, environment).wait()
    full = "space" in ended.output.lower()
    problems = [*defects(ended), *check_readers(bench.shop)]
    filler.unlink()
    if not full and not problems:
        # It needs no more than that.
        bench.usual[f"{name} needs"] = (0.0, max(free, 8192))
    problems += command.problems()
    return full, [f"{free:,} bytes free: {problem}" for problem in problems]
