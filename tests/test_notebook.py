"""The notebook of the examples: run from the top in a kernel of its own, and kept as it ran."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[1] / "examples" / "notebook"
NAME = "first_steps.ipynb"
# What differs between runs, machines and libraries.
_VARIES = re.compile(r"\b[\d.,]+ (?:ms|s|min|h|d|B|kB|MB)\b")


def read(path: Path) -> Any:
    import nbformat

    return nbformat.read(path, 4)  # type: ignore[no-untyped-call]


def executed(folder: Path) -> Any:
    """The notebook in a folder with the outputs of a run, less what processes print on stderr."""
    from nbclient import NotebookClient

    notebook = read(folder / NAME)
    place = {"metadata": {"path": str(folder)}}
    # The kernel of this environment, whatever others are installed for the user.
    client = NotebookClient(notebook, timeout=600, resources=place, record_timing=False)
    client.execute()
    for cell in code_cells(notebook):
        cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    return notebook


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def plain(notebook: Any) -> list[str]:
    """The outputs of each cell as text, where they are the same in every run."""
    return [
        _VARIES.sub("N", "".join(output.get("text") or output.data["text/plain"] for output in
                                 cell.outputs))
        for cell in code_cells(notebook)
    ]  # fmt: skip


def pages(notebook: Any) -> Iterator[str]:
    for cell in code_cells(notebook):
        for output in cell.outputs:
            yield from output.get("data", {}).values()
            yield output.get("text", "")


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning")
def test_the_notebook_runs_from_the_top_and_says_what_it_was_kept_with(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "notebook"
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns(".lancestat"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    notebook = executed(folder)
    if request.config.getoption("--update-golden"):
        import nbformat

        nbformat.write(notebook, FOLDER / NAME)  # type: ignore[no-untyped-call]
    assert plain(notebook) == plain(read(FOLDER / NAME))
    assert [cell.execution_count for cell in code_cells(notebook)] == list(
        range(1, len(code_cells(notebook)) + 1)
    )


def test_the_notebook_is_kept_with_the_outputs_of_a_run() -> None:
    notebook = read(FOLDER / NAME)
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    kinds = {output.output_type for cell in cells for output in cell.outputs}
    assert kinds == {"execute_result", "stream"}
    tables = [page for page in pages(notebook) if page.startswith('<div class="lancestat">')]
    assert len(tables) == 6
    # The wide things: a plan, a run, statistics, estimates, a status, and the plan of a day later.
    for words in ("2 analyze", "2 tables brought up to date", "40000", "BroadcastHashJoin",
                  "tolerant", "1 of 5 fragments"):  # fmt: skip
        assert any(words in page for page in pages(notebook)), words


def test_the_notebook_names_no_machine_and_no_person() -> None:
    text = (FOLDER / NAME).read_text(encoding="utf-8")
    assert re.search(r"/(?:work|tmp|home|root|Users|opt|usr)/", text) is None
    assert set(read(FOLDER / NAME).metadata) == {"kernelspec", "language_info"}
