"""A table's freshness from its YAML."""

from __future__ import annotations

from lancestat.errors import LancestatError
from lancestat.spec import codes
from lancestat.spec.disclosure import named_parts
from lancestat.spec.duration import build_duration
from lancestat.spec.item import Item
from lancestat.spec.model import Freshness

_KEY = "freshness"


def build_freshness(item: Item, errors: list[LancestatError]) -> Freshness | None:
    """The bounds that an item gives for the age of its rows, if any; errors are appended."""
    value = item.value.get(_KEY)
    if value is None:
        return None
    warn = build_duration(item, value, errors, _KEY, "warn_after")
    error = build_duration(item, value, errors, _KEY, "error_after")
    if warn is not None and error is not None and error < warn:
        message = (
            f"'error_after' must not be shorter than 'warn_after', "
            f"{item.quoted(value['warn_after'], _KEY, 'warn_after')}, "
            f"found {item.quoted(value['error_after'], _KEY, 'error_after')}"
        )
        errors.append(item.error(codes.WRONG_VALUE, message, _KEY, "error_after"))
    return Freshness(warn, error, named_parts(item.origins_below(), _KEY))
