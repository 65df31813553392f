"""Two sides of a project, and datasets that are values."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from textwrap import dedent

import pyarrow as pa
import pytest

from lancestat.errors import DatasetMissing, LakeError
from lancestat.lake.snapshot import DataFile, Field, Fragment, Snapshot
from lancestat.review.values import Diff
from tests.review.pairs import review

NOW = datetime(2026, 5, 4, 12, tzinfo=timezone.utc)

PROJECT = """\
name: shop
vars: {lake: "s3://lake"}
default_target: dev
targets:
  dev: {}
"""

TYPES: Mapping[str, tuple[pa.DataType, str]] = {
    "bigint": (pa.int64(), "bigint"),
    "double": (pa.float64(), "double"),
    "string": (pa.string(), "string"),
    "vector": (pa.list_(pa.float32(), 8), "array<float>"),
}


def snapshot(uri: str, columns: Mapping[str, str], *, fragments: int = 2) -> Snapshot:
    """Return a dataset with one file per fragment, of 1,000 bytes a column."""
    fields = tuple(
        Field(number, name, TYPES[type][0], True, TYPES[type][1])
        for number, (name, type) in enumerate(columns.items())
    )
    ids = tuple(field.id for field in fields)
    made = tuple(
        Fragment(
            number, 125, 0, (DataFile(f"{number}.lance", ids, 1000 * len(ids), None),), None, ()
        )
        for number in range(fragments)
    )
    return Snapshot(uri, 3, fields, made, {}, NOW)


@dataclass
class Lake:
    """The existing datasets by URI, and the requested ones."""

    datasets: dict[str, Snapshot] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def add(self, uri: str, columns: Mapping[str, str], *, fragments: int = 2) -> None:
        self.datasets[uri] = snapshot(uri, columns, fragments=fragments)

    def observe(
        self, requests: Iterable[tuple[str, str]], options: object = None
    ) -> dict[str, Snapshot | LakeError]:
        uris = dict(requests)
        self.asked += uris.values()
        return {
            name: self.datasets.get(uri) or DatasetMissing(f"there is no dataset at {uri}")
            for name, uri in uris.items()
        }


@pytest.fixture
def lake(monkeypatch: pytest.MonkeyPatch) -> Lake:
    store = Lake()
    monkeypatch.setattr("lancestat.review.evidence.observe_snapshots", store.observe)
    return store


@dataclass
class Sides:
    """Folders of two projects, BASE and HEAD."""

    root: Path

    def diff(
        self,
        base: str | Mapping[str, str],
        head: str | Mapping[str, str],
        *,
        with_datasets: bool = True,
        select: str | None = None,
        exclude: str | None = None,
    ) -> Diff:
        """Compare two texts of `specs/shop.yml`, or two sets of files."""
        for name, files in (("base", base), ("head", head)):
            write(self.root / name, {"specs/shop.yml": files} if isinstance(files, str) else files)
        return review(
            self.root / "head",
            f"{self.root}/base",
            with_datasets=with_datasets,
            select=select,
            exclude=exclude,
            clock=lambda: NOW,
        )


@pytest.fixture
def sides(tmp_path: Path, lake: Lake) -> Sides:
    return Sides(tmp_path)


def write(root: Path, files: Mapping[str, str]) -> None:
    """Write a project, whose project file may be left out."""
    for name, content in {"lancestat_project.yml": PROJECT, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(content), encoding="utf-8")


@dataclass
class Repository:
    """A real git repository, which no configuration of this machine reaches."""

    top: Path

    def git(self, *words: str) -> str:
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("GIT_")},
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_AUTHOR_NAME": "a",
            "GIT_AUTHOR_EMAIL": "a@example.com",
            "GIT_COMMITTER_NAME": "a",
            "GIT_COMMITTER_EMAIL": "a@example.com",
        }
        completed = subprocess.run(
            ["git", "-C", str(self.top), *words],
            check=True,
            capture_output=True,
            text=True,
            env=environment,
        )
        return completed.stdout.strip()

    def commit(self, files: Mapping[str, str], *, project: str = ".") -> str:
        """Write a project's files and commit all there is; the commit's id."""
        write(self.top / project, files)
        return self.commit_all()

    def commit_all(self) -> str:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", "change")
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    work_tree = Repository(tmp_path / "repository")
    work_tree.top.mkdir()
    work_tree.git("init", "--quiet", "--initial-branch=main")
    return work_tree
