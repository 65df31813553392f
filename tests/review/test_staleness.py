from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancestat.review.values import Risk
from lancestat.spec.model import Policy, Refresh, StaleBounds
from lancestat.tables import wire
from lancestat.tables.judgement import examine, under_policy
from lancestat.tables.review import staleness_risks

LOOSENED, TIGHTENED = Risk.STALENESS_LOOSENED, Risk.STALENESS_TIGHTENED


def policy(allowed: bool | StaleBounds, refresh: Refresh = Refresh.ALWAYS) -> Policy:
    return Policy(None, None, allowed, refresh)


@pytest.mark.parametrize(
    ("old", "new", "risks"),
    [
        (False, False, ()),
        (False, True, (LOOSENED,)),
        (True, False, (TIGHTENED,)),
        (False, StaleBounds(max_versions=0), (LOOSENED,)),
        (StaleBounds(max_versions=9), True, (LOOSENED,)),
        (True, StaleBounds(max_versions=9), (TIGHTENED,)),
        (StaleBounds(max_versions=9), StaleBounds(max_versions=10), (LOOSENED,)),
        (StaleBounds(max_versions=9), StaleBounds(9, timedelta(hours=1)), (TIGHTENED,)),
        (StaleBounds(max_changed_rows=0.1), StaleBounds(max_changed_rows=0.05), (TIGHTENED,)),
        (
            StaleBounds(9, timedelta(hours=1)),
            StaleBounds(10, timedelta(minutes=1)),
            (LOOSENED, TIGHTENED),
        ),
    ],
)
def test_bounds_lie_between_never_and_always(
    old: bool | StaleBounds, new: bool | StaleBounds, risks: tuple[Risk, ...]
) -> None:
    assert staleness_risks(policy(old), policy(new)) == risks


def test_waiting_with_a_refresh_loosens_where_anything_stale_is_accepted() -> None:
    always, waits = Refresh.ALWAYS, Refresh.WHEN_STALE
    assert staleness_risks(policy(True, always), policy(True, waits)) == (LOOSENED,)
    assert staleness_risks(policy(True, waits), policy(True, always)) == (TIGHTENED,)
    assert staleness_risks(policy(False, always), policy(False, waits)) == ()


NOW = datetime(2026, 5, 4, tzinfo=timezone.utc)
BOUNDS = st.builds(
    StaleBounds,
    st.none() | st.integers(0, 3),
    st.none() | st.integers(0, 3).map(lambda hours: timedelta(hours=hours)),
    st.none() | st.sampled_from([0.0, 0.5, 1.0]),
)
ALLOWED = st.booleans() | BOUNDS
# Versions, hours and the share of rows that changed since.
DISTANCES = st.tuples(st.integers(1, 4), st.integers(0, 4), st.sampled_from([0.0, 0.3, 0.7, 1.0]))


def accepts(allowed: bool | StaleBounds, distance: tuple[int, int, float]) -> bool:
    """Return whether the guard accepts statistics of that distance."""
    versions, hours, share = distance
    entries = {
        wire.VERSION: wire.FORMAT_VERSION,
        wire.COMPLETE: "true",
        wire.COMPUTED_AT_VERSION: "1",
        wire.COMPUTED_AT: "2026-05-04T00:00:00Z",
        wire.NUM_ROWS: "1",
        wire.SCHEMA_HASH: "h",
    }
    version, now = 1 + versions, NOW + timedelta(hours=hours)
    finding = examine(wire.decode_statistics(entries), version=version, schema_hash="h")
    return under_policy(finding, allowed, version=version, now=now, changed_rows=lambda: share).use


@given(ALLOWED, ALLOWED, DISTANCES)
def test_every_change_of_the_verdicts_of_the_guard_is_reported(
    old: bool | StaleBounds, new: bool | StaleBounds, distance: tuple[int, int, float]
) -> None:
    assert accepts(True, distance)
    before, after = accepts(old, distance), accepts(new, distance)
    risks = staleness_risks(policy(old), policy(new))
    assert LOOSENED in risks or not (after and not before)
    assert TIGHTENED in risks or not (before and not after)
