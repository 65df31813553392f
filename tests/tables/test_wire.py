"""The wire format: encoding, decoding, tolerated deviations, and the rules of the guard."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from lancestat.errors import UnsupportedColumn
from lancestat.spec.model import StaleBounds
from lancestat.tables import wire
from lancestat.tables.judgement import Verdict, examine, under_policy
from lancestat.tables.statistics.column_statistics import ColumnStatistics
from lancestat.tables.statistics.column_type import ColumnType, Kind
from lancestat.tables.wire import (
    COMPLETE,
    COMPUTED_AT_VERSION,
    NEWEST_FRAGMENT,
    REVISION,
    VERSION,
    WRITER,
    Finding,
    GuardReason,
    PublishedColumn,
    PublishedStatistics,
    Writer,
    decode_statistics,
    encode_statistics,
    is_altered,
    newest_fragment,
    own_keys,
    plan_updates,
    published_entries,
    restamp,
    same_statistics,
    tagged,
    writer_of,
)

BIGINT = ColumnType(Kind.INTEGER, "bigint", 8)
DOUBLE = ColumnType(Kind.FLOAT, "double", 8)
STRING = ColumnType(Kind.STRING, "string", 20)
DATE = ColumnType(Kind.DATE, "date", 4)
TYPES = {"id": BIGINT, "name": STRING, "day": DATE, "x": DOUBLE}

NOON = datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=timezone.utc)
HASH = "ab" * 32
# Of the entries of the first test; releases have to agree on it.
DIGEST = "80a31d954a4df82876195f4cc8c6c61c04ecf9fe1bd354b064ffc040b0253e1b"

IDS = ColumnStatistics(3, 97, 1, 99, 8, 8)
NAMES = ColumnStatistics(0, 50, b"a", b"z", 7, 31)


def written(**columns: tuple[ColumnType, ColumnStatistics]) -> dict[str, str]:
    return encode_statistics(
        columns, rows=100, schema_hash=HASH, computed_at_version=8, computed_at=NOON
    )


def encode(**columns: tuple[ColumnType, ColumnStatistics]) -> dict[str, str]:
    """Return the same entries as another writer's, which may be anything."""
    entries = written(**columns)
    del entries[WRITER]
    return entries


def decode(config: dict[str, str]) -> PublishedStatistics:
    decoded = decode_statistics(config, TYPES)
    assert isinstance(decoded, PublishedStatistics)
    return decoded


def test_the_entries_are_those_of_the_format() -> None:
    assert written(id=(BIGINT, IDS), name=(STRING, NAMES)) == {
        "lance.stats.version": "1",
        "lance.stats.complete": "true",
        "lance.stats.computedAtVersion": "8",
        "lance.stats.writer": f"lancestat/3@8:{DIGEST}",
        "lance.stats.computedAt": "2026-03-01T12:00:00.250000Z",
        "lance.stats.numRows": "100",
        "lance.stats.schemaHash": HASH,
        "lance.stats.column.id.version": "2",
        "lance.stats.column.id.distinctCount": "97",
        "lance.stats.column.id.nullCount": "3",
        "lance.stats.column.id.min": "1",
        "lance.stats.column.id.max": "99",
        "lance.stats.column.id.avgLen": "8",
        "lance.stats.column.id.maxLen": "8",
        "lance.stats.column.name.version": "2",
        "lance.stats.column.name.distinctCount": "50",
        "lance.stats.column.name.nullCount": "0",
        "lance.stats.column.name.avgLen": "7",
        "lance.stats.column.name.maxLen": "31",
    }


def test_published_statistics_round_trip() -> None:
    assert decode(written(id=(BIGINT, IDS), name=(STRING, NAMES))) == PublishedStatistics(
        version_tag=8,
        computed_at=NOON,
        rows=100,
        schema_hash=HASH,
        columns={
            "id": PublishedColumn(3, 97, "1", "99", 8, 8),
            "name": PublishedColumn(0, 50, None, None, 7, 31),
        },
        dropped={},
        revision=REVISION,
    )


def test_the_instant_is_written_in_utc() -> None:
    zone = timezone(timedelta(hours=-5))
    entries = encode_statistics(
        {}, rows=0, schema_hash=HASH, computed_at_version=1, computed_at=NOON.astimezone(zone)
    )
    assert entries["lance.stats.computedAt"] == "2026-03-01T12:00:00.250000Z"


