"""Random histories of a table, through every way to read it.

    python -m tests.histories --histories 1000 --seed 1

Prints what was tried and exits with 1 if anything was found. One history again: --only SEED.
With --connect a real server of Spark Connect analyzes and joins the tables, which a classic session
reads; that is `make connect`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from lancestat.spark.session import connect, optimizer_settings, start_session
from lancestat.spec.model import Target
from tests.histories.world import SETTINGS, Counts, draw_history, run_history, shrink
from tests.integration.connect_server import ConnectServer, connect_server

JOIN_EVERY = 25
REMOTE_JOIN_EVERY = 5


def main() -> int:
    """Run the histories that the command line selects."""
    parser = argparse.ArgumentParser(prog="python -m tests.histories", description=__doc__)
    parser.add_argument("--histories", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of the first; each has the next one")
    parser.add_argument("--only", type=int, metavar="SEED", help="a single history")
    parser.add_argument("--findings", type=int, default=20, help="stop after so many")
    parser.add_argument("--connect", action="store_true", help="analyze over Spark Connect")
    arguments = parser.parse_args()
    seeds = range(arguments.seed, arguments.seed + arguments.histories)
    if arguments.only is not None:
        seeds = range(arguments.only, arguments.only + 1)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        server = stack.enter_context(connect_server(Path(folder))) if arguments.connect else None
        return _tried(seeds, arguments.findings, folder, server)


def _tried(seeds: range, most: int, folder: str, server: ConnectServer | None) -> int:
    target = Target(
        name="histories",
        state=f"{folder}/state",
        spark_master="local[2]",
        spark_conf={
            "spark.sql.warehouse.dir": f"{folder}/warehouse",
            "spark.sql.shuffle.partitions": "1",
            "spark.sql.session.timeZone": "UTC",
            **SETTINGS,
        },
    )
    spark = start_session(target, "lancestat histories", is_short_lived=True)
    for key, value in optimizer_settings({}).items():
        spark.conf.set(key, value)
    # The classic session has to be there first.
    remote = None if server is None else connect(server.remote, {}, "lancestat histories")
    join_every = JOIN_EVERY if remote is None else REMOTE_JOIN_EVERY
    counts, defects, started = Counts(), 0, time.monotonic()
    for seed in seeds:
        with_join = seed % join_every == 0
        steps = draw_history(seed)
        outcome = run_history(spark, steps, counts, with_join=with_join, remote=remote)
        if outcome.findings:
            defects += 1
            again = shrink(spark, outcome.steps, with_join=with_join, remote=remote)
            reported = again if again.findings else outcome
            print(f"seed {seed}: {', '.join(name for name, _ in reported.steps)}")  # noqa: T201
            for finding in reported.findings[:3]:
                print(f"  {finding}", flush=True)  # noqa: T201
            if not again.findings:
                print("  it did not go wrong again")  # noqa: T201
            if defects >= most:
                break
    minutes = (time.monotonic() - started) / 60
    print(  # noqa: T201
        f"{counts.histories} histories in {minutes:.1f} minutes: {counts.steps.total()} steps "
        f"({counts.refused.total()} refused by Lance), {counts.reads} reads "
        f"({counts.refusals} refused), {counts.checks} checks of statistics, {counts.joins} joins, "
        f"{defects} findings"
    )
    for what, times in counts.refused.most_common(12):
        print(f"  refused {times} times: {what}")  # noqa: T201
    if remote is not None:
        remote.stop()
    spark.stop()
    return 1 if defects else 0


if __name__ == "__main__":
    sys.exit(main())
