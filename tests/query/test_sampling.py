"""Filters that Spark does not estimate are counted in a sample."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import lancestat.query.sampler
from lancestat.errors import DatasetMissing
from lancestat.query.predicates.filter import (
    And,
    Comparison,
    Filter,
    In,
    IsNull,
    LocalTime,
    Not,
    Operator,
    Or,
    TextMatch,
    TextOperator,
    TimeOfDay,
)
from lancestat.query.sampler import SAMPLE_ROWS, Sampler

ROWS = 40_000


def starts_with(column: str, text: str) -> TextMatch:
    return TextMatch(column, TextOperator.STARTS_WITH, text)


def ends_with(column: str, text: str) -> TextMatch:
    return TextMatch(column, TextOperator.ENDS_WITH, text)


def contains(column: str, text: str) -> TextMatch:
    return TextMatch(column, TextOperator.CONTAINS, text)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> lance.LanceDataset:
    """One in five names is green, one in four rows has no name, all keys differ."""
    names = ["dark green tea" if n % 5 == 0 else "red wine" for n in range(ROWS)]
    table = pa.table(
        {
            "key": pa.array(range(ROWS), pa.int64()),
            "name": pa.array(names, pa.string()),
            "note": pa.array([None if n % 4 == 0 else names[n] for n in range(ROWS)], pa.string()),
            "void": pa.array([None] * ROWS, pa.string()),
        }
    )
    return lance.write_dataset(table, str(tmp_path_factory.mktemp("sampling") / "t.lance"))


@pytest.mark.parametrize(
    ("filters", "share"),
    [
        ([contains("name", "green")], 0.2),
        ([starts_with("name", "dark")], 0.2),
        ([ends_with("name", "tea")], 0.2),
        ([Not(contains("name", "green"))], 0.8),
        ([And(contains("name", "green"), ends_with("name", "wine"))], 0.5 / SAMPLE_ROWS),
        ([contains("note", "green"), Not(IsNull("note"))], 0.2),
        ([contains("name", "red"), Comparison("key", Operator.LESS, 10)], 0.8),
        ([contains("name", "")], 1.0),
    ],
)
def test_the_share_is_that_of_the_rows(
    dataset: lance.LanceDataset, filters: Sequence[Filter], share: float
) -> None:
    sampled_share = Sampler(lambda: dataset, ROWS).share(filters)
    # Four standard errors of a share of a half.
    assert sampled_share == pytest.approx(share, abs=4 * 0.5 / SAMPLE_ROWS**0.5)


@pytest.mark.parametrize(
    "filters",
    [
        [],
        [Comparison("key", Operator.LESS, 10), Not(IsNull("name"))],
        [Or(contains("name", "green"), Comparison("key", Operator.LESS, 10))],
        [contains("void", "x")],
    ],
)
def test_filters_that_spark_estimates_are_not_sampled(
    dataset: lance.LanceDataset, filters: Sequence[Filter]
) -> None:
    assert Sampler(lambda: dataset, ROWS).share(filters) is None


@pytest.fixture(scope="module")
def times(tmp_path_factory: pytest.TempPathFactory) -> lance.LanceDataset:
    """Local times around 1970 and times of day; one in four rows has none.

    tests/query/test_zone_maps.py has other units.
    """
    seconds = [None if n % 4 == 0 else n - ROWS // 2 for n in range(ROWS)]
    stored = [None if n is None else n * 10**9 for n in seconds]
    clocks = [None if n is None else abs(n) for n in seconds]
    columns = {
        "name": pa.array(["green" if n % 5 == 0 else "red" for n in range(ROWS)]),
        "at": pa.array(stored, pa.int64()).view(pa.timestamp("ns")),
        "clock": pa.array(clocks, pa.int32()).view(pa.time32("s")),
    }
    folder = tmp_path_factory.mktemp("sampling")
    return lance.write_dataset(pa.table(columns), str(folder / "times.lance"))


UNREPORTED = frozenset(("at", "clock"))


@pytest.mark.parametrize(
    ("filters", "share"),
    [
        ([Comparison("at", Operator.LESS, LocalTime(0))], 0.375),
        ([Comparison("at", Operator.LESS_OR_EQUAL, LocalTime(-10_000_000_000))], 0.1875),
        ([Not(Comparison("at", Operator.LESS, LocalTime(0)))], 0.375),
        ([Comparison("at", Operator.GREATER, LocalTime(10_000_000_000))], 0.1875),
        ([Comparison("at", Operator.EQUAL, LocalTime(7))], 0.0),
        ([Comparison("at", Operator.EQUAL, None)], 0.0),
        ([Comparison("at", Operator.NULL_SAFE, None)], 0.25),
        ([Not(Comparison("at", Operator.NULL_SAFE, LocalTime(7)))], 1.0),
        ([Not(In("at", (LocalTime(7), LocalTime(8))))], 0.75),
        ([Not(In("at", (LocalTime(7), None)))], 0.0),
        ([Not(In("at", ()))], 1.0),
        ([In("at", (LocalTime(7), None))], 0.0),
        ([IsNull("at")], 0.25),
        ([Or(IsNull("at"), Comparison("at", Operator.LESS, LocalTime(0)))], 0.625),
        ([Comparison("clock", Operator.LESS, TimeOfDay(10_000_000_000))], 0.375),
        ([Not(IsNull("clock")), Comparison("name", Operator.EQUAL, "green")], 0.75),
        ([IsNull("at"), contains("name", "green")], 0.05),
        ([Or(contains("name", "green"), IsNull("at"))], 0.4),
    ],
)
def test_conditions_on_unreported_columns_are_sampled(
    times: lance.LanceDataset, filters: Sequence[Filter], share: float
) -> None:
    sampled_share = Sampler(lambda: times, ROWS, UNREPORTED).share(filters)
    assert sampled_share == pytest.approx(share, abs=4 * 0.5 / SAMPLE_ROWS**0.5)


def test_a_disjunction_with_an_estimated_condition_is_not_sampled(
    times: lance.LanceDataset,
) -> None:
    sampler = Sampler(lambda: times, ROWS, UNREPORTED)
    mixed = Or(IsNull("at"), Comparison("name", Operator.EQUAL, "green"))
    assert sampler.share([mixed]) is None


def test_a_small_table_is_not_sampled() -> None:
    def fail() -> lance.LanceDataset:
        raise AssertionError("opened")

    assert Sampler(fail, 19_999).share([contains("name", "green")]) is None


def test_an_answer_is_cached(dataset: lance.LanceDataset) -> None:
    opened = []

    def open() -> lance.LanceDataset:
        opened.append(1)
        return dataset

    sampler = Sampler(open, ROWS)
    filters = [contains("name", "green"), ends_with("name", "tea")]
    assert sampler.share(filters) == sampler.share(list(reversed(filters)))
    assert len(opened) == 1


def test_deleted_rows_are_not_sampled(tmp_path: Path) -> None:
    table = pa.table({"name": ["green"] * ROWS + ["red"] * ROWS})
    dataset = lance.write_dataset(table, str(tmp_path / "t.lance"), max_rows_per_file=10_000)
    dataset.delete("name = 'green'")
    assert Sampler(lambda: dataset, ROWS).share([contains("name", "red")]) == 1.0


def test_only_the_fragments_that_are_read_are_sampled(tmp_path: Path) -> None:
    table = pa.table({"name": ["green"] * 10_000 + ["red"] * 30_000})
    dataset = lance.write_dataset(table, str(tmp_path / "t.lance"), max_rows_per_file=1_000)
    sampler = Sampler(lambda: dataset, ROWS)
    green = [contains("name", "green")]
    assert sampler.share(green) == 0.25
    assert sampler.share(green, [3]) == 1.0
    assert sampler.share(green, range(20)) == pytest.approx(0.5)
    assert sampler.share(green, [9, 10]) == 0.5
    assert sampler.share(green, []) is None
    dataset.delete("name = 'green'")
    assert sampler.share([contains("name", "red")], [10]) == 1.0


def test_a_sample_of_few_rows_has_each_once(tmp_path: Path) -> None:
    table = pa.table({"name": ["green", *["red"] * 9]})
    dataset = lance.write_dataset(table, str(tmp_path / "t.lance"))
    assert Sampler(lambda: dataset, ROWS).share([contains("name", "green")], [0]) == 0.1


def test_a_dataset_that_cannot_be_opened_has_no_sample(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> lance.LanceDataset:
        raise DatasetMissing("gone")

    assert Sampler(fail, ROWS).share([contains("name", "green")]) is None
    assert "no sample could be read: DatasetMissing" in caplog.text


def test_lance_looks_for_no_row_of_a_sample_among_deleted_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `take_rows`: a plan would wait for a minute."""
    monkeypatch.setattr(lancestat.query.sampler, "WHOLE_ROWS", 1)
    monkeypatch.delattr(lance.LanceDataset, "take")
    table = pa.table({"n": range(ROWS), "name": ["green", *["red"] * 3] * (ROWS // 4)})
    dataset = lance.write_dataset(table, str(tmp_path / "t.lance"), max_rows_per_file=ROWS // 8)
    dataset.delete("n % 100 = 3")
    share = Sampler(lambda: dataset, dataset.count_rows()).share([contains("name", "green")])
    assert share == pytest.approx(25 / 99, abs=0.02)
