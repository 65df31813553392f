"""The docstrings of the public API, of which the site's reference is made."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator

import pytest

import lancestat
from lancestat import Project


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
