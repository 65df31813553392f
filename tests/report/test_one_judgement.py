"""All surfaces give the same verdict on a table's statistics after any change of the table."""

from __future__ import annotations

import tempfile
from itertools import product
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lancestat.spec.model import Publish, StaleBounds
from tests.examples import examples, sample
from tests.report.surfaces import check_surfaces
from tests.tables.judged import POLICIES, STEPS, JudgedTable, Step, policy

pytestmark = pytest.mark.whole


@pytest.mark.parametrize("publish", Publish)
@settings(
    max_examples=examples(20),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    seed=st.integers(0, 2**16),
    steps=st.lists(
        st.tuples(st.sampled_from(STEPS), st.sampled_from(POLICIES)), min_size=1, max_size=8
    ),
)
def test_all_surfaces_give_the_same_correct_verdict(
    publish: Publish, seed: int, steps: list[tuple[Step, bool | StaleBounds]]
) -> None:
    with tempfile.TemporaryDirectory(prefix="lancestat-judged-") as folder:
        table = JudgedTable.create(Path(folder) / "t.lance", publish, seed)
        for step, allow_stale in steps:
            # A run also follows the policy.
            table.world.policy = policy(allow_stale)
            step(table)
            check_surfaces(table, allow_stale)


@pytest.mark.parametrize(
    ("step", "publish"),
    sample([*product(dict.fromkeys(STEPS), Publish)], 7),
    ids=lambda each: getattr(each, "__name__", each),
)
def test_all_surfaces_give_the_same_verdict_after_every_step(
    step: Step, publish: Publish, tmp_path: Path
) -> None:
    table = JudgedTable.create(tmp_path / "t.lance", publish, seed=7)
    step(table)
    for allow_stale in (False, True, StaleBounds(max_changed_rows=0.2)):
        check_surfaces(table, allow_stale)
