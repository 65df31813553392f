"""Spans of time from their YAML: `90s`, `30m`, `24h`, `7d`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from lancestat.errors import LancestatError
from lancestat.spec import codes
from lancestat.spec.item import Item

_LONGEST = timedelta(days=36500)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def build_duration(
    item: Item, value: Mapping[str, Any], errors: list[LancestatError], *steps: str
) -> timedelta | None:
    """The span under the last of `steps` in `value`, None where there is none; errors are appended.

    Args:
        item: What the place of an error is told by.
        value: The mapping that holds the span, as the schema allows it.
        errors: Where to put an error.
        steps: The way from the item to the span.
    """
    key = steps[-1]
    text = value.get(key)
    if text is None:
        return None
    span = timedelta(seconds=int(text[:-1]) * _SECONDS[text[-1]])
    if span > _LONGEST:
        told = item.quoted(str(text), *steps)
        message = f"'{key}' must be at most {_LONGEST.days} days, found {told}"
        errors.append(item.error(codes.WRONG_VALUE, message, *steps))
    return span
