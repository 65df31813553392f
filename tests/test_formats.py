from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancestat.formats import count, duration, large, size
from lancestat.spec.model import Policy, StaleBounds


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [
        (0, "row", "0 rows"),
        (1, "row", "1 row"),
        (4_250_000, "row", "4,250,000 rows"),
        (12, None, "12"),
    ],
)
def test_counts_have_separators_and_the_right_number_of_nouns(
    number: int, noun: str | None, text: str
) -> None:
    assert count(number, noun) == text


def test_an_irregular_plural_is_given() -> None:
    assert count(2, "entry", "entries") == "2 entries"


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (9_949, "9.9 kB"),
        (9_950, "10 kB"),
        (999_499, "999 kB"),
        (999_500, "1.0 MB"),
        (212_345_678, "212 MB"),
        (5_000_000_000_000_000_000, "5,000 PB"),
    ],
)
def test_sizes_have_two_or_three_digits(size_bytes: int, text: str) -> None:
    assert size(size_bytes) == text


@given(st.integers(1000, 10**18 - 10**15))
def test_a_size_is_never_off_by_more_than_its_rounding(size_bytes: int) -> None:
    digits, unit = size(size_bytes).split()
    factor = 1000 ** ["B", "kB", "MB", "GB", "TB", "PB"].index(unit)
    assert abs(float(digits) * factor - size_bytes) <= 0.051 * size_bytes


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 ms"),
        (0.0994, "99 ms"),
        (0.0995, "0.1 s"),
        (1.24, "1.2 s"),
        (9.96, "10 s"),
        (59.6, "1 min"),
        (125, "2 min 5 s"),
        (3600, "1 h"),
        (3601, "1 h"),
        (11_040, "3 h 4 min"),
        (90_000, "1 d 1 h"),
        (90_061, "1 d 1 h"),
    ],
)
def test_durations_show_the_two_largest_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("allowed", "text"),
    [
        (False, "never stale"),
        (True, "any staleness"),
        (StaleBounds(), "never stale"),
        (StaleBounds(max_versions=1), "up to 1 version"),
        (
            StaleBounds(20, timedelta(hours=24), 0.05),
            "up to 20 versions, up to 1 d, up to 5 % of the rows",
        ),
    ],
)
def test_the_text_of_staleness_names_the_accepted_bounds(
    allowed: bool | StaleBounds, text: str
) -> None:
    assert Policy(allow_stale=allowed).accepted_staleness == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (950, "950"),
        (999.6, "1.0 thousand"),
        (12_345, "12 thousand"),
        (2_000_000, "2.0 million"),
        (1.24e9, "1.2 billion"),
        (999.5e9, "1.0 trillion"),
        (5e15, "5,000 trillion"),
    ],
)
def test_large_numbers_are_rounded_and_named(number: float, text: str) -> None:
    assert large(number) == text
