"""YAML to plain values, with the location of every key and value."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, TypeVar

import yaml
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
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
T = TypeVar("T")


def plain_scalar(text: str) -> Scalar:
    """The value of an unquoted scalar; ValueError says what is wrong with a number."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMBER_STARTS:
        return text
    is_integer = _INTEGER.fullmatch(text) is not None
    if not is_integer and _FLOAT.fullmatch(text) is None and _NOT_FINITE.fullmatch(text) is None:
        return text
    if len(text) > _LONGEST_NUMBER:
        raise ValueError(f"a number of {len(text)} characters is too long")
    if is_integer:
        return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
    # YAML writes what is not finite with a dot, as in `-.inf`.
    value = float(text if _FLOAT.fullmatch(text) else "inf")
    if not math.isfinite(value):
        raise ValueError(f"'{text}' is not a finite number")
    return value


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


_TOO_DEEP = "exceeded maximum nesting depth"
MAX_DEPTH = 64
MAX_ALIASED_NODES = 100_000
_NODE_CHARACTERS = 100

_CORE_TAGS = "tag:yaml.org,2002:"


def short_tag(tag: str) -> str:
    """A tag as people write it: `!!str` for `tag:yaml.org,2002:str`."""
    return "!!" + tag.removeprefix(_CORE_TAGS) if tag.startswith(_CORE_TAGS) else tag


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

    `numbers` holds the text of numbers as written, so that `1.10` differs from `1.1`. `errors`
    leave the rest of the file readable: what is in `unread` is None.
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
    """The one YAML document in `content`, without errors."""
    document = parse_document(content, file)
    if document.errors:
        raise InvalidProject(document.errors)
    return document


def parse_document(content: bytes, file: str) -> Document:
    """The one YAML document in `content`, and what is wrong with parts of it."""
    values = _Values(file)
    try:
        value = _Reader(file, _decode(content, file)).read(values)
    except SpecError as error:
        raise InvalidProject([error]) from None
    errors = tuple(values.errors[key] for key in sorted(values.errors))
    return Document(
        file, value, values.marks, values.key_marks, values.numbers, errors, values.unread
    )


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


