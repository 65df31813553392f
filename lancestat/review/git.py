"""Read a project's files as a commit of a git repository has them.

Only git's plumbing is used, above all `ls-tree` and `cat-file --batch`: neither the work tree nor
the index is touched, and no attribute, filter, hook or helper of the repository is obeyed. That is
also why `git archive` is not used: a commit's `.gitattributes` can leave files out of it.
"""

from __future__ import annotations

import os
import posixpath
import re
import shutil
import subprocess
from collections.abc import Collection
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path, PurePosixPath

from lancestat.errors import (
    GitFailed,
    GitMissing,
    LancestatError,
    NoMergeBase,
    NoRepository,
    SpecError,
    UnknownRevision,
    UnreadableFile,
    did_you_mean,
)
from lancestat.formats import quoted
from lancestat.redact import redact_line
from lancestat.spec.document import MAX_BYTES
from lancestat.spec.files import is_spec, work_tree

# Of the caller's GIT_* variables only those that name its configuration are passed on, and one of
# git's own tests. The others belong to another call, such as that of a hook, or change answers.
_PASSED_ON = re.compile(
    r"GIT_CONFIG_(GLOBAL|SYSTEM|NOSYSTEM|COUNT|KEY_\d+|VALUE_\d+)|GIT_TEST_ASSUME_DIFFERENT_OWNER"
)
# An empty GIT_ALLOW_PROTOCOL forbids every transport, also those that a configuration allows by
# name (`protocol.file.allow`), so that versions of git that do not know GIT_NO_LAZY_FETCH fetch no
# missing object either. No replacement or graft takes the place of a commit.
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

_FILE, _FOLDER, _LINK, _SUBMODULE = "a file", "a folder", "a symbolic link", "a submodule"
_KINDS = {"040000": _FOLDER, "120000": _LINK, "160000": _SUBMODULE}


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """An entry of a commit's tree; its path leads from the repository's top."""

    kind: str
    object_id: str
    size_bytes: int
    path: str

    @property
    def is_small_file(self) -> bool:
        """Whether it is a file, and small enough to be read."""
        return self.kind == _FILE and self.size_bytes <= MAX_BYTES


