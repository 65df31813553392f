"""The files of a project: those of its git work tree, or of its folder without one."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, Protocol

from lancestat.errors import InvalidProject, LancestatError, Location, SpecError, UnreadableFile
from lancestat.formats import quoted, visible
from lancestat.redact import Origin
from lancestat.spec.declaration import default_of
from lancestat.spec.document import MAX_BYTES, Document, parse_document
from lancestat.spec.model import NODES, NodeKind, ProjectFile
from lancestat.spec.schema import PROJECT_FILE
from lancestat.spec.template import is_template

# As many as Linux follows.
_MAX_LINKS = 40


def work_tree(folder: Path) -> Path | None:
    """The top of the git work tree around a folder, None where there is none.

    Only `.git` counts, which no commit can hold. A folder that looks like a bare repository can
    come with any commit, and its configuration with it.
    """
    for candidate in (folder, *folder.parents):
        git = candidate / ".git"
        if os.path.isfile(git) or os.path.lexists(git / "HEAD"):  # noqa: PTH113 - raises nothing
            return candidate
    return None


def nearest_project(start: Path) -> Path:
    """The folder of the project around `start`: the nearest of it and those above with a project.

    A project above has to be the caller's own, since it can name code and paths to write to, and
    lie in the same file system, and no higher than the home folder. Without one it is `start`.
    """
    try:
        device, home = start.stat().st_dev, Path(os.path.expanduser("~"))  # noqa: PTH111
        for folder in (start, *start.parents):
            project = folder / PROJECT_FILE
            if folder.stat().st_dev != device:
                break
            if os.path.lexists(project) and (folder == start or _is_own(project)):
                return folder
            if folder == home:
                break
    except OSError:
        # What cannot be looked at is not searched.
        return start
    return start


def _is_own(path: Path) -> bool:
    return not hasattr(os, "geteuid") or path.lstat().st_uid == os.geteuid()


def boundary(root: Path) -> Path:
    """The folder whose files may be read for the project in `root`, a path without links."""
    return work_tree(root) or root


def resolved_inside(top: Path, path: Path) -> Path | None:
    """A path without its symbolic links, None where it leaves `top`, even if it comes back."""
    here, steps, links = top, _steps_from(top, path), 0
    while steps is not None and steps:
        step = steps.pop()
        if step == "..":
            if here == top:
                return None
            here = here.parent
            continue
        here /= step
        if here.is_symlink():
            links += 1
            if links > _MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            target = here.readlink()
            here = top if target.is_absolute() else here.parent
            further = _steps_from(top, target) if target.is_absolute() else _reversed(target)
            steps = None if further is None else [*steps, *further]
    return None if steps is None else here


def _steps_from(top: Path, path: Path) -> list[str] | None:
    return _reversed(path.relative_to(top)) if path.is_relative_to(top) else None


def _reversed(path: Path) -> list[str]:
    return [*reversed(path.parts)]


_SUFFIXES = (".yml", ".yaml")


class Files(Protocol):
    """The source of a project's files.

    Names are relative to the project's folder, with slashes; `..` leads out of it. A SpecError of
    these functions has no location yet.
    """

    def has(self, name: str) -> bool: ...

    def read(self, name: str) -> bytes:
        """A file's content, of a file that is too large the beginning (`MAX_BYTES` and more)."""
        ...

    def below(self, folder: str) -> Iterable[str] | None:
        """The names of all spec files below a folder (`is_spec`), None where that is none."""
        ...


