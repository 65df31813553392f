"""A digest of what a node means, however it is written."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import timedelta
from enum import Enum
from typing import Any

from lancestat.spec.declaration import Declared, Role, key_fields
from lancestat.spec.model import (
    ColumnPattern,
    ColumnRule,
    ColumnSelection,
    KnnSide,
    Node,
    Policy,
    StaleBounds,
)

DIGEST_VERSION = 1

Meaning = dict[str, Any]

_JSON_SCALARS = frozenset((str, int, float, bool, type(None)))


def node_digest(node: Node) -> str:
    """Return SHA-256, in hex, of what a run does for the node and what readers accept of it.

    Keys whose role is neither `MEANING` nor `OPTION` have no part in it, nor have formatting,
    locations, and whether a policy or a column set is inline or named. It is stable across runs and
    releases, as long as `DIGEST_VERSION` stays.
    """
    meaning = _meaning(node.declared or node)
    text = json.dumps([DIGEST_VERSION, node.kind.value, meaning], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _meaning(resource: Declared) -> Meaning:
    meaning: Meaning = {}
    for declared in key_fields(type(resource)):
        key, value = declared.first, getattr(resource, declared.name)
        if key.role is Role.OPTION and value != declared.default:
            meaning[key.label or key.name] = _json_value(value)
        elif key.role is Role.MEANING and key.path[0] in resource.declares.groups:
            # The keys of a group are a list, in their order.
            meaning.setdefault(key.path[0], []).append(_json_value(value))
        elif key.role is Role.MEANING:
            meaning[key.label or key.name] = _json_value(value)
    return meaning


def _json_value(value: Any) -> Any:
    if type(value) in _JSON_SCALARS:
        return value
    match value:
        case Enum():
            return value.value
        case timedelta():
            return value.total_seconds()
        case ColumnSelection():
            return _columns(value)
        case Policy() | StaleBounds() | KnnSide():
            return _meaning(value)
        case frozenset():
            return sorted(value)
        case Mapping():
            return dict(value)
        case tuple():
            return [_json_value(item) for item in value]
    return value


def _columns(selection: ColumnSelection) -> Meaning:
    return {
        "all": selection.all,
        "rules": sorted((_rule(rule) for rule in selection.rules), key=json.dumps),
        "exclude": _patterns(selection.exclude),
    }


def _rule(rule: ColumnRule) -> Meaning:
    return {
        "include": _patterns(rule.include),
        "exclude": _patterns(rule.exclude),
        "types": None if rule.types is None else sorted(rule.types),
    }


def _patterns(patterns: tuple[ColumnPattern, ...]) -> list[str]:
    return sorted({pattern.text for pattern in patterns})
