"""Declarations agree with the classes that hold them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from datetime import timedelta
from enum import Enum
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from lancestat.spec.declaration import (
    ByName,
    Bytes,
    Chosen,
    Declared,
    Duration,
    Either,
    Flag,
    Key,
    KeyField,
    Listed,
    Nested,
    Number,
    Pattern,
    Role,
    Settings,
    Shape,
    Share,
    Text,
    Words,
    key_fields,
)
from lancestat.spec.model import (
    ColumnPattern,
    ColumnSet,
    Freshness,
    KnnJoin,
    KnnSide,
    Policy,
    StaleBounds,
    Table,
    Target,
)
from lancestat.spec.table import ColumnChoice

RESOURCES: tuple[type[Declared], ...] = (
    Table,
    ColumnSet,
    ColumnChoice,
    Policy,
    StaleBounds,
    Freshness,
    KnnJoin,
    KnnSide,
    Target,
)
# What the YAML does not set by a key.
DERIVED = {
    "location",
    "template",
    "templates",
    "refs",
    "sql_location",
    "where_location",
    "on_location",
    "self_location",
    "declared",
    "package_location",
    "source",
    "origins",
    "scope",
}


def declarations() -> Iterator[tuple[type[Declared], KeyField, Key]]:
    for resource in RESOURCES:
        for declared in key_fields(resource):
            for key in declared.keys:
                yield resource, declared, key


def types_of(shape: Shape) -> set[Any]:
    """The types of the values that a shape is read to."""
    match shape:
        case Pattern():
            return {ColumnPattern}
        case Words(choices=type() as choices):
            return {choices}
        case Text() | Words() | Chosen():
            return {str}
        case Flag():
            return {bool}
        case Number(is_whole=True):
            return {int}
        case Number() | Share():
            return {float}
        case Duration():
            return {timedelta}
        case Bytes():
            return {int}
        case Listed():
            return {tuple if shape.is_ordered else frozenset}
        case Nested(resource=resource):
            return {resource}
        case Either(shapes=shapes):
            return set().union(*map(types_of, shapes))
    assert isinstance(shape, Settings | ByName)
    return {dict}


def annotated(resource: type[Declared], name: str) -> set[Any]:
    hint = get_type_hints(resource)[name]
    parts = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    kinds = {get_origin(part) or part for part in parts} - {type(None)}
    return {dict if "Mapping" in repr(part) else part for part in kinds}


@pytest.mark.parametrize(
    ("resource", "declared", "key"),
    [
        # The others are names of shared parts until they are looked up.
        declaration
        for declaration in declarations()
        if (declaration[0], declaration[1].name) not in ((Table, "columns"), (Table, "policy"))
    ],
    ids=lambda value: getattr(value, "__name__", None) or getattr(value, "name", ""),
)
def test_a_shape_is_that_of_its_field(
    resource: type[Declared], declared: KeyField, key: Key
) -> None:
    assert types_of(key.shape) == annotated(resource, declared.name)


@pytest.mark.parametrize("resource", RESOURCES)
def test_every_field_has_a_key_or_is_derived(resource: type[Any]) -> None:
    declared = {key.name for key in key_fields(resource)}
    others = {field.name for field in fields(resource)} - declared
    assert others - DERIVED <= ({"name"} if resource is Target else set())


def test_a_default_of_an_enum_is_one_of_its_values() -> None:
    for _, declared, key in declarations():
        if isinstance(declared.default, Enum):
            assert isinstance(key.shape, Words)
            assert declared.default.value in key.shape.words


def test_a_key_that_old_digests_do_not_have_is_an_option() -> None:
    """A part of every digest would change those of all nodes."""
    meanings = {
        (resource.__name__, key.name)
        for resource, _, key in declarations()
        if key.role is Role.MEANING and not isinstance(key.shape, Chosen)
    }
    table = {("Table", name) for name in ("uri", "table", "columns", "policy", "publish")}
    assert {meaning for meaning in meanings if meaning[0] == "Table"} == table
    assert len(meanings) == 31