@dataclass(frozen=True, slots=True)
class Repository:
    """The repository whose work tree is `top`; `prefix` leads from there to the project."""

    top: Path
    prefix: str

    @classmethod
    def around(cls, folder: Path) -> Repository:
        """Return the repository around a project's folder.

        Its configuration is trusted as far as it cannot run a program: no commit can bring `.git`.

        Raises:
            GitMissing: there is no git.
            NoRepository: the folder is in no repository.
        """
        top = work_tree(folder)
        if top is None:
            raise NoRepository(
                f"no revision can be read, since {folder} is in no git repository",
                hint="name folders instead of revisions, or give --project-dir "
                "(project_dir in Python)",
            )
        prefix = folder.relative_to(top).as_posix()
        repository = cls(top, "" if prefix == "." else prefix)
        answer = repository._ask("rev-parse", "--git-dir")
        if answer.returncode:
            reason = _reason(answer)
            is_foreign = "dubious ownership" in reason
            raise NoRepository(
                f"git refuses to read around {top}: {redact_line(reason)}",
                hint=f"git config --global --add safe.directory {top}" if is_foreign else None,
            )
        return repository

    def find_commit(self, revision: str) -> str | None:
        """Return the id of the commit that a revision names, None where there is none."""
        if not revision or revision.startswith("-") or "\0" in revision:
            return None
        answer = self._ask("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
        return None if answer.returncode else _line(answer.stdout)

    def commit(self, revision: str) -> str:
        """Return the id of the commit that a revision names.

        Raises:
            UnknownRevision: there is none; the hint names one that is spelled alike.
        """
        commit = self.find_commit(revision)
        if commit is None:
            message = f"'{revision}' is neither a git revision nor the folder of a project"
            raise UnknownRevision(message, hint=self._hint_for(revision))
        return commit

    def merge_base(self, one: str, other: str) -> str:
        """Return the id of the commit at which two revisions diverged.

        Raises:
            UnknownRevision: a revision is unknown.
            NoMergeBase: they have no commit in common.
        """
        answer = self._ask("merge-base", self.commit(one), self.commit(other))
        if answer.returncode:
            hint = "the clone is shallow: fetch more history (fetch-depth: 0)"
            raise NoMergeBase(
                f"'{one}' and '{other}' have no commit in common",
                hint=hint if self._is_shallow() else f"write '{one}' to compare with it as it is",
            )
        return _line(answer.stdout)

    def short(self, commit: str) -> str:
        """Return a commit's abbreviated id."""
        return _line(self._output("rev-parse", "--short", commit))

    def at(self, commit: str, *paths: str) -> dict[str, TreeEntry]:
        """Return the entries of a commit at some paths, by path."""
        entries = self._list(commit, "--", *paths)
        return {entry.path: entry for entry in entries if entry.path in paths}

    def below(self, commit: str, folder: str) -> list[TreeEntry]:
        """Return all files, links and submodules below a folder (`""` is the top)."""
        return self._list("-r", commit, *(["--", f"{folder}/"] if folder else []))

    def contents(self, object_ids: Collection[str]) -> dict[str, bytes]:
        """Return the contents of files by object id."""
        if not object_ids:
            return {}
        batch = BytesIO(self._output("cat-file", "--batch", input="\n".join([*object_ids, ""])))
        contents: dict[str, bytes] = {}
        for object_id in object_ids:
            header = batch.readline()
            words = header.split()
            if len(words) != 3:
                raise self._failed("cat-file", header.decode(errors="replace").strip())
            contents[object_id] = batch.read(int(words[2]))
            batch.read(1)
        return contents

    def _list(self, *words: str) -> list[TreeEntry]:
        entries = []
        for line in self._output("ls-tree", "-z", "-l", "--full-tree", *words).split(b"\0")[:-1]:
            about, _, path = line.partition(b"\t")
            mode, _, object_id, size = about.decode().split()
            # The size of a folder is `-`, that of a lost object `BAD`: reading it is an error.
            size_bytes = int(size) if size.isdecimal() else 0
            entries.append(
                TreeEntry(_KINDS.get(mode, _FILE), object_id, size_bytes, os.fsdecode(path))
            )
        return entries

    def _hint_for(self, revision: str) -> str:
        if ".." in revision:
            return "two revisions are written 'BASE HEAD', or 'BASE...HEAD' for their merge base"
        names = _line(self._output("for-each-ref", "--format=%(refname:short)")).split()
        # Where 'main~9' is missing, it is not 'main' that was misspelled.
        is_known = re.split("[~^@:]", revision)[0] in names
        near = None if is_known else did_you_mean(revision, names)
        fetch = "the clone is shallow: fetch the revision first (fetch-depth: 0)"
        return near or (fetch if self._is_shallow() else "see 'git branch --all' and 'git tag'")

    def _is_shallow(self) -> bool:
        return _line(self._output("rev-parse", "--is-shallow-repository")) == "true"

    def _output(self, *words: str, input: str = "") -> bytes:
        answer = self._ask(*words, input=input)
        if answer.returncode:
            raise self._failed(words[0], _reason(answer))
        return answer.stdout

    def _failed(self, word: str, reason: str) -> LancestatError:
        promisors = r"^(extensions\.partialclone|remote\..*\.promisor)$"
        hint = "see whether the repository is whole: git fsck"
        if self._ask("config", "--local", "--get-regexp", promisors).stdout:
            hint = "the clone is partial, and nothing is fetched here: clone without a filter"
        return GitFailed(f"'git {word}' failed: {redact_line(reason)}", hint=hint)

    def _ask(self, *words: str, input: str = "") -> subprocess.CompletedProcess[bytes]:
        """Return git's answer, whatever it is.

        Raises:
            GitMissing: there is no git.
        """
        passed_on = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith("GIT_") or _PASSED_ON.fullmatch(key)
        }
        # `work_tree` found `.git` where git looks first, and git must look no further.
        repository = {
            "GIT_CEILING_DIRECTORIES": str(self.top.parent),
            "GIT_WORK_TREE": str(self.top),
        }
        return subprocess.run(
            [_program(), *_OPTIONS, "-C", str(self.top), *words],
            input=input.encode(),
            capture_output=True,
            check=False,
            env={**passed_on, **_ENVIRONMENT, **repository},
        )


