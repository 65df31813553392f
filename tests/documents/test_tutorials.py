"""The tutorials, done as they are written, with the wheel in an environment of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documents import walkthrough
from tests.documents.clean import ROOT, CleanEnvironment
from tests.versions.needs import newest

# Their frameworks are not installed here.
INTEGRATIONS = {"airflow", "dagster"}
TUTORIALS = sorted(
    page for page in (ROOT / "docs" / "tutorials").glob("*.md") if page.stem not in INTEGRATIONS
)
WITHOUT_SPARK = {"first-project"}
NEEDS_SPARK = [pytest.mark.spark, newest]


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.stem, marks=[] if page.stem in WITHOUT_SPARK else NEEDS_SPARK)
        for page in TUTORIALS
    ],
)
def test_a_tutorial_does_what_it_says(
    page: Path, clean: CleanEnvironment, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    steps = list(walkthrough.steps(page))
    assert any(isinstance(step, walkthrough.Command) for step in steps)
    results = walkthrough.run(steps, folder, clean.variables(tmp_path))
    if request.config.getoption("--update-golden"):
        walkthrough.rewrite(page, results, folder)
        rewritten = (s for s in walkthrough.steps(page) if isinstance(s, walkthrough.Command))
        results = [(s, printed) for s, (_, printed) in zip(rewritten, results, strict=True)]
    walkthrough.check(page, results, folder)


def test_there_are_three() -> None:
    names = {page.stem for page in TUTORIALS}
    assert {"first-project", "statistics-speed-up-a-join", "near-duplicates"} <= names
