"""Two projects, two targets, sweeps and pages at once, over the same tables, state and scratch."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import yaml

from tests.faults.bench import Bench, Outcome, bench, defects
from tests.faults.children import Child, Server
from tests.faults.shop import check_readers

KIND = "crowds"
SHARES = {"all at once": 100}
_OTHER = "aside"
# Codes with which a command may fail while others change its inputs.
_EXPECTED = ("LS302", "LS571", "LS604", "LS569")


# A bench, and a server for each of those that work at once.
Crowd = tuple[Bench, list[Server]]


def crowd(crowds: Crowd, command: str, rng: random.Random) -> Outcome:
    """Let all work at once; then one after the other."""
    bench, servers = crowds
    shop = bench.renew()
    shop.change(rng)
    other = shop.folder / _OTHER
    _declare_other(shop.folder, other)
    work = [
        (shop.folder, ["run", "--quiet"]),
        (other, ["run", "--quiet", "--target", "prod"]),
        (rng.choice((shop.folder, other)), ["gc"]),
        (shop.folder, rng.choice((["docs", "--quiet"], ["run", "--target", "prod"], ["gc"]))),
    ]
    rng.shuffle(work)
    environment = shop.environment()
    children: list[Child] = []
    for server, (folder, arguments) in zip(servers, work, strict=True):
        children.append(server.start([arguments], folder, environment))
        time.sleep(rng.uniform(0, 0.15))
    ended = [child.wait() for child in children]
    last_began = max(child.started for child in children)
    overlaps = sum(
        child.started + end.seconds > last_began for child, end in zip(children, ended, strict=True)
    )
    problems = []
    for (_, arguments), end in zip(work, ended, strict=True):
        problems += defects(end)
        if end.code and not any(code in end.output for code in _EXPECTED):
            problems.append(f"{' '.join(arguments)} fails: {end.output[-600:]}")
    problems += check_readers(shop)
    again = servers[0].start(
        [["run", "--quiet", "--target", "prod"], ["plan", "--check"]], other, environment
    )
    later = again.wait()
    if later.code:
        problems.append(f"the other project does not converge: {later.output[-600:]}")
    problems += bench.settle(with_fresh=rng.random() < 0.1)
    return overlaps > 1, problems


def _declare_other(folder: Path, other: Path) -> None:
    """A project of another name, which shares the tables, one output, the state and scratch."""
    (other / "specs").mkdir(parents=True)
    project = yaml.safe_load((folder / "lancestat_project.yml").read_text())
    project["name"] = "other"
    specs = yaml.safe_load((folder / "specs" / "shop.yml").read_text())
    specs["tables"] = [table for table in specs["tables"] if table["name"] != "items"]
    specs["knn_joins"] = [join for join in specs["knn_joins"] if join["name"] == "near"]
    (other / "lancestat_project.yml").write_text(yaml.safe_dump(project))
    (other / "specs" / "shop.yml").write_text(yaml.safe_dump(specs))


@contextmanager
def crowd_bench(folder: Path) -> Iterator[Crowd]:
    """A bench, and four servers."""
    with ExitStack() as stack:
        made = stack.enter_context(bench(folder))
        more = [stack.enter_context(Server(folder / f"server{n}")) for n in range(3)]
        yield made, [made.server, *more]
