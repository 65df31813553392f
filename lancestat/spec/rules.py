"""The shipped JSON Schemas, compiled into rules that `check` interprets.

The schemas in `schemas/` are the only source. They are interpreted here and not by a general
validator, because a failed `anyOf` deserves one sentence that names what was expected, and because
commands that only read YAML should not wait for a validator to load. A schema with a keyword that
is not interpreted is refused when it is compiled.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from lancestat.spec import resources

Schema = Mapping[str, Any]

TYPES = frozenset(("string", "boolean", "integer", "number", "null", "array", "object"))
_INFINITY = float("inf")
_ANNOTATIONS = frozenset(("$schema", "$id", "$defs", "title", "description", "default"))


@dataclass(frozen=True, slots=True)
class Rule:
    """A compiled schema.

    `alternatives` (an `anyOf`) accept values of different types, so at most one applies to a value.
    `exactly_one` is a `oneOf` of single required keys. `length` and `bounds` include their ends.
    """

    title: str
    types: frozenset[str] = TYPES
    enum: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    length: tuple[float, float] = (0, _INFINITY)
    bounds: tuple[float, float] = (-_INFINITY, _INFINITY)
    above: float = -_INFINITY
    items: Rule | None = None
    min_items: int = 0
    unique: bool = False
    properties: Mapping[str, Rule] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    additional: Rule | bool = True
    names: Rule | None = None
    min_properties: int = 0
    exactly_one: tuple[str, ...] = ()
    needs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    alternatives: tuple[Rule, ...] = ()


@cache
def shipped_rule(schema_name: str) -> Rule:
    """The rule of a shipped schema, by file name."""
    root = resources.schema(schema_name)
    return compile_rule(root, root)


def compile_rule(schema: Schema, root: Schema) -> Rule:
    """Compile a schema whose references point into `root`; ValueError for an unknown keyword."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix("#/$defs/")
        siblings = {key: value for key, value in schema.items() if key != "$ref"}
        return compile_rule({**root["$defs"][name], **siblings}, root)
    fields: dict[str, Any] = {"title": schema.get("title", "")}
    for keyword in schema.keys() - _ANNOTATIONS:
        fields.update(_compile_keyword(keyword, schema, root))
    compiled = Rule(**fields)
    claimed = [kind for option in compiled.alternatives for kind in option.types]
    if len(claimed) != len(set(claimed)):
        raise ValueError(f"alternatives of '{compiled.title}' accept the same types")
    return compiled


def _compile_keyword(keyword: str, schema: Schema, root: Schema) -> dict[str, Any]:
    value = schema[keyword]
    match keyword:
        case "type":
            return {"types": frozenset([value] if isinstance(value, str) else value)}
        case "enum":
            return {"enum": tuple(value), "types": frozenset(("string",))}
        case "pattern":
            # In Python `$` also matches before a last line break; in JSON Schema it does not.
            return {"pattern": re.compile(re.sub(r"\$\Z", r"\\Z", value))}
        case "minLength" | "maxLength":
            return {"length": (schema.get("minLength", 0), schema.get("maxLength", _INFINITY))}
        case "minimum" | "maximum":
            return {"bounds": (schema.get("minimum", -_INFINITY), schema.get("maximum", _INFINITY))}
        case "exclusiveMinimum":
            return {"above": value}
        case "items":
            return {"items": compile_rule(value, root)}
        case "minItems":
            return {"min_items": value}
        case "uniqueItems":
            return {"unique": value}
        case _:
            return _compile_mapping_keyword(keyword, value, root)


def _compile_mapping_keyword(keyword: str, value: Any, root: Schema) -> dict[str, Any]:
    match keyword:
        case "properties":
            return {"properties": {key: compile_rule(item, root) for key, item in value.items()}}
        case "required":
            return {"required": tuple(value)}
        case "additionalProperties":
            return {"additional": value if isinstance(value, bool) else compile_rule(value, root)}
        case "propertyNames":
            return {"names": compile_rule(value, root)}
        case "minProperties":
            return {"min_properties": value}
        case "dependentRequired":
            return {"needs": {key: tuple(others) for key, others in value.items()}}
        case "oneOf":
            return {"exactly_one": tuple(key for option in value for key in option["required"])}
        case "anyOf":
            return {"alternatives": tuple(compile_rule(item, root) for item in value)}
        case _:
            raise ValueError(f"schema keyword '{keyword}' is not interpreted")
