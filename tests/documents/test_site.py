"""The site of the documentation, README's pictures, and the docstrings of the public API."""

from __future__ import annotations

import html
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import lancestat
from lancestat import Project
from tests.documents.clean import ROOT
from tests.presentation.site.browser import launched, visit

pytestmark = pytest.mark.whole

_LOADED = re.compile(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=\"([^\"]*)\"")


def mkdocs(config: Path, site: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(config), "-d", str(site)],
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    ended = mkdocs(ROOT / "mkdocs.yml", folder)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return folder


def test_every_page_is_on_the_site(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        assert (site / page.relative_to(ROOT / "docs").with_suffix(".html")).exists()


def test_files_outside_the_documentation_have_pages(site: Path) -> None:
    declared = (site / "specs" / "tables.yml.html").read_text("utf-8")
    assert "<h1" in declared and "customers" in declared
    assert "tables.yml.html" in (site / "specs" / "folder.html").read_text("utf-8")
    assert "../specs/knn_joins.yml.html" in (site / "how-to" / "knn-joins.html").read_text("utf-8")


def test_nothing_is_loaded_from_other_hosts(site: Path) -> None:
    for page in site.rglob("*.html"):
        loaded = [url for url in _LOADED.findall(page.read_text("utf-8")) if "//" in url]
        assert not loaded, page
    for style in site.rglob("*.css"):
        assert not re.search(r"url\([\"']?https?:", style.read_text("utf-8")), style


def test_the_api_is_what_the_package_offers(site: Path) -> None:
    page = (site / "reference" / "api.html").read_text("utf-8")
    for name in set(lancestat.__all__) - {"__version__", "errors"} | {"LancestatError"}:
        assert re.search(rf'id="lancestat\.(\w+\.)*{name}"', page), name


def test_the_site_is_searched_from_disk(site: Path) -> None:
    with launched() as browser, visit(browser, site) as visitor:
        page = visitor.open("index.html")
        page.locator("input.md-search__input").press_sequentially("histograms")
        page.wait_for_selector(".md-search-result__item a")
        found = page.eval_on_selector_all(
            ".md-search-result__item a", "links => links.map(link => link.href)"
        )
    assert any("/explanation/statistics.html" in link for link in found), found


@pytest.mark.parametrize(
    ("link", "complaint"),
    [("absent.md", "'absent.md'"), ("index.md#absent", "'index.md#absent'"), ("/other", "/other")],
)
def test_a_link_that_leads_nowhere_fails_the_build(
    link: str, complaint: str, tmp_path: Path
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# Page\n\n[here]({link})\n", "utf-8")
    config = tmp_path / "mkdocs.yml"
    config.write_text(
        f"INHERIT: {ROOT / 'mkdocs.yml'}\ndocs_dir: docs\n"
        "hooks: []\nplugins: []\nnav: [index.md]\n",
        "utf-8",
    )
    ended = mkdocs(config, tmp_path / "site")
    assert ended.returncode == 1
    assert complaint in ended.stderr


IMAGES = ROOT / "docs" / "images"
TUTORIAL = ROOT / "docs" / "tutorials" / "statistics-speed-up-a-join.md"


def test_the_plans_are_those_of_the_tutorial() -> None:
    tutorial = TUTORIAL.read_text("utf-8").splitlines()
    for name in ("explain-before", "explain-after"):
        svg = (IMAGES / f"{name}.svg").read_text("utf-8")
        rows = re.findall(r"<text [^>]*>(.*)</text>", svg)
        lines = [html.unescape(re.sub(r"<[^>]+>", "", row)) for row in rows if row]
        assert lines[0].startswith("$ lancestat sql --explain") and len(lines) > 10
        plan = lines[1:]
        assert tutorial[tutorial.index(plan[0]) :][: len(plan)] == plan, name


def test_they_are_small_and_self_contained() -> None:
    for path in IMAGES.iterdir():
        assert path.stat().st_size < 150_000, path
    for path in IMAGES.glob("*.svg"):
        assert not re.search(r"(href|src|url)\W", path.read_text("utf-8")), path


def public() -> Iterator[tuple[str, Callable[..., object]]]:
    for name in lancestat.__all__:
        if inspect.isfunction(member := getattr(lancestat, name)):
            yield name, member
    for name, member in inspect.getmembers(Project):
        if not name.startswith("_") and (inspect.isfunction(member) or inspect.ismethod(member)):
            yield f"Project.{name}", member


@pytest.mark.parametrize(("name", "function"), list(public()))
def test_every_argument_is_described(name: str, function: Callable[..., object]) -> None:
    text = inspect.getdoc(function) or ""
    section = re.search(r"^Args:\n(.*?)(?=^\S|\Z)", text, re.MULTILINE | re.DOTALL)
    described = re.findall(r"^    (\w+):", section[1] if section else "", re.MULTILINE)
    assert described == [p for p in inspect.signature(function).parameters if p != "self"]


@pytest.mark.parametrize(("name", "function"), list(public()))
def test_sections_are_sentences(name: str, function: Callable[..., object]) -> None:
    text = inspect.getdoc(function) or ""
    assert re.match(r"[A-Z][^\n]*[.]( |\n|$)", text), text
    for described in re.findall(r"^    \w+: (\S)", text, re.MULTILINE):
        assert not described.islower(), text
