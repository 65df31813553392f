"""Revisions of a git repository, read through its objects: the work tree is not touched."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from lancestat.errors import LancestatError, UsageError, did_you_mean
from lancestat.redact import clean
from lancestat.spec.files import work_tree

NO_GIT = "LS660"
NO_REPOSITORY = "LS661"
UNKNOWN_REVISION = "LS662"
NO_MERGE_BASE = "LS663"
GIT_FAILED = "LS667"

# Of the caller's variables for git only those that say what its configuration is, and one of git's
# own tests. Others are of another call, such as that of a hook, or could turn the answers.
_KEPT = re.compile(
    r"GIT_CONFIG_(GLOBAL|SYSTEM|NOSYSTEM|COUNT|KEY_\d+|VALUE_\d+)|GIT_TEST_ASSUME_DIFFERENT_OWNER"
)
# `GIT_ALLOW_PROTOCOL`, empty, forbids every transport, also those that a configuration allows by
# name (`protocol.file.allow`), so that versions of git which do not know `GIT_NO_LAZY_FETCH` fetch
# no missing object either. No replacement or graft passes for a commit.
_ENVIRONMENT = {
    "GIT_ALLOW_PROTOCOL": "",
    "GIT_GRAFT_FILE": os.devnull,
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}
# No program that a configuration names is run: hooks, a monitor of files, a pager.
_OPTIONS = (
    "--no-pager",
    "--literal-pathspecs",
    *("-c", "core.fsmonitor=false"),
    *("-c", f"core.hooksPath={os.devnull}"),
    *("-c", f"core.attributesFile={os.devnull}"),
    *("-c", "protocol.allow=never"),
    *("-c", "safe.bareRepository=explicit"),
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
    """The repository whose work tree is `top`; `prefix` leads from there to the project."""

    top: Path
    prefix: str

    @classmethod
    def around(cls, folder: Path) -> Repository:
        """Find it.

        Its configuration is trusted as far as it cannot run a program: no commit can bring `.git`.

        Raises:
            UsageError: LS660 there is no git, LS661 the folder is in no repository.
        """
        top = work_tree(folder)
        if top is None:
            raise UsageError(
                NO_REPOSITORY,
                f"no revision can be read, since {folder} is in no git repository",
                hint="name folders instead of revisions, or give --project-dir",
            )
        try:
            _ask(top, "rev-parse", "--git-dir")
        except Missing as missing:
            raise _refused(top, missing.told) from None
        prefix = folder.relative_to(top).as_posix()
        return cls(top, "" if prefix == "." else prefix)

    def commit(self, revision: str) -> str:
        """The id of the commit that a revision names.

        Raises:
            UsageError: LS662 there is none; the hint names one that is spelled alike.
        """
        try:
            return self._resolved(revision)
        except Missing:
            message = f"'{revision}' is neither a git revision nor the folder of a project"
            raise UsageError(UNKNOWN_REVISION, message, hint=self._near(revision)) from None

    def has_commit(self, revision: str) -> bool:
        """Whether a revision names a commit."""
        try:
            self._resolved(revision)
        except Missing:
            return False
        return True

    def merge_base(self, one: str, other: str) -> str:
        """The id of the commit from which two went apart.

        Raises:
            UsageError: LS662 a revision is unknown, LS663 they have no such commit.
        """
        commits = (self.commit(one), self.commit(other))
        try:
            return _line(_ask(self.top, "merge-base", *commits))
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
                raise self._failed("cat-file", header.decode(errors="replace"))
            start = at + len(header) + 1
            found[each] = told[start : start + int(words[2])]
            at = start + int(words[2]) + 1
        return found

    def _resolved(self, revision: str) -> str:
        if not revision or revision.startswith("-") or "\0" in revision:
            raise Missing("not a revision")
        asked = f"{revision}^{{commit}}"
        return _line(_ask(self.top, "rev-parse", "--verify", "--quiet", asked))

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
            return _ask(self.top, *words, input=input)
        except Missing as missing:
            raise self._failed(words[0], missing.told) from None

    def _failed(self, word: str, told: str) -> LancestatError:
        hint = "see whether the repository is whole: git fsck"
        if self._is_partial():
            hint = "the clone is partial, and nothing is fetched here: clone without a filter"
        return LancestatError(GIT_FAILED, f"'git {word}' failed: {clean(told)}", hint=hint)

    def _is_partial(self) -> bool:
        names = r"^(extensions\.partialclone|remote\..*\.promisor)$"
        try:
            return bool(_ask(self.top, "config", "--local", "--get-regexp", names))
        except Missing:
            return False


def parents(path: str) -> list[str]:
    """The paths of a path's parts, from the top: `a`, `a/b`, `a/b/c`."""
    above = [str(each) for each in reversed(PurePosixPath(path).parents) if str(each) != "."]
    return [*above, path] if path else []


def _refused(top: Path, told: str) -> UsageError:
    is_foreign = "dubious ownership" in told
    return UsageError(
        NO_REPOSITORY,
        f"git refuses to read around {top}: {clean(told)}",
        hint=f"git config --global --add safe.directory {top}" if is_foreign else None,
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


def _ask(top: Path, *words: str, input: bytes | None = None) -> bytes:
    """What git answers.

    Raises:
        Missing: it does not know, or refuses.
        UsageError: LS660 there is no git.
    """
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith("GIT_") or _KEPT.fullmatch(key)
    }
    # Found here, `.git` is where git looks first, and it must look no further.
    places = {"GIT_CEILING_DIRECTORIES": str(top.parent), "GIT_WORK_TREE": str(top)}
    done = subprocess.run(
        [_program(), *_OPTIONS, "-C", str(top), *words],
        input=input if input is not None else b"",
        capture_output=True,
        check=False,
        env={**kept, **_ENVIRONMENT, **places},
    )
    if done.returncode:
        told = done.stderr.decode(errors="replace").strip().splitlines()
        raise Missing(told[0] if told else f"git {words[0]} gives {done.returncode}")
    return done.stdout


def _program() -> str:
    """The path of git, which is never looked for in the current folder."""
    entries = os.environ.get("PATH", "").split(os.pathsep)
    absolute = [entry for entry in entries if Path(entry).is_absolute()]
    found = shutil.which("git", path=os.pathsep.join(absolute)) if absolute else None
    if found is None:
        raise UsageError(
            NO_GIT,
            "no revision can be read, since there is no 'git' on PATH",
            hint="install git, or name folders instead of revisions, as in './old'",
        )
    return found
