"""The two sides of a diff: folders or commits of git, and the pages that show their files.

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
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path, PurePosixPath
from urllib.parse import quote

from lancestat.errors import (
    AmbiguousSide,
    GitFailed,
    GitMissing,
    InvalidProject,
    LancestatError,
    Location,
    NoMergeBase,
    NoRepository,
    ProjectMissing,
    SpecError,
    TooManySides,
    UnknownRevision,
    UnreadableFile,
    UsageError,
    did_you_mean,
)
from lancestat.formats import quoted
from lancestat.redact import redact_line
from lancestat.spec.document import MAX_BYTES
from lancestat.spec.files import Files, Folder, is_spec, resolved_inside, work_tree
from lancestat.spec.load import load_project
from lancestat.spec.model import ProjectSpec
from lancestat.spec.schema import PROJECT_FILE

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
        """Return the id of the commit that a revision names."""
        commit = self.find_commit(revision)
        if commit is None:
            message = f"'{revision}' is neither a git revision nor the folder of a project"
            raise UnknownRevision(message, hint=self._hint_for(revision))
        return commit

    def merge_base(self, one: str, other: str) -> str:
        """Return the id of the commit at which two revisions diverged."""
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
        """Return git's answer, whatever it is."""
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


WORK_TREE = "."
MERGE_BASE = "..."