@pytest.mark.parametrize("name", ["", ".", "a.b", "a.", ".a"])
def test_names_that_cannot_be_stored_are_refused(name: str) -> None:
    with pytest.raises(UnsupportedColumn, match="holds a dot") as raised:
        encode(**{name: (BIGINT, IDS)})
    assert raised.value.code == "LS115"


@pytest.mark.parametrize("name", ["min", "version", "Größe", "a b", "`q`", "lance/stats", "列"])
def test_other_names_are_stored(name: str) -> None:
    decoded = decode_statistics(encode(**{name: (BIGINT, IDS)}), {name: BIGINT})
    assert isinstance(decoded, PublishedStatistics)
    assert decoded.columns == {name: PublishedColumn(3, 97, "1", "99", 8, 8)}


@pytest.mark.parametrize(
    ("type", "minimum", "maximum"),
    [
        (BIGINT, None, None),
        (BIGINT, 0, 2**63),
        (DOUBLE, math.nan, 1.0),
        (DOUBLE, 0.0, math.inf),
        (DOUBLE, -math.inf, 0.0),
        (DOUBLE, -1.7e308, 1.7e308),
        (DATE, 0, 2**31),
    ],
)
def test_both_bounds_are_omitted_when_one_cannot_be_written(
    type: ColumnType, minimum: float | None, maximum: float | None
) -> None:
    entries = encode(c=(type, replace(IDS, minimum=minimum, maximum=maximum)))
    assert "lance.stats.column.c.min" not in entries
    assert "lance.stats.column.c.max" not in entries
    # Spark 4.1 and older estimate from a count alone that no row equals a value.
    assert "lance.stats.column.c.distinctCount" not in entries
    assert entries["lance.stats.column.c.nullCount"] == "3"


def test_a_column_without_values_has_a_distinct_count_of_zero() -> None:
    nothing = replace(IDS, nulls=100, distinct=0, minimum=None, maximum=None)
    assert encode(c=(BIGINT, nothing))["lance.stats.column.c.distinctCount"] == "0"


@pytest.mark.parametrize(
    ("changes", "flaw"),
    [
        ({"version": "2"}, GuardReason.UNKNOWN_FORMAT),
        ({"version": "01"}, GuardReason.UNKNOWN_FORMAT),
        ({"version": "1 "}, GuardReason.UNKNOWN_FORMAT),
        ({"version": "\uff11"}, GuardReason.UNKNOWN_FORMAT),
        ({"version": ""}, GuardReason.UNKNOWN_FORMAT),
        ({"version": None}, GuardReason.UNKNOWN_FORMAT),
        ({"complete": "false"}, GuardReason.INCOMPLETE),
        ({"complete": "FALSE"}, GuardReason.INCOMPLETE),
        ({"complete": "maybe"}, GuardReason.MALFORMED),
        ({"computedAtVersion": None}, GuardReason.MALFORMED),
        ({"computedAtVersion": "-1"}, GuardReason.MALFORMED),
        ({"computedAtVersion": " 8"}, GuardReason.MALFORMED),
        ({"computedAtVersion": "1_0"}, GuardReason.MALFORMED),
        ({"computedAtVersion": "\uff18"}, GuardReason.MALFORMED),
        ({"computedAtVersion": "9" * 5000}, GuardReason.MALFORMED),
        ({"computedAtVersion": str(2**63)}, GuardReason.MALFORMED),
    ],
)
def test_a_flawed_envelope_is_unreadable(changes: dict[str, str | None], flaw: GuardReason) -> None:
    config = encode(id=(BIGINT, IDS))
    for suffix, text in changes.items():
        config.pop(f"lance.stats.{suffix}")
        if text is not None:
            config[f"lance.stats.{suffix}"] = text
    decoded = decode_statistics(config, TYPES)
    assert isinstance(decoded, Finding)
    assert decoded.reason is flaw
    assert len(decoded.detail) < 200


def test_a_config_without_entries_has_no_statistics() -> None:
    decoded = decode_statistics({"user.key": "v", "lance.statistics": "1"})
    assert decoded == Finding(GuardReason.ABSENT, "no statistics are published")


