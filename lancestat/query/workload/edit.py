"""Changes of YAML in its own text: comments, quotes, order and anchors stay as they are.

A parser gives positions, and the text between them is kept byte for byte. What a change has to
touch has to be written where the change goes: behind an alias or a merge key it is written for
others too, and such a change is refused (`CannotEditError`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

import yaml

from lancestat.errors import Location
from lancestat.spec.document import plain_scalar
from lancestat.spec.template import is_template

# A value to write: text, a number, a boolean, a list or a mapping of them.
Value = str | int | bool | Sequence["Value"] | Mapping[str, "Value"]

_PLAIN = re.compile(r"[A-Za-z_][\w./-]*")


class CannotEditError(Exception):
    """A place in a file cannot be changed; the message says why, after "it"."""


def flow(value: Value) -> str:
    """Return a value as YAML on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        if (
            _PLAIN.fullmatch(value)
            and plain_scalar(value) == value
            and value.lower() not in _WORDS_OF_YAML_1_1
        ):
            return value
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {flow(item)}" for key, item in value.items()) + "}"
    return "[" + ", ".join(map(flow, value)) + "]"


# Booleans of YAML 1.1, which other tools take them for.
_WORDS_OF_YAML_1_1 = frozenset({"y", "n", "yes", "no", "on", "off"})

