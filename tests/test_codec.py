from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from enum import Enum
from types import MappingProxyType

import pytest

from lancestat import codec
from lancestat.codec import Instant


class Colour(str, Enum):
    RED = "red"


@dataclass(frozen=True, slots=True)
class Inner:
    rows: int
    share: float | None = None


@dataclass(frozen=True, slots=True)
class Outer:
    name: str
    inner: Inner
    pairs: Mapping[str, tuple[str, str]]
    at: Instant
    colour: Colour = Colour.RED
    tags: tuple[str, ...] = ()


AT = datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))
VALUE = Outer("a", Inner(2**70), MappingProxyType({"x": ("1", "2")}), AT, tags=("t",))
STORED = (
    '{"name":"a","inner":{"rows":1180591620717411303424,"share":null},"pairs":{"x":["1","2"]},'
    '"at":"2026-01-01T00:00:00+00:00","colour":"red","tags":["t"]}'
)


def test_the_stored_form_has_the_fields_in_their_order() -> None:
    assert codec.encode(VALUE, separators=(",", ":")) == STORED
    assert codec.decode(STORED, Outer) == VALUE


def test_unknown_keys_are_ignored_and_missing_ones_have_defaults() -> None:
    stored = {**json.loads(STORED), "novelty": 1}
    del stored["tags"], stored["colour"], stored["inner"]["share"]
    assert codec.convert(stored, Outer) == Outer("a", Inner(2**70), {"x": ("1", "2")}, AT)


def test_texts_may_hold_lone_surrogates() -> None:
    stored = json.loads(STORED) | {"name": "\ud800", "pairs": {"\udc80": ["\udc80", ""]}}
    value = codec.convert(stored, Outer)
    assert (value.name, value.pairs) == ("\ud800", {"\udc80": ("\udc80", "")})
    assert codec.decode(codec.encode(value), Outer) == value


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        ({"name": 5}, "Expected `str`, got `int` - at `$.name`"),
        ({"inner": {"rows": "5"}}, "Expected `int`, got `str` - at `$.inner.rows`"),
        ({"inner": {"rows": 5.0}}, "Expected `int`, got `float` - at `$.inner.rows`"),
        ({"inner": {"rows": True}}, "Expected `int`, got `bool` - at `$.inner.rows`"),
        ({"inner": {}}, "missing required field `rows` - at `$.inner`"),
        ({"pairs": {"x": ["1"]}}, "Expected `array` of length 2, got 1"),
        ({"at": "2026-01-01T00:00:00"}, "Expected `datetime` with a timezone component"),
        ({"at": "soon"}, "Invalid RFC3339 encoded datetime - at `$.at`"),
        ({"colour": "blue"}, "Invalid enum value 'blue' - at `$.colour`"),
        ({"tags": "t"}, "Expected `array`, got `str` - at `$.tags`"),
    ],
)
def test_a_wrong_value_is_one_error_that_names_its_path(
    damage: dict[str, object], expected: str
) -> None:
    with pytest.raises(ValueError) as caught:
        codec.convert({**json.loads(STORED), **damage}, Outer)
    assert expected in str(caught.value)


@pytest.mark.parametrize("stored", ["", "{", "null", "[]", '"a"', "3"])
def test_a_value_that_is_not_an_object_is_a_value_error(stored: str) -> None:
    with pytest.raises(ValueError):
        codec.decode(stored, Outer)
