from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from lancestat.presentation.site.pages import build_site
from lancestat.report.values import ProjectReport
from tests.presentation.site.poison import poisoned
from tests.presentation.site.reports import project, spec_of

Build = Callable[..., Path]

YAML = """\
tables:
  - name: orders
    uri: "{{ var('warehouse') }}/orders.lance"
    # Kept for ten years.
    policy: tolerant

knn_joins:
  - name: similar_parts
    left: {table: orders, vector: emb}
    k: 10
# The end.
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The folder of a project with specs."""
    return write_specs(tmp_path / "project")


def write_specs(folder: Path) -> Path:
    (folder / "specs").mkdir(parents=True)
    (folder / "specs" / "shop.yml").write_text(YAML, encoding="utf-8")
    return folder


@pytest.fixture
def build(root: Path, tmp_path: Path) -> Build:
    """Write the site of a report, one of every sort of node if none is given; its folder."""

    def write(
        report: ProjectReport | None = None, name: str = "site", **spec_changes: object
    ) -> Path:
        written = report or project()
        made = build_site(written, spec_of(written, root, **spec_changes), tmp_path / name)
        return made.page.parent

    return write


SiteOf = Callable[[str], Path]


@pytest.fixture(scope="module")
def site_of(tmp_path_factory: pytest.TempPathFactory) -> SiteOf:
    """The site of one of every sort of node, with a text behind all of its texts; only to read."""

    @cache
    def write(text: str) -> Path:
        report = poisoned(project(), text)
        folder = tmp_path_factory.mktemp("site")
        return build_site(report, spec_of(report, write_specs(folder)), folder / "site").page.parent

    return write
