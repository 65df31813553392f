"""Commands that write, the set-up of a shop for each, and the checks afterwards."""

from __future__ import annotations

import json
import random
import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import lance

from lancestat.errors import LancestatError
from lancestat.runs.plan_file import read_plan_file
from tests.faults.bench import Bench
from tests.review.github_stub import GitHubStub, serving

_LINK = re.compile(r'(?:href|src)="([^"#?]+)[^"]*"')
_FILE_OF_OTHERS = "CNAME"


class Command(ABC):
    """A command line, and the checks of the shop after a fault in it."""

    def __init__(self, bench: Bench, rng: random.Random) -> None:
        self.bench = bench
        self.rng = rng

    @abstractmethod
    def prepare(self) -> list[str]:
        """Prepare a new shop for the command, and return the arguments."""

    @abstractmethod
    def problems(self) -> list[str]:
        """Return the problems after a fault, and those after a repetition of the command."""


class Run(Command):
    """`lancestat run` over changed tables and joins."""

    def prepare(self) -> list[str]:
        self.bench.shop.change(self.rng)
        return ["run", "--quiet"]

    def problems(self) -> list[str]:
        return self.bench.settle(with_fresh=self.rng.random() < 0.1)


class JoinCommit(Run):
    """`lancestat run` over the joins alone."""

    def prepare(self) -> list[str]:
        shop = self.bench.shop
        for name in ("l", "r"):
            shop.change_one(name, self.rng)
        shop.remember()
        return ["run", "--quiet", "--select", "kind:knn_join"]


class Retry(Run):
    """`lancestat retry` after a run in which a table was away."""

    def prepare(self) -> list[str]:
        shop = self.bench.shop
        shop.change(self.rng)
        table, away = shop.folder / "orders.lance", shop.folder / "aside"
        table.rename(away)
        end = self.bench.run(["run", "--quiet", "--select", "orders"])
        assert end.code == 1, end.output
        away.rename(table)
        return ["retry", "--quiet"]


class Sweep(Run):
    """`lancestat gc` over the files of a killed run."""

    def prepare(self) -> list[str]:
        shop = self.bench.shop
        shop.change(self.rng)
        steps = self.bench.usual.get("run", (1.0, 100))[1]
        kill_at = self.rng.randint(1, steps)
        self.bench.server.start(
            [["run", "--quiet"]], shop.folder, shop.environment(), kill_at
        ).wait()
        return ["gc"]


class Docs(Command):
    """`lancestat docs` over the pages of an earlier edition, at times with a file of others."""

    def prepare(self) -> list[str]:
        shop = self.bench.shop
        self.site = shop.folder / ".lancestat" / "docs"
        self.has_others = self.rng.random() < 0.3
        if self.has_others:
            (self.site / _FILE_OF_OTHERS).write_text("stats.example.com")
        shop.declare("second")
        return ["docs", "--quiet"]

    def problems(self) -> list[str]:
        _, problems = check_pages(self.site)
        end = self.bench.run(["docs", "--quiet"])
        if end.code:
            return [*problems, f"docs does not run again: {end.output[-600:]}"]
        editions, later = check_pages(self.site)
        problems += [f"after another docs: {problem}" for problem in later]
        if editions != {"second"}:
            problems.append(f"docs leaves pages of {sorted(editions)}")
        if self.has_others and not (self.site / _FILE_OF_OTHERS).exists():
            problems.append("a file of others is lost")
        beside = {path.name for path in self.site.parent.iterdir()} - {"docs"}
        within = {path.name for path in self.site.glob(".*")} - {".lancestat-docs"}
        return problems + [f"docs leaves {name}" for name in sorted(beside | within)]


def check_pages(site: Path) -> tuple[set[str], list[str]]:
    """Return the editions of a site's pages, and the problems of pages that do not open."""
    problems = []
    editions = set()
    # A draft, in a hidden folder, is not linked to.
    pages = sorted([*site.glob("*.html"), *site.glob("[!.]*/*.html")])
    if site / "index.html" not in pages:
        return set(), ["there is no index.html"]
    for page in pages:
        text = page.read_text(encoding="utf-8")
        if not text.rstrip().endswith("</html>"):
            problems.append(f"{page.name} is not whole")
        editions |= set(re.findall(r"shop-(first|second)", text))
        for link in _LINK.findall(text):
            if ":" not in link and not (page.parent / link).exists():
                problems.append(f"{page.name} leads to {link}, which is not there")
    return editions, problems