@pytest.mark.parametrize(
    ("suffix", "text", "reason"),
    [
        ("version", "3", "newer"),
        ("version", "0", "not a version"),
        ("version", "two", "not a version"),
        ("version", None, "missing"),
        ("nullCount", "-1", "not a count"),
        ("distinctCount", "-1", "not a count"),
        ("distinctCount", "1e3", "not a count"),
        ("distinctCount", str(2**63), "not a count"),
        ("avgLen", "-8", "not a count"),
        ("maxLen", "8.0", "not a count"),
        ("min", "1_0", "not a bigint"),
        ("max", str(2**63), "not a bigint"),
        ("max", "0", "above"),
        ("min", "x", "not a bigint"),
    ],
)
def test_only_the_bad_column_is_dropped(suffix: str, text: str | None, reason: str) -> None:
    config = encode(id=(BIGINT, IDS), name=(STRING, NAMES))
    config.pop(f"lance.stats.column.id.{suffix}")
    if text is not None:
        config[f"lance.stats.column.id.{suffix}"] = text
    decoded = decode(config)
    assert set(decoded.columns) == {"name"}
    assert reason in decoded.dropped["id"]


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("2026-03-01T12:00:00Z", 0),
        ("2026-03-01T12:00:00.25Z", 250_000),
        ("2026-03-01T12:00:00.250000999Z", 250_000),
        ("yesterday", None),
        ("2026-03-01T12:00:00", None),
        ("2026-13-01T00:00:00Z", None),
        ("", None),
    ],
)
def test_instants_are_read_as_java_prints_them(text: str, micros: int | None) -> None:
    config = encode(id=(BIGINT, IDS)) | {"lance.stats.computedAt": text}
    expected = None if micros is None else NOON.replace(microsecond=micros)
    assert decode(config).computed_at == expected


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("id.histogram", "x" * 10_000),
        ("id.kurtosis", "3"),
        ("other.histogram", "x"),
        ("name.min", "a"),
        ("name.max", "z"),
        # These are ambiguous.
        ("a.b.min", "1"),
        (".min", "1"),
        ("min", "1"),
    ],
)
def test_what_is_not_for_readers_is_ignored(key: str, text: str) -> None:
    config = encode(id=(BIGINT, IDS), name=(STRING, NAMES))
    assert decode({**config, f"lance.stats.column.{key}": text}).columns == decode(config).columns


@pytest.mark.parametrize("suffix", ["min", "distinctCount", "avgLen"])
def test_an_oversized_value_is_treated_as_absent(suffix: str) -> None:
    config, key = encode(id=(BIGINT, IDS)), f"lance.stats.column.id.{suffix}"
    without = {k: v for k, v in config.items() if k != key}
    assert decode({**config, key: "0" * 257}) == decode(without)


@pytest.mark.parametrize(
    ("minimum", "maximum"),
    [("NaN", "1.0"), ("1.0", "NaN"), ("0.0", "Infinity"), ("-1.7E308", "1.7E308")],
)
def test_bounds_that_break_planning_are_not_passed_on(minimum: str, maximum: str) -> None:
    config = encode(x=(DOUBLE, replace(IDS, minimum=0.0, maximum=1.0)))
    config["lance.stats.column.x.min"], config["lance.stats.column.x.max"] = minimum, maximum
    assert decode(config).columns["x"] == PublishedColumn(3, 97, None, None, 8, 8)


def test_columns_that_are_gone_and_old_temporal_bounds_are_dropped() -> None:
    config = encode(id=(BIGINT, IDS), gone=(BIGINT, IDS), day=(DATE, IDS))
    decoded = decode({**config, "lance.stats.column.day.version": "1"})
    assert set(decoded.columns) == {"id"}
    assert "no such column" in decoded.dropped["gone"]
    assert "local calendar" in decoded.dropped["day"]


def test_without_types_bounds_are_passed_as_they_are() -> None:
    config = encode(id=(BIGINT, IDS)) | {"lance.stats.column.id.min": "x"}
    decoded = decode_statistics(config)
    assert isinstance(decoded, PublishedStatistics)
    assert decoded.columns["id"].minimum == "x"


def by_analyze(config: dict[str, str], version: int) -> dict[str, str]:
    """Return statistics over which the connector's ANALYZE TABLE has written its own."""
    later = (NOON + timedelta(hours=1)).isoformat().replace("+00:00", "Z")
    return config | {COMPUTED_AT_VERSION: str(version), "lance.stats.computedAt": later}


