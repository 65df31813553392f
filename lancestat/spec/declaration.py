"""Declares the keys of a YAML resource: once, on the class that holds their values.

A resource is a class under `@resource`, with a `Resource` as its `declares`. A field that the YAML
sets is made by `key` and holds a `Key`. From these declarations come the JSON Schema (`schema`),
the values with their defaults (`build`), the digest (`digest`), what others may see (`redaction`),
what a diff compares (`lancestat.review.values`) and docs/reference/yaml.md (`reference`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from datetime import timedelta
from enum import Enum
from functools import cache
from typing import Any, ClassVar, Protocol, TypeVar

from typing_extensions import dataclass_transform

from lancestat.formats import StringEnum


class Risk(StringEnum):
    """The risks of a change for reviewers; the spelling is a contract."""

    STALENESS_LOOSENED = "staleness_loosened"
    STALENESS_TIGHTENED = "staleness_tightened"
    COVERAGE_LOST = "coverage_lost"
    PUBLISH_CHANGED = "publish_changed"
    DATASET_MOVED = "dataset_moved"
    OUTPUT_MOVED = "output_moved"
    JOIN_MEANING_CHANGED = "join_meaning_changed"
    COST_INCREASED = "cost_increased"
    EFFECT_UNKNOWN = "effect_unknown"
    VALUES_SHOWN = "values_shown"


class Role(Enum):
    """The role of a key in digests, which decide whether a node was modified, and in diffs."""

    MEANING = "part of every digest and every diff"
    OPTION = (
        "part of a digest only where it is not the default, so that older digests stay the same"
    )
    CHECK = "part of a diff only: no run depends on it"
    REMARK = "part of a diff only, after all else: it is for people"
    LABEL = "part of neither: a name, or a remark on a part that nodes share"


MEANING, CHECK, REMARK, LABEL = Role.MEANING, Role.CHECK, Role.REMARK, Role.LABEL


T = TypeVar("T")


@dataclass_transform(
    eq_default=False, frozen_default=True, kw_only_default=True, field_specifiers=(field,)
)
def shape(kind: type[T]) -> type[T]:
    """Make a class of values that describe a key a dataclass, which is frozen for mypy alone.

    Every command makes these classes when it starts; a whole dataclass would take three times as
    long.
    """
    return dataclass(eq=False, repr=False, slots=True, kw_only=True)(kind)


@shape
class Shape:
    """The values that a key takes.

    `title` completes the sentence "'key' must be ...". Keys with one shape share a `definition`
    under `$defs`, which has its `description`. `keywords` are JSON Schema's about plain values;
    `read` returns what one stands for, or raises a ValueError that completes "'key' ...".
    """

    title: str = ""
    description: str | None = None
    definition: str | None = None
    keywords: Mapping[str, Any] = field(default_factory=dict)
    read: Callable[[Any], Any] | None = None


@shape
class Text(Shape):
    """A text. An `is_public` text is never hidden, an `is_secret` one never shown."""

    is_public: bool = False
    is_secret: bool = False


class PathOrUri(Text):
    """A path or URI; a relative path starts at the project's folder."""


class Pattern(Text):
    """A column name or a pattern of column names."""


@shape
class Listed(Shape):
    """A list: a tuple, or a frozenset where the order means nothing."""

    items: Shape
    is_filled: bool = False
    is_unique: bool = False
    is_ordered: bool = True


@shape
class Settings(Shape):
    """A mapping of free names to scalars, which is kept as text and may be secret."""

    values: Shape


@shape
class Nested(Shape):
    """A mapping with the keys of a resource."""

    resource: type[Declared]
    is_inline: bool = False


@shape
class ByName(Shape):
    """A mapping of names to resources."""

    names: Text
    items: Nested


@shape
class Either(Shape):
    """One of several shapes, which differ in their JSON type."""

    shapes: tuple[Shape, ...]


