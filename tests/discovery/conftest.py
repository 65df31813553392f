from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from lancestat.cli.main import cli
from lancestat.project import Project
from tests.discovery.catalogs import PAGING

PROJECT = f"""\
name: shop
targets:
  dev:
    spark: {{master: "local[1]"}}
    catalogs:
      lake: {{impl: dir, properties: {{root: lake}}}}
      paging: {{impl: {PAGING}, properties: {{root: "{{{{ var('root') }}}}/paging"}}}}
vars: {{root: .}}
"""

Write = Callable[..., Project]
Lancestat = Callable[..., Result]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write spec files over a project with the catalogs `lake` and `paging`, and load it."""

    def written(specs: str, project: str = PROJECT) -> Project:
        (tmp_path / "specs").mkdir(exist_ok=True)
        (tmp_path / "lancestat_project.yml").write_text(project)
        (tmp_path / "specs" / "sources.yml").write_text(specs)
        return Project.load(tmp_path, vars={"root": str(tmp_path)})

    return written


@pytest.fixture
def lancestat(tmp_path: Path) -> Lancestat:
    """Run the command line on that project."""

    def run(*args: str) -> Result:
        folder: Sequence[str] = ("--project-dir", str(tmp_path), "--vars", f"root: {tmp_path}")
        return CliRunner().invoke(cli, [*folder, *args], prog_name="lancestat")

    return run
