"""The set-up of trials: a fresh shop for each of them, and its checks."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.children import Ended, Server
from tests.faults.shop import Shop, check_converged, check_readers, check_same, copied, leftovers

# Whether a fault struck before its command ended, and the problems.
Outcome = tuple[bool, list[str]]

# Words that the output of no command may contain.
_DEFECTS = ("internal error", "Traceback", "panicked", "is set aside")
# Plans of a table that a join writes, and of tables of which only the state is tidied up.
_DEPENDENT = "is planned in detail once that is there"
_TIDIES = re.compile(r"Reads no data\. Tidies up the state of \d+ unchanged tables?\.\s*$")


@dataclass
class Bench:
    """A folder with a template of a shop, and a server of children."""

    folder: Path
    server: Server
    shop: Shop = field(init=False)
    known: Shop = field(init=False)
    # Additional variables of children in a trial.
    more: dict[str, str] = field(default_factory=dict)
    # Seconds and steps of commands that nothing disturbed.
    usual: dict[str, tuple[float, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Make the template: all statistics published, all joined, pages written."""
        self.template = self.folder / "template"
        self.shop = Shop(self.folder / "shop")
        self.shop.folder.mkdir(parents=True)
        self.shop.declare()
        self.shop.stock()
        end = self.run(["run", "--quiet"], ["docs", "--quiet"], ["plan", "--check"])
        assert end.code == 0, end.output
        self.shop.remember()
        assert check_converged(self.shop) == []
        copied(self.shop.folder, self.template)
        self.known = self.shop

    def renew(self) -> Shop:
        """Restore a fresh shop under the URIs that the state has of its tables."""
        copied(self.template, self.shop.folder)
        known = self.known
        self.more = {}
        self.shop = Shop(
            self.folder / "shop",
            aside=dict(known.aside),
            before=dict(known.before),
            after=dict(known.after),
            first=dict(known.first),
        )
        return self.shop

    def run(self, *commands: Sequence[str]) -> Ended:
        """Run commands without a fault."""
        environment = {**self.shop.environment(), **self.more}
        return self.server.start(commands, self.shop.folder, environment).wait()

    def settle(self, *, with_fresh: bool = False) -> list[str]:
        """Return the problems after a fault, then after a run, and after a sweep."""
        problems = check_readers(self.shop)
        end = self.run(["plan"], ["run", "--quiet"], ["plan", "--check"])
        problems += defects(end)
        if _DEPENDENT in end.output and _TIDIES.search(end.output):
            # The next run makes room for what the result of a join has more than planned.
            end = self.run(["run", "--quiet"], ["plan", "--check"])
            problems += defects(end)
        if end.code == 0:
            end = self.run(["gc"])
            problems += defects(end)
        if end.code:
            return [*problems, f"the next run does not converge: {end.output[-600:]}"]
        problems += check_converged(self.shop)
        problems += [f"gc leaves {path}" for path in leftovers(self.shop)]
        return problems + (self.compare() if with_fresh else [])

    def compare(self) -> list[str]:
        """Return the differences from a fresh project over a copy of the tables."""
        fresh = Shop(self.folder / "fresh")
        shutil.rmtree(fresh.folder, ignore_errors=True)
        results = ("near.lance", "far.parquet", ".far*")
        left_out = shutil.ignore_patterns("state", "target", *results, "scratch", "tmp")
        shutil.copytree(self.shop.folder, fresh.folder, symlinks=True, ignore=left_out)
        fresh.declare()
        environment = fresh.environment()
        ended = self.server.start(
            [["run", "--quiet", "--full-refresh"]], fresh.folder, environment
        ).wait()
        if ended.code:
            return [f"a fresh project does not run: {ended.output[-600:]}"]
        return check_same(self.shop, fresh)


def defects(ended: Ended) -> list[str]:
    """Return the problems of an ended command: hangs and forbidden words in its output."""
    problems = [f"it hangs for {ended.seconds:.0f} s"] if ended.hangs else []
    for word in _DEFECTS:
        before, is_there, after = ended.output.partition(word)
        if is_there:
            problems.append(f"it says {word!r}: {before[-300:]}{word}{after[:600]}")
    return problems


@contextmanager
def bench(folder: Path, disk: Path | None = None) -> Iterator[Bench]:
    """A bench on a disk, whose server is up while the block runs and logs to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    with Server(folder / "server") as server:
        yield Bench(disk or folder, server)
