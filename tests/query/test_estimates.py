"""Estimates for the optimizer: whole tables, remaining fragments, samples, refused statistics."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lancestat.lake.fingerprint import schema_hash
from lancestat.lake.history import History
from lancestat.lake.open import snapshot
from lancestat.lake.snapshot import Fragment, Snapshot
from lancestat.query.estimates import ColumnEstimate, Explanation, estimate
from lancestat.query.fragments import ColumnRange
from lancestat.query.predicates.filter import Comparison, Filter, Operator
from lancestat.query.sampler import Sampler
from lancestat.query.table import ReadSettings, ReadTable
from lancestat.spec.model import StaleBounds
from lancestat.tables.judgement import TableStatistics, analyzable
from lancestat.tables.statistics.column_statistics import column_statistics_of
from lancestat.tables.statistics.kernel import analyze
from lancestat.tables.statistics.partial import ColumnPartial, merge
from lancestat.tables.wire import GuardReason, encode_statistics, tagged

NOW = datetime(2026, 3, 1, tzinfo=timezone.utc)
DAY_FILTER: list[Filter] = [Comparison("day", Operator.LESS, 10)]


@dataclass(frozen=True)
class Left:
    """The first fragments of a table, with their partials."""

    fragment_ids: Sequence[int]
    rows: int
    is_known: bool
    partials: dict[str, ColumnPartial]
    ranges: dict[str, ColumnRange] = field(default_factory=dict)

    def partial(self, column: str) -> ColumnPartial | None:
        return self.partials.get(column)

    def range(self, column: str) -> ColumnRange | None:
        return self.ranges.get(column)


@dataclass(frozen=True)
class Fragments:
    """Knows of one outcome only."""

    left: Left | None

    def load(self, columns: Iterable[str]) -> None:
        pass

    def prune(self, filters: Sequence[Filter]) -> Left | None:
        return self.left

    def partial(self, column: str) -> ColumnPartial | None:
        return None


@pytest.fixture(scope="module")
def pieces() -> list[pa.Table]:
    """Four fragments of 25 rows: days in order, a name of one letter in each, some nulls."""
    return [
        pa.table(
            {
                "day": pa.array(range(25 * part, 25 * part + 25), pa.int32()),
                "name": pa.array(["abcd"[part]] * 20 + [None] * 5),
                "blank": pa.array([None] * 25, pa.int64()),
            }
        )
        for part in range(4)
    ]


@pytest.fixture(scope="module")
def whole(pieces: list[pa.Table], tmp_path_factory: pytest.TempPathFactory) -> ReadTable:
    uri = str(tmp_path_factory.mktemp("estimating") / "t.lance")
    for piece in pieces:
        dataset = lance.write_dataset(piece, uri, mode="append" if Path(uri).exists() else "create")
    observed = snapshot(dataset, uri)
    types = analyzable(observed)
    schema = pieces[0].schema
    partials = analyze((b for piece in pieces for b in piece.to_batches()), schema)
    entries = encode_statistics(
        {name: (type, column_statistics_of(partials[name], type)) for name, type in types.items()},
        rows=100,
        schema_hash=schema_hash(observed.fields),
        computed_at_version=observed.version,
        computed_at=NOW - timedelta(hours=1),
    )
    return ReadTable("t", TableStatistics(replace(observed, config=entries)))


def estimated(
    table: ReadTable,
    columns: Sequence[str] = ("day", "name", "blank"),
    filters: Sequence[Filter] = (),
    settings: ReadSettings = ReadSettings(),  # noqa: B008
) -> Explanation:
    return estimate(table, columns, filters, settings, NOW)


def narrowed(
    table: ReadTable, pieces: list[pa.Table], *, is_known: bool = True, only: str | None = None
) -> ReadTable:
    partials = {
        name: merge(analyze(piece.to_batches(), piece.schema)[name] for piece in pieces)
        for name in pieces[0].column_names
        if only is None or name == only
    }
    left = Left(range(len(pieces)), 25 * len(pieces), is_known, partials)
    return replace(table, load_fragments=lambda: Fragments(left))


def test_a_whole_table_has_its_published_statistics(whole: ReadTable) -> None:
    result = estimated(whole)
    assert (result.rows, result.fragment_ids) == (100, None)
    assert result.verdict.reason is GuardReason.CURRENT
    assert result.columns == {
        "day": ColumnEstimate(0, 100, "0", "99", 4, 4),
        "name": ColumnEstimate(20, 4, None, None, 1, 1),
        "blank": ColumnEstimate(100, None, None, None, 8, 8),
    }
    assert result.size_bytes == 100 * (8 + 4 + 1 + 8)


def test_only_projected_columns_have_statistics(whole: ReadTable) -> None:
    assert list(estimated(whole, ["name"]).columns) == ["name"]
    assert estimated(whole, []).size_bytes == 100 * 8


def test_remaining_fragments_narrow_all_statistics(
    whole: ReadTable, pieces: list[pa.Table]
) -> None:
    result = estimated(narrowed(whole, pieces[:1]), filters=DAY_FILTER)
    assert (result.rows, result.fragment_ids) == (25, (0,))
    assert result.columns == {
        "day": ColumnEstimate(0, 25, "0", "24", 4, 4),
        "name": ColumnEstimate(5, 1, None, None, 1, 1),
        "blank": ColumnEstimate(25, None, None, None, 8, 8),
    }
    assert result.size_bytes == 25 * (8 + 4 + 1 + 8)


def test_a_column_without_partials_of_remaining_fragments_is_scaled(
    whole: ReadTable, pieces: list[pa.Table]
) -> None:
    result = estimated(narrowed(whole, pieces[:1], only="day"), filters=DAY_FILTER)
    assert result.columns["day"] == ColumnEstimate(0, 25, "0", "24", 4, 4)
    assert result.columns["name"] == ColumnEstimate(5, 4, None, None, 1, 1)


def test_a_column_of_known_range_is_narrowed_to_it(
    whole: ReadTable, pieces: list[pa.Table]
) -> None:
    ranges = {"day": (0, 24, 1), "name": (b"a", b"a", 5)}
    left = Left((0,), 25, True, {}, ranges)
    result = estimated(replace(whole, load_fragments=lambda: Fragments(left)), filters=DAY_FILTER)
    assert result.columns["day"] == ColumnEstimate(1, 24, "0", "24", 4, 4)
    assert result.columns["name"] == ColumnEstimate(5, 4, None, None, 1, 1)
    assert result.columns["blank"] == ColumnEstimate(25, None, None, None, 8, 8)


@dataclass(frozen=True)
class Sampled(Sampler):
    """Every sample has the same outcome."""

    fixed_share: float = 1.0

    def share(self, filters: Sequence[Filter], fragment_ids: Sequence[int] | None = None) -> float:
        return self.fixed_share


def sampled(table: ReadTable, share: float) -> ReadTable:
    def fail() -> lance.LanceDataset:
        raise AssertionError("opened")

    return replace(table, sampler=Sampled(fail, 100, fixed_share=share))


def test_a_sample_scales_all_statistics(whole: ReadTable) -> None:
    result = estimated(sampled(whole, 0.1), settings=ReadSettings(samples=True))
    assert (result.rows, result.sampled_share) == (10, 0.1)
    assert result.columns == {
        "day": ColumnEstimate(0, 10, "0", "99", 4, 4),
        "name": ColumnEstimate(2, 4, None, None, 1, 1),
        "blank": ColumnEstimate(10, None, None, None, 8, 8),
    }
    assert result.size_bytes == 10 * (8 + 4 + 1 + 8)


def test_samples_are_taken_only_when_enabled(whole: ReadTable) -> None:
    assert estimated(sampled(whole, 0.1)).rows == 100
    assert estimated(sampled(whole, 0.0001), settings=ReadSettings(samples=True)).rows == 1


def test_refused_statistics_leave_nothing_to_sample(whole: ReadTable) -> None:
    for entries in ({}, {**entries_of(whole), "lance.stats.schemaHash": "0" * 64}):
        refused = given(sampled(whole, 0.1), entries)
        result = estimated(refused, settings=ReadSettings(samples=True))
        assert (result.rows, result.sampled_share) == (100, None)
        assert result.size_bytes == estimated(given(whole, entries)).size_bytes


def test_remaining_fragments_without_bounds_are_not_counted_twice(
    whole: ReadTable, pieces: list[pa.Table]
) -> None:
    result = estimated(narrowed(whole, pieces[:1], is_known=False), filters=DAY_FILTER)
    assert result.fragment_ids == (0,)
    assert result.rows == 100
    assert result.columns == estimated(whole).columns


def test_refused_statistics_leave_live_rows_and_size(
    whole: ReadTable, pieces: list[pa.Table]
) -> None:
    other = {**entries_of(whole), "lance.stats.schemaHash": "0" * 64}
    refused = given(whole, tagged(other, whole.snapshot.version))
    result = estimated(refused)
    assert result.verdict.reason is GuardReason.SCHEMA_CHANGED
    assert (result.rows, result.columns) == (100, {})
    assert result.size_bytes == 100 * (8 + 4 + 20 + 8)
    some = estimated(narrowed(refused, pieces[:2], is_known=False), filters=DAY_FILTER)
    assert (some.rows, some.columns) == (50, {})


def test_disabled_statistics_are_not_used(whole: ReadTable) -> None:
    result = estimated(whole, settings=ReadSettings(enabled=False))
    assert (result.verdict.reason, result.columns) == (GuardReason.DISABLED, {})


def entries_of(table: ReadTable) -> dict[str, str]:
    return dict(table.statistics.entries)


def given(table: ReadTable, entries: Mapping[str, str], **changes: object) -> ReadTable:
    """The table with other entries in its manifest, its statistics otherwise changed as well."""
    published_snapshot = replace(table.snapshot, config=entries)
    statistics = replace(table.statistics, snapshot=published_snapshot, **changes)  # type: ignore[arg-type]
    return replace(table, statistics=statistics)


def stale(table: ReadTable, **changes: object) -> ReadTable:
    return given(table, tagged(entries_of(table), table.snapshot.version - 2), **changes)


@pytest.mark.parametrize(
    ("policy", "setting", "use"),
    [
        (False, None, False),
        (True, None, True),
        (False, True, True),
        (True, False, False),
        (StaleBounds(max_versions=2), None, True),
        (StaleBounds(max_versions=1), None, False),
        (StaleBounds(max_versions=1), True, True),
        (StaleBounds(max_versions=2), False, False),
    ],
)
def test_settings_come_before_the_policy(
    whole: ReadTable, policy: bool | StaleBounds, setting: bool | None, use: bool
) -> None:
    table = stale(whole, allow_stale=policy)
    result = estimated(table, settings=ReadSettings(allow_stale=setting))
    assert result.verdict.use is use
    assert result.verdict.reason is (GuardReason.STALE_ACCEPTED if use else GuardReason.STALE)


@pytest.mark.parametrize(("gone", "use"), [(4, True), (6, False), (None, False)])
def test_a_bound_on_rows_reads_the_number_of_changed_rows(
    whole: ReadTable, gone: int | None, use: bool
) -> None:
    def look_back(now: Snapshot, version: int) -> tuple[Snapshot | None, History]:
        """The table had a fragment of so many rows more; None where the version is gone."""
        assert version == now.version - 3, "it describes the version before its tag"
        history = History(version, now.version, ())
        if gone is None:
            return None, history
        more = Fragment(99, gone, 0, (), None, ())
        return replace(now, version=version, fragments=(*now.fragments, more)), history

    bounds = StaleBounds(max_changed_rows=0.05)
    table = stale(whole, allow_stale=bounds, look_back=look_back)
    assert estimated(table).verdict.use is use


def test_history_is_read_only_when_needed(whole: ReadTable) -> None:
    def fail(now: Snapshot, version: int) -> tuple[Snapshot | None, History]:
        raise AssertionError("asked for the history")

    bounds = StaleBounds(max_changed_rows=0.05)
    current = given(whole, entries_of(whole), allow_stale=bounds, look_back=fail)
    assert estimated(current).verdict.use
    assert not estimated(stale(whole, look_back=fail)).verdict.use
    versions = stale(whole, allow_stale=StaleBounds(max_versions=2), look_back=fail)
    assert estimated(versions).verdict.use


def test_stale_counts_fit_the_live_rows(whole: ReadTable) -> None:
    prefix = "lance.stats.column.name"
    entries = {**entries_of(whole), f"{prefix}.nullCount": "90", f"{prefix}.distinctCount": "50"}
    result = estimated(stale(given(whole, entries), allow_stale=True))
    assert (result.columns["name"].nulls, result.columns["name"].distinct) == (90, 10)


ENABLED = "spark.lance.cbo.column.stats.enabled"
STALE = "spark.lance.cbo.column.stats.allow.stale"
CBO = "spark.sql.cbo.enabled"
PUSHDOWN = "spark.lancestat.aggregate.pushdown.enabled"
ESTIMATES = "spark.lancestat.estimates.enabled"


@pytest.mark.parametrize(
    ("conf", "options", "expected"),
    [
        ({}, {}, ReadSettings(True, None)),
        ({ENABLED: "false"}, {}, ReadSettings(False, None)),
        ({}, {"cbo.column.stats.enabled": "false"}, ReadSettings(False, None)),
        ({ENABLED: "true"}, {"cbo.column.stats.enabled": "false"}, ReadSettings(True, None)),
        ({ENABLED: " FALSE "}, {"cbo.column.stats.enabled": "true"}, ReadSettings(False, None)),
        ({STALE: "true"}, {}, ReadSettings(True, True)),
        ({CBO: "true"}, {}, ReadSettings(True, None, samples=True, estimates=True)),
        ({CBO: "true", ESTIMATES: "false"}, {}, ReadSettings(samples=True)),
        ({CBO: "true", ESTIMATES: "on"}, {}, ReadSettings(samples=True)),
        ({ESTIMATES: "true"}, {}, ReadSettings()),
        ({CBO: "true", ENABLED: "false"}, {}, ReadSettings(False, None)),
        ({CBO: "false"}, {}, ReadSettings(True, None)),
        ({STALE: "false"}, {"cbo.column.stats.allow.stale": "true"}, ReadSettings(True, False)),
        ({}, {"cbo.column.stats.allow.stale": "True"}, ReadSettings(True, True)),
        ({PUSHDOWN: "false"}, {}, ReadSettings(pushdown=False)),
        ({}, {"aggregate.pushdown.enabled": "off"}, ReadSettings(pushdown=False)),
        ({PUSHDOWN: "true"}, {"aggregate.pushdown.enabled": "false"}, ReadSettings()),
        ({ENABLED: "false", PUSHDOWN: "true"}, {}, ReadSettings(False)),
    ],
)
def test_settings_of_the_session_override_those_of_the_scan(
    conf: dict[str, str], options: dict[str, str], expected: ReadSettings
) -> None:
    assert ReadSettings.of(conf, options) == expected


def test_a_value_that_is_not_a_boolean_is_false_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "lancestat.read"):
        assert ReadSettings.of({ENABLED: "yes"}, {}) == ReadSettings(False, None)
        assert ReadSettings.of({}, {"cbo.column.stats.allow.stale": "1"}) == ReadSettings(
            True, False
        )
    assert [record.getMessage() for record in caplog.records] == [
        f"{ENABLED} is 'yes', neither true nor false: taken as false",
        "cbo.column.stats.allow.stale is '1', neither true nor false: taken as false",
    ]
