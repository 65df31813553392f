"""Hosts whose clocks are a day ahead or a day behind, over tables and a state that all share."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from lancestat.joins.scratch.folder import scratch
from tests.faults.bench import Bench, Outcome, bench, defects
from tests.faults.children import FAKETIME, Ended, Server
from tests.faults.shop import check_converged, check_readers

KIND = "clocks"
SHARES = {"run": 50, "gc": 20, "status": 10, "docs": 20}
ARGUMENTS = {
    "run": ["run", "--quiet"],
    "gc": ["gc"],
    "status": ["status", "--output", "json"],
    "docs": ["docs", "--quiet"],
}
SHIFTS = ("+1d", "-1d")


# A bench, and servers whose children's clocks are wrong, by their shifts.
Clocks = tuple[Bench, dict[str, Server]]


def shift(clocks: Clocks, command: str, rng: random.Random) -> Outcome:
    """Run a command under a wrong clock, between runs under the true one, and after them."""
    bench, wrong = clocks
    by = rng.choice(SHIFTS)
    shop = bench.renew()
    shop.change(rng)
    problems: list[str] = []

    def run_wrong(*commands: list[str]) -> Ended:
        return wrong[by].start(commands, shop.folder, shop.environment()).wait()

    if rng.random() < 0.5:
        ended = bench.run(ARGUMENTS["run"])
        problems += [] if ended.code == 0 else [f"a run before fails: {ended.output[-600:]}"]
        shop.change(rng)
    with scratch(str(shop.folder / "scratch"), "living") as living:
        problems += defects(run_wrong(ARGUMENTS[command])) + check_readers(shop)
        if not Path(living).is_dir():
            problems.append("the scratch of a living join is gone")
    # A host that is always wrong has to come to an end, too.
    again = run_wrong(ARGUMENTS["run"], ["plan", "--check"])
    if again.code:
        problems.append(f"the wrong host does not converge: {again.output[-600:]}")
    else:
        problems += [f"on the wrong host: {problem}" for problem in check_converged(shop)]
    shop.change(rng)
    problems += check_readers(shop) + bench.settle(with_fresh=rng.random() < 0.1)
    return True, [f"clock {by}: {problem}" for problem in problems]


@contextmanager
def clock_bench(folder: Path) -> Iterator[Clocks]:
    """A bench with right and wrong clocks; needs libfaketime."""
    assert FAKETIME is not None, "libfaketime is not installed: apt-get install faketime"
    with ExitStack() as stack:
        wrong = {}
        for by in SHIFTS:
            environment = {
                "LD_PRELOAD": str(FAKETIME),
                "FAKETIME": by,
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
                "NO_FAKE_STAT": "1",
            }
            wrong[by] = stack.enter_context(Server(folder / f"server{by}", environment))
        yield stack.enter_context(bench(folder)), wrong