@dataclass(frozen=True, slots=True)
class Folder:
    """The files that are in a folder now, `root`, whose path holds no links.

    A file outside of the project (`boundary`) is not read, whatever leads there: errors quote what
    they are about, and that would show the content of files which are not the project's.
    """

    root: Path

    def has(self, name: str) -> bool:
        """Whether that is a file, or a link, which reading may refuse."""
        path = self.root / name
        return os.path.lexists(path) and not path.is_dir()

    def read(self, name: str) -> bytes:
        # Opening a pipe would block until a writer opens it.
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
        with open(os.open(self._own(name), flags), "rb") as stream:  # noqa: PTH123
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise UnreadableFile(f"{quoted(name)} is not a regular file")
            return stream.read(MAX_BYTES + 1)

    def below(self, folder: str) -> Iterable[str] | None:
        """The names of all spec files below a folder; links to folders are not followed."""
        self._own(folder)
        top = Path(os.path.normpath(self.root / folder))
        if not top.is_dir():
            return None
        specs: list[str] = []
        for parent, folders, names in os.walk(top):
            folders[:] = [name for name in folders if not name.startswith(".")]
            specs += [
                relative_name(self.root, Path(parent, name)) for name in names if is_spec(name)
            ]
        return specs

    def _own(self, name: str) -> Path:
        top, written = boundary(self.root), Path(os.path.normpath(self.root / name))
        path = resolved_inside(top, written)
        if path is not None and path != written and not _may_be_spec(path, self.root):
            raise UnreadableFile(
                f"{quoted(name)} links to something other than a spec file, "
                "and only spec files are read",
                hint="let it point to a .yml or .yaml file that is not hidden",
            )
        if path is None:
            what = "project's folder" if top == self.root else "repository"
            raise UnreadableFile(
                f"{quoted(name)} leads out of the {what}, and only files inside it are read",
                hint=f"put the files themselves into the {what}, without a link to another folder",
            )
        return path


def _may_be_spec(path: Path, root: Path) -> bool:
    """Whether a link may lead there: not to `.env`, `.git` and the like, nor to other files.

    An error would quote from such a file, which no commit brought and which may hold secrets.
    """
    hidden = [step for step in path.parts if step.startswith(".") and step not in root.parts]
    return not hidden and (path.is_dir() or path.name.endswith(_SUFFIXES) or not path.exists())


@dataclass(frozen=True, slots=True)
class SpecFolder:
    """A folder of spec files as the project file names it."""

    path: str
    location: Location
    origin: Origin | None = None

    @property
    def shown(self) -> str:
        return visible(self.path if self.origin is None else self.origin.template)

    def refused(self, error: SpecError) -> LancestatError:
        """Return the error about it, named only where the project file holds its name."""
        if self.origin is None:
            return error.placed(self.location)
        message = f"spec path '{self.shown}' is nothing that is read"
        return type(error)(message, location=self.location, hint=error.hint)


def is_spec(name: str) -> bool:
    """Whether a file is read for what it declares, by its name alone; hidden ones are not."""
    return name.endswith(_SUFFIXES) and not name.startswith(".")


def read_file(files: Files, name: str) -> Document:
    """A YAML file of a project, with its errors; InvalidProject when it cannot be read."""
    start = Location(name, 1, 1)
    try:
        content = files.read(name)
    except OSError as error:
        message = f"cannot read the file: {error.strerror}"
        raise InvalidProject([UnreadableFile(message, location=start)]) from None
    except SpecError as error:
        raise InvalidProject([error.placed(start)]) from None
    return parse_document(content, name)


def relative_name(root: Path, path: Path) -> str:
    return PurePath(os.path.relpath(path, root)).as_posix()


def spec_files(
    files: Files, root: Path, folders: Sequence[SpecFolder], errors: list[LancestatError]
) -> list[str]:
    """All spec files below the folders but hidden ones, sorted; errors are appended."""
    names: dict[str, None] = {}
    for folder in folders:
        text = folder.path
        try:
            below = None
            if "\0" not in text:
                below = files.below(relative_name(root, Path(os.path.normpath(root / text))))
        except SpecError as error:
            errors.append(folder.refused(error))
            continue
        except OSError as error:
            message = f"cannot read spec path '{folder.shown}': {error.strerror}"
            errors.append(UnreadableFile(message, location=folder.location))
            continue
        if below is None:
            errors.append(
                UnreadableFile(
                    f"spec path '{folder.shown}' is not a folder",
                    location=folder.location,
                    hint=f"create it in {root}, or change 'spec_paths'",
                )
            )
            continue
        names.update(dict.fromkeys(sorted(below, key=lambda name: PurePosixPath(name).parts)))
    return list(names)


