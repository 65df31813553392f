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
from lancestat.spark.failure import WorkerError, carried_error

TOP = Path(__file__).parents[2]
PACKAGE = TOP / "lancestat"
CLASSES = error_classes()


@pytest.mark.parametrize("kind", CLASSES)
def test_a_code_has_a_meaning_and_a_remedy(kind: type[LancestatError]) -> None:
    assert re.fullmatch(r"LS[0-6]\d\d", kind.code)
    for text in (kind.__doc__, kind.remedy()):
        assert text is not None
        assert text.strip().endswith(".")
        assert "|" not in text
    assert getattr(errors, kind.__name__) is kind
    assert error_class(kind.code) is kind


@pytest.mark.parametrize("taken", [kind.code for kind in CLASSES])
def test_a_code_is_declared_once(taken: str) -> None:
    with pytest.raises(TypeError, match=f"Again declares {taken}, which is taken"):
        type("Again", (RunError,), {}, code=taken)


def made_by(node: ast.AST) -> list[ast.expr]:
    """Expressions that name a class to make an error of: called, or handed on to what calls it."""
    match node:
        case ast.Call(func=ast.Name(id="isinstance" | "suppress")):
            return []
        case ast.Call(func=func, args=args):
            return [func, *args]
        case ast.Dict(values=values):
            return values
        case ast.IfExp(body=body, orelse=orelse):
            return [body, orelse]
        case ast.Yield(value=ast.Tuple(elts=parts)):
            return parts
    return []


@pytest.fixture(scope="module")
def raised() -> frozenset[str]:
    paths = [path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE / "errors"]
    nodes = (node for path in paths for node in ast.walk(ast.parse(path.read_text("utf-8"))))
    return frozenset(
        part.id for node in nodes for part in made_by(node) if isinstance(part, ast.Name)
    )


@pytest.mark.parametrize("kind", CLASSES)
def test_every_code_is_raised_somewhere(kind: type[LancestatError], raised: frozenset[str]) -> None:
    assert kind.__name__ in raised


def test_an_area_is_not_an_error() -> None:
    with pytest.raises(AttributeError, match="code"):
        RunError("something failed")


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


def test_the_text_of_an_error_controls_no_terminal() -> None:
    evil = "a\x1b[31mred\x1b]0;title\x07\u202e\n::error::x"
    shown = "a\\x1b[31mred\\x1b]0;title\\x07\\u202e\\n::error::x"
    place = Location("specs/shop.yml", 2, 5)
    one = UnknownKey(f"no '{evil}'", location=place, hint=f"its columns: {evil}")
    all_of_them = InvalidProject([one, one], [f"      | {evil}", None])
    text = f"LS103 specs/shop.yml:2:5  no '{shown}'\n      hint: its columns: {shown}"
    assert str(one) == text
    assert str(all_of_them) == "\n".join([text.replace("\n", f"\n      | {shown}\n", 1), text])
    # What is spelled out already stays as it is.
    assert str(UnknownKey(shown)) == f"LS103  {shown}"
