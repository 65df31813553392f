"""Every command that a page shows runs with the wheel, or is listed with the reason why not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documents import walkthrough
from tests.documents.clean import ROOT, CleanEnvironment
from tests.versions.needs import newest

PAGES = [
    page.relative_to(ROOT).as_posix()
    for page in sorted(
        (
            *ROOT.glob("*.md"),
            *ROOT.glob("docs/**/*.md"),
            *ROOT.glob("examples/**/*.md"),
            *ROOT.glob("benchmarks/*.md"),
        )
    )
    if "tutorials" not in page.parts
]

# What has to be there before a page's commands, as a script for the shell. Pages have these in
# common: a project as `lancestat init` makes it, and the one of the demo with small tables.
STARTER = "lancestat init shop && cd shop && lancestat run"
TPCH = f"""
cp -r {ROOT}/examples . && cd examples/project && rm -rf warehouse .lancestat
python load.py --scale 0.01 && lancestat run --exclude kind:knn_join
"""
SCENES = {
    "README.md": "true",
    "docs/how-to/ci.md": f"""
{STARTER} && git init --quiet --initial-branch main && git add . && git commit --quiet -m shop
git switch --quiet --create change && sed -i 's/columns: all/columns: [order_id]/' specs/tables.yml
""",
    "docs/how-to/expectations.md": STARTER,
    "docs/how-to/knn-joins.md": f"{STARTER} && mv specs/knn_joins.yml.example specs/knn_joins.yml",
    "docs/how-to/monitors.md": STARTER,
    "docs/how-to/operations.md": STARTER,
    "docs/how-to/spark.md": TPCH,
    # The environment is that of the tests, so there is nothing to activate.
    "examples/project/README.md": f"{TPCH} cd ../.. && mkdir -p .venv/bin && :> .venv/bin/activate",
}
WITH_SPARK = {"docs/how-to/spark.md", "examples/project/README.md", "README.md"}
NEEDS_SPARK = [pytest.mark.spark, newest]
# tests/integration/test_demo.py runs the programs of the one in the checkout, and tests of the
# commands what the other shows; README.md has commands that start Spark, too.
AGAIN = {"examples/project/README.md", "docs/how-to/spark.md"}

# Commands that these tests do not run, by page; `*` is every command of the page.
NOT_RUN = {
    ("README.md", "make demo"): "tests/integration/test_demo.py runs the script that it runs",
    ("README.md", "make test"): "it runs these tests",
    ("README.md", "pip install ."): "`clean` is made by it, from the wheel",
    ("examples/notebook/README.md", "*"): "tests/test_notebook.py runs the notebook in a kernel",
    (
        "docs/how-to/operations.md",
        "lancestat runs 4f0c",
    ): "its run is somebody's; see tests/cli/test_runs.py",
    ("docs/how-to/advise.md", "*"): "its logs are somebody's; see tests/integration/test_advise.py",
    ("CONTRIBUTING.md", "*"): "works on the checkout, and runs all tests",
    ("docs/how-to/schedule.md", "*"): "it goes on; see tests/pipelines/test_watch.py",
    ("docs/release.md", "*"): "tests/documents/test_release.py makes a release of a copy",
    ("docs/how-to/uninstall.md", "*"): "tests/integration/test_uninstall.py runs them",
    ("docs/explanation/reliability.md", "*"): "takes hours; tests/faults/test_faults.py is a part",
    ("docs/how-to/deploy.md", "*"): "needs a Spark cluster; tests/cluster runs them on one",
}


def commands(page: str) -> list[walkthrough.Command]:
    steps = walkthrough.steps(ROOT / page)
    return [step for step in steps if isinstance(step, walkthrough.Command)]


def is_run(page: str, command: str) -> bool:
    return (page, "*") not in NOT_RUN and (page, command) not in NOT_RUN


def test_what_is_not_run_is_on_its_page() -> None:
    for page, command in NOT_RUN:
        shown = [step.text for step in commands(page)]
        assert shown if command == "*" else command in shown, (page, command)


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)])
def test_every_page_with_commands_has_a_scene(page: str) -> None:
    assert page in SCENES or not [c.text for c in commands(page) if is_run(page, c.text)]


def marks(page: str) -> list[pytest.MarkDecorator]:
    of_page = NEEDS_SPARK if page in WITH_SPARK else []
    return [*of_page, pytest.mark.thorough] if page in AGAIN else of_page


@pytest.mark.parametrize("page", [pytest.param(page, marks=marks(page)) for page in SCENES])
def test_commands_run(page: str, clean: CleanEnvironment, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    steps: list[walkthrough.Step] = [walkthrough.Command(SCENES[page].strip())]
    steps += [
        step
        for step in walkthrough.steps(ROOT / page)
        if isinstance(step, walkthrough.WrittenFile) or is_run(page, step.text)
    ]
    for command, printed in walkthrough.run(steps, folder, clean.variables(tmp_path)):
        assert printed.code == 0, f"{page}\n$ {command.text}\n{printed.output}"
