"""The properties that a diff compares: the declared keys of a node, however they are written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum
from typing import Any

from lancestat.formats import age, count
from lancestat.redact import Origin
from lancestat.review.mask import Mask
from lancestat.review.values import Json, Property, PropertyChange, RiskNote
from lancestat.spec.declaration import (
    FLAG,
    ByName,
    Chosen,
    Declared,
    Key,
    KeyField,
    Role,
    Settings,
    key_fields,
)
from lancestat.spec.model import (
    ColumnPattern,
    ColumnRule,
    ColumnSelection,
    Freshness,
    KnnSide,
    Node,
    Policy,
    StaleBounds,
    Target,
)
from lancestat.spec.redaction import named

HIDDEN = "(hidden)"

Properties = Mapping[str, Property]
Origins = Mapping[str, Origin]


def node_properties(node: Node, origins: Origins, mask: Mask) -> dict[str, Property]:
    """Return all that a node declares and that is not left at nothing, by dotted key.

    Remarks come last.

    Args:
        node: A table or a join.
        origins: Of the node, by dotted key (`ProjectSpec.origins`): what came from the environment
            is shown as the template that names its variables.
        mask: Redacts what is shown.
    """
    stated = sorted(_stated(node), key=_remarks_last)
    return {
        entry.label: _masked(_hidden(entry, origins), mask)
        for entry in stated
        if entry.property.value not in (None, [])
    }


def target_properties(
    name: str, target: Target, origins: Origins, mask: Mask
) -> dict[str, Property]:
    """Return what a project and its target declare, with settings, which are hidden, at the end."""
    project = _Stated("name", ("name",), Property(name, name, name))
    stated = sorted((project, *_stated(target)), key=lambda entry: entry.property.is_hidden)
    return {
        entry.label: _masked(
            entry.property if entry.property.is_hidden else _hidden(entry, origins), mask
        )
        for entry in stated
        if entry.property.value is not None
    }


def without_flags(properties: Properties) -> dict[str, Property]:
    """Return properties less the switches that are as most nodes have them."""
    return {name: entry for name, entry in properties.items() if not _is_usual_flag(entry)}


def _is_usual_flag(entry: Property) -> bool:
    return entry.is_default and entry.key is not None and entry.key.shape is FLAG


def changes(old: Properties, new: Properties) -> tuple[PropertyChange, ...]:
    """The properties that differ, in the order in which nodes have them."""
    names = dict.fromkeys((*old, *new))
    return tuple(
        PropertyChange(name, old.get(name), new.get(name))
        for name in names
        if name not in old or name not in new or old[name].value != new[name].value
    )


def declared_risks(old: Declared, new: Declared) -> Iterator[RiskNote]:
    """Yield the risks of a changed node that its declaration words by itself (`Key.warning`)."""
    for declared in key_fields(type(new)):
        key = declared.first
        before, after = getattr(old, declared.name), getattr(new, declared.name)
        if key.risk is None or key.warning is None or before == after:
            continue
        sentence = key.warning(before, after)
        if sentence is not None:
            yield RiskNote(key.risk, sentence)


def selection_rules(selection: ColumnSelection) -> tuple[ColumnRule, ...]:
    """A selection as rules alone, in one form for all ways to write it.

    What a table excludes leaves each of its rules, so it may as well be part of them; and rules
    that differ in what they include only are one. So a column set means the same inline.
    """
    every = ColumnRule((ColumnPattern("*"),))
    merged: dict[tuple[frozenset[str], frozenset[str] | None], set[str]] = {}
    for rule in (every,) if selection.all else selection.rules:
        excluded = frozenset(pattern.text for pattern in (*rule.exclude, *selection.exclude))
        merged.setdefault((excluded, rule.types), set()).update(
            pattern.text for pattern in rule.include
        )
    return tuple(
        ColumnRule(_patterns(include), _patterns(exclude), types)
        for (exclude, types), include in sorted(merged.items(), key=_sort_key)
    )


def _sort_key(
    item: tuple[tuple[frozenset[str], frozenset[str] | None], set[str]],
) -> list[list[str]]:
    (exclude, types), include = item
    return [sorted(include), sorted(exclude), sorted(types or ())]


def _patterns(texts: frozenset[str] | set[str]) -> tuple[ColumnPattern, ...]:
    return tuple(ColumnPattern(text) for text in sorted(texts))


@dataclass(frozen=True, slots=True)
class _Stated:
    """A property, what diffs call it, and the dotted keys that may have given its value."""

    label: str
    names: tuple[str, ...]
    property: Property


def _remarks_last(entry: _Stated) -> tuple[bool, str]:
    is_remark = entry.property.key is not None and entry.property.key.role is Role.REMARK
    return is_remark, entry.label if is_remark else ""


def _stated(resource: Declared, prefix: str = "", path: str = "") -> Iterator[_Stated]:
    """Yield the properties of a resource.

    Args:
        resource: A node, a target, or a part of one.
        prefix: What the labels start with.
        path: What the dotted keys start with, which the labels need not repeat.
    """
    for declared in key_fields(type(resource)):
        if declared.first.role is Role.LABEL or not declared.spelled:
            continue
        key, value = _spelling(resource, declared), getattr(resource, declared.name)
        label = f"{prefix}{key.diff_label}"
        names = tuple(f"{path}{spelled.name}" for spelled in declared.spelled)
        if isinstance(key.shape, Settings):
            for name in sorted(value):
                hidden = Property(value[name], HIDDEN, None, True, key)
                yield _Stated(f"{label}.{name}", (f"{names[0]}.{name}",), hidden)
        elif isinstance(key.shape, ByName):
            for name in sorted(value):
                yield from _stated(value[name], f"{label}.{name}.", f"{names[0]}.{name}.")
        elif isinstance(value, Policy | KnnSide | Freshness):
            yield from _stated(value, f"{label}." if key.diff_label else prefix, f"{names[0]}.")
        else:
            entry = replace(_property(key, value), is_default=value is declared.default)
            yield _Stated(label, names, entry)


def _spelling(resource: Declared, declared: KeyField) -> Key:
    """Return the key that sets a field; of several, the one that another field names."""
    words = {
        getattr(resource, other.name)
        for other in key_fields(type(resource))
        if any(isinstance(key.shape, Chosen) for key in other.keys)
    }
    chosen = (key for key in declared.spelled if key.path[-1] in words)
    return next(chosen, declared.spelled[-1])


def _property(key: Key, value: Any) -> Property:
    json = key.unset if value is None else _json(value)
    if isinstance(json, list) and key.role is Role.REMARK:
        json = sorted({*json})
    text = _text(value, json) if key.words is None else key.words(value)
    return Property(json, text, json, key=key)


def _json(value: Any) -> Any:
    match value:
        case Enum():
            return value.value
        case timedelta():
            return value.total_seconds()
        case StaleBounds():
            return dict(_bounds(value))
        case ColumnSelection():
            return [_rule(rule) for rule in selection_rules(value)]
        case tuple():
            return [list(item) if isinstance(item, tuple) else item for item in value]
    return value


def _bounds(bounds: StaleBounds) -> Iterator[tuple[str, Json]]:
    for declared in key_fields(StaleBounds):
        value = getattr(bounds, declared.name)
        if value is not None:
            unit = "_seconds" if isinstance(value, timedelta) else ""
            yield f"{declared.name}{unit}", _json(value)


def _text(value: Any, json: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int():
            return count(value)
        case float():
            return f"{value:g}"
        case timedelta():
            return age(value)
        case ColumnSelection():
            return "; ".join(map(_rule_text, selection_rules(value)))
        case tuple():
            return ", ".join(json)
    return json or ""


def _rule(rule: ColumnRule) -> Json:
    return {
        "include": [pattern.text for pattern in rule.include],
        "exclude": [pattern.text for pattern in rule.exclude],
        "types": None if rule.types is None else list[Json](sorted(rule.types)),
    }


def _rule_text(rule: ColumnRule) -> str:
    included = ", ".join(pattern.text for pattern in rule.include)
    parts = ["all" if included == "*" else included]
    if rule.types is not None:
        parts.append(f"of type {' or '.join(sorted(rule.types))}")
    if rule.exclude:
        parts.append(f"but {', '.join(pattern.text for pattern in rule.exclude)}")
    return " ".join(parts)


def _hidden(entry: _Stated, origins: Origins) -> Property:
    template = named(origins, *entry.names)
    if template is None:
        return entry.property
    return replace(entry.property, text=template, json=template, is_hidden=True)


def _masked(entry: Property, mask: Mask) -> Property:
    return replace(entry, text=mask.text(entry.text), json=_masked_json(entry.json, mask))


def _masked_json(value: Json, mask: Mask) -> Json:
    if isinstance(value, str):
        return mask.text(value)
    if isinstance(value, list):
        return [_masked_json(item, mask) for item in value]
    if isinstance(value, dict):
        return {name: _masked_json(item, mask) for name, item in value.items()}
    return value
