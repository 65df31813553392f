"""Small projects on disk."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent
from typing import Protocol

import pytest

from lancestat.errors import InvalidProject
from lancestat.spec.load import load_project
from lancestat.spec.model import ProjectSpec
from lancestat.spec.schema import PROJECT_FILE

PROJECT = """\
name: shop
vars: {warehouse: ./warehouse, k: 10, flag: true}
default_target: dev
targets:
  dev: {}
"""


REFERENCE_FOLDER = Path(__file__).parents[2] / "specs"


def reference_project() -> dict[str, str]:
    """The annotated examples of all that YAML can say, by path in a project."""
    texts = {path.name: path.read_text("utf-8") for path in sorted(REFERENCE_FOLDER.glob("*.yml"))}
    return {name if name == PROJECT_FILE else f"specs/{name}": texts[name] for name in texts}


class Load(Protocol):
    """Writes files, by path relative to the project's folder, and loads the project."""

    def __call__(
        self,
        files: Mapping[str, str | bytes] | str = ...,
        *,
        project: str = ...,
        target: str | None = ...,
        vars: Mapping[str, object] | None = ...,
        environment: Mapping[str, str] | None = ...,
    ) -> ProjectSpec: ...


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def write_and_load(
        files: Mapping[str, str | bytes] | str = "",
        *,
        project: str = PROJECT,
        target: str | None = None,
        vars: Mapping[str, object] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> ProjectSpec:
        if isinstance(files, str):
            files = {"specs/shop.yml": files} if files else {}
        (tmp_path / "specs").mkdir(exist_ok=True)
        write(tmp_path, {"lancestat_project.yml": project, **files})
        return load_project(tmp_path, target=target, vars=vars, environment=environment or {})

    return write_and_load


def write(root: Path, files: Mapping[str, str | bytes]) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(dedent(content), encoding="utf-8")


class Errors(Protocol):
    """Return the text of a project's errors, with the project's folder written as ROOT."""

    def __call__(
        self, files: Mapping[str, str | bytes] | str = ..., *, project: str = ...
    ) -> str: ...


@pytest.fixture
def errors(load: Load, tmp_path: Path) -> Errors:
    def errors_of(files: Mapping[str, str | bytes] | str = "", *, project: str = PROJECT) -> str:
        with pytest.raises(InvalidProject) as caught:
            load(files, project=project)
        return str(caught.value).replace(str(tmp_path.resolve()), "ROOT") + "\n"

    return errors_of