def test_statistics_by_earlier_rules_are_outdated(monkeypatch: pytest.MonkeyPatch) -> None:
    config = written(id=(BIGINT, IDS), name=(STRING, NAMES))
    assert not decode(config).is_outdated
    monkeypatch.setattr(wire, "REVISION", REVISION + 1)
    decoded = decode(config)
    assert (decoded.revision, decoded.is_outdated) == (REVISION, True)
    assert tagged(config, 9)[WRITER].startswith(f"lancestat/{REVISION}@9:")
    assert not same_statistics(config, written(id=(BIGINT, IDS), name=(STRING, NAMES)))
    assert not is_altered(config)


@pytest.mark.parametrize("key", sorted(written(id=(BIGINT, IDS), name=(STRING, NAMES))))
@pytest.mark.parametrize("is_removed", [False, True])
def test_a_set_of_which_one_entry_was_altered_is_not_used(key: str, is_removed: bool) -> None:
    config = {**written(id=(BIGINT, IDS), name=(STRING, NAMES)), NEWEST_FRAGMENT: "f"}
    config = {**restamp(config, computed_at_version=9, computed_at=NOON, newest_fragment="f")}
    assert decode(config).revision == REVISION
    altered = {k: text for k, text in config.items() if not (is_removed and k == key)}
    if not is_removed:
        altered[key] += "7"
    decoded = decode_statistics(altered, TYPES)
    assert isinstance(decoded, Finding)
    earlier_rules = {VERSION: GuardReason.UNKNOWN_FORMAT, COMPLETE: GuardReason.MALFORMED}
    expected = earlier_rules.get(key, GuardReason.ALTERED)
    if is_removed:
        expected = {
            VERSION: GuardReason.UNKNOWN_FORMAT,
            COMPUTED_AT_VERSION: GuardReason.MALFORMED,
        }.get(key, GuardReason.ALTERED)
    assert decoded.reason is expected
    assert writer_of(altered) is Writer.LANCESTAT
    assert own_keys(altered) == altered.keys()


@pytest.mark.parametrize(
    "key", ["lance.stats.column.id.histogram", "lance.stats.column.new.min", "lance.stats.note"]
)
def test_a_set_to_which_an_entry_was_added_is_not_used(key: str) -> None:
    config = written(id=(BIGINT, IDS))
    assert is_altered({**config, key: "1"})
    assert not is_altered({**config, "lance.other": "1", "user.key": "1"})


def test_a_tag_in_both_of_its_places_is_no_disguise() -> None:
    config = written(id=(BIGINT, IDS))
    moved = {COMPUTED_AT_VERSION: "9", WRITER: config[WRITER].replace("@8", "@9")}
    assert is_altered({**config, **moved, "lance.stats.column.id.max": "7"})
    assert is_altered({**config, **moved})
    assert is_altered({**config, COMPUTED_AT_VERSION: "9"})
    assert is_altered({**config, WRITER: config[WRITER].partition(":")[0]})


@pytest.mark.parametrize(
    "garble",
    [
        lambda mark: mark[:-1],
        lambda mark: mark + "0",
        lambda mark: mark.partition(":")[0] + ":" + mark.partition(":")[2].upper() + "F",
        lambda mark: mark.replace("/3@", "/2@"),
        lambda mark: mark.replace("/3@", "/3 @"),
        lambda mark: mark.partition(":")[0],
        lambda mark: "lancestat/3@8:zzz",
        lambda mark: "lancestat",
        lambda mark: "lancestat/2",
        lambda mark: "lancestat/x@8",
        lambda mark: "lancestat/2@8 ",
        lambda mark: mark.upper(),
        lambda mark: "lances",
        lambda mark: "",
    ],
)
def test_a_mark_that_no_release_writes_was_altered(garble: Callable[[str], str]) -> None:
    config = written(id=(BIGINT, IDS))
    garbled = {**config, WRITER: garble(config[WRITER])}
    assert is_altered(garbled)
    assert writer_of(garbled) is Writer.LANCESTAT
    assert isinstance(decode_statistics(garbled, TYPES), Finding)


@pytest.mark.parametrize(
    "mark", ["lancestat/4@8:new", "lancestat/12", "trino", "other/2@8", "other", "late"]
)
def test_marks_of_other_releases_and_writers_are_not_altered(mark: str) -> None:
    config = written(id=(BIGINT, IDS)) | {WRITER: mark}
    assert not is_altered(config)
    if not mark.startswith("lancestat"):
        assert decode({**config, NEWEST_FRAGMENT: "f"}).revision is None


