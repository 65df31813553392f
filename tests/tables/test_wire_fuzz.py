"""Decoding any config of a manifest returns a verdict and only values that it contains."""

from __future__ import annotations

import re
from datetime import datetime, timezone

from hypothesis import assume, example, given
from hypothesis import strategies as st

from lancestat.spec.model import StaleBounds
from lancestat.tables.judgement import examine, under_policy
from lancestat.tables.statistics.column_statistics import ColumnStatistics
from lancestat.tables.statistics.column_type import ColumnType, Kind
from lancestat.tables.wire import (
    WRITER,
    GuardReason,
    PublishedStatistics,
    decode_statistics,
    encode_statistics,
    plan_updates,
    published_entries,
)

TYPES = {
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
NOON = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
HASH = "ab" * 32
GOOD = encode_statistics(
    {name: (type, ColumnStatistics(3, 97, *BOUNDS[name], 8, 8)) for name, type in TYPES.items()},
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
        st.one_of(st.sampled_from(sorted(TYPES)), st.text(max_size=8)),
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
    finding = examine(decode_statistics(config, TYPES), version=version, schema_hash=HASH)
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
    decoded = decode_statistics(config, TYPES)
    assume(isinstance(decoded, PublishedStatistics))
    assert isinstance(decoded, PublishedStatistics)
    assert not decoded.columns.keys() & decoded.dropped.keys()
    assert decoded.columns.keys() <= TYPES.keys()
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
    decoded = decode_statistics(damage(changes), TYPES)
    assume(isinstance(decoded, PublishedStatistics))
    assert isinstance(decoded, PublishedStatistics)
    for name in TYPES:
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
