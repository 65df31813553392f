from __future__ import annotations

import pytest
from hypothesis import given

from lancestat.tables.statistics.partial import (
    BOUND_BYTES,
    lower_bound,
    next_characters,
    upper_bound,
    whole_characters,
)
from tests.tables.statistics.columns import BYTES, TEXT


@given(BYTES)
def test_bounds_enclose_their_value_and_are_short(value: bytes) -> None:
    low, high = lower_bound(value), upper_bound(value)
    assert low <= value
    assert len(low) <= BOUND_BYTES
    assert high is None or (value <= high and len(high) <= BOUND_BYTES)


@given(BYTES)
def test_a_short_value_is_its_own_bound(value: bytes) -> None:
    if len(value) <= BOUND_BYTES:
        assert lower_bound(value) == upper_bound(value) == value


@given(BYTES, BYTES)
def test_bounds_keep_the_order(a: bytes, b: bytes) -> None:
    """So the bound of the least of some values is the least of their bounds, however split."""
    a, b = min(a, b), max(a, b)
    assert lower_bound(a) <= lower_bound(b)
    low, high = upper_bound(a), upper_bound(b)
    assert high is None or (low is not None and low <= high)


def test_bytes_of_all_ones_have_no_short_upper_bound() -> None:
    assert upper_bound(b"\xff" * 256) == b"\xff" * 256
    assert upper_bound(b"\xff" * 257) is None
    assert upper_bound(b"a" + b"\xff" * 300) == b"b"


@given(TEXT)
def test_bounds_of_text_become_text_that_still_encloses(value: bytes) -> None:
    low = whole_characters(lower_bound(value))
    assert low.decode() <= value.decode()
    high = upper_bound(value)
    above = next_characters(high) if high is not None else None
    assert above is None or above.decode() >= value.decode()


@pytest.mark.parametrize(
    ("cut", "above"),
    [
        ("é" * 128, "é" * 128),
        ("m" * 255 + "é", "m" * 254 + "n"),
        ("m" * 254 + "\ud7ff", "m" * 253 + "n"),
        ("m" * 253 + "\U0010ffff€", "m" * 252 + "n"),
        ("\ud7ff" * 86, "\ud7ff" * 84 + "\ue000"),
        ("\U0010ffff" * 65, None),
    ],
)
def test_text_cut_inside_a_character_still_encloses(cut: str, above: str | None) -> None:
    bound = upper_bound(cut.encode())
    assert bound is not None
    above_bound = next_characters(bound)
    assert above_bound == (above.encode() if above else None)


def test_a_cut_lower_bound_ends_before_the_character() -> None:
    assert whole_characters(lower_bound(("m" * 255 + "é").encode())) == b"m" * 255
    assert whole_characters("é".encode()) == "é".encode()
