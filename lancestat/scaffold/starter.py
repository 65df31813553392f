"""The project of a plain `lancestat init`: two sample tables, declared with comments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from lancestat.scaffold.sample import orders, products
from lancestat.scaffold.writer import Scaffold
from lancestat.spec.schema import (
    PROJECT_FILE,
    SCHEMA_FOLDER,
    editor_schemas,
    editor_settings,
    json_text,
)

if TYPE_CHECKING:
    import pyarrow as pa

_PACKAGE = Path(__file__).parent.parent
# A wheel holds the templates inside the package; a checkout has them beside it.
_TEMPLATES = (_PACKAGE / "templates", _PACKAGE.parent / "specs" / "starter")

# In folders of our own, so that a repository's .gitignore stays as it is.
_STATE = {".lancestat/.gitignore": "*\n!.gitignore\n"}
_SAMPLE = {"sample/.gitignore": "# The sample tables of `lancestat init`.\n*.lance/\n"}
_TABLES = {"sample/orders.lance": orders, "sample/products.lance": products}


def starter_project() -> Scaffold:
    return project_of({**starter_templates(), **_SAMPLE}, _TABLES)


def project_of(
    files: Mapping[str, str], tables: Mapping[str, Callable[[], pa.Table]] = MappingProxyType({})
) -> Scaffold:
    """Return a project of some YAML files and sample tables, with what every project has.

    Schemas are part of it, so that editors complete YAML without a network, from a fresh clone on.
    """
    return Scaffold({**files, **_schemas(), **_STATE}, _editor_files(), tables)


def starter_templates() -> dict[str, str]:
    """Return the YAML of the starter project, the project file first."""
    folder = next(folder for folder in _TEMPLATES if folder.is_dir())
    files = [folder / PROJECT_FILE, *sorted(folder.glob("specs/*"))]
    return {path.relative_to(folder).as_posix(): path.read_text("utf-8") for path in files}


def _schemas() -> dict[str, str]:
    return {
        f"{SCHEMA_FOLDER}/{name}": json_text(schema) for name, schema in editor_schemas().items()
    }


def _editor_files() -> dict[str, str]:
    return {f".vscode/{name}": json_text(value) for name, value in editor_settings().items()}