def test_statistics_of_another_writer_over_those_of_lancestat_are_not_altered() -> None:
    """It changes the tag and the time with its values, and leaves the mark as it is."""
    config = written(id=(BIGINT, IDS))
    theirs = {COMPUTED_AT_VERSION: "9", "lance.stats.computedAt": "2026-03-02T12:00:00Z"}
    assert not is_altered({**config, **theirs})
    assert decode({**config, **theirs}).revision is None
    assert writer_of({**config, **theirs}) is Writer.OTHER
    assert own_keys({**config, **theirs}) == {WRITER}


def test_what_another_writer_leaves_behind_is_not_taken_for_its_own() -> None:
    config = restamp(
        written(x=(DOUBLE, replace(IDS, minimum=0.0, maximum=1.0))),
        computed_at_version=8,
        computed_at=NOON,
        newest_fragment="f",
    )
    assert newest_fragment(config) == "f"
    analyzed = by_analyze(config, 9)
    assert newest_fragment(analyzed) is None
    decoded = decode(analyzed)
    assert (decoded.revision, decoded.newest_fragment) == (None, None)
    assert decoded.columns["x"].maximum == "1.0"
    assert not decoded.is_outdated


def test_publishing_replaces_the_whole_set_only() -> None:
    old = encode(id=(BIGINT, IDS), gone=(BIGINT, IDS))
    config = {**old, "user.key": "v", "lance.auto_cleanup.interval": "9", "lancestat.x": "y"}
    config["lance.stats.column.orphan.histogram"] = "h"
    new = encode(id=(BIGINT, replace(IDS, nulls=100, distinct=0, minimum=None, maximum=None)))
    updates = plan_updates(config, new)
    removed = {key for key, text in updates.items() if text is None}
    assert removed == {
        "lance.stats.column.id.min",
        "lance.stats.column.id.max",
        "lance.stats.column.orphan.histogram",
        *(key for key in old if ".gone." in key),
    }
    assert {key: text for key, text in updates.items() if text is not None} == new


def test_equal_statistics_are_recognized_regardless_of_their_stamps() -> None:
    encoded = written(id=(BIGINT, IDS))
    later = restamp(
        encoded,
        computed_at_version=12,
        computed_at=NOON + timedelta(days=1),
        newest_fragment="newer",
    )
    assert later["lance.stats.computedAtVersion"] == "12"
    assert later["lance.stats.computedAt"] == "2026-03-02T12:00:00.250000Z"
    assert newest_fragment(later) == "newer"
    assert same_statistics({**later, "user.key": "v"}, encoded)


@pytest.mark.parametrize(
    "change",
    [
        {"lance.stats.numRows": "101"},
        {"lance.stats.column.id.max": "100"},
        {"lance.stats.column.orphan.min": "1"},
        {"lance.stats.schemaHash": "cd" * 32},
    ],
)
def test_different_statistics_are_not_equal(change: dict[str, str]) -> None:
    encoded = encode(id=(BIGINT, IDS))
    assert not same_statistics(encoded | change, encoded)
    assert not same_statistics({}, encoded)


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


ALL_TYPES = {
    "flag": ColumnType(Kind.BOOLEAN, "boolean", 1),
    "id": ColumnType(Kind.INTEGER, "bigint", 8),
    "x": ColumnType(Kind.FLOAT, "double", 8),
    "price": ColumnType(Kind.DECIMAL, "decimal(12,2)", 8, 2),
    "day": ColumnType(Kind.DATE, "date", 4),
    "at": ColumnType(Kind.TIMESTAMP, "timestamp", 8),
    "name": ColumnType(Kind.STRING, "string", 20),
}
BOUNDS = {
    "flag": (0, 1),
    "id": (-5, 2**40),
    "x": (-0.5, 1e10),
    "price": (-1, 10**11),
    "day": (-800_000, 20_000),
    "at": (-(10**17), 10**15),
    "name": (b"a", b"z"),
}
GOOD = encode_statistics(
    {
        name: (type, ColumnStatistics(3, 97, *BOUNDS[name], 8, 8))
        for name, type in ALL_TYPES.items()
    },
    rows=100,
    schema_hash=HASH,
    computed_at_version=8,
    computed_at=NOON,
)
# As another writer's, which may be anything.
del GOOD[WRITER]
COUNTS = ("distinctCount", "nullCount", "avgLen", "maxLen")

