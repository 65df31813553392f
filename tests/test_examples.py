"""What `make test` leaves out is marked, and `make thorough` runs it."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples import QUICK

ROOT = Path(__file__).parents[1]

TESTS = """
import pytest

@pytest.mark.thorough
def test_again(): pass

@pytest.mark.parametrize("value", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_values(value): pass
"""
MARK = "pytest.mark.thorough"


@pytest.mark.whole
@pytest.mark.parametrize(
    ("options", "collected"),
    [
        ([], ["test_again", "test_values[1]", "test_values[2]"]),
        ([f"--hypothesis-profile={QUICK}"], ["test_values[1]"]),
    ],
)
def test_what_is_marked_is_left_out_of_the_profile_quick_alone(
    tmp_path: Path, options: list[str], collected: list[str]
) -> None:
    file = tmp_path / "test_some.py"
    file.write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "tests.conftest"]
    ended = subprocess.run(
        [*command, "-c", str(ROOT / "pyproject.toml"), *options, str(file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    found = [line.rpartition("::")[2] for line in ended.stdout.splitlines() if "::" in line]
    assert found == collected


def test_make_test_leaves_nothing_else_out_and_make_thorough_nothing() -> None:
    everything = ["-n", "3", "--dist", "loadfile", "--no-loadscope-reorder"]
    assert options_of_pytest("thorough") == everything
    assert options_of_pytest("test") == [*everything, f"--hypothesis-profile={QUICK}"]


def options_of_pytest(target: str) -> list[str]:
    # Variables of the `make` that runs these tests.
    others = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    ended = subprocess.run(
        ["make", "--dry-run", target, "WORKERS=3"],
        cwd=ROOT,
        env=others,
        capture_output=True,
        text=True,
        check=True,
    )
    return ended.stdout.splitlines()[-1].rpartition(" -m pytest ")[2].split()


def test_no_file_is_left_out_as_a_whole() -> None:
    files = [path for path in (ROOT / "tests").rglob("test_*.py") if path != Path(__file__)]
    texts = {path: path.read_text(encoding="utf-8") for path in files}
    marked = {path: ast.parse(text) for path, text in texts.items() if MARK in text}
    assert marked
    for path, module in marked.items():
        tests = [
            node
            for node in module.body
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        ]
        kept = [test for test in tests if MARK not in map(ast.unparse, test.decorator_list)]
        assert kept, path
        assigned = [ast.unparse(node) for node in module.body if isinstance(node, ast.Assign)]
        assert not [text for text in assigned if text.startswith("pytestmark") and MARK in text], (
            path
        )
