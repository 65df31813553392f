"""Revisions of a git repository, read through its objects: the work tree is not touched."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from lancestat.errors import LancestatError, UsageError, did_you_mean
from lancestat.lake.clean import clean

NO_GIT = "LS660"
NO_REPOSITORY = "LS661"
UNKNOWN_REVISION = "LS662"
NO_MERGE_BASE = "LS663"
GIT_FAILED = "LS667"

# What git is told by the program that calls us, such as a hook, is not about our repository.
_OF_ANOTHER_CALL = frozenset(
    {
        "GIT_ALTERNATE_OBJECT_DIRECTORIES",
        "GIT_COMMON_DIR",
        "GIT_CONFIG",
        "GIT_CONFIG_PARAMETERS",
        "GIT_DIR",
        "GIT_GRAFT_FILE",
        "GIT_IMPLICIT_WORK_TREE",
        "GIT_INDEX_FILE",
        "GIT_NAMESPACE",
        "GIT_OBJECT_DIRECTORY",
        "GIT_PREFIX",
        "GIT_SHALLOW_FILE",
        "GIT_WORK_TREE",
    }
)
# No lock on the index, no question to a person, messages that can be recognized; neither hooks nor
# a monitor of files, which are programs that a repository's configuration names.
_ENVIRONMENT = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
_OPTIONS = (
    "--no-pager",
    "--literal-pathspecs",
    "-c",
    "core.fsmonitor=false",
    "-c",
    f"core.hooksPath={os.devnull}",
)

_FILE_MODES = frozenset({"100644", "100755", "100664"})
_LINK_MODE = "120000"
_SUBMODULE_MODE = "160000"


class Missing(Exception):  # noqa: N818 - an answer of git, not an error of ours
    """Git does not know what it was asked for; `told` is what it said."""

    def __init__(self, told: str) -> None:
        super().__init__(told)
        self.told = told


@dataclass(frozen=True, slots=True)
class Entry:
    """What a tree holds under a path, which leads from the repository's top."""

    mode: str
    object_id: str
    size_bytes: int | None
    path: str

    @property
    def is_file(self) -> bool:
        """Whether it is a file, and neither link nor submodule nor tree."""
        return self.mode in _FILE_MODES

    @property
    def is_link(self) -> bool:
        """Whether it is a symbolic link."""
        return self.mode == _LINK_MODE

    @property
    def is_submodule(self) -> bool:
        """Whether it stands for a commit of another repository."""
        return self.mode == _SUBMODULE_MODE