@dataclass(slots=True)
class Revision:
    """A project's files (`spec.files.Files`) as a commit has them; `label` names it in errors."""

    repository: Repository
    commit: str
    label: str
    _entries: dict[str, TreeEntry | None] = field(default_factory=dict)
    _contents: dict[str, bytes] = field(default_factory=dict)

    def has(self, name: str) -> bool:
        """Return whether that is a file, or a link, which reading refuses."""
        entry = self._entry(name)
        return entry is not None and entry.kind in (_FILE, _LINK)

    def read(self, name: str) -> bytes:
        """Return a file's content; all files that are known by then are read at once."""
        entry = self._entry(name)
        if entry is None:
            raise UnreadableFile(f"{self.label} has no such file")
        if entry.kind != _FILE:
            raise self._refusal(name, entry)
        if not entry.is_small_file:
            message = f"the file has {entry.size_bytes:,} bytes; at most {MAX_BYTES:,} are read"
            raise UnreadableFile(message)
        if entry.object_id not in self._contents:
            known = {
                e.object_id for e in self._entries.values() if e is not None and e.is_small_file
            }
            self._contents |= self.repository.contents(known - self._contents.keys())
        return self._contents[entry.object_id]

    def below(self, folder: str) -> list[str] | None:
        """Return the names of all spec files below a folder, None where there is none."""
        top = self._path(folder)
        entries = self.repository.below(self.commit, top)
        names = []
        for entry in entries:
            parts = PurePosixPath(entry.path).relative_to(top or ".").parts
            if any(part.startswith(".") for part in parts):
                continue
            name = posixpath.relpath(entry.path, self.repository.prefix or ".")
            if entry.kind == _SUBMODULE:
                raise self._refusal(name, entry)
            if is_spec(parts[-1]):
                self._entries[name] = entry
                names.append(name)
        if entries:
            return names
        # A link or a submodule on the way makes a folder seem empty.
        steps = map(str, (PurePosixPath(top), *PurePosixPath(top).parents))
        for entry in self.repository.at(self.commit, *steps).values():
            if entry.kind in (_LINK, _SUBMODULE):
                raise self._refusal(folder, entry)
        return None

    def _entry(self, name: str) -> TreeEntry | None:
        if name not in self._entries:
            path = self._path(name)
            self._entries[name] = self.repository.at(self.commit, path).get(path)
        return self._entries[name]

    def _path(self, name: str) -> str:
        path = posixpath.normpath(posixpath.join(self.repository.prefix, name))
        if path == ".." or path.startswith("../"):
            raise UnreadableFile(
                f"{quoted(name)} is outside the repository, where {self.label} has nothing",
                hint="compare folders instead of revisions",
            )
        return "" if path == "." else path

    def _refusal(self, name: str, entry: TreeEntry) -> SpecError:
        return UnreadableFile(
            f"{quoted(name)} is {entry.kind} in {self.label}, which is not followed there",
            hint="put the files themselves into the repository, or compare folders",
        )


def _line(output: bytes) -> str:
    return os.fsdecode(output.rstrip(b"\n"))


def _reason(answer: subprocess.CompletedProcess[bytes]) -> str:
    lines = answer.stderr.decode(errors="replace").strip().splitlines()
    return lines[0] if lines else f"git ended with status {answer.returncode}"


def _program() -> str:
    """Return the path of git, which is never searched for in the current folder."""
    entries = os.environ.get("PATH", "").split(os.pathsep)
    absolute = [entry for entry in entries if Path(entry).is_absolute()]
    program = shutil.which("git", path=os.pathsep.join(absolute)) if absolute else None
    if program is None:
        raise GitMissing(
            "no revision can be read, since there is no 'git' on PATH",
            hint="install git, or name folders instead of revisions, as in './old'",
        )
    return program
