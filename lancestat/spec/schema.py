"""The JSON Schemas of the YAML, from the declarations of its resources."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

from lancestat.spec.declaration import (
    ByName,
    Declared,
    Either,
    Key,
    KeyField,
    Listed,
    Nested,
    Resource,
    Settings,
    Shape,
    Text,
    key_fields,
)
from lancestat.spec.expectations import Expectation
from lancestat.spec.hooks import Hook
from lancestat.spec.model import RESOURCES, KnnSide, ProjectFile, SpecFile, Target
from lancestat.spec.monitors import Monitor

PROJECT_SCHEMA = "lancestat_project.schema.json"
SPECS_SCHEMA = "lancestat_specs.schema.json"

Schema = dict[str, Any]

_HEAD = frozenset(("type", "title", "description"))

_RESOURCES: Mapping[str, type[Declared]] = {PROJECT_SCHEMA: ProjectFile, SPECS_SCHEMA: SpecFile}


@cache
def schema(name: str) -> Mapping[str, Any]:
    """Return a JSON Schema by the name of its file."""
    writer = _Writer()
    whole = writer.mapping(_RESOURCES[name])
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": name}
    return {**head, **whole, "$defs": writer.definitions}


@cache
def keywords() -> frozenset[str]:
    """Return the words that the schemas list as values, which everybody may see."""
    return frozenset(_listed([schema(name) for name in _RESOURCES]))


def _listed(part: object) -> Iterable[str]:
    if isinstance(part, Mapping):
        yield from (word for word in part.get("enum", ()) if isinstance(word, str))
        part = tuple(part.values())
    if isinstance(part, list | tuple):
        for inside in part:
            yield from _listed(inside)


def schema_default(declared: KeyField) -> Any:
    """Return a default as the YAML spells it, None where there is none or nothing."""
    default = declared.default
    if isinstance(default, Enum):
        return default.value
    if isinstance(default, tuple) and default:
        return list(default)
    return default if isinstance(default, bool | int | float | str) else None


@dataclass(slots=True)
class _Writer:
    """Writes one schema, with the definitions that its parts share."""

    definitions: dict[str, Schema] = field(default_factory=dict)

    def mapping(self, resource: type[Declared], *, is_inline: bool = False) -> Schema:
        declares = resource.declares
        if is_inline:
            declares = replace(declares, is_filled=True)
        properties: dict[str, Schema] = {}
        required: list[str] = []
        for declared in key_fields(resource):
            for key in declared.spelled:
                name = key.path[0]
                if is_inline and name == "name":
                    continue
                group = declares.groups.get(name)
                if group is not None and name not in properties:
                    properties[name] = _object(group, {}, [])
                    required += [name] if group.is_required else []
                # Of several keys one is enough: `Resource.one_of` says so.
                is_required = declared.is_required and len(declared.spelled) == 1
                if group is not None:
                    properties[name]["properties"][key.path[1]] = self._key(declared, key)
                    if is_required:
                        properties[name]["required"] = [key.path[1]]
                    continue
                properties[name] = self._key(declared, key)
                required += [name] if is_required else []
        return _object(declares, properties, required)

    def _key(self, declared: KeyField, key: Key) -> Schema:
        shape = key.shape
        about = {} if key.about is None else {"description": key.about}
        title = {} if key.title is None else {"title": key.title}
        part = {**self.shape(shape), **title, **about}
        default = schema_default(declared)
        return part if default is None else {**part, "default": default}

    def shape(self, shape: Shape) -> Schema:
        """Return the schema of a shape, a reference where it has a definition."""
        name = shape.definition
        if isinstance(shape, Nested) and not shape.is_inline:
            name = shape.resource.declares.definition
        if name is None:
            return self._written(shape)
        if name not in self.definitions:
            # Before what is inside: definitions come in the order in which they are met.
            self.definitions[name] = {}
            self.definitions[name] |= self._written(shape)
        return {"$ref": f"#/$defs/{name}"}

    def _written(self, shape: Shape) -> Schema:
        head = {"title": shape.title} if shape.title else {}
        if shape.description is not None:
            head["description"] = shape.description
        return {**head, **self._keywords(shape)}

    def _keywords(self, shape: Shape) -> Schema:
        match shape:
            case Text():
                return {"type": "string", **shape.keywords}
            case Listed():
                filled = {"minItems": 1} if shape.is_filled else {}
                unique = {"uniqueItems": True} if shape.is_unique else {}
                limits = {**filled, **unique, **shape.keywords}
                return {"type": "array", **limits, "items": self.shape(shape.items)}
            case Settings(values=values):
                return {"type": "object", "additionalProperties": self.shape(values)}
            case Nested(resource=resource):
                return self.mapping(resource, is_inline=shape.is_inline)
            case ByName(names=names, items=items):
                return {
                    "type": "object",
                    "minProperties": 1,
                    "propertyNames": self._written(names),
                    "additionalProperties": self.shape(items),
                }
            case Either(shapes=shapes):
                return self._either(shapes)
        return {**shape.keywords}

    def _either(self, shapes: Iterable[Shape]) -> Schema:
        parts = [self._keywords(shape) for shape in shapes]
        merged: Schema = {"type": [part["type"] for part in parts]}
        for part in parts:
            merged |= {name: value for name, value in part.items() if name not in _HEAD}
        if "oneOf" in merged:
            # The choice is one of keys, and `required` holds for whatever is no mapping.
            options = ({"type": "object", **option} for option in merged["oneOf"])
            merged["oneOf"] = [*options, {"not": {"type": "object"}}]
        return merged


def _object(declares: Resource, properties: dict[str, Schema], required: list[str]) -> Schema:
    part: Schema = {"title": declares.title} if declares.title else {}
    if declares.about is not None:
        part["description"] = declares.about
    part |= {"type": "object", "additionalProperties": False}
    if required:
        part["required"] = required
    if declares.is_filled:
        part["minProperties"] = 1
    part["properties"] = properties
    if declares.one_of:
        part["oneOf"] = [{"required": [name]} for name in declares.one_of]
    if declares.needs:
        part["dependentRequired"] = {name: list(needed) for name, needed in declares.needs.items()}
    return part


PROJECT_FILE = "lancestat_project.yml"


def json_text(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


KINDS = {
    "project": f"{PROJECT_FILE}: variables and targets",
    "specs": "a file of specs: any of the six below, in lists",
    **{str(kind.declares.definition): f"one of '{key}'" for key, kind in RESOURCES.items()},
}
"""What there are schemas of, and where each is written."""

SCHEMA_FOLDER = "schemas"
"""The folder of a project that keeps the schemas, so that a fresh clone has them."""

_TEMPLATE = r"\{[{%#]"
_FILES = {"project": PROJECT_SCHEMA, "specs": SPECS_SCHEMA}


def editor_schema(kind: str) -> dict[str, Any]:
    """The schema of one of `KINDS`, which accepts a template wherever one can stand."""
    file = _FILES.get(kind, SPECS_SCHEMA)
    opened = _opened(schema(file))
    if kind in _FILES:
        head = {"$schema": opened.pop("$schema"), "$id": opened.pop("$id")}
        about = "'lancestat schema --out' rewrites this file after an upgrade."
        return {**head, "$comment": about, **opened}
    part = opened["$defs"][kind]
    used: dict[str, Any] = {}
    _gather(part, opened["$defs"], used)
    return {"$schema": opened["$schema"], **part, "$defs": used}


def editor_schemas() -> dict[str, dict[str, Any]]:
    """The schemas of all kinds of file, by the name of the schema's own file."""
    return {file: editor_schema(kind) for kind, file in _FILES.items()}


