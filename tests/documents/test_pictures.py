"""The pictures of README: what the tutorial shows, small, and of nothing that is elsewhere."""

from __future__ import annotations

import html
import re

from tests.documents.clean import ROOT

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
