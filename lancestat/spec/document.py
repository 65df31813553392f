"""YAML to plain values, with the location of every key and value."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NoReturn

import yaml
from yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    DocumentStartEvent,
    Event,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceStartEvent,
)

from lancestat.errors import (
    DuplicateKey,
    InvalidProject,
    InvalidSyntax,
    Location,
    SpecError,
    TooComplex,
    UnreadableFile,
    WrongValue,
    did_you_mean,
)
from lancestat.formats import quoted
from lancestat.spec.syntax import Mark, explain, lines_of

_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_NUMBER_STARTS = frozenset("+-.0123456789")
_LONGEST_NUMBER = 64

Scalar = str | int | float | bool | None


def plain_scalar(text: str) -> Scalar:
    """The value of an unquoted scalar; ValueError says what is wrong with a number."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMBER_STARTS:
        return text
    if _INTEGER.fullmatch(text):
        return _integer(text)
    if _FLOAT.fullmatch(text):
        return _finite(text)
    if _NOT_FINITE.fullmatch(text):
        raise ValueError(f"'{text}' is not a finite number")
    return text


def tagged_scalar(tag: str, text: str) -> Scalar:
    """The value of a scalar under one of the core schema's tags; LookupError for any other tag."""
    if tag in ("!", "!!str"):
        return text
    kinds: dict[str, type | tuple[type, ...]] = {
        "!!null": type(None),
        "!!bool": bool,
        "!!int": int,
        "!!float": (int, float),
    }
    kind = kinds[tag]
    value = plain_scalar(text)
    if not isinstance(value, kind) or (isinstance(value, bool) and tag != "!!bool"):
        raise ValueError(f"{quoted(text)} is not what its tag {tag} says")
    return float(value) if tag == "!!float" and value is not None else value


def _integer(text: str) -> int:
    _refuse_long(text)
    return int(text, 0) if text[:2] in ("0o", "0x") else int(text)


def _finite(text: str) -> float:
    _refuse_long(text)
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"'{text}' is not a finite number")
    return value


def _refuse_long(text: str) -> None:
    if len(text) > _LONGEST_NUMBER:
        raise ValueError(f"a number of {len(text)} characters is too long")


_TOO_DEEP = "exceeded maximum nesting depth"
MAX_DEPTH = 64
MAX_ALIASED_NODES = 100_000
_NODE_CHARACTERS = 100

_CORE_TAGS = "tag:yaml.org,2002:"


@dataclass(slots=True)
class YamlNode:
    """A scalar (`text`), a sequence (`items`) or a mapping (`pairs`) and where it starts.

    `size` counts the nodes here and below, a long text as several; `aliased` those of them that
    exist only because aliases repeat them; `height` the levels below.
    """

    mark: Mark
    tag: str | None
    text: str | None = None
    plain: bool = False
    items: list[YamlNode] | None = None
    pairs: list[tuple[YamlNode, YamlNode]] | None = None
    key: YamlNode | None = None
    closed: bool = True
    size: int = 1
    aliased: int = 0
    height: int = 0


