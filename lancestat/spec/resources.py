"""What a project has for editors: schemas, and settings that say which schema is whose."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from lancestat.spec.model import RESOURCES
from lancestat.spec.schema import PROJECT_SCHEMA, SPECS_SCHEMA, schema

PROJECT_FILE = "lancestat_project.yml"


def json_text(value: object) -> str:
    """JSON for people to read, with a line's end."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


KINDS = {
    "project": f"{PROJECT_FILE}: variables and targets",
    "specs": "a file of specs: any of the five below, in lists",
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
        about = "'lancestat schema --out' writes this file anew after an upgrade."
        return {**head, "$comment": about, **opened}
    part = opened["$defs"][kind]
    used: dict[str, Any] = {}
    _gather(part, opened["$defs"], used)
    return {"$schema": opened["$schema"], **part, "$defs": used}


def editor_schemas() -> dict[str, dict[str, Any]]:
    """The schemas of all kinds of file, by the name of the schema's own file."""
    return {file: editor_schema(kind) for kind, file in _FILES.items()}


def editor_settings() -> dict[str, dict[str, Any]]:
    """Visual Studio Code's files in a project's `.vscode`: which schema is whose.

    The settings are those of the extension `redhat.vscode-yaml`, which the other file recommends.
    """
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
