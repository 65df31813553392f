"""Run a project on a standalone cluster again and again while its processes are killed.

    python -m tests.cluster [--rounds N] [--seed N]

In each round one to three faults strike at chosen points, and a random process of the cluster is
killed at a random moment. What the run leaves is compared with a local run.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from tests.cluster.shop import Shop, open_shop
from tests.cluster.standalone import Standalone, lancestat, running_cluster
from tests.integration.faulty_daemon import parent
from tests.integration.object_store import running_object_store

POINTS = ("read", "scratch", "probe", "materialize")
FAULTS = ("kill worker", "kill executor", "kill machine")


def main() -> None:
    """Print a line for each round and the counts; end with 1 where a result is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    given = parser.parse_args()
    chosen = random.Random(given.seed)
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("store", "cluster", "shop"):
            (folder / part).mkdir()
        packed = lancestat("package", folder=folder)
        assert packed.returncode == 0, packed.stderr
        package = folder / "lancestat.tar.gz"
        with (
            running_object_store(folder / "store") as store,
            running_cluster(folder / "cluster") as cluster,
        ):
            shop = open_shop(folder / "shop", package, store, cluster)
            local = shop.run("run", "--target", "local")
            assert local.returncode == 0, local.stderr
            for number in range(given.rounds):
                outcome = play(shop, chosen, counts)
                counts[outcome] += 1
                say(f"round {number + 1}: {outcome}")
    say(f"seed {given.seed}: " + ", ".join(f"{count} {what}" for what, count in counts.items()))
    sys.exit(1 if counts["wrong"] else 0)


def play(shop: Shop, chosen: random.Random, counts: Counter[str]) -> str:
    """Play a round; return what came of it: a right result, an error of the run, or a wrong one."""
    shop.cluster.complete()
    statistics, neighbours = shop.statistics(), shop.neighbours("local")
    for point in chosen.sample(POINTS, chosen.randint(1, 3)):
        shop.faults.plan(point, chosen.choice(FAULTS))
    ended = threading.Event()
    killer = threading.Thread(target=kill_one, args=(shop.cluster, chosen, ended, counts))
    killer.start()
    run = shop.run("run", "--full-refresh")
    ended.set()
    killer.join()
    counts["faults struck"] += shop.faults.end()
    if shop.scratch():
        say(f"in scratch: {shop.scratch()}")
        return "wrong"
    is_same = shop.statistics() == statistics
    if run.returncode:
        say(run.stdout + run.stderr)
        return "failed with an error" if is_same else "wrong"
    is_same = is_same and shop.neighbours("cluster").equals(neighbours)
    return "right" if is_same and shop.partials("cluster") == shop.partials("local") else "wrong"


def kill_one(
    cluster: Standalone, chosen: random.Random, ended: threading.Event, counts: Counter[str]
) -> None:
    """Kill a random process below a worker at a random moment of the run."""
    ended.wait(chosen.uniform(5, 40))
    below = [process for process in processes() if _is_below(process, cluster)]
    if below and not ended.is_set():
        with suppress(ProcessLookupError):
            os.kill(chosen.choice(below), signal.SIGKILL)
            counts["processes killed"] += 1


def processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _is_below(process: int, cluster: Standalone) -> bool:
    workers = {worker.pid for worker in cluster.workers}
    with suppress(OSError):
        while process > 1:
            process = parent(process)
            if process in workers:
                return True
    return False


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
