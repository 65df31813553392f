"""YAML to plain values, with the place of every key and value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from lancestat.errors import (
    DuplicateKey,
    InvalidProject,
    InvalidSyntax,
    Location,
    SpecError,
    UnreadableFile,
    WrongValue,
)
from lancestat.spec.compose import (
    Composer,
    Scalar,
    YamlNode,
    plain_scalar,
    short_tag,
    tagged_scalar,
)
from lancestat.spec.quoting import quoted
from lancestat.spec.syntax import Mark

MAX_BYTES = 16 * 1024 * 1024

_COLLECTION_TAGS = ("tag:yaml.org,2002:seq", "tag:yaml.org,2002:map")

# Where a value is inside its document: keys of mappings and indexes of lists, from the root.
KeyPath = tuple[str | int, ...]

# The complement of YAML's printable characters, without the byte order mark: Python takes ten times
# as long to compile the set of the printable ones.
_NOT_PRINTABLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufeff\ufffe\uffff]"
)


@dataclass(frozen=True, slots=True)
class Document:
    """The plain values of one YAML file and where they were written.

    `value` is made of dict, list, str, int, float, bool and None. `numbers` holds the text of
    numbers as written, so that `1.10` differs from `1.1`. `errors` are those that leave the rest
    of the file readable: of a key that is written twice the first is taken, and what is in
    `unread` is None.
    """

    file: str
    value: object
    marks: Mapping[KeyPath, Mark] = field(repr=False)
    key_marks: Mapping[KeyPath, Mark] = field(repr=False)
    numbers: Mapping[KeyPath, str] = field(repr=False)
    errors: tuple[SpecError, ...] = ()
    unread: Mapping[KeyPath, SpecError] = field(default_factory=dict, repr=False)

    def at(self, path: KeyPath) -> Location:
        """Return where the value at `path` starts, or else the nearest thing around it."""
        return self._locate(self.marks, path)

    def key_at(self, path: KeyPath) -> Location:
        """Return where the key that leads to `path` starts; for an item of a list, the item."""
        if path in self.key_marks:
            return self._locate(self.key_marks, path)
        return self.at(path)

    def with_value(self, value: object) -> Document:
        """The same places for other values, such as rendered ones."""
        return replace(self, value=value)

    def _locate(self, marks: Mapping[KeyPath, Mark], path: KeyPath) -> Location:
        while path not in marks and path:
            path = path[:-1]
        line, column = marks.get(path, (0, 0))
        return Location(self.file, line + 1, column + 1)


def read_document(content: bytes, file: str) -> Document:
    """The one YAML document in `content`, without errors.

    Raises:
        InvalidProject: with every duplicate key, or the one reason why the text cannot be read.
    """
    document = parse_document(content, file)
    if document.errors:
        raise InvalidProject(document.errors)
    return document


def parse_document(content: bytes, file: str) -> Document:
    """The one YAML document in `content`, and what is wrong with parts of it.

    Raises:
        InvalidProject: with the one reason why the text cannot be read.
    """
    try:
        text = _decode(content, file)
        root = Composer(file, text).compose()
        if root is None or (root.text == "" and root.plain and root.tag is None):
            raise UnreadableFile("the file is empty", location=Location(file, 1, 1))
    except SpecError as error:
        raise InvalidProject([error]) from None
    unfolding = _Constructor(file)
    value = unfolding.value(root, ())
    errors = tuple(unfolding.errors[key] for key in sorted(unfolding.errors))
    marks, key_marks, numbers = unfolding.marks, unfolding.key_marks, unfolding.numbers
    return Document(file, value, marks, key_marks, numbers, errors, unfolding.unread)


def _decode(content: bytes, file: str) -> str:
    if len(content) > MAX_BYTES:
        raise UnreadableFile(
            f"the file has more than {MAX_BYTES:,} bytes, and no larger file is read",
            location=Location(file, 1, 1),
        )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        column = len(before.rpartition(b"\n")[2].decode("utf-8-sig", "replace")) + 1
        raise UnreadableFile(
            f"byte 0x{content[error.start]:02x} is not UTF-8",
            location=Location(file, before.count(b"\n") + 1, column),
            hint="save the file as UTF-8",
        ) from None
    strange = _NOT_PRINTABLE.search(text)
    if strange:
        before_text = text[: strange.start()]
        raise InvalidSyntax(
            f"character U+{ord(strange.group()):04X} is not allowed in YAML",
            location=Location(
                file, before_text.count("\n") + 1, len(before_text.rpartition("\n")[2]) + 1
            ),
        )
    return text


class _Constructor:
    """Plain values of a node graph: copies for aliases, merge keys merged, duplicates reported."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.marks: dict[KeyPath, Mark] = {}
        self.key_marks: dict[KeyPath, Mark] = {}
        self.numbers: dict[KeyPath, str] = {}
        # By place and message, because an alias repeats what is wrong with its anchor.
        self.errors: dict[tuple[Mark, str], SpecError] = {}
        self.unread: dict[KeyPath, SpecError] = {}

    def value(self, node: YamlNode, path: KeyPath) -> object:
        self.marks[path] = node.mark
        if node.text is not None:
            return self._scalar(node, path)
        if node.tag not in (None, "!", _COLLECTION_TAGS[node.items is None]):
            self.unread[path] = self._report_tag(node)
            return None
        if node.items is not None:
            return [self.value(item, (*path, index)) for index, item in enumerate(node.items)]
        return self._mapping(node, path)

    def _scalar(self, node: YamlNode, path: KeyPath) -> Scalar:
        assert node.text is not None
        try:
            value = _resolve(node.text, node.tag, node.plain)
        except ValueError as error:
            self.unread[path] = self._report(node.mark, WrongValue, str(error))
            return None
        except LookupError:
            self.unread[path] = self._report_tag(node)
            return None
        if type(value) is int or type(value) is float:
            self.numbers[path] = node.text
        return value

    def _mapping(self, node: YamlNode, path: KeyPath) -> dict[str, object]:
        assert node.pairs is not None
        mapping: dict[str, object] = {}
        written: dict[str, Mark] = {}
        merges: list[YamlNode] = []
        for key, child in node.pairs:
            name = self._key(key)
            if name in written:
                self._report_duplicate(name, key.mark, written[name])
                continue
            written[name] = key.mark
            if name == "<<" and key.plain:
                merges.extend(self._merged(child, path))
                continue
            child_path = (*path, name)
            self.key_marks[child_path] = key.mark
            mapping[name] = self.value(child, child_path)
        for merge in merges:
            self._merge(merge, path, mapping)
        return mapping

    def _merged(self, node: YamlNode, path: KeyPath) -> list[YamlNode]:
        sources = node.items if node.items is not None else [node]
        for source in sources:
            if source.pairs is None:
                message = "'<<' merges mappings; this is not a mapping"
                self.unread[path] = self._report(source.mark, InvalidSyntax, message)
                return []
        return sources

    def _merge(self, source: YamlNode, path: KeyPath, mapping: dict[str, object]) -> None:
        # What is written in the mapping wins over what is merged, an earlier source over a later.
        merged = _Constructor(self.file)
        values = merged._mapping(source, path)
        new = values.keys() - mapping.keys()
        mapping.update({name: value for name, value in values.items() if name in new})
        depth = len(path)
        for own, inherited in ((self.marks, merged.marks), (self.key_marks, merged.key_marks)):
            own.update({path: mark for path, mark in inherited.items() if path[depth] in new})
        self.numbers.update(
            {path: text for path, text in merged.numbers.items() if path[depth] in new}
        )
        self.errors.update(merged.errors)
        self.unread.update(
            {path: error for path, error in merged.unread.items() if path[depth] in new}
        )

    def _key(self, node: YamlNode) -> str:
        assert node.text is not None
        if node.tag not in (None, "!") and short_tag(node.tag or "") != "!!str":
            self._report_tag(node)
        return node.text

    def _report_tag(self, node: YamlNode) -> SpecError:
        tag = short_tag(node.tag or "")
        return self._report(
            node.mark, InvalidSyntax, f"unknown tag {quoted(tag)}", "remove the tag"
        )

    def _report_duplicate(self, name: str, mark: Mark, first: Mark) -> None:
        location = Location(self.file, first[0] + 1, first[1] + 1)
        self._report(
            mark, DuplicateKey, f"key {quoted(name)} is written twice, first at {location}"
        )

    def _report(
        self, mark: Mark, kind: type[SpecError], message: str, hint: str | None = None
    ) -> SpecError:
        location = Location(self.file, mark[0] + 1, mark[1] + 1)
        error = kind(message, location=location, hint=hint)
        self.errors[mark, message] = error
        return error


def _resolve(text: str, tag: str | None, plain: bool) -> Scalar:
    if tag is not None:
        return tagged_scalar(short_tag(tag), text)
    return plain_scalar(text) if plain else text