_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def resolve_uri(root: Path, text: str) -> str:
    """A URI as it is; a path made absolute against `root`, `~` being the home folder.

    ValueError, to be read after the key's name, when no path can look like that.
    """
    if any(ord(char) < 32 or ord(char) == 127 for char in text):
        raise ValueError("holds a control character")
    if not text.strip():
        raise ValueError("is blank")
    if _SCHEME.match(text):
        return text
    try:
        return os.path.normpath(root / Path(text).expanduser())
    except RuntimeError:
        raise ValueError("starts with '~' but names no home folder") from None


_SUFFIX = ".lance"


@dataclass(frozen=True, slots=True)
class NodeOutline:
    """A node by its name, with what selectors compare."""

    name: str
    kind: NodeKind
    tags: tuple[str, ...]
    file: str
    description: str | None

    @property
    def about(self) -> str:
        return self.description or self.kind.value


@dataclass(frozen=True, slots=True)
class Outline:
    """The names of a project's targets, nodes and sources, in the order of the files."""

    targets: tuple[str, ...] = ()
    nodes: tuple[NodeOutline, ...] = ()
    sources: tuple[str, ...] = ()


def outline(root: Path) -> Outline:
    """The outline of the project in a folder; what cannot be read is left out."""
    files = Folder(root)
    project = _read(files, PROJECT_FILE)
    folders = project.get("spec_paths", list(default_of(ProjectFile, "spec_paths")))
    spec_folders = [SpecFolder(text, Location(PROJECT_FILE, 1, 1)) for text in _texts(folders)]
    ignored: list[LancestatError] = []
    nodes: dict[str, NodeOutline] = {}
    sources: dict[str, None] = {}
    for name in spec_files(files, root, spec_folders, ignored):
        if name != PROJECT_FILE:
            specs = _read(files, name)
            for node in (*_nodes(specs, name), *_found(specs, name, root)):
                nodes.setdefault(node.name, node)
            sources |= dict.fromkeys(map(_label, _sources(specs)))
    targets = project.get("targets")
    names = _texts(list(targets)) if isinstance(targets, dict) else ()
    return Outline(names, (*nodes.values(),), (*sources,))


def _read(files: Folder, name: str) -> dict[str, Any]:
    try:
        value = read_file(files, name).value
    except InvalidProject:
        return {}
    return value if isinstance(value, dict) else {}


def _items(specs: dict[str, Any], key: str) -> list[dict[str, Any]]:
    items = specs.get(key)
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _nodes(specs: dict[str, Any], file: str) -> Iterator[NodeOutline]:
    for key, kind in NODES.items():
        for item in _items(specs, key):
            if names := _texts([item.get("name")]):
                about = item.get("description")
                description = about if isinstance(about, str) else None
                yield NodeOutline(names[0], kind.kind, _texts(item.get("tags")), file, description)


def _sources(specs: dict[str, Any]) -> list[dict[str, Any]]:
    items = _items(specs, "sources")
    return [item for item in items if _texts([item.get("catalog", item.get("uri"))])]


def _label(source: dict[str, Any]) -> str:
    if "catalog" in source:
        return str(source["catalog"])
    return str(source["uri"]).rstrip("/").rpartition("/")[2]


def _found(specs: dict[str, Any], file: str, root: Path) -> Iterator[NodeOutline]:
    """Yield the tables in local folders whose names need no template."""
    for source in _sources(specs):
        uri, defaults = source.get("uri"), source.get("defaults")
        if not isinstance(uri, str) or "://" in uri or "name" in source:
            continue
        include, exclude = _texts(source.get("include", ["*"])), _texts(source.get("exclude"))
        tags = _texts(defaults.get("tags")) if isinstance(defaults, dict) else ()
        for path in sorted((root / uri).glob(f"*{_SUFFIX}")):
            name = path.name.removesuffix(_SUFFIX)
            if _is_any(name, include) and not _is_any(name, exclude):
                yield NodeOutline(name, NodeKind.TABLE, tags, file, None)


def _is_any(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _texts(value: object) -> tuple[str, ...]:
    items = value if isinstance(value, list) else ()
    return tuple(text for text in items if isinstance(text, str) and text and not is_template(text))
