"""Codes are declared once, in `lancestat.errors`, and errors keep their class when pickled."""

from __future__ import annotations

import ast
import pickle
import re
from pathlib import Path

import pytest

from lancestat import errors
from lancestat.errors import (
    InvalidProject,
    LancestatError,
    Location,
    RunError,
    UnknownKey,
    error_class,
    error_classes,
)
from lancestat.errors.reference import PAGE, reference
from lancestat.spark.session.failure import WorkerError, carried_error

TOP = Path(__file__).parents[2]
PACKAGE = TOP / "lancestat"
HUNDREDS = {
    "base": "0",
    "spec": "1",
    "lake": "2",
    "state": "3",
    "usage": "4",
    "run": "5",
    "publish": "6",
}
CLASSES = error_classes()


@pytest.mark.parametrize("kind", CLASSES)
def test_a_code_is_in_the_range_of_its_module_and_has_a_meaning_and_a_remedy(
    kind: type[LancestatError],
) -> None:
    module = kind.__module__.rpartition(".")[2]
    assert re.fullmatch(rf"LS{HUNDREDS[module]}\d\d", kind.code)
    for text in (kind.__doc__, kind.remedy):
        assert text is not None
        assert text.strip().endswith(".")
        assert "|" not in text
    assert getattr(errors, kind.__name__) is kind
    assert error_class(kind.code) is kind


def test_a_code_is_declared_once() -> None:
    for taken in ("LS201", "LS554"):
        with pytest.raises(TypeError, match=f"Again declares {taken}, which is taken"):
            type("Again", (RunError,), {"code": taken, "remedy": "-"})
    assert error_class("LS554") is None


def test_an_area_is_not_an_error() -> None:
    with pytest.raises(AttributeError, match="code"):
        RunError("something failed")


def codes_in(path: Path) -> list[str]:
    return [
        f"{path.relative_to(TOP)}:{node.lineno}"
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.search(r"\bLS\d{3}\b", node.value)
    ]


def test_codes_are_written_nowhere_else() -> None:
    """Not in docstrings either: classes have names."""
    assert codes_in(PACKAGE / "errors" / "lake.py")
    paths = [path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE / "errors"]
    assert [place for path in paths for place in codes_in(path)] == []


def test_the_page_is_current() -> None:
    assert (TOP / PAGE).read_text("utf-8") == reference(), "run 'make generate'"


@pytest.mark.parametrize("kind", [kind for kind in CLASSES if kind is not InvalidProject])
def test_errors_keep_their_class(kind: type[LancestatError]) -> None:
    error = kind("found", location=Location("specs/x.yml", 2, 1), hint="mend it")
    copy = pickle.loads(pickle.dumps(error))
    carried = carried_error(f"Traceback: {WorkerError.carrying(error)}\n at x")
    assert type(copy) is type(carried) is kind
    assert str(copy) == str(error)
    assert carried is not None
    assert (carried.message, carried.hint) == (error.message, error.hint)


def test_an_invalid_project_keeps_its_errors() -> None:
    error = InvalidProject([UnknownKey("unknown key 'a'", hint="b?")])
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy)) == (InvalidProject, str(error))
    assert type(copy.errors[0]) is UnknownKey
