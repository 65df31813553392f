"""The YAML that declares a node, as it is written."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from lancestat.errors import Location, SpecError
from lancestat.spec.document import MAX_BYTES
from lancestat.spec.files import Folder

if TYPE_CHECKING:
    import yaml

_Mark = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Source:
    """Lines of a file, the first of which is number `first`."""

    file: str
    first: int
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _File:
    lines: tuple[str, ...]
    items: dict[_Mark, tuple[_Mark, _Mark]]


@dataclass(frozen=True, slots=True)
class Sources:
    """The spec files of the project at `root`; each is read once."""

    root: Path
    _files: dict[str, _File | None] = field(default_factory=dict)

    def of(self, location: Location) -> Source | None:
        """The lines of the item that is named at a location.

        None where they cannot be read, or are no longer what was loaded.
        """
        if location.file not in self._files:
            self._files[location.file] = _read(self.root, location.file)
        file = self._files[location.file]
        span = file and file.items.get((location.line - 1, location.column - 1))
        if not file or not span:
            return None
        (first, column), end = span
        lines = list(file.lines[first : end[0] + (end[1] > 0)])
        # A block ends where the next one begins: at the start of its line, or within its indent.
        while len(lines) > 1 and (not lines[-1].strip() or _is_past(lines[-1], column)):
            lines.pop()
        return Source(location.file, first + 1, _dedented(lines))


def _dedented(lines: list[str]) -> tuple[str, ...]:
    return tuple(textwrap.dedent("\n".join(lines)).split("\n"))


def _is_past(line: str, column: int) -> bool:
    indent = len(line) - len(line.lstrip())
    return indent < column and not line.lstrip().startswith(("}", "]"))


def _read(folder: Path, name: str) -> _File | None:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        content = Folder(folder).read(name)
        if len(content) > MAX_BYTES:
            return None
        text = content.decode("utf-8-sig")
        root = yaml.compose(text, Loader=loader)
    except (OSError, SpecError, ValueError, RecursionError, yaml.YAMLError):
        return None
    return _File(tuple(text.splitlines()), dict(_items(root)))


def _items(root: yaml.Node | None) -> Iterator[tuple[_Mark, tuple[_Mark, _Mark]]]:
    """Yield the items of the lists in a spec file, by the positions of what names them."""
    import yaml

    if not isinstance(root, yaml.MappingNode):
        return
    for _, items in root.value:
        if not isinstance(items, yaml.SequenceNode):
            continue
        for item in items.value:
            if not isinstance(item, yaml.MappingNode):
                continue
            for key, value in item.value:
                # A source is named by what it is of.
                if key.value in ("name", "catalog", "uri"):
                    yield _mark(value.start_mark), (_mark(item.start_mark), _mark(item.end_mark))


def _mark(mark: yaml.Mark) -> _Mark:
    return mark.line, mark.column
