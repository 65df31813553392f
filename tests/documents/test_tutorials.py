"""The tutorials, done as they are written, with the wheel in an environment of its own."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.documents import walkthrough
from tests.documents.clean import ROOT, CleanEnvironment
from tests.examples import is_thorough
from tests.versions.needs import newest

# Their frameworks are not installed here.
INTEGRATIONS = {"airflow", "dagster"}
TPCDS = ROOT / "docs" / "tutorials" / "tpcds.md"
TUTORIALS = sorted(
    page for page in TPCDS.parent.glob("*.md") if page.stem not in INTEGRATIONS and page != TPCDS
)
WITHOUT_SPARK = {"first-project"}
# tests/joins/duplicates has what it shows, and the other tutorials are read in the same way.
AGAIN = {"near-duplicates"}
# It runs a slow query eight times; tests/integration/test_analyze.py compares smaller ones.
SLOW = 'lancestat sql --compare "$(cat query.sql)"'
NEEDS_SPARK = [pytest.mark.spark, newest]


def marks(page: Path) -> list[pytest.MarkDecorator]:
    needs = [] if page.stem in WITHOUT_SPARK else NEEDS_SPARK
    return [*needs, pytest.mark.thorough] if page.stem in AGAIN else needs


@pytest.mark.parametrize(
    "page", [pytest.param(page, id=page.stem, marks=marks(page)) for page in TUTORIALS]
)
def test_a_tutorial_does_what_it_says(
    page: Path, clean: CleanEnvironment, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    is_updated = request.config.getoption("--update-golden")
    steps = [
        step
        for step in walkthrough.steps(page)
        if is_thorough() or is_updated or not _is_slow(step)
    ]
    assert any(isinstance(step, walkthrough.Command) for step in steps)
    results = walkthrough.run(steps, folder, clean.variables(tmp_path))
    if is_updated:
        walkthrough.rewrite(page, results, folder)
        rewritten = (s for s in walkthrough.steps(page) if isinstance(s, walkthrough.Command))
        results = [(s, printed) for s, (_, printed) in zip(rewritten, results, strict=True)]
    walkthrough.check(page, results, folder)


def _is_slow(step: walkthrough.Step) -> bool:
    return isinstance(step, walkthrough.Command) and step.text == SLOW


def test_the_slow_command_is_on_a_page() -> None:
    assert any(_is_slow(step) for page in TUTORIALS for step in walkthrough.steps(page))


SMALLER = {
    "python tables.py": "python tables.py --scale 0.01",
    "python queries.py": "python queries.py 72 93",
}


@pytest.mark.thorough
@pytest.mark.spark
@newest
def test_the_tutorial_of_tpcds_does_what_it_says_at_a_smaller_scale(
    clean: CleanEnvironment, tmp_path: Path
) -> None:
    """Numbers are others there, and so are plans: compared are the lines that have none."""
    folder = tmp_path / "work"
    shutil.copytree(ROOT / "examples" / "tpcds", folder / "tpcds")
    steps: list[walkthrough.Step] = [
        replace(step, text=SMALLER.get(step.text, step.text))
        for step in walkthrough.steps(TPCDS)
        if isinstance(step, walkthrough.Command)
    ]
    assert {*SMALLER.values()} <= {step.text for step in steps}
    missing = {}
    for step, printed in walkthrough.run(steps, folder, clean.variables(tmp_path)):
        assert printed.code == 0, f"$ {step.text}\n{printed.output}"
        is_plan = step.text.startswith("lancestat sql")
        shown = step.shown[: step.shown.index(walkthrough.ELLIPSIS)] if is_plan else step.shown
        lines = _without_numbers(shown) - _without_numbers(printed.output.splitlines())
        if lines:
            missing[step.text] = lines, printed.output
    assert not missing


def _without_numbers(lines: list[str]) -> set[str]:
    ours = (" ".join(line.split()) for line in lines)
    return {line for line in ours if not re.search(r"\d", line)} - {walkthrough.ELLIPSIS}


def test_there_are_three() -> None:
    names = {page.stem for page in TUTORIALS}
    assert {"first-project", "statistics-speed-up-a-join", "near-duplicates"} <= names
