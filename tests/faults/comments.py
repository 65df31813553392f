"""`lancestat comment`, killed while it sends requests to a stub of GitHub."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack

from tests.faults.commands import Command
from tests.review.github_stub import GitHubStub, serving

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
