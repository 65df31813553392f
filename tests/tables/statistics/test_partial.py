"""Partials: bounds, merging in any order, the stored form."""

from __future__ import annotations

import json
import math
import struct
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancestat.tables.statistics.bounds import (
    BOUND_BYTES,
    Bound,
    lower_bound,
    next_characters,
    upper_bound,
    whole_characters,
)
from lancestat.tables.statistics.partial import EMPTY_PARTIAL, ColumnPartial, decode, encode, merge
from lancestat.tables.statistics.sketches import EMPTY_SKETCH
from tests.tables.statistics.columns import BYTES, COLUMNS, TEXT, true_partial


@given(BYTES)
def test_bounds_enclose_their_value_and_are_short(value: bytes) -> None:
    low, high = lower_bound(value), upper_bound(value)
    assert low <= value
    assert len(low) <= BOUND_BYTES
    assert high is None or (value <= high and len(high) <= BOUND_BYTES)
    assert len(value) > BOUND_BYTES or low == high == value


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


STORED = json.loads((Path(__file__).parents[2] / "vectors/sketch_partials.json").read_text("utf-8"))

PARTIALS = st.sampled_from(COLUMNS).flatmap(
    lambda column: st.lists(st.one_of(st.none(), column.values), max_size=20).map(
        lambda values: true_partial(column, values)
    )
)


def partials_of_one_column() -> st.SearchStrategy[list[ColumnPartial]]:
    def of(column: object) -> st.SearchStrategy[list[ColumnPartial]]:
        values = st.lists(st.one_of(st.none(), column.values), max_size=8)  # type: ignore[attr-defined]
        partial = values.map(lambda values: true_partial(column, values))  # type: ignore[arg-type]
        return st.lists(partial, min_size=3, max_size=3)

    return st.sampled_from(COLUMNS).flatmap(of)


@given(partials_of_one_column())
def test_merge_is_associative_and_commutative(parts: list[ColumnPartial]) -> None:
    a, b, c = parts
    whole = repr(merge([a, b, c]))
    assert repr(merge([merge([a, b]), c])) == whole
    assert repr(merge([a, merge([b, c])])) == whole
    assert repr(merge([c, a, b])) == whole
    assert repr(merge([b, EMPTY_PARTIAL, c, a])) == whole
    assert merge([]) == merge(iter([])) == EMPTY_PARTIAL


def test_an_open_upper_bound_stays_open() -> None:
    open_above = ColumnPartial(1, 0, 0, b"\xff" * 256, None, 300, 300, EMPTY_SKETCH)
    closed = ColumnPartial(1, 0, 0, b"a", b"b", 1, 1, EMPTY_SKETCH)
    merged = merge([closed, open_above, EMPTY_PARTIAL])
    assert (merged.minimum, merged.maximum) == (b"a", None)


@given(PARTIALS)
def test_the_stored_form_round_trips(partial: ColumnPartial) -> None:
    assert repr(decode(encode(partial))) == repr(partial)


@given(st.integers())
def test_integers_of_any_size_are_stored(bound: int) -> None:
    stored = replace(EMPTY_PARTIAL, rows=1, minimum=bound, maximum=bound)
    assert decode(encode(stored)) == stored


@pytest.mark.parametrize("example", STORED["partials"], ids=lambda example: example["name"])
def test_the_stored_form_is_pinned(example: dict[str, str]) -> None:
    assert repr(decode(bytes.fromhex(example["stored"])).minimum) == example["minimum"]
    restored = decode(bytes.fromhex(example["stored"]))
    assert repr(restored.maximum) == example["maximum"]
    assert (restored.rows, restored.nulls, restored.nans) == tuple(example["counts"])
    assert f"{restored.sketch.estimate():.6f}" == example["estimate"]
    assert encode(restored).hex() == example["stored"]


@given(PARTIALS, st.data())
def test_an_altered_stored_form_is_refused(partial: ColumnPartial, data: st.DataObject) -> None:
    stored = bytearray(encode(partial))
    position = data.draw(st.integers(0, len(stored) - 1))
    stored[position] ^= data.draw(st.integers(1, 255))
    with pytest.raises(ValueError, match="a stored partial"):
        decode(bytes(stored))


@given(PARTIALS, st.data())
def test_a_truncated_or_longer_stored_form_is_refused(
    partial: ColumnPartial, data: st.DataObject
) -> None:
    stored = encode(partial)
    with pytest.raises(ValueError):
        decode(stored[: data.draw(st.integers(0, len(stored) - 1))])
    with pytest.raises(ValueError):
        decode(stored + data.draw(st.binary(min_size=1, max_size=5)))


def sealed(body: bytes) -> bytes:
    return body + struct.pack("<I", zlib.crc32(body))


@given(PARTIALS, st.data())
def test_a_forged_checksum_crashes_nothing(partial: ColumnPartial, data: st.DataObject) -> None:
    body = bytearray(encode(partial)[:-4])
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        decoded = decode(sealed(bytes(body)))
    except ValueError:
        return
    assert repr(decode(encode(decoded))) == repr(decoded)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused(garbage: bytes) -> None:
    with pytest.raises(ValueError):
        decode(garbage)
    with pytest.raises(ValueError):
        decode(sealed(b"\3\2" + garbage[:40] + b"\xff"))


@pytest.mark.parametrize(
    ("minimum", "maximum"),
    [(1, 0), (1, 2.0), (b"a", 1), (math.nan, math.nan), (0.0, math.nan), (None, 1), (1, None)],
)
def test_impossible_bounds_are_refused(minimum: Bound | None, maximum: Bound | None) -> None:
    stored = encode(replace(EMPTY_PARTIAL, rows=1, minimum=minimum, maximum=maximum))
    with pytest.raises(ValueError, match="has bounds"):
        decode(stored)


def test_more_nulls_than_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="2 nulls and 1 NaN in 2 rows"):
        decode(encode(replace(EMPTY_PARTIAL, rows=2, nulls=2, nans=1)))


def stored(*parts: tuple[int, bytes], form: int = 3, count: int | None = None) -> bytes:
    pieces = [struct.pack("<BI", tag, len(payload)) + payload for tag, payload in parts]
    return sealed(bytes([form, len(parts) if count is None else count]) + b"".join(pieces))


ROWS = (1, b"\1")


@pytest.mark.parametrize(
    ("form", "message"),
    [
        (sealed(b"\1" + bytes(56)), "form 1; this version reads form 3"),
        (stored(ROWS, form=4), "form 4"),
        (stored(ROWS, (14, b"\1")), "tag 14 after tag 1"),
        (stored((0, b""), ROWS), "tag 0 after tag 0"),
        (stored(ROWS, ROWS), "tag 1 after tag 1"),
        (stored((2, b"\1"), ROWS), "tag 1 after tag 2"),
        (stored(ROWS, count=0), "6 bytes after its parts"),
        (stored(ROWS, count=2), "ends inside its parts"),
        (sealed(b"\3\1\1\5\0\0\0\1"), "ends inside its parts"),
        (stored((1, bytes(9))), "a count of 9 bytes"),
        (stored(ROWS, (4, b"\4abc")), "a bound of type"),
        (stored(ROWS, (4, b"\2abc")), "a bound of type"),
        (stored(ROWS, (8, b"\2")), "a sketch of an unknown form"),
    ],
)
def test_what_is_not_known_makes_a_partial_unreadable(form: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        decode(form)


def test_a_part_that_is_missing_is_that_of_the_empty_partial() -> None:
    assert decode(stored(ROWS)) == replace(EMPTY_PARTIAL, rows=1)