@dataclass(frozen=True, slots=True)
class Repository:
    """The repository around a folder, to which `prefix` leads from its top."""

    folder: Path
    prefix: str

    @classmethod
    def around(cls, folder: Path) -> Repository:
        """Find it.

        Raises:
            UsageError: LS660 there is no git, LS661 the folder is in no repository.
        """
        try:
            prefix = _ask(folder, "rev-parse", "--show-prefix")
        except Missing as missing:
            raise _refused(folder, missing.told) from None
        return cls(folder, _line(prefix).rstrip("/"))

    def commit(self, revision: str) -> str:
        """The id of the commit that a revision names.

        Raises:
            UsageError: LS662 there is none; the hint names one that is spelled alike.
        """
        try:
            if not revision or revision.startswith("-"):
                raise Missing("not a revision")
            asked = f"{revision}^{{commit}}"
            return _line(_ask(self.folder, "rev-parse", "--verify", "--quiet", asked))
        except Missing:
            message = f"'{revision}' is neither a git revision nor the folder of a project"
            raise UsageError(UNKNOWN_REVISION, message, hint=self._near(revision)) from None

    def merge_base(self, one: str, other: str) -> str:
        """The id of the commit from which two went apart.

        Raises:
            UsageError: LS662 a revision is unknown, LS663 they have no such commit.
        """
        commits = (self.commit(one), self.commit(other))
        try:
            return _line(_ask(self.folder, "merge-base", *commits))
        except Missing:
            hint = "the clone is shallow: fetch more history (fetch-depth: 0)"
            raise UsageError(
                NO_MERGE_BASE,
                f"'{one}' and '{other}' have no commit in common",
                hint=hint if self._is_shallow() else f"write '{one}' to compare with it as it is",
            ) from None

    def short(self, commit: str) -> str:
        """A commit's id as people write it."""
        return _line(self._told("rev-parse", "--short", commit))

    def entry(self, commit: str, path: str) -> Entry | None:
        """What a commit has at a path, None where it has nothing."""
        found = _entries(self._told("ls-tree", "-z", "-l", "--full-tree", commit, "--", path))
        return next((entry for entry in found if entry.path == path), None)

    def below(self, commit: str, folder: str) -> tuple[Entry, ...]:
        """All that a commit has below a folder (`""` is the top), trees left out."""
        paths = ("--", f"{folder}/") if folder else ()
        asked = ("ls-tree", "-r", "-z", "-l", "--full-tree", commit, *paths)
        return _entries(self._told(*asked))

    def contents(self, object_ids: Sequence[str]) -> dict[str, bytes]:
        """The content of files by object id."""
        if not object_ids:
            return {}
        asked = "".join(f"{each}\n" for each in object_ids).encode()
        told = self._told("cat-file", "--batch", input=asked)
        found: dict[str, bytes] = {}
        at = 0
        for each in object_ids:
            header, _, _ = told[at : at + 200].partition(b"\n")
            words = header.split()
            if len(words) != 3:
                raise _failed("cat-file", header.decode(errors="replace"))
            start = at + len(header) + 1
            found[each] = told[start : start + int(words[2])]
            at = start + int(words[2]) + 1
        return found

    def _near(self, revision: str) -> str:
        names = _line(self._told("for-each-ref", "--format=%(refname:short)"))
        # Where 'main~9' is missing, it is not 'main' that was misspelled.
        name = re.split("[~^@:]", revision)[0]
        near = None if name in names.split() else did_you_mean(revision, names.split())
        if ".." in revision:
            near = "two revisions are written 'BASE HEAD', or 'BASE...HEAD' for their merge base"
        fetch = "the clone is shallow: fetch the revision first (fetch-depth: 0)"
        return near or (fetch if self._is_shallow() else "see 'git branch --all' and 'git tag'")

    def _is_shallow(self) -> bool:
        return _line(self._told("rev-parse", "--is-shallow-repository")) == "true"

    def _told(self, *words: str, input: bytes | None = None) -> bytes:
        try:
            return _ask(self.folder, *words, input=input)
        except Missing as missing:
            raise _failed(words[0], missing.told) from None


def parents(path: str) -> list[str]:
    """The paths of a path's parts, from the top: `a`, `a/b`, `a/b/c`."""
    above = [str(each) for each in reversed(PurePosixPath(path).parents) if str(each) != "."]
    return [*above, path] if path else []


def _refused(folder: Path, told: str) -> UsageError:
    hint: str | None
    if "not a git repository" in told:
        message = f"no revision can be read, since {folder} is in no git repository"
        hint = "name folders instead of revisions, or give --project-dir"
    else:
        message = f"git refuses to read around {folder}: {clean(told)}"
        is_foreign = "dubious ownership" in told
        hint = f"git config --global --add safe.directory {folder}" if is_foreign else None
    return UsageError(NO_REPOSITORY, message, hint=hint)


def _failed(word: str, told: str) -> LancestatError:
    return LancestatError(
        GIT_FAILED,
        f"'git {word}' failed: {clean(told)}",
        hint="see whether the repository is whole: git fsck",
    )


def _entries(told: bytes) -> tuple[Entry, ...]:
    return tuple(_entry(each) for each in told.split(b"\0") if each)


def _entry(line: bytes) -> Entry:
    about, _, path = line.partition(b"\t")
    mode, _, object_id, size = about.decode().split()
    # Of a tree it is `-`, of what is lost `BAD`: reading that will tell.
    return Entry(mode, object_id, int(size) if size.isdecimal() else None, os.fsdecode(path))


def _line(told: bytes) -> str:
    return os.fsdecode(told.rstrip(b"\n"))


def _ask(folder: Path, *words: str, input: bytes | None = None) -> bytes:
    """What git answers.

    Raises:
        Missing: it does not know, or refuses.
        UsageError: LS660 there is no git.
    """
    kept = {key: value for key, value in os.environ.items() if key not in _OF_ANOTHER_CALL}
    try:
        done = subprocess.run(
            ["git", *_OPTIONS, "-C", str(folder), *words],
            input=input if input is not None else b"",
            capture_output=True,
            check=False,
            env={**kept, **_ENVIRONMENT},
        )
    except FileNotFoundError:
        raise UsageError(
            NO_GIT,
            "no revision can be read, since there is no 'git' on PATH",
            hint="install git, or name folders instead of revisions",
        ) from None
    if done.returncode:
        told = done.stderr.decode(errors="replace").strip().splitlines()
        raise Missing(told[0] if told else f"git {words[0]} gives {done.returncode}")
    return done.stdout
