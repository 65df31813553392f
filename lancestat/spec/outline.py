"""The outline of a project as far as it can be read: for completion, where no error may show."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from lancestat.errors import InvalidProject, LancestatError, Location
from lancestat.spec.declaration import default_of
from lancestat.spec.files import Folder, SpecFolder, read_file, spec_files
from lancestat.spec.model import RESOURCES, KnnJoin, NodeKind, ProjectFile, Table
from lancestat.spec.schema import PROJECT_FILE
from lancestat.spec.template import is_template

_SUFFIX = ".lance"
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
    """The names of a project's targets, nodes and sources, in the order of the files.

    Tables of a source that is a local folder are among the nodes; no other source is asked.
    """

    targets: tuple[str, ...] = ()
    nodes: tuple[NodeOutline, ...] = ()
    sources: tuple[str, ...] = ()


def outline(root: Path) -> Outline:
    """The outline of the project in a folder; what cannot be read is left out.

    Nothing is rendered or checked by a schema, which takes a third of the time of loading the
    project. A name that holds a template is left out, too.
    """
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


def _nodes(specs: dict[str, Any], file: str) -> Iterator[NodeOutline]:
    for key, kind in _KINDS.items():
        items = specs.get(key)
        for item in items if isinstance(items, list) else ():
            if isinstance(item, dict) and (names := _texts([item.get("name")])):
                about = item.get("description")
                description = about if isinstance(about, str) else None
                yield NodeOutline(names[0], kind, _texts(item.get("tags")), file, description)


def _sources(specs: dict[str, Any]) -> Iterator[dict[str, Any]]:
    items = specs.get("sources")
    for item in items if isinstance(items, list) else ():
        if isinstance(item, dict) and _texts([item.get("catalog", item.get("uri"))]):
            yield item


def _label(source: dict[str, Any]) -> str:
    if "catalog" in source:
        return str(source["catalog"])
    return str(source["uri"]).rstrip("/").rpartition("/")[2]


def _found(specs: dict[str, Any], file: str, root: Path) -> Iterator[NodeOutline]:
    """Yield the tables in local folders whose names need no template."""
    for source in _sources(specs):
        uri, include, exclude = source.get("uri"), source.get("include"), source.get("exclude")
        if not isinstance(uri, str) or "://" in uri or "name" in source:
            continue
        defaults = source.get("defaults")
        tags = _texts(defaults.get("tags")) if isinstance(defaults, dict) else ()
        for path in sorted((root / uri).glob(f"*{_SUFFIX}")):
            name = path.name.removesuffix(_SUFFIX)
            patterns = _texts(include) if include is not None else ("*",)
            if _is_any(name, patterns) and not _is_any(name, _texts(exclude)):
                yield NodeOutline(name, NodeKind.TABLE, tags, file, None)


def _is_any(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _texts(value: object) -> tuple[str, ...]:
    items = value if isinstance(value, list) else ()
    return tuple(text for text in items if isinstance(text, str) and text and not is_template(text))