def editor_settings() -> dict[str, dict[str, Any]]:
    """Visual Studio Code's files in a project's `.vscode`: which schema is whose."""
    schemas = {
        f"./{SCHEMA_FOLDER}/{PROJECT_SCHEMA}": [PROJECT_FILE],
        f"./{SCHEMA_FOLDER}/{SPECS_SCHEMA}": ["specs/**/*.yml", "specs/**/*.yaml"],
    }
    return {
        "settings.json": {"yaml.schemas": schemas},
        "extensions.json": {"recommendations": ["redhat.vscode-yaml"]},
    }


def _gather(part: object, definitions: Mapping[str, Any], used: dict[str, Any]) -> None:
    """Add the definitions that a part of a schema refers to, and those that they refer to."""
    if isinstance(part, list):
        for item in part:
            _gather(item, definitions, used)
    if not isinstance(part, dict):
        return
    name = str(part.get("$ref", "")).removeprefix("#/$defs/")
    if name and name not in used:
        used[name] = definitions[name]
        _gather(used[name], definitions, used)
    for value in part.values():
        _gather(value, definitions, used)


def _opened(part: Mapping[str, Any]) -> dict[str, Any]:
    """A schema in which every scalar may be a template too."""
    # Some validators refuse formats of our own; the patterns beside them say nearly as much.
    inside = {key: value for key, value in part.items() if key != "format"}
    if "propertyNames" in inside:
        inside["propertyNames"] = {
            k: v for k, v in inside["propertyNames"].items() if k != "format"
        }
    for key in ("properties", "$defs"):
        if key in inside:
            inside[key] = {name: _opened(value) for name, value in inside[key].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(inside.get(key), dict):
            inside[key] = _opened(inside[key])
    return _with_template(inside)


def _with_template(part: dict[str, Any]) -> dict[str, Any]:
    listed = part.get("type", [])
    types = [listed] if isinstance(listed, str) else listed
    if "enum" in part:
        # As a choice, so that editors still offer the words.
        words = {key: part.pop(key) for key in ("type", "enum")}
        return {**part, "anyOf": [words, {"type": "string", "pattern": _TEMPLATE}]}
    if "string" in types:
        if "pattern" in part:
            return {**part, "pattern": f"(?:{part['pattern']})|{_TEMPLATE}", **_message(part)}
        return part
    if any(kind in types for kind in ("integer", "number", "boolean")):
        return {**part, "type": [*types, "string"], "pattern": _TEMPLATE, **_message(part)}
    return part


def _message(part: Mapping[str, Any]) -> dict[str, str]:
    """Return the message of editors in place of the pattern; other validators ignore it."""
    return {"patternErrorMessage": f"expected a template, or {part['title']}"}


_PAGE = """\
# YAML keys

Every key of `lancestat_project.yml` and of spec files. [specs/](../../specs) has an annotated
example of each file. This page is generated from `lancestat/spec` by `make generate`; do not
edit it.
"""
_TABLE = "| key | value | default | meaning |\n|---|---|---|---|"


def generated_files() -> Mapping[str, str]:
    """Return the text of each generated file, by its path in a checkout."""
    schemas = {
        f"schemas/{name}": json_text(schema(name)) for name in (PROJECT_SCHEMA, SPECS_SCHEMA)
    }
    return {**schemas, "docs/reference/yaml.md": reference()}


def reference() -> str:
    sections: dict[str, type[Declared]] = {
        "`lancestat_project.yml`": ProjectFile,
        "A target: one of `targets`": Target,
        "A hook: one of `hooks.on_run_start` and `hooks.on_run_end`": Hook,
        "A spec file": SpecFile,
        **{f"A {_noun(resource)}: one of `{key}`": resource for key, resource in RESOURCES.items()},
        "An expectation: one of `expect` of a table": Expectation,
        "A monitor: one of `monitors` of a table or the project": Monitor,
        "A side of a KNN join: `left` or `right`": KnnSide,
    }
    return "\n".join([_PAGE, *(_section(title, resource) for title, resource in sections.items())])


def _section(title: str, resource: type[Declared]) -> str:
    declares = resource.declares
    lines = [f"## {title}", "", declares.about or "", "", _TABLE, *_rows(resource, "")]
    choice = _choice(declares)
    what = title.split(":")[0]
    return "\n".join([*lines, "", *([f"{what} has {choice}.", ""] if choice else [])])


def _noun(resource: type[Declared]) -> str:
    return resource.declares.noun.replace("knn", "KNN")


def _choice(declares: Resource) -> str:
    names = [f"`{name}`" for name in declares.one_of]
    return f"exactly one of {', '.join(names[:-1])} and {names[-1]}" if names else ""


def _rows(resource: type[Declared], prefix: str) -> Iterator[str]:
    groups = dict(resource.declares.groups)
    for declared in key_fields(resource):
        for key in declared.spelled:
            if (group := groups.pop(key.path[0], None)) is not None:
                default = "required" if group.is_required else ""
                about = " ".join(filter(None, (group.about, _sentence(_choice(group)))))
                yield _row(prefix + key.path[0], group.title, default, about)
            about = key.about or key.shape.description or ""
            value = key.title or _value(key.shape)
            yield _row(prefix + key.name, value, _default(declared), about)
            inside = _inside(key.shape)
            if inside is not None:
                yield from _rows(inside, f"{prefix}{key.name}.")


def _sentence(choice: str) -> str:
    return f"It has {choice}." if choice else ""


def _row(key: str, value: str, default: str, about: str) -> str:
    cells = (f"`{key}`", value, default, about)
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |".replace("  ", " ")


def _value(shape: Shape) -> str:
    if "enum" in shape.keywords:
        *words, last = (f"`{word}`" for word in shape.keywords["enum"])
        return f"{', '.join(words)} or {last}"
    if isinstance(shape, Listed) and "enum" in shape.items.keywords:
        return f"{shape.title}: {_value(shape.items)}"
    if not shape.title and isinstance(shape, Nested):
        return shape.resource.declares.title
    return shape.title


def _default(declared: KeyField) -> str:
    if declared.is_required and len(declared.keys) == 1:
        return "required"
    default = schema_default(declared)
    if isinstance(declared.first.shape, Either) and default is None:
        default = declared.first.shape.shapes[0].keywords.get("default")
    if isinstance(default, list):
        return f"`[{', '.join(default)}]`"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return "" if default is None else f"`{default}`"


def _inside(shape: Shape) -> type[Declared] | None:
    """Return the resource whose keys are listed with those of the one that it is in."""
    shapes = shape.shapes if isinstance(shape, Either) else (shape,)
    listed = [part.items if isinstance(part, Listed) else part for part in shapes]
    parts = [part for part in listed if isinstance(part, Nested) and not part.is_inline]
    return parts[0].resource if parts and parts[0].resource.declares.definition is None else None


if __name__ == "__main__":
    for path, text in generated_files().items():
        Path(__file__).parents[2].joinpath(path).write_text(text, encoding="utf-8")
