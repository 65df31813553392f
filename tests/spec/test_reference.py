"""Files that are generated from the declarations, and files that have to agree with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lancestat.spec.schema import generated_files

TOP = Path(__file__).parents[2]


@pytest.mark.parametrize("path", generated_files())
def test_generated_files_are_current(path: str) -> None:
    assert (TOP / path).read_text("utf-8") == generated_files()[path], "run 'make generate'"