class _Values:
    """What is known of the values in a part of a document, besides the values."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.marks: dict[KeyPath, Mark] = {}
        self.key_marks: dict[KeyPath, Mark] = {}
        self.numbers: dict[KeyPath, str] = {}
        # By location and message, because an alias repeats what is wrong with its anchor.
        self.errors: dict[tuple[Mark, str], SpecError] = {}
        self.unread: dict[KeyPath, SpecError] = {}

    def report(
        self, mark: Mark, kind: type[SpecError], message: str, hint: str | None = None
    ) -> SpecError:
        location = Location(self.file, mark[0] + 1, mark[1] + 1)
        error = kind(message, location=location, hint=hint)
        self.errors[mark, message] = error
        return error

    def report_tag(self, event: Any) -> SpecError:
        message = f"unknown tag {quoted(short_tag(event.tag or ''))}"
        return self.report(_mark(event), InvalidSyntax, message, "remove the tag")

    def scalar(self, event: ScalarEvent, path: KeyPath) -> Scalar:
        text: str = event.value
        try:
            if event.tag is not None:
                value = tagged_scalar(short_tag(event.tag), text)
            else:
                value = plain_scalar(text) if _is_plain(event) else text
        except ValueError as error:
            self.unread[path] = self.report(_mark(event), WrongValue, str(error))
            return None
        except LookupError:
            self.unread[path] = self.report_tag(event)
            return None
        if type(value) is int or type(value) is float:
            self.numbers[path] = text
        return value

    def merge(self, other: _Values, prefix: KeyPath, path: KeyPath, new: Collection[str]) -> None:
        """Take what is known of some keys of the mapping at `prefix`, as of those at `path`."""
        depth = len(prefix)
        for own, merged in (
            (self.marks, other.marks),
            (self.key_marks, other.key_marks),
            (self.numbers, other.numbers),
            (self.unread, other.unread),
        ):
            known: Any = own
            for found, entry in merged.items():
                if len(found) > depth and found[:depth] == prefix and found[depth] in new:
                    at = (*path, *found[depth:])
                    known[at] = entry


class _Reader:
    """Reads the one document that a text holds from its events; SpecError where it cannot.

    An alias reads the events of its anchor again, as copies. Merge keys are merged, and of a key
    that is written twice the first is taken.
    """

    def __init__(self, file: str, text: str) -> None:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        self.file, self.text = file, text
        self.source: Iterator[Event] = yaml.parse(text, Loader=loader)
        self.events: list[Event] = []
        self.position = 0
        # The positions of anchors, and by position of an alias, that of its anchor at the time.
        self.anchors: dict[str, int] = {}
        self.targets: dict[int, int | None] = {}
        # Where the collections around start, and the keys whose values are read in them.
        self.opened: list[tuple[int, Mark]] = []
        self.keys: list[str | None] = []
        # The outermost alias that is read, and how many values aliases have repeated.
        self.alias: Mark | None = None
        self.aliased = 0

    def read(self, values: _Values) -> object:
        try:
            return self._document(values)
        except yaml.MarkedYAMLError as error:
            opened = self.opened[-1][1] if self.opened else None
            mark, message, hint = explain(error, self.text, opened)
            if _TOO_DEEP in message:
                # The parser's own limit, of libyaml since 0.2.6, is met before any event is
                # yielded.
                self._check_depth(mark, MAX_DEPTH + 1)
            self._fail(mark, InvalidSyntax, message, hint)
        except yaml.YAMLError as error:
            self._fail((0, 0), InvalidSyntax, f"not YAML: {error}")

    def _document(self, values: _Values) -> object:
        self._next()
        is_empty = isinstance(self._next(), StreamEndEvent)
        if not is_empty:
            root = self._peek()
            is_empty = isinstance(root, ScalarEvent) and root.value == "" and _is_plain(root)
            is_empty = is_empty and root.tag is None
            value = self._value((), values)
            self._next()
            event = self._next()
            if isinstance(event, DocumentStartEvent):
                message = "a second YAML document starts here"
                hint = "a file holds one document; remove '---' or split the file"
                self._fail(_mark(event), InvalidSyntax, message, hint)
        if is_empty:
            self._fail((0, 0), UnreadableFile, "the file is empty")
        return value

    def _peek(self) -> Any:
        if self.position == len(self.events):
            self.events.append(next(self.source))
        return self.events[self.position]

    def _next(self) -> Any:
        event = self._peek()
        self.position += 1
        return event

    def _value(self, path: KeyPath, values: _Values) -> object:
        start, event = self.position, self._next()
        if isinstance(event, AliasEvent):
            return self._aliased(event, lambda: self._value(path, values))
        self._enter(event, start)
        values.marks[path] = _mark(event)
        if isinstance(event, ScalarEvent):
            return values.scalar(event, path)
        is_list = isinstance(event, SequenceStartEvent)
        is_read = event.tag in (None, "!", _COLLECTION_TAGS[not is_list])
        if not is_read:
            values.unread[path] = values.report_tag(event)
            values = _Values(self.file)
        value: object = self._list(path, values) if is_list else self._mapping(path, values)
        return value if is_read else None

    def _enter(self, event: NodeEvent, start: int) -> None:
        """Count a node, remember its anchor, and what is opened by it."""
        if event.anchor is not None and self.alias is None:
            self.anchors[event.anchor] = start
        text = event.value if isinstance(event, ScalarEvent) else None
        if self.alias is not None:
            self.aliased += 1 + len(text or "") // _NODE_CHARACTERS
            if self.aliased > MAX_ALIASED_NODES:
                message = f"aliases unfold to more than {MAX_ALIASED_NODES:,} values"
                self._fail(self.alias, TooComplex, message)
        if text is None:
            self.opened.append((start, _mark(event)))
            self.keys.append(None)
            self._check_depth(self.alias or _mark(event), len(self.opened))

    def _leave(self) -> None:
        self._next()
        self.opened.pop()
        self.keys.pop()

    def _aliased(self, event: AliasEvent, read: Callable[[], T]) -> T:
        """Return what `read` makes of the events of an alias's anchor."""
        mark, name, back, outer = _mark(event), event.anchor or "", self.position, self.alias
        target = self.targets.setdefault(back, self.anchors.get(name))
        if target is None:
            is_merge = self.keys[-1:] == ["<<"]
            hint = None if is_merge else f'put quotes around a pattern: "*{name}"'
            hint = did_you_mean(name, self.anchors) or hint
            self._fail(mark, InvalidSyntax, f"alias '*{name}' names no anchor", hint)
        if any(start == target for start, _ in self.opened):
            self._fail(mark, TooComplex, f"anchor '{name}' contains itself")
        self.position, self.alias = target, outer or mark
        result = read()
        self.position, self.alias = back, outer
        return result

    def _list(self, path: KeyPath, values: _Values) -> list[object]:
        items: list[object] = []
        while not isinstance(self._peek(), SequenceEndEvent):
            items.append(self._value((*path, len(items)), values))
        self._leave()
        return items

    def _mapping(self, path: KeyPath, values: _Values) -> dict[str, object]:
        mapping: dict[str, object] = {}
        written: dict[str, Mark] = {}
        merge: tuple[object, _Values] | None = None
        while not isinstance(self._peek(), MappingEndEvent):
            key = self._key()
            name: str = key.value
            if key.tag not in (None, "!") and short_tag(key.tag) != "!!str":
                values.report_tag(key)
            self.keys[-1] = name
            if name in written:
                first = Location(self.file, written[name][0] + 1, written[name][1] + 1)
                message = f"key {quoted(name)} is written twice, first at {first}"
                values.report(_mark(key), DuplicateKey, message)
                self._value(path, _Values(self.file))
            elif name == "<<" and _is_plain(key):
                known = _Values(self.file)
                merge = self._value(path, known), known
            else:
                inner = (*path, name)
                values.key_marks[inner] = _mark(key)
                mapping[name] = self._value(inner, values)
            written.setdefault(name, _mark(key))
            self.keys[-1] = None
        self._leave()
        if merge is not None:
            _merge(*merge, path, mapping, values)
        return mapping

    def _key(self) -> ScalarEvent:
        start, event = self.position, self._next()
        mark = _mark(event)
        if isinstance(event, AliasEvent):
            event = self._aliased(event, self._peek)
        if not isinstance(event, ScalarEvent):
            lines = lines_of(self.text)
            nearby = "".join(lines[max(mark[0] - 1, 0) : mark[0] + 1])
            if "{{" in nearby:
                hint = 'put quotes around a template: "{{ ... }}"'
                self._fail(mark, InvalidSyntax, "a template without quotes", hint)
            self._fail(mark, InvalidSyntax, "a key must be text, not a list or a mapping")
        self._enter(event, start)
        return event

    def _check_depth(self, mark: Mark, depth: int) -> None:
        if depth > MAX_DEPTH:
            self._fail(mark, TooComplex, f"nested more than {MAX_DEPTH} levels deep")

    def _fail(
        self, mark: Mark, kind: type[SpecError], message: str, hint: str | None = None
    ) -> NoReturn:
        raise kind(message, location=Location(self.file, mark[0] + 1, mark[1] + 1), hint=hint)


def _is_plain(event: ScalarEvent) -> bool:
    return event.style in (None, "")


def _merge(
    value: object, known: _Values, path: KeyPath, mapping: dict[str, object], values: _Values
) -> None:
    """Merge a mapping, or some in a list, into the one at `path`.

    What is written in the mapping wins over what is merged, an earlier source over a later.
    """
    listed = value if isinstance(value, list) else ()
    sources = [((*path, index), item) for index, item in enumerate(listed)] or [(path, value)]
    for prefix, source in sources:
        if not isinstance(source, dict):
            message = "'<<' merges mappings; this is not a mapping"
            error = values.report(known.marks[prefix], InvalidSyntax, message)
            values.unread[path] = error
            return
    values.errors.update(known.errors)
    for prefix, source in sources:
        assert isinstance(source, dict)
        new = source.keys() - mapping.keys()
        mapping.update({name: item for name, item in source.items() if name in new})
        values.merge(known, prefix, path, new)
