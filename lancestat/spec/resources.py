"""The JSON Schemas and the templates that ship with the package."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

_PACKAGE = Path(__file__).parent.parent
# A wheel holds both folders inside the package; a checkout has them beside it.
_PLACES = {
    "schemas": (_PACKAGE / "schemas", _PACKAGE.parent / "schemas"),
    "templates": (_PACKAGE / "templates", _PACKAGE.parent / "specs"),
}

PROJECT_SCHEMA = "lancestat_project.schema.json"
SPECS_SCHEMA = "lancestat_specs.schema.json"
PROJECT_FILE = "lancestat_project.yml"


@cache
def schema(name: str) -> Mapping[str, Any]:
    """A JSON Schema by file name."""
    loaded: Mapping[str, Any] = json.loads(_folder("schemas").joinpath(name).read_text("utf-8"))
    return loaded


def template_texts() -> Mapping[str, str]:
    """The annotated example of every kind of file, by file name."""
    paths = sorted(_folder("templates").glob("*.yml"))
    return {path.name: path.read_text("utf-8") for path in paths}


def _folder(kind: str) -> Path:
    return next(place for place in _PLACES[kind] if place.is_dir())


@cache
def keywords() -> frozenset[str]:
    """The words that the schemas list as values: being the language's own, they tell nothing."""
    return frozenset(_listed((schema(PROJECT_SCHEMA), schema(SPECS_SCHEMA))))


def _listed(part: object) -> Iterator[str]:
    if isinstance(part, Mapping):
        yield from (word for word in part.get("enum", ()) if isinstance(word, str))
        part = tuple(part.values())
    if isinstance(part, list | tuple):
        for each in part:
            yield from _listed(each)