@shape
class Chosen(Shape):
    """Not a key: the last step of whichever of `paths` is there."""

    paths: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Key:
    """A key of a resource, at `path`, after the group's where it lies in one.

    `title` is used in place of the shape's. `is_required` holds whatever default the class has.
    `label` is what diffs and digests call it, if not by its path; diffs leave "" away. `warning`
    is the sentence about the `risk` of a change from one value to another, None where it has none;
    without it the review finds the risk by itself. `words` are how people read the value; a mapping
    is then one property. `unset` is what a diff shows in place of None. `canonical` gives what
    digests have of a value, where values that differ mean the same.
    """

    path: tuple[str, ...]
    shape: Shape
    about: str | None
    title: str | None = None
    role: Role = Role.OPTION
    is_required: bool = False
    label: str | None = None
    risk: Risk | None = None
    warning: Callable[[Any, Any], str | None] | None = None
    words: Callable[[Any], str] | None = None
    unset: str | None = None
    canonical: Callable[[Any], Any] | None = None

    @property
    def name(self) -> str:
        """The path with dots, as origins of values are kept."""
        return ".".join(self.path)

    @property
    def diff_label(self) -> str:
        return self.name if self.label is None else self.label


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Resource:
    """The constraints on a mapping as a whole, or on a group of keys in it.

    `title` completes the sentence "... must be ...", `noun` is what messages call one, `definition`
    its name under `$defs` of the schema. Of the keys `one_of` exactly one is to be there, and with
    a key those that it `needs`. `groups` are mappings inside, which the class has no objects of.
    """

    title: str
    about: str | None = None
    noun: str = ""
    definition: str | None = None
    is_filled: bool = False
    is_required: bool = False
    one_of: tuple[str, ...] = ()
    needs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    groups: Mapping[str, Resource] = field(default_factory=dict)


class Declared(Protocol):
    """A dataclass that is a resource."""

    __dataclass_fields__: ClassVar[dict[str, Any]]
    declares: ClassVar[Resource]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class KeyField:
    """A field of a resource and the keys that set it, of which a mapping has one at most."""

    name: str
    keys: tuple[Key, ...]
    default: Any = MISSING

    @property
    def first(self) -> Key:
        """The key that has the field's role."""
        return self.keys[0]

    @property
    def spelled(self) -> tuple[Key, ...]:
        return tuple(key for key in self.keys if not isinstance(key.shape, Chosen))

    @property
    def is_required(self) -> bool:
        return self.default is MISSING or self.first.is_required


def key(
    shape: Shape,
    about: str | None = None,
    *path: str,
    default: Any = MISSING,
    default_factory: Any = MISSING,
    kw_only: Any = MISSING,
    repr: bool = True,
    **attributes: Any,
) -> Any:
    """Return a field that one key sets, by default the key of the field's name."""
    spelling = Key(path, shape, about, **attributes)
    return keys(
        spelling, default=default, default_factory=default_factory, kw_only=kw_only, repr=repr
    )


def row_key(shape: Shape, about: str, *path: str, **options: Any) -> Any:
    """Return a field as `key` does, with a key that decides which rows a join returns."""
    return key(shape, about, *path, role=MEANING, risk=Risk.JOIN_MEANING_CHANGED, **options)


def keys(*spellings: Key, **options: Any) -> Any:
    """Return a field that any one of several keys sets; `options` are `dataclasses.field`'s."""
    return field(metadata={"keys": spellings}, **options)


@dataclass_transform(frozen_default=True, field_specifiers=(field, key, row_key, keys))
def resource(kind: type[T]) -> type[T]:
    """Make a class a frozen dataclass whose fields may be declared by `key` and `keys`."""
    return dataclass(frozen=True, slots=True)(kind)


@cache
def key_fields(resource: type[Declared]) -> tuple[KeyField, ...]:
    """Return the fields that keys set, in the order in which the YAML has them."""
    declared: list[KeyField] = []
    for each in fields(resource):
        make = each.default_factory
        default = each.default if make is MISSING else make()
        keys = (
            key if key.path else replace(key, path=(each.name,))
            for key in each.metadata.get("keys", ())
        )
        declared.append(KeyField(each.name, tuple(keys), default))
    return tuple(field for field in declared if field.keys)


def same_key(resource: type[Declared], name: str) -> Any:
    """Return a field with the keys and the default that another resource has for it."""
    [declared] = [declared for declared in key_fields(resource) if declared.name == name]
    return keys(*declared.keys, default_factory=lambda: declared.default)


def default_of(resource: type[Declared], name: str) -> Any:
    return next(field.default for field in key_fields(resource) if field.name == name)


START = r"^[^\u0000-/:-@\[-^`{-\u00a9]"
_NAME_LETTERS = r"[^\u0000-,./:-@\[-^`{-\u00a9]*$(?!\n)"