@dataclass(slots=True)
class Composer:
    """Builds the graph of the one document that a text holds; SpecError where it cannot."""

    file: str
    text: str
    anchors: dict[str, YamlNode] = field(default_factory=dict)
    stack: list[YamlNode] = field(default_factory=list)
    root: YamlNode | None = None

    def compose(self) -> YamlNode | None:
        """The root node, or None when the text holds nothing but comments."""
        documents = 0
        try:
            for event in _events(self.text):
                if type(event) is DocumentStartEvent:
                    documents += 1
                    if documents == 2:
                        self._fail(
                            _mark(event),
                            InvalidSyntax,
                            "a second YAML document starts here",
                            "a file holds one document; remove '---' or split the file",
                        )
                self._accept(event)
        except yaml.MarkedYAMLError as error:
            self._fail_syntax(error)
        except yaml.YAMLError as error:
            self._fail((0, 0), InvalidSyntax, f"not YAML: {error}")
        return self.root

    def _accept(self, event: Event) -> None:
        if isinstance(event, ScalarEvent):
            plain = event.style in (None, "")
            size = 1 + len(event.value) // _NODE_CHARACTERS
            self._add(event, YamlNode(_mark(event), event.tag, event.value, plain, size=size))
        elif isinstance(event, MappingStartEvent):
            self._open(event, YamlNode(_mark(event), event.tag, pairs=[], closed=False))
        elif isinstance(event, SequenceStartEvent):
            self._open(event, YamlNode(_mark(event), event.tag, items=[], closed=False))
        elif isinstance(event, CollectionEndEvent):
            self._close()
        elif isinstance(event, AliasEvent):
            self._alias(event)

    def _open(self, event: NodeEvent, node: YamlNode) -> None:
        self._add(event, node)
        self.stack.append(node)
        self._check_depth(_mark(event), len(self.stack))

    def _close(self) -> None:
        node = self.stack.pop()
        node.closed = True
        if self.stack:
            self._count(self.stack[-1], node)

    def _add(self, event: NodeEvent, node: YamlNode) -> None:
        if event.anchor is not None:
            self.anchors[event.anchor] = node
        self._attach(node, _mark(event))
        if node.text is not None and self.stack:
            self._count(self.stack[-1], node)

    def _alias(self, event: AliasEvent) -> None:
        mark, name = _mark(event), event.anchor or ""
        target = self.anchors.get(name)
        if target is None:
            self._fail(
                mark,
                InvalidSyntax,
                f"alias '*{name}' names no anchor",
                did_you_mean(name, self.anchors) or self._pattern_hint(name),
            )
        if not target.closed:
            self._fail(mark, TooComplex, f"anchor '{name}' contains itself")
        self._check_depth(mark, len(self.stack) + target.height)
        self._attach(target, mark)
        if self.stack:
            parent = self.stack[-1]
            self._count(parent, target)
            parent.aliased += target.size - target.aliased
            if sum(node.aliased for node in self.stack) > MAX_ALIASED_NODES:
                self._fail(
                    mark,
                    TooComplex,
                    f"aliases unfold to more than {MAX_ALIASED_NODES:,} values",
                )

    def _attach(self, node: YamlNode, mark: Mark) -> None:
        if not self.stack:
            self.root = node
            return
        parent = self.stack[-1]
        if parent.items is not None:
            parent.items.append(node)
        elif parent.key is None:
            if node.text is None:
                hint = self._template_hint(mark[0])
                message = "a key must be text, not a list or a mapping"
                if hint is not None:
                    message = "a template without quotes"
                self._fail(mark, InvalidSyntax, message, hint)
            parent.key = node
        else:
            assert parent.pairs is not None
            parent.pairs.append((parent.key, node))
            parent.key = None

    @staticmethod
    def _count(parent: YamlNode, child: YamlNode) -> None:
        parent.size += child.size
        parent.aliased += child.aliased
        parent.height = max(parent.height, child.height + 1)

    def _check_depth(self, mark: Mark, depth: int) -> None:
        if depth > MAX_DEPTH:
            self._fail(mark, TooComplex, f"nested more than {MAX_DEPTH} levels deep")

    def _fail_syntax(self, error: yaml.MarkedYAMLError) -> NoReturn:
        opened = self.stack[-1].mark if self.stack else None
        mark, message, hint = explain(error, self.text, opened)
        if _TOO_DEEP in message:
            # The parser's own limit, of libyaml since 0.2.6, is met before any event is yielded.
            self._check_depth(mark, MAX_DEPTH + 1)
        self._fail(mark, InvalidSyntax, message, hint)

    def _pattern_hint(self, name: str) -> str | None:
        key = self.stack[-1].key if self.stack else None
        is_merge = key is not None and key.text == "<<"
        return None if is_merge else f'put quotes around a pattern: "*{name}"'

    def _line(self, number: int) -> str:
        lines = lines_of(self.text)
        return lines[number] if number < len(lines) else ""

    def _template_hint(self, number: int) -> str | None:
        nearby = self._line(number) + self._line(max(number - 1, 0))
        return 'put quotes around a template: "{{ ... }}"' if "{{" in nearby else None

    def _fail(
        self, mark: Mark, kind: type[SpecError], message: str, hint: str | None = None
    ) -> NoReturn:
        raise kind(message, location=Location(self.file, mark[0] + 1, mark[1] + 1), hint=hint)


def short_tag(tag: str) -> str:
    """A tag as people write it: `!!str` for `tag:yaml.org,2002:str`."""
    return "!!" + tag.removeprefix(_CORE_TAGS) if tag.startswith(_CORE_TAGS) else tag


def _events(text: str) -> Iterator[Event]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    events: Iterator[Event] = yaml.parse(text, Loader=loader)
    return events


def _mark(event: Event) -> Mark:
    mark = event.start_mark
    assert mark is not None
    return mark.line, mark.column


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
        # By location and message, because an alias repeats what is wrong with its anchor.
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
