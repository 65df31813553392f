from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lancestat.lake.snapshot import ANALYSIS
from lancestat.state.values import quantile_key
from lancestat.tables.action import Scan
from lancestat.tables.analyze import ScanRange, WorkItem, jobs, split, weigh

FIELDS = [frozenset(f"{i}:int" for i in range(count)) for count in (1, 2, 16, 200)]
MIB = 1 << 20


@st.composite
def scan_lists(draw: st.DrawFn) -> list[Scan]:
    sizes = st.one_of(st.integers(0, 50_000), st.integers(0, 400 * MIB))
    rows = st.one_of(st.integers(0, 5), st.integers(0, 10_000_000))
    drawn = draw(st.lists(st.tuples(rows, sizes, st.sampled_from(FIELDS)), max_size=40))
    return [
        # Two scans of one fragment: its columns lie in different files.
        Scan(index // 2, bytes([index]) * 16, fields, rows, size)
        for index, (rows, size, fields) in enumerate(drawn)
    ]


def scan(rows: int, size: int) -> Scan:
    return Scan(0, b"", FIELDS[0], rows, size)


def weight(item: WorkItem) -> float:
    return sum(part.weight for part in item)


def ranges(items: Sequence[WorkItem]) -> list[ScanRange]:
    return [part for item in items for part in item]


@given(scan_lists(), st.integers(0, 64))
@settings(deadline=None)
def test_every_row_of_every_scan_is_read_exactly_once(scans: list[Scan], cores: int) -> None:
    by_scan: dict[int, list[ScanRange]] = defaultdict(list)
    for part in ranges(split(scans, cores)):
        by_scan[part.scan].append(part)

    assert by_scan.keys() == set(range(len(scans)))
    for index, parts in by_scan.items():
        position = 0
        for part in sorted(parts, key=lambda part: part.rows.offset):
            rows = part.rows
            assert rows.fragment_id == scans[index].fragment_id
            assert rows.offset == position
            assert rows.count is None or rows.count > 0
            position = scans[index].rows if rows.count is None else position + rows.count
        assert position == scans[index].rows
        assert sum(part.rows.count is None for part in parts) == 1, "the last reads to the end"


@given(scan_lists(), st.integers(1, 64))
@settings(deadline=None)
def test_no_item_is_heavier_than_its_share(scans: list[Scan], cores: int) -> None:
    sizes = replace(ANALYSIS, lightest=MIB, heaviest=64 * MIB)
    items = split(scans, cores, sizes)
    total = sum(map(weigh, scans))
    share = min(sizes.heaviest, max(2 * sizes.lightest, -(-total // (cores * sizes.per_core))))
    row = max(
        (-(-weigh(fragment_scan) // max(1, fragment_scan.rows)) for fragment_scan in scans),
        default=0,
    )

    assert all(weight(item) <= share + row for item in items)
    assert [*map(weight, items)] == sorted(map(weight, items), reverse=True)


@given(scan_lists(), st.integers(1, 64))
@settings(deadline=None)
def test_idle_cores_taking_the_next_item_end_close_to_the_ideal(
    scans: list[Scan], cores: int
) -> None:
    items = split(scans, cores)
    busy_until = [0] * cores
    for item in items:
        heapq.heapreplace(busy_until, busy_until[0] + weight(item))
    total = sum(weight(item) for item in items)
    heaviest = max((weight(item) for item in items), default=0)

    assert max(busy_until) <= total / cores + heaviest


@given(scan_lists(), st.integers(1, 8))
@settings(deadline=None)
def test_light_scans_share_items(scans: list[Scan], cores: int) -> None:
    light = [fragment_scan for fragment_scan in scans if weigh(fragment_scan) < 4 * MIB]
    items = split(light, cores)
    total = sum(map(weigh, light))
    # Of two neighbours in the order of filling, the second did not fit into the first.
    share = max(4 * MIB, total // (cores * ANALYSIS.per_core))
    assert len(items) <= 2 * total / share + 1


def test_one_huge_fragment_keeps_every_core_busy() -> None:
    items = split([scan(1_000_000, 1 << 30)], cores=4)
    assert len(items) == 4 * ANALYSIS.per_core
    assert max(weight(i) for i in items) <= 1.001 * min(weight(i) for i in items)


def test_a_fragment_of_a_few_huge_rows_is_cut_into_no_more_items_than_rows() -> None:
    assert len(split([scan(3, 8 << 30)], cores=16)) == 3


def test_a_thousand_tiny_fragments_share_few_tasks() -> None:
    assert len(split([scan(10, 1_000)] * 1_000, cores=2)) <= 40


@given(scan_lists(), st.integers(1, 500))
@settings(deadline=None)
def test_jobs_hold_all_scans_in_order_and_a_bounded_number_of_partials(
    scans: list[Scan], limit: int
) -> None:
    scan_jobs = list(jobs(scans, limit))

    assert [fragment_scan for job in scan_jobs for fragment_scan in job] == scans
    for job in scan_jobs:
        assert len(job) == 1 or sum(len(fragment_scan.fields) for fragment_scan in job) <= limit


def test_a_job_holds_fewer_partials_with_quantiles() -> None:
    plain = [scan(10, 1_000)] * 12
    rich = [
        replace(fragment_scan, fields=frozenset(map(quantile_key, fragment_scan.fields)))
        for fragment_scan in plain
    ]
    limit = 6 * len(plain[0].fields)
    assert [len(job) for job in jobs(plain, limit)] == [6, 6]
    assert [len(job) for job in jobs(rich, limit)] == [1] * 12


@pytest.mark.parametrize("limit", [1, 32_768])
def test_no_scans_need_no_job(limit: int) -> None:
    assert list(jobs([], limit)) == []
    assert split([], 2) == ()