_C_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class SpecText:
    """The text of one spec file, changed by one edit after the other."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._parsed: tuple[str, yaml.Node | None] = ("", None)

    def table(self, index: int) -> yaml.MappingNode:
        """Return the table at a place in `tables`.

        Raises:
            CannotEditError: It is an alias, or no mapping.
        """
        value = self._tables()
        if not isinstance(value, yaml.SequenceNode):
            raise CannotEditError("has no list of tables of its own")
        item = value.value[index]
        if not isinstance(item, yaml.MappingNode) or self._is_shared(item):
            raise CannotEditError("writes the table for others too, behind an anchor or an alias")
        return item

    def _root(self) -> yaml.Node | None:
        """Return the document, parsed once for each text; None where there is none."""
        text, root = self._parsed
        if root is None or text is not self.text:
            # PyYAML's C parser, ten times as fast, counts bytes.
            loader = _C_LOADER if self.text.isascii() else yaml.SafeLoader
            root = yaml.compose(self.text, Loader=loader)
            self._parsed = self.text, root
        return root

    def _tables(self) -> yaml.Node | None:
        root = self._root()
        return value_of(root, "tables") if isinstance(root, yaml.MappingNode) else None

    def _is_shared(self, node: yaml.Node) -> bool:
        """Whether a node stands in the document more than once, by an alias."""
        if "&" not in self.text:
            return False
        places, waiting = 0, [self._root()]
        while waiting:
            parent = waiting.pop()
            if isinstance(parent, yaml.MappingNode):
                children = [value for _, value in parent.value]
            else:
                children = parent.value if isinstance(parent, yaml.SequenceNode) else []
            places += sum(child is node for child in children)
            waiting += children
        return places > 1

    def names(self) -> list[str | None]:
        """Return the names of the tables in their order, None for one that has none itself."""
        value = self._tables()
        names: list[str | None] = []
        for item in value.value if value is not None else ():
            name = value_of(item, "name") if isinstance(item, yaml.MappingNode) else None
            names.append(None if name is None else str(name.value))
        return names

    def add_table(self, entries: Sequence[tuple[str, str]]) -> None:
        """Add a table at the end of `tables`, of keys and values as they are to be written."""
        tables = self._tables()
        root = self._root()
        if tables is None:
            if not isinstance(root, yaml.MappingNode) or root.flow_style:
                raise CannotEditError("has no place for tables")
            end = max(len(self.text.rstrip()), self._leaf_end(root, root))
            self._insert(end, f"{self._gap(root)}\ntables:{_item(entries, '  ')}")
            return
        is_list = isinstance(tables, yaml.SequenceNode) and not tables.flow_style
        if not is_list or self._is_shared(tables):
            raise CannotEditError("has no list of tables of its own, line by line")
        indent = " " * tables.start_mark.column
        end = self._line_end(self._leaf_end(tables.value[-1], tables))
        self._insert(end, f"{self._gap(tables)}{_item(entries, indent)}")

    def source(self, place: Location) -> dict[str, yaml.Node]:
        """Return the keys of the source whose folder or catalog is written at a place."""
        root = self._root()
        value = value_of(root, "sources") if isinstance(root, yaml.MappingNode) else None
        for item in value.value if value is not None else ():
            keys = item.value if isinstance(item, yaml.MappingNode) else ()
            marks = [value.start_mark for name, value in keys if name.value in ("uri", "catalog")]
            if (place.line, place.column) in [(mark.line + 1, mark.column + 1) for mark in marks]:
                return self._keys(item)
        raise CannotEditError("does not have the source as it stands")

    def entries(self, mapping: yaml.Node | None) -> list[tuple[str, str]]:
        """Return the keys of a mapping, each with its value as it is written, on one line."""
        keys = {} if mapping is None else self._keys(mapping)
        return [(name, self._written(value)) for name, value in keys.items()]

    def _keys(self, mapping: yaml.Node) -> dict[str, yaml.Node]:
        if not isinstance(mapping, yaml.MappingNode) or self._is_shared(mapping):
            raise CannotEditError("writes the source for others too, behind an anchor or an alias")
        keys = {str(name.value): value for name, value in mapping.value}
        if "<<" in keys:
            raise CannotEditError("merges other mappings into the source")
        return keys

    def _written(self, node: yaml.Node) -> str:
        if isinstance(node, yaml.MappingNode):
            items = (f"{name}: {text}" for name, text in self.entries(node))
            return "{" + ", ".join(items) + "}"
        if isinstance(node, yaml.SequenceNode):
            return "[" + ", ".join(map(self._written, node.value)) + "]"
        assert isinstance(node, yaml.ScalarNode)
        text = self.text[_start(node) : _end(node)]
        if text.startswith(("&", "*", "!")):
            raise CannotEditError("has an anchor, an alias or a tag in the source")
        is_plain = not node.style and not _INDICATORS.search(text)
        is_quoted = node.style in ("'", '"') and "\n" not in text
        return text if is_plain or is_quoted else json.dumps(node.value, ensure_ascii=False)

    def scalars(self, index: int, path: Sequence[str]) -> list[str]:
        """Return the scalars of a list that a table has, none where it has no such list."""
        listed = self.value(index, path)
        if not isinstance(listed, yaml.SequenceNode):
            return []
        return [item.value for item in listed.value if isinstance(item, yaml.ScalarNode)]

    def value(self, index: int, path: Sequence[str]) -> yaml.Node | None:
        """Return what a table has under a path of keys, None where it has nothing.

        Raises:
            CannotEditError: It is reached through an alias, or comes from a merge key.
        """
        mapping: yaml.Node = self.table(index)
        found = None
        for key in path:
            if not isinstance(mapping, yaml.MappingNode):
                return None
            found = value_of(mapping, key)
            if found is None:
                if value_of(mapping, "<<") is not None:
                    raise CannotEditError("merges other mappings into the table")
                return None
            if self._is_shared(found):
                raise CannotEditError(
                    f"writes '{key}' for others too, behind an anchor or an alias"
                )
            mapping = found
        return found

    def add_key(self, index: int, path: Sequence[str], key: str, value: Value) -> None:
        """Add a key to a table, or to a mapping in it, after those that it has."""
        mapping = (self.value(index, path) if path else None) or self.table(index)
        if not isinstance(mapping, yaml.MappingNode) or not mapping.value:
            raise CannotEditError("has no mapping there")
        first, last = mapping.value[0][0], mapping.value[-1]
        if mapping.flow_style:
            self._insert(_end(last[1]), f", {key}: {flow(value)}")
            return
        indent = " " * first.start_mark.column
        self._insert_line(max(self._leaf_end(last[1], last[0]), _end(last[0])), indent, key, value)

    def append(self, index: int, path: Sequence[str], items: Sequence[Value]) -> None:
        """Append items to a list, in the style that it is written in."""
        listed = self.value(index, path)
        if not isinstance(listed, yaml.SequenceNode):
            raise CannotEditError("has no list there")
        if listed.flow_style:
            texts = ", ".join(map(flow, items))
            is_empty = not listed.value
            at = _start(listed) + 1 if is_empty else self._own_end(listed)
            at = self.text.index("[", _start(listed)) + 1 if is_empty else at
            self._insert(at, texts if is_empty else f", {texts}")
            return
        indent = " " * listed.start_mark.column
        text = "".join(f"\n{indent}- {flow(item)}" for item in items)
        self._insert(self._line_end(self._leaf_end(listed.value[-1], listed)), text)

    def replace(self, index: int, path: Sequence[str], value: Value) -> None:
        """Put a value in place of a scalar."""
        old = self.value(index, path)
        if not isinstance(old, yaml.ScalarNode):
            raise CannotEditError("has no single value there")
        if is_template(old.value):
            raise CannotEditError(f"has a template as '{path[-1]}'")
        start, end = _start(old), _end(old)
        self.text = self.text[:start] + flow(value) + self.text[end:]

    def remove(self, index: int, path: Sequence[str], names: frozenset[str]) -> None:
        """Remove scalars from a list, with their lines where each has its own.

        Raises:
            CannotEditError: One is not written there, or no item would be left.
        """
        for name in sorted(names):
            value = self.value(index, path)
            listed = value.value if value is not None else []
            places = [
                place
                for place, item in enumerate(listed)
                if isinstance(item, yaml.ScalarNode) and item.value == name
            ]
            is_listed = len(places) == 1 and len(listed) > 1
            if not isinstance(value, yaml.SequenceNode) or not is_listed:
                raise CannotEditError(f"does not list '{name}' once, beside others")
            self._remove_item(value, places[0])

    def _remove_item(self, listed: yaml.CollectionNode, place: int) -> None:
        item = listed.value[place]
        if (
            _start(item) < _start(listed)
            or "&" in self.text[self._before(listed, place) : _start(item)]
        ):
            raise CannotEditError(f"has an anchor or an alias as '{item.value}'")
        if not listed.flow_style:
            start = self.text.rindex("\n", 0, _start(item))
            self.text = self.text[:start] + self.text[self._line_end(_end(item)) :]
        elif place:
            self.text = self.text[: _end(listed.value[place - 1])] + self.text[_end(item) :]
        else:
            self.text = self.text[: _start(item)] + self.text[_start(listed.value[1]) :]

    def _before(self, listed: yaml.Node, place: int) -> int:
        return _end(listed.value[place - 1]) if place else _start(listed)

    def _own_end(self, listed: yaml.Node) -> int:
        """Return where the last item of a flow list ends, also if that is an alias."""
        last = listed.value[-1]
        before = listed if len(listed.value) == 1 else listed.value[-2]
        if _start(last) > max(_start(before), _start(listed)):
            return _end(last)
        raise CannotEditError("has an alias at the end of the list")

    def _leaf_end(self, node: yaml.Node, before: yaml.Node) -> int:
        """Return where the last token of a value ends: blocks end before what comes next."""
        if _start(node) < _start(before):
            # An alias, which ends its line.
            return self._line_end(_end(before))
        if isinstance(node, yaml.ScalarNode):
            text = self.text[_start(node) : _end(node)]
            if self._is_kept(node):
                # All but the end of its last line is content.
                return _start(node) + len(text.rstrip(" ").removesuffix("\n").removesuffix("\r"))
            return _start(node) + len(text.rstrip() if node.style in ("|", ">") else text)
        assert isinstance(node, yaml.CollectionNode)
        if node.flow_style or not node.value:
            return _end(node)
        if isinstance(node, yaml.MappingNode):
            return max(
                self._leaf_end(node.value[-1][1], node.value[-1][0]), _end(node.value[-1][0])
            )
        return self._leaf_end(node.value[-1], node)

    def _is_kept(self, node: yaml.Node) -> bool:
        """Whether a node is a block of text with all the empty lines at its end."""
        is_block = isinstance(node, yaml.ScalarNode) and node.style in ("|", ">")
        return is_block and _KEPT.match(self.text, _start(node)) is not None

    def _gap(self, node: yaml.Node) -> str:
        """Return an empty line to write behind a node, nothing where that would be part of it."""
        while isinstance(node, yaml.CollectionNode) and node.value:
            node = node.value[-1][1] if isinstance(node, yaml.MappingNode) else node.value[-1]
        return "" if self._is_kept(node) else "\n"

    def _insert_line(self, after: int, indent: str, key: str, value: Value) -> None:
        text = f"\n{indent}{key}: {flow(value)}"
        if isinstance(value, Sequence) and not isinstance(value, str):
            items = "".join(f"\n{indent}  - {flow(item)}" for item in value)
            text = f"\n{indent}{key}:{items}"
        self._insert(self._line_end(after), text)

    def _line_end(self, position: int) -> int:
        end = self.text.find("\n", position)
        end = len(self.text) if end < 0 else end
        return end - 1 if self.text[end - 1 : end] == "\r" else end

    def _insert(self, position: int, text: str) -> None:
        if "\r\n" in self.text:
            text = text.replace("\n", "\r\n")
        self.text = self.text[:position] + text + self.text[position:]


# The head of a block of text that keeps the empty lines at its end.
_KEPT = re.compile(r"[^\n#]*?[|>]\d?\+")
# What has a meaning in a flow list or mapping, or ends a line.
_INDICATORS = re.compile(r"[,\[\]{}\n]")


def _item(entries: Sequence[tuple[str, str]], indent: str) -> str:
    """Return a mapping as an item of a block list, each key in a line of its own."""
    lines = [f"{key}: {text}" for key, text in entries]
    return f"\n{indent}- " + f"\n{indent}  ".join(lines)


def value_of(mapping: yaml.MappingNode, key: str) -> yaml.Node | None:
    """Return the value of a key that is written in a mapping, None where it has none."""
    entries: list[tuple[yaml.Node, yaml.Node]] = mapping.value
    named = (v for name, v in entries if isinstance(name, yaml.ScalarNode) and name.value == key)
    return next(named, None)


def _start(node: yaml.Node) -> int:
    return int(node.start_mark.index)


def _end(node: yaml.Node) -> int:
    return int(node.end_mark.index)
