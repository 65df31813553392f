"""The reader rules, one by one and in their order."""

from __future__ import annotations

import math
from datetime import datetime, timedelta, timezone

import pytest

from lancestat.spec.model import StaleBounds
from lancestat.tables.judgement import Verdict, examine, under_policy
from lancestat.tables.statistics.column_statistics import ColumnStatistics
from lancestat.tables.statistics.column_type import ColumnType, Kind
from lancestat.tables.wire import WRITER, GuardReason, decode_statistics, encode_statistics

BIGINT = ColumnType(Kind.INTEGER, "bigint", 8)
NOON = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
HASH = "ab" * 32
TAG = 8


def published(**changes: str | None) -> dict[str, str]:
    entries: dict[str, str | None] = dict(
        encode_statistics(
            {"id": (BIGINT, ColumnStatistics(3, 97, 1, 99, 8, 8))},
            rows=100,
            schema_hash=HASH,
            computed_at_version=TAG,
            computed_at=NOON,
        )
    )
    # As another writer's, which may be anything.
    del entries[WRITER]
    entries |= {f"lance.stats.{suffix}": text for suffix, text in changes.items()}
    return {key: text for key, text in entries.items() if text is not None}


def ask(
    config: dict[str, str],
    *,
    version: int = TAG,
    schema_hash: str = HASH,
    allow_stale: bool | StaleBounds = False,
    changed_rows: float | None = None,
    now: datetime = NOON + timedelta(hours=1),
) -> Verdict:
    decoded = decode_statistics(config, {"id": BIGINT})
    finding = examine(decoded, version=version, schema_hash=schema_hash)
    return under_policy(
        finding, allow_stale, version=version, now=now, changed_rows=lambda: changed_rows
    )


def test_current_statistics_are_used() -> None:
    verdict = ask(published())
    assert verdict.use
    assert verdict.reason is GuardReason.CURRENT
    assert verdict.statistics is not None
    assert verdict.statistics.columns["id"].distinct == 97


# Each flaw hides those below it: the rules are in the order of this list.
FLAWS: list[tuple[GuardReason, dict[str, str | None]]] = [
    (GuardReason.UNKNOWN_FORMAT, {"version": "2"}),
    (GuardReason.INCOMPLETE, {"complete": "false"}),
    (GuardReason.MALFORMED, {"computedAtVersion": "-8"}),
    (GuardReason.ALTERED, {"writer": f"lancestat/3@8:{'0' * 64}"}),
    (GuardReason.SCHEMA_CHANGED, {"schemaHash": "cd" * 32}),
]


@pytest.mark.parametrize("first", range(len(FLAWS)))
def test_the_first_rule_that_fails_gives_the_reason(first: int) -> None:
    changes: dict[str, str | None] = {}
    for _, change in FLAWS[first:]:
        changes |= change
    verdict = ask(published(**changes), version=TAG + 5)
    assert (verdict.use, verdict.reason, verdict.statistics) == (False, FLAWS[first][0], None)


def test_nothing_published_is_absent() -> None:
    assert ask({"user.key": "v"}).reason is GuardReason.ABSENT


@pytest.mark.parametrize("allow_stale", [False, True])
def test_a_schema_hash_that_is_missing_or_differs_refuses(allow_stale: bool) -> None:
    for config in (published(schemaHash=None), published(schemaHash=""), published()):
        verdict = ask(config, schema_hash="ef" * 32, allow_stale=allow_stale)
        assert verdict.reason is GuardReason.SCHEMA_CHANGED
        assert not verdict.use


@pytest.mark.parametrize("version", [TAG - 1, TAG + 1])
def test_another_version_is_stale_unless_any_distance_is_accepted(version: int) -> None:
    refused = ask(published(), version=version)
    assert (refused.use, refused.reason, refused.statistics) == (False, GuardReason.STALE, None)
    assert str(TAG) in refused.detail
    assert str(version) in refused.detail
    accepted = ask(published(), version=version, allow_stale=True)
    assert (accepted.use, accepted.reason) == (True, GuardReason.STALE_ACCEPTED)
    assert accepted.statistics is not None


HOUR = timedelta(hours=1)
ALL = StaleBounds(max_versions=3, max_age=24 * HOUR, max_changed_rows=0.05)


@pytest.mark.parametrize(
    ("bounds", "versions", "hours", "share", "accepted"),
    [
        (StaleBounds(max_versions=3), 3, 1, None, True),
        (StaleBounds(max_versions=3), 4, 1, None, False),
        (StaleBounds(max_versions=0), 1, 1, None, False),
        (StaleBounds(max_age=HOUR), 1, 1, None, True),
        (StaleBounds(max_age=HOUR), 1, 2, None, False),
        (StaleBounds(max_changed_rows=0.05), 9, 1, 0.05, True),
        (StaleBounds(max_changed_rows=0.05), 9, 1, 0.051, False),
        (StaleBounds(max_changed_rows=0.05), 9, 1, math.nan, False),
        (StaleBounds(max_changed_rows=0.05), 9, 1, None, False),
        (StaleBounds(max_changed_rows=0.0), 1, 1, 0.0, True),
        (ALL, 3, 24, 0.05, True),
        (ALL, 4, 24, 0.05, False),
        (ALL, 3, 25, 0.05, False),
        (ALL, 3, 24, 0.06, False),
        (ALL, 3, 24, None, False),
        (StaleBounds(), 1, 1, 0.0, False),
    ],
)
def test_every_bound_that_is_given_must_hold(
    bounds: StaleBounds, versions: int, hours: int, share: float | None, accepted: bool
) -> None:
    now = NOON + hours * HOUR
    verdict = ask(
        published(), version=TAG + versions, allow_stale=bounds, changed_rows=share, now=now
    )
    assert verdict.use is accepted
    expected = GuardReason.STALE_ACCEPTED if accepted else GuardReason.STALE
    assert verdict.reason is expected


def test_an_unknown_or_future_age_exceeds_its_bound() -> None:
    bounds = StaleBounds(max_age=24 * HOUR)
    unknown = published(computedAt="some day")
    assert not ask(unknown, version=TAG + 1, allow_stale=bounds).use
    assert not ask(published(), version=TAG + 1, allow_stale=bounds, now=NOON - HOUR).use


def test_changed_rows_are_counted_only_where_they_decide() -> None:
    def fail() -> float:
        raise AssertionError

    bounds = StaleBounds(max_versions=0, max_changed_rows=0.5)
    finding = examine(decode_statistics(published()), version=TAG + 1, schema_hash=HASH)
    verdict = under_policy(finding, bounds, version=TAG + 1, now=NOON, changed_rows=fail)
    assert verdict.reason is GuardReason.STALE


def test_no_bound_accepts_a_tag_from_a_later_version() -> None:
    bounds = StaleBounds(max_versions=100)
    verdict = ask(published(), version=TAG - 1, allow_stale=bounds)
    assert verdict.reason is GuardReason.STALE


def test_a_bad_column_does_not_refuse_the_others() -> None:
    verdict = ask(published(**{"column.x.version": "2", "column.x.nullCount": "-1"}))
    assert verdict.use
    assert verdict.statistics is not None
    assert set(verdict.statistics.columns) == {"id"}
    assert set(verdict.statistics.dropped) == {"x"}
