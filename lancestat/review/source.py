"""The two sides of a diff: what is named, where it is read from, and what it declares."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lancestat.errors import (
    AmbiguousSide,
    InvalidProject,
    LancestatError,
    Location,
    ProjectMissing,
    TooManySides,
    UsageError,
)
from lancestat.review.git import Repository, Revision
from lancestat.spec.files import Files, Folder, resolved_inside, work_tree
from lancestat.spec.load import load_project
from lancestat.spec.model import ProjectSpec
from lancestat.spec.schema import PROJECT_FILE

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
        """Load what the side declares; relative URIs lead from `root`, wherever its files are.

        Raises:
            InvalidProject: with every error, each at its place on this side.
            ProjectMissing: there is no project.
            UnknownTarget: it has no such target.
        """
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

    Raises:
        UsageError: git cannot be asked, or a word names no side or several.
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
