"""The files of a new project."""

from __future__ import annotations

import json
from collections.abc import Mapping

from lancestat.spec.editor import SCHEMA_FOLDER, editor_schemas, editor_settings
from lancestat.spec.resources import PROJECT_FILE, template_texts


def project_template() -> Mapping[str, str]:
    """The text of every file, by path relative to the project's folder.

    Schemas are part of it, so that editors complete YAML without a network, from a fresh clone on.
    """
    files: dict[str, str] = {}
    for name, text in sorted(template_texts().items(), key=lambda each: each[0] != PROJECT_FILE):
        if name == PROJECT_FILE:
            files[name] = text.replace("$schema=../schemas/", f"$schema={SCHEMA_FOLDER}/")
        else:
            files[f"specs/{name}"] = text
    for name, schema in editor_schemas().items():
        files[f"{SCHEMA_FOLDER}/{name}"] = json_text(schema)
    # It ignores its own folder, so that a repository's own .gitignore stays as it is.
    files[".lancestat/.gitignore"] = "*\n"
    return files


def editor_files() -> Mapping[str, str]:
    """As `project_template`, what may be there already and is left as it is."""
    return {f".vscode/{name}": json_text(value) for name, value in editor_settings().items()}


def json_text(value: object) -> str:
    """JSON for people to read, with a line's end."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
