"""The JSON Schemas and the templates that ship with the package."""

from __future__ import annotations

import json
from collections.abc import Mapping
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


def project_template() -> Mapping[str, str]:
    """A new project: the text of every file, by path relative to the project's folder.

    Schemas are part of it, so that editors complete YAML without a network.
    """
    files: dict[str, str] = {}
    for path in sorted(_folder("templates").glob("*.yml")):
        text = path.read_text("utf-8")
        if path.name == PROJECT_FILE:
            files[path.name] = text.replace("$schema=../schemas/", "$schema=schemas/")
        else:
            files[f"specs/{path.name}"] = text
    for path in sorted(_folder("schemas").glob("*.schema.json")):
        files[f"schemas/{path.name}"] = path.read_text("utf-8")
    # It ignores its own folder, so that a repository's own .gitignore stays as it is.
    files[".lancestat/.gitignore"] = "*\n"
    return files


def _folder(kind: str) -> Path:
    return next(place for place in _PLACES[kind] if place.is_dir())
