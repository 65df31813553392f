"""Draws the pictures of README from real output: `make pictures`.

`images/explain-before.svg` and `images/explain-after.svg` are the plans of one query without and
with statistics, over the tables of the tutorial about joins. `images/pages.png` is the page of a
table that `lancestat docs` writes, in headless Chromium.
"""

from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
TUTORIAL = ROOT / "docs" / "tutorials" / "statistics-speed-up-a-join.md"
_FILE = re.compile(r"^```\w+ title=\"([^\"]+)\"\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_WIDTH, _SIZE, _LINE, _MARGIN = 100, 13, 19, 18
_CHARACTER = 7.83
# What stands out in each picture.
_BAD = re.compile(r"SortMergeJoin|^ *[\d,]{16,}|[\d,]+ PB")
_GOOD = re.compile(r"BroadcastHashJoin")

_STYLE = """
text { font: 13px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }
text { fill: #24292f; white-space: pre; } rect { fill: #f6f8fa; stroke: #d0d7de; }
.title { fill: #57606a; } .bad { fill: #b42318; } .good { fill: #116329; }
.bad, .good { font-weight: bold; }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3; } rect { fill: #161b22; stroke: #30363d; }
.title { fill: #8b949e; } .bad { fill: #ff7b72; } .good { fill: #56d364; }
}
"""


def main() -> None:
    """Make the tables in a temporary folder, and draw."""
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for path, text in _FILE.findall(TUTORIAL.read_text("utf-8")):
            (folder / path).parent.mkdir(exist_ok=True)
            (folder / path).write_text(text, "utf-8")
        _run(folder, sys.executable, "shop.py")
        explain = ("lancestat", "sql", "--explain", (folder / "query.sql").read_text("utf-8"))
        before = _run(folder, *explain)
        _run(folder, "lancestat", "run")
        after = _run(folder, *explain)
        _draw("explain-before", "without statistics", before, _BAD, "bad")
        _draw("explain-after", "after lancestat run", after, _GOOD, "good")
    with tempfile.TemporaryDirectory() as name:
        _screenshot(Path(name))


def _run(folder: Path, *command: str) -> str:
    program = shutil.which(command[0], path=Path(sys.executable).parent) or command[0]
    environment = {**os.environ, "COLUMNS": str(_WIDTH), "PYTHONIOENCODING": "utf-8"}
    ended = subprocess.run(
        [program, *command[1:]], cwd=folder, env=environment, capture_output=True, encoding="utf-8"
    )
    if ended.returncode:
        sys.exit(f"{' '.join(command)}\n{ended.stdout}{ended.stderr}")
    return ended.stdout


def _draw(name: str, title: str, output: str, marked: re.Pattern[str], kind: str) -> None:
    """Write the plan, which is the output's first paragraph, as an SVG in light and dark."""
    lines = output.split("\n\n")[0].splitlines()
    height = 2 * _MARGIN + _LINE * (len(lines) + 2)
    width = round(2 * _MARGIN + _CHARACTER * max(map(len, lines)))
    rows = [f'<tspan class="title">$ lancestat sql --explain "..."   # {title}</tspan>', ""]
    rows += [_marked(line, marked, kind) for line in lines]
    size = f'width="{width}" height="{height}"'
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {size}>',
        f"<title>The plan of a query {title}, with the rows that Spark expects</title>",
        f"<style>{_STYLE}</style>",
        f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="6"/>',
    ]
    for number, row in enumerate(rows):
        place = f'x="{_MARGIN}" y="{_MARGIN + _LINE * number + _SIZE}"'
        drawn.append(f'<text xml:space="preserve" {place}>{row}</text>')
    (IMAGES / f"{name}.svg").write_text("\n".join([*drawn, "</svg>", ""]), "utf-8")


def _marked(line: str, marked: re.Pattern[str], kind: str) -> str:
    parts, end = [], 0
    for match in marked.finditer(line):
        parts.append(html.escape(line[end : match.start()]))
        parts.append(f'<tspan class="{kind}">{html.escape(match[0])}</tspan>')
        end = match.end()
    return "".join([*parts, html.escape(line[end:])])


def _screenshot(folder: Path) -> None:
    """Analyze the tables of the demo's project, but for its joins, and picture their overview."""
    from playwright.sync_api import sync_playwright

    project = folder / "project"
    shutil.copytree(
        ROOT / "examples" / "project",
        project,
        ignore=shutil.ignore_patterns("warehouse", ".lancestat", "__pycache__"),
    )
    _run(project, sys.executable, "load.py", "--scale", "0.01")
    _run(project, "lancestat", "run", "--exclude", "kind:knn_join")
    _run(project, "lancestat", "docs")
    browser_path = os.environ.get("LANCESTAT_CHROMIUM") or _run_which("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1100, "height": 720})
        page.goto((project / ".lancestat" / "docs" / "tables" / "lineitem.html").as_uri())
        page.screenshot(path=IMAGES / "pages.png")
        browser.close()


def _run_which(name: str) -> str:
    path = shutil.which(name, path=Path(sys.executable).parent) or shutil.which(name)
    return path or sys.exit(f"{name} is missing: .ci/machine browser chromium")


if __name__ == "__main__":
    main()
