"""The outline of a project as far as it can be read: for completion, where no error may show."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lancestat.errors import InvalidProject, LancestatError, Location
from lancestat.spec.declaration import default_of
from lancestat.spec.files import Folder, SpecFolder, read_file, spec_files
from lancestat.spec.model import RESOURCES, KnnJoin, NodeKind, ProjectFile, Table
from lancestat.spec.resources import PROJECT_FILE
from lancestat.spec.template import is_template

_KINDS = {key: kind.kind for key, kind in RESOURCES.items() if issubclass(kind, Table | KnnJoin)}


@dataclass(frozen=True, slots=True)
class NodeOutline:
    """A node by its name, with what selectors compare."""

    name: str
    kind: NodeKind
    tags: tuple[str, ...]
    file: str
    description: str | None


@dataclass(frozen=True, slots=True)
class Outline:
    """The names of a project's targets and its nodes, in the order of the files."""

    targets: tuple[str, ...] = ()
    nodes: tuple[NodeOutline, ...] = ()


def outline(root: Path) -> Outline:
    """The outline of the project in a folder; what cannot be read is left out.

    Nothing is rendered or checked by a schema, which takes a third of the time of loading the
    project. A name that holds a template is left out, too.
    """
    files = Folder(root)
    project = _read(files, PROJECT_FILE)
    folders = project.get("spec-paths", list(default_of(ProjectFile, "spec_paths")))
    spec_folders = [SpecFolder(text, Location(PROJECT_FILE, 1, 1)) for text in _texts(folders)]
    ignored: list[LancestatError] = []
    nodes: dict[str, NodeOutline] = {}
    for name in spec_files(files, root, spec_folders, ignored):
        if name != PROJECT_FILE:
            for node in _nodes(_read(files, name), name):
                nodes.setdefault(node.name, node)
    targets = project.get("targets")
    return Outline(_texts(list(targets)) if isinstance(targets, dict) else (), (*nodes.values(),))


def _read(files: Folder, name: str) -> dict[str, Any]:
    try:
        value = read_file(files, name).value
    except InvalidProject:
        return {}
    return value if isinstance(value, dict) else {}


def _nodes(specs: dict[str, Any], file: str) -> Iterator[NodeOutline]:
    for key, kind in _KINDS.items():
        items = specs.get(key)
        for item in items if isinstance(items, list) else ():
            if isinstance(item, dict) and (names := _texts([item.get("name")])):
                about = item.get("description")
                description = about if isinstance(about, str) else None
                yield NodeOutline(names[0], kind, _texts(item.get("tags")), file, description)


def _texts(value: object) -> tuple[str, ...]:
    """The texts of a list that need no rendering."""
    items = value if isinstance(value, list) else ()
    return tuple(text for text in items if isinstance(text, str) and text and not is_template(text))