_REFS = re.compile(r"^refs/(?:heads|remotes|tags)/")


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a diff.

    `label` names it for people, `where` says where its files are, such as `in /shop`, `commit` is
    the id of a revision. `prefix` goes before the names of its files in messages.
    """

    label: str
    where: str
    files: Files
    prefix: str = ""
    commit: str | None = None

    @property
    def is_before_project(self) -> bool:
        """Whether it is a revision without the project."""
        return self.commit is not None and not self.files.has(PROJECT_FILE)

    def load(
        self, root: Path, *, target: str | None = None, vars: Mapping[str, object] | None = None
    ) -> ProjectSpec:
        """Load what the side declares; relative URIs lead from `root`, wherever its files are."""
        if not self.files.has(PROJECT_FILE):
            raise ProjectMissing(
                f"there is no {PROJECT_FILE} {self.where}",
                hint="give --project-dir (project_dir in Python), or compare with what "
                "has the project",
            )
        try:
            return load_project(root, target=target, vars=vars, files=self.files)
        except InvalidProject as invalid:
            if not self.prefix:
                raise
            moved = [self._moved(error) for error in invalid.errors]
            raise InvalidProject(moved, invalid.excerpts) from None
        except UsageError as error:
            raise type(error)(f"{error.message} (at {self.label})", hint=error.hint) from None

    def _moved(self, error: LancestatError) -> LancestatError:
        location = error.location
        if location is None:
            return error
        moved = Location(f"{self.prefix}{location.file}", location.line, location.column)
        return type(error)(error.message, location=moved, hint=error.hint)


@dataclass(frozen=True, slots=True)
class Sides:
    """Both sides; `root` is the folder from which relative URIs of both lead."""

    root: Path
    base: Side
    head: Side


def find_sides(project_dir: Path, base: str, head: str | None = None) -> Sides:
    """The sides that two words name.

    A word is `.` (the work tree: the project's folder as it is), a folder, or a git revision of the
    repository around the project. A word that starts with `/`, `./` or `../` or ends with `/` is a
    folder always. `BASE...HEAD` or `BASE...` is git's, and no folder: the commit from which they
    diverged, compared with HEAD (the working tree, which is based on git's HEAD).
    """
    root = _project_folder(project_dir)
    finder = _Finder(root)
    if MERGE_BASE in base and not _is_written_as_path(base):
        one, _, other = base.partition(MERGE_BASE)
        if other and head is not None:
            message = f"'{base}' names two sides, and '{head}' is a third"
            raise TooManySides(message, hint=f"write '{one}{MERGE_BASE}' '{head}'")
        head_side = finder.revision(other) if other else finder.side(head or WORK_TREE)
        return Sides(root, finder.merge_base(one or "HEAD", head_side), head_side)
    sides = finder.side(base), finder.side(head or WORK_TREE)
    if isinstance(sides[1].files, Folder) and not Folder(root).has(PROJECT_FILE):
        root = sides[1].files.root
    return Sides(root, *sides)


def _project_folder(project_dir: Path) -> Path:
    """The project's folder, a path without links.

    A link in the repository is refused: revisions would be read at the place that it leads to now,
    and not at the one that is named.
    """
    written = Path(os.path.abspath(project_dir))  # noqa: PTH100 - links must be seen here
    root = written.resolve()
    if not root.is_dir():
        raise ProjectMissing(
            f"there is no folder {root}", hint="give --project-dir (project_dir in Python)"
        )
    top = work_tree(written)
    if top is not None and resolved_inside(top, written) != written:
        raise ProjectMissing(
            f"the project's folder {written} is a symbolic link in its repository",
            hint="give --project-dir (project_dir in Python) the folder that it leads to",
        )
    return root


def _is_written_as_path(word: str) -> bool:
    """Whether a word can only be a folder, since no revision is written so."""
    return word.startswith(("/", "./", "../")) or word.endswith("/") or word in (".", "..")


def _is_folder(word: str) -> bool:
    try:
        return Path(word).is_dir()
    except (OSError, ValueError):
        return False


def _ambiguous(word: str) -> UsageError:
    return AmbiguousSide(
        f"'{word}' is both a git revision and the folder of a project",
        hint=f"write './{word}' for the folder; 'refs/heads/{word}' for a branch, "
        f"'refs/tags/{word}' for a tag or '{word}^0' for any commit",
    )


@dataclass(slots=True)
class _Finder:
    root: Path
    _repository: Repository | None = None

    @property
    def repository(self) -> Repository:
        if self._repository is None:
            self._repository = Repository.around(self.root)
        return self._repository

    def side(self, word: str) -> Side:
        if word == WORK_TREE:
            return Side(WORK_TREE, f"in {self.root}", Folder(self.root))
        if not _is_folder(word):
            return self.revision(word)
        if _is_written_as_path(word):
            return self._folder(word)
        is_project = Folder(Path(word).resolve()).has(PROJECT_FILE)
        if work_tree(self.root) is not None and self.repository.find_commit(word):
            if is_project:
                raise _ambiguous(word)
            return self.revision(word)
        return self._folder(word) if is_project or "/" in word else self.revision(word)

    def revision(self, word: str) -> Side:
        return self._revision(word, self.repository.commit(word))

    def merge_base(self, one: str, head: Side) -> Side:
        other = "HEAD" if head.commit is None else head.label
        commit = self.repository.merge_base(one, other)
        short = self.repository.short(commit)
        names = " and ".join(_REFS.sub("", name) for name in (one, other))
        return self._revision(f"{short} (merge base of {names})", commit, short)

    def _folder(self, word: str) -> Side:
        folder = Path(word).resolve()
        return Side(word, f"in {folder}", Folder(folder), f"{word.rstrip('/')}/")

    def _revision(self, label: str, commit: str, short: str | None = None) -> Side:
        files = Revision(self.repository, commit, short or label)
        folder = self.repository.prefix
        where = f"in {folder}/ at {label}" if folder else f"at {label}"
        return Side(label, where, files, f"{short or label}:", commit)


_SERVER = re.compile(r"https?://[a-z0-9.\-]+(?::\d+)?", re.ASCII | re.IGNORECASE)
_PROJECT = re.compile(r"[\w.\-]+(?:/[\w.\-]+)+", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


# Where the files of BASE and HEAD are shown; None for a side whose commit is not known.
FileLinks = tuple[str | None, str | None]


def file_links(environment: Mapping[str, str], sides: Sides) -> FileLinks:
    """Return where a job of GitHub or GitLab shows the files of two sides.

    The work tree is shown as the commit that is checked out.
    """
    root = _root(environment)
    if root is None or work_tree(sides.root) is None:
        return None, None
    try:
        repository = Repository.around(sides.root)
    except UsageError:
        return None, None

    def shown(side: Side) -> str | None:
        is_checked_out = side.commit is None and getattr(side.files, "root", None) == sides.root
        commit = repository.find_commit("HEAD") if is_checked_out else side.commit
        if commit is None or not _COMMIT.fullmatch(commit):
            return None
        folder = f"{repository.prefix}/" if repository.prefix else ""
        return f"{root}/{commit}/{quote(folder)}"

    return shown(sides.base), shown(sides.head)


def line_url(root: str, file: str, line: int) -> str:
    """Return the page of a file's line below a root of `FileLinks`."""
    return f"{root}{quote(file)}#L{line}"


def _root(environment: Mapping[str, str]) -> str | None:
    server = environment.get("GITHUB_SERVER_URL", "")
    project = environment.get("GITHUB_REPOSITORY", "")
    if _SERVER.fullmatch(server) and _PROJECT.fullmatch(project):
        return f"{server}/{project}/blob"
    server = environment.get("CI_SERVER_URL", "")
    project = environment.get("CI_PROJECT_PATH", "")
    if _SERVER.fullmatch(server) and _PROJECT.fullmatch(project):
        return f"{server}/{project}/-/blob"
    return None