nasty_texts = st.one_of(
    st.sampled_from(
        [
            "", " ", "\x00", "1_000", " 1", "1 ", "+1", "\uff11\uff12", "\u0663", "1.0", "-1", "-0",
            "1e5", "0x10", "NaN", "Infinity", "-Infinity", "null", "None", "true", "9" * 256,
            "9" * 257, "9" * 5000, str(2**63), str(2**63 - 1), "2020-02-30", "1e999", "1E-9999",
            "0000-00-00", "2020-01-01 00:00:00", "+9999999-12-31", "\U0001f4a3", "\ud800",
        ]
    ),
    st.integers().map(str),
    st.floats().map(str),
    st.dates().map(str),
    st.text(max_size=300),
    st.from_regex(r"[+-]?[0-9_.eE ]{1,12}", fullmatch=True),
)  # fmt: skip
suffixes = st.one_of(
    st.sampled_from(["version", *COUNTS, "min", "max", "histogram", "", "."]), st.text(max_size=8)
)
keys = st.one_of(
    st.sampled_from(sorted(GOOD)),
    st.builds("lance.stats.{}".format, st.text(max_size=12)),
    st.builds(
        "lance.stats.column.{}.{}".format,
        st.one_of(st.sampled_from(sorted(ALL_TYPES)), st.text(max_size=8)),
        suffixes,
    ),
    st.text(max_size=12),
)
damages = st.dictionaries(keys, st.one_of(st.none(), nasty_texts), max_size=8)


def damage(changes: dict[str, str | None]) -> dict[str, str]:
    return {key: text for key, text in (GOOD | changes).items() if text is not None}


@given(damages, st.sampled_from([False, True, StaleBounds(2, None, 0.5)]), st.integers(0, 20))
@example({}, False, 8)
def test_a_damaged_config_gets_a_verdict(
    changes: dict[str, str | None], allow_stale: bool | StaleBounds, version: int
) -> None:
    config = damage(changes)
    finding = examine(decode_statistics(config, ALL_TYPES), version=version, schema_hash=HASH)
    verdict = under_policy(finding, allow_stale, version=version, now=NOON)
    assert verdict.use == (verdict.statistics is not None)
    assert verdict.use == (verdict.reason in (GuardReason.CURRENT, GuardReason.STALE_ACCEPTED))
    if verdict.use:
        assert config["lance.stats.version"] == "1"
        assert config["lance.stats.schemaHash"] == HASH
        assert allow_stale is not False or config["lance.stats.computedAtVersion"] == str(version)


@given(damages)
def test_decoded_statistics_equal_the_stored_text(changes: dict[str, str | None]) -> None:
    config = damage(changes)
    decoded = decode_statistics(config, ALL_TYPES)
    assume(isinstance(decoded, PublishedStatistics))
    assert isinstance(decoded, PublishedStatistics)
    assert not decoded.columns.keys() & decoded.dropped.keys()
    assert decoded.columns.keys() <= ALL_TYPES.keys()
    for name, column in decoded.columns.items():
        stored = {suffix: config.get(f"lance.stats.column.{name}.{suffix}") for suffix in COUNTS}
        read = (column.distinct, column.nulls, column.average_length, column.maximum_length)
        for text, count in zip(stored.values(), read, strict=True):
            if count is None:
                assert text is None or len(text) > 256
            else:
                assert text is not None
                assert re.fullmatch("-?[0-9]+", text)
                assert 0 <= count < 2**63
                assert int(text) == count
        for suffix, bound in (("min", column.minimum), ("max", column.maximum)):
            assert bound in (None, config.get(f"lance.stats.column.{name}.{suffix}"))
        assert (column.minimum is None) == (column.maximum is None)


@given(damages)
def test_undamaged_columns_survive_the_damage_of_others(changes: dict[str, str | None]) -> None:
    decoded = decode_statistics(damage(changes), ALL_TYPES)
    assume(isinstance(decoded, PublishedStatistics))
    assert isinstance(decoded, PublishedStatistics)
    for name in ALL_TYPES:
        prefix = f"lance.stats.column.{name}."
        if not any(key.startswith(prefix) for key in changes):
            assert name in decoded.columns


@given(st.dictionaries(keys, nasty_texts, max_size=8))
def test_updates_lead_from_any_config_to_the_set(config: dict[str, str]) -> None:
    after = dict(config)
    for key, text in plan_updates(config, GOOD).items():
        if text is None:
            del after[key]
        else:
            after[key] = text
    assert published_entries(after) == GOOD
    foreign = {key: text for key, text in config.items() if not key.startswith("lance.stats.")}
    assert {key: text for key, text in after.items() if key not in GOOD} == foreign
