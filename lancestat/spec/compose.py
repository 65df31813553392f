"""The values of YAML scalars, and the node graph of a document.

The rules are those of the core schema of YAML 1.2 (https://yaml.org/spec/1.2.2/#103-core-schema):
`yes`, `on`, `1_000`, `12:30` and `2024-01-01` are text. Numbers that are not finite are refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
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

from lancestat.errors import InvalidSyntax, Location, SpecError, TooComplex, did_you_mean
from lancestat.spec.quoting import quoted
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
