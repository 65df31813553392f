"""Policies from their YAML."""

from __future__ import annotations

from typing import Any

from lancestat.errors import LancestatError
from lancestat.spec.disclosure import named, named_parts
from lancestat.spec.duration import build_duration
from lancestat.spec.item import Item
from lancestat.spec.model import Policy, Refresh, StaleBounds


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
    own = item.origins_below(*steps)
    return Policy(
        name,
        value.get("description"),
        allowed,
        Refresh(value.get("refresh", Refresh.ALWAYS)),
        named(own, "allow.stale", "refresh"),
    )


def _build_bounds(
    item: Item, value: dict[str, Any], errors: list[LancestatError], *steps: str
) -> StaleBounds:
    versions = value.get("max_versions")
    share = value.get("max_changed_rows")
    return StaleBounds(
        None if versions is None else int(versions),
        build_duration(item, value, errors, *steps, "max_age"),
        None if share is None else _share(share),
        named_parts(item.origins_below(*steps[:-1]), steps[-1]),
    )


def _share(value: str | float) -> float:
    return float(value.removesuffix("%")) / 100 if isinstance(value, str) else float(value)
