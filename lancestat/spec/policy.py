"""Policies from their YAML."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from lancestat.errors import LancestatError
from lancestat.spec import codes
from lancestat.spec.item import Item
from lancestat.spec.model import Policy, Refresh, StaleBounds
from lancestat.spec.quoting import quoted

_LONGEST_AGE = timedelta(days=36500)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def build_policy(
    item: Item, errors: list[LancestatError], *steps: str, name: str | None = None
) -> Policy:
    """The policy that the mapping at `steps` of an item describes; errors are appended."""
    value: Any = item.value
    for step in steps:
        value = value[step]
    allowed = value.get("allow.stale", False)
    if isinstance(allowed, dict):
        allowed = _build_bounds(item, allowed, errors, *steps, "allow.stale")
    return Policy(
        name, value.get("description"), allowed, Refresh(value.get("refresh", Refresh.ALWAYS))
    )


def _build_bounds(
    item: Item, value: dict[str, Any], errors: list[LancestatError], *steps: str
) -> StaleBounds:
    versions = value.get("max_versions")
    age = value.get("max_age")
    share = value.get("max_changed_rows")
    max_age = None if age is None else _duration(age)
    if max_age is not None and max_age > _LONGEST_AGE:
        message = f"'max_age' must be at most {_LONGEST_AGE.days} days, found {quoted(str(age))}"
        errors.append(item.error(codes.WRONG_VALUE, message, *steps, "max_age"))
    return StaleBounds(
        None if versions is None else int(versions),
        max_age,
        None if share is None else _share(share),
    )


def _duration(text: str) -> timedelta:
    return timedelta(seconds=int(text[:-1]) * _SECONDS[text[-1]])


def _share(value: str | float) -> float:
    return float(value.removesuffix("%")) / 100 if isinstance(value, str) else float(value)