class PlanOut(Command):
    """`lancestat plan --out` over an older plan."""

    def prepare(self) -> list[str]:
        shop = self.bench.shop
        self.folder = shop.folder / "aside"
        self.folder.mkdir()
        end = self.bench.run(["plan", "--out", "aside/plan.json"])
        assert end.code == 0, end.output
        self.old = (self.folder / "plan.json").read_bytes()
        shop.change(self.rng)
        return ["plan", "--out", "aside/plan.json"]

    def problems(self) -> list[str]:
        problems = []
        try:
            read_plan_file(self.folder / "plan.json")
        except LancestatError as error:
            problems.append(f"the plan cannot be read: {error}")
        end = self.bench.run(
            ["plan", "--out", "aside/plan.json"], ["run", "--plan-file", "aside/plan.json"]
        )
        if end.code:
            problems.append(f"a new plan does not run: {end.output[-600:]}")
        beside = {path.name for path in self.folder.iterdir()} - {"plan.json"}
        shutil.rmtree(self.folder)
        problems += [f"plan leaves {name}" for name in sorted(beside)]
        return problems + self.bench.settle()


class Init(Command):
    """`lancestat init` in a folder that holds something else."""

    command = ("init", "aside")

    def prepare(self) -> list[str]:
        self.folder = self.bench.shop.folder / "aside"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        (self.folder / "thesis.txt").write_text("all of it")
        return list(self.command)

    def problems(self) -> list[str]:
        end = self.bench.run(self.command)
        if end.code and "already holds lancestat_project.yml" not in end.output:
            return [f"it does not run again: {end.output[-600:]}"]
        files = contents(self.folder)
        shutil.rmtree(self.folder)
        self.folder.mkdir()
        (self.folder / "thesis.txt").write_text("all of it")
        assert self.bench.run(self.command).code == 0
        expected = contents(self.folder)
        return [
            f"{path} is not what a first {self.command[0]} writes"
            for path in sorted(files.keys() | expected.keys())
            if files.get(path) != expected.get(path)
        ]


class SchemaOut(Init):
    """`lancestat schema --out` over schemas that are there, all of which must stay whole."""

    command = ("schema", "--out", "aside")

    def prepare(self) -> list[str]:
        arguments = super().prepare()
        assert self.bench.run(self.command).code == 0
        self.whole = contents(self.folder)
        return arguments

    def problems(self) -> list[str]:
        files = contents(self.folder)
        cut = [path for path, content in self.whole.items() if files.get(path) != content]
        return [f"{path} is cut" for path in cut] + super().problems()


def contents(folder: Path) -> dict[str, object]:
    """All files of a folder, and the rows of its Lance datasets, whose files have random names."""
    datasets = [path for path in folder.rglob("*.lance") if path.is_dir()]
    files = {
        path: path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not any(dataset in path.parents for dataset in datasets)
    }
    rows = {path: lance.dataset(path).to_table().to_pylist() for path in datasets}
    return {
        path.relative_to(folder).as_posix(): content for path, content in {**files, **rows}.items()
    }


_OLD, _NEW = "### one change\n", "### two changes\n"


class Comment(Command):
    """The comment of a pull request, which is there or not, with another text."""

    def prepare(self) -> list[str]:
        self.stack = ExitStack()
        self.stub = self.stack.enter_context(serving(GitHubStub()))
        self.bench.more = self._environment()
        folder = self.bench.shop.folder
        (folder / "aside").mkdir()
        (folder / "aside" / "event.json").write_text(json.dumps({"pull_request": {"number": 7}}))
        (folder / "aside" / "diff.md").write_text(_OLD)
        self.arguments = ["comment", "--body-file", "aside/diff.md"]
        if self.rng.random() < 0.5:
            assert self.bench.run(self.arguments).code == 0
        (folder / "aside" / "diff.md").write_text(_NEW)
        return self.arguments

    def _environment(self) -> dict[str, str]:
        return {
            "GITHUB_TOKEN": "ghs_0123456789",
            "GITHUB_API_URL": self.stub.url,
            "GITHUB_REPOSITORY": "o/r",
            "GITHUB_EVENT_PATH": str(self.bench.shop.folder / "aside" / "event.json"),
            "no_proxy": "127.0.0.1",
        }

    def problems(self) -> list[str]:
        with self.stack:
            return list(self._problems())

    def _problems(self) -> Iterator[str]:
        if len(self.stub.bodies) > 1:
            yield f"there are {len(self.stub.bodies)} comments"
        end = self.bench.run(self.arguments)
        if end.code:
            yield f"it does not run again: {end.output[-600:]}"
        if [body.endswith(_NEW) for body in self.stub.bodies] != [True]:
            yield f"the comments are {self.stub.bodies}"


COMMANDS: dict[str, type[Command]] = {
    "run": Run,
    "run of joins": JoinCommit,
    "retry": Retry,
    "gc": Sweep,
    "docs": Docs,
    "plan --out": PlanOut,
    "init": Init,
    "schema --out": SchemaOut,
    "comment": Comment,
}
