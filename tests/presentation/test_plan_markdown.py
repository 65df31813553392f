from __future__ import annotations

from datetime import timedelta

import pytest

from lancestat.errors import DatasetMissing
from lancestat.presentation.markdown import prose
from lancestat.spec.model import Policy, StaleBounds
from tests.conftest import Golden
from tests.joins.joins import every_join
from tests.presentation.rendering import as_markdown
from tests.tables.plans import blocked, every_action, plan, skip

POLICIES = {
    "lineitem": Policy(),
    "orders": Policy(allow_stale=StaleBounds(20, timedelta(hours=6), 0.05)),
    "part": Policy(allow_stale=True),
}


def test_markdown_shows_reads_reasons_and_permitted_staleness(golden: Golden) -> None:
    golden("plan/every_action.md", as_markdown(every_action(), POLICIES) + "\n")


def test_an_unchanged_project_is_one_sentence() -> None:
    lines = as_markdown(plan(skip("a"), skip("b")), {}).splitlines()
    assert lines == ["### lancestat: shop, target dev", "", "Nothing to do. 2 nodes unchanged."]


@pytest.mark.parametrize("hostile", ["a | b", "a\n\n# b", "<img src=x>", "[x](y)", "`x`", "*x*"])
def test_no_message_breaks_out_of_its_cell(hostile: str) -> None:
    error = DatasetMissing(hostile)
    row = as_markdown(plan(blocked(error=error)), {}).splitlines()[4]
    unescaped = [c for i, c in enumerate(row) if c == "|" and row[i - 1] != "\\"]
    assert len(unescaped) == 6
    assert prose(hostile) in row


def test_markdown_shows_the_compared_rows_of_joins(golden: Golden) -> None:
    golden("plan/every_join.md", as_markdown(every_join(), POLICIES) + "\n")