TEXT = Text(title="text", definition="text")
FILLED = Text(title="text that is not empty", definition="filled", keywords={"minLength": 1})
FILLED_PATH = PathOrUri(title=FILLED.title, definition="filled", keywords=FILLED.keywords)
PUBLIC = replace(FILLED, is_public=True)
NAME = Text(
    title="a name of letters, digits, '_' and '-', starting with a letter, a digit or '_'",
    definition="name",
    keywords={
        "minLength": 1,
        "maxLength": 128,
        "pattern": START + _NAME_LETTERS,
        "format": "lancestat-name",
    },
)
TAGS = Listed(
    title="a list of tags",
    description="Tags to select it by, with `--select tag:x`.",
    definition="tags",
    items=Text(
        title="a tag of letters, digits, '_', '-', '.', ':', '/' and '@', starting with a letter, "
        "a digit or '_'",
        keywords={
            "pattern": START + r"[^\u0000-,;-?\[-^`{-\u00a9]*$(?!\n)",
            "format": "lancestat-tag",
        },
    ),
    is_unique=True,
)
PATTERNS = Listed(
    title="a list of column names and patterns",
    description="Names, or patterns with * and ?. They are case-sensitive.",
    definition="patterns",
    items=Pattern(title="a column name or a pattern with * and ?", definition="pattern"),
)
FILLED_PATTERNS = replace(PATTERNS, definition="filled_patterns", is_filled=True)


def words(choices: type[Enum] | tuple[str, ...], title: str) -> Shape:
    """Return the shape of one of some words: the values of an enum, or plain texts."""
    if isinstance(choices, tuple):
        return Shape(title=title, keywords={"type": "string", "enum": [*choices]})
    values = [choice.value for choice in choices]
    return Shape(title=title, keywords={"type": "string", "enum": values}, read=choices)


def number(title: str, **keywords: float) -> Shape:
    return Shape(title=title, keywords={"type": "number", **keywords})


def whole_number(title: str, **keywords: int) -> Shape:
    return Shape(title=title, keywords={"type": "integer", **keywords}, read=int)


def span(text: str) -> timedelta:
    """Return the span of time that a text such as `24h` names."""
    seconds = {"s": 1, "m": 60, "h": 3600, "d": 86400}[text[-1]]
    read = timedelta(seconds=int(text[:-1]) * seconds)
    if read > _LONGEST:
        raise ValueError(f"must be at most {_LONGEST.days} days")
    return read


_LONGEST = timedelta(days=36500)


def _bytes(value: str | int) -> int:
    if isinstance(value, int | float):
        return int(value)
    digits = value.rstrip("BkMGT")
    unit = value.removeprefix(digits)
    return int(digits) * {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}[unit]


def _share(value: str | float) -> float:
    return float(value.removesuffix("%")) / 100 if isinstance(value, str) else float(value)


TYPES = Listed(
    title="a list of column types",
    description="Only columns of these types.",
    definition="types",
    items=words(
        (
            "integer",
            "float",
            "decimal",
            "string",
            "binary",
            "boolean",
            "date",
            "timestamp",
            "timestamp_ntz",
            "time",
        ),
        "a column type",
    ),
    is_filled=True,
    is_unique=True,
    is_ordered=False,
)
FLAG = Shape(title="true or false", keywords={"type": "boolean"})
SHARE = Shape(
    title="a percentage such as 5%, or a share from 0 to 1",
    keywords={
        "type": ["number", "string"],
        "minimum": 0,
        "maximum": 1,
        "pattern": r"^(100(\.0{1,9})?|[0-9]{1,2}(\.[0-9]{1,9})?)%$(?!\n)",
    },
    read=_share,
)
DURATION = Shape(
    title="a duration such as 90s, 30m, 24h or 7d",
    definition="duration",
    keywords={"type": "string", "pattern": r"^[0-9]{1,9}[smhd]$(?!\n)"},
    read=span,
)
SIZE = Shape(
    title="a size such as 500kB, 16 MB or 2GB, or a number of bytes",
    keywords={
        "type": ["integer", "string"],
        "minimum": 0,
        "pattern": r"^[0-9]{1,9} ?(B|kB|MB|GB|TB)$(?!\n)",
    },
    read=_bytes,
)
AT_LEAST_0 = whole_number("a whole number, 0 or more", minimum=0)
TO_100000 = whole_number("a whole number from 1 to 100000", minimum=1, maximum=100_000)
# Of a few neighbours, or all within a distance.
NEIGHBOURS = Either(
    title="a whole number from 1 to 100000, or 'all'",
    shapes=(TO_100000, Text(title="'all'", keywords={"pattern": r"^all$(?!\n)"}, is_public=True)),
)
# Of results: so many of the newest, or those of the last days.
KEPT = Either(
    title="a whole number from 1 to 100000, or a duration such as 24h or 7d",
    shapes=(TO_100000, DURATION),
)
SETTINGS = Settings(
    title="a mapping of options",
    values=Shape(
        title="text, a number, true or false",
        definition="setting",
        keywords={"type": ["string", "number", "boolean"]},
    ),
)
