"""The reader of a target's tables."""

from __future__ import annotations

import pytest

from lancestat.errors import InvalidProject
from lancestat.spec.model import Reader
from tests.spec.conftest import Load

PROJECT = """\
name: shop
vars: {reads: connector}
default_target: dev
targets:
  dev: {}
  own: {reader: lancestat}
  theirs: {reader: "{{ var('reads') }}"}
"""


@pytest.mark.parametrize(
    ("target", "reader"),
    [("dev", Reader.LANCESTAT), ("own", Reader.LANCESTAT), ("theirs", Reader.CONNECTOR)],
)
def test_a_target_declares_the_reader_of_its_tables(
    load: Load, target: str, reader: Reader
) -> None:
    assert load(project=PROJECT, target=target).target.reader is reader


def test_an_unknown_reader_is_refused_with_its_location(load: Load) -> None:
    with pytest.raises(InvalidProject) as refused:
        load(project="name: shop\ntargets:\n  dev: {reader: conector}\n")
    assert str(refused.value).splitlines() == [
        "LS107 lancestat_project.yml:3:17  'reader' of target 'dev' must be one of 'lancestat', "
        "'connector', found 'conector'",
        "      3 |   dev: {reader: conector}",
        "        |                 ^",
        "      hint: did you mean 'connector'?",
    ]
