"""Values of stored JSON, with the types they must have."""

from __future__ import annotations

from datetime import datetime, timezone


def text(found: object) -> str:
    """A text; ValueError otherwise."""
    if not isinstance(found, str):
        raise ValueError(f"expected text, found {type(found).__name__}")
    return found


def texts(found: object) -> dict[str, str]:
    """A mapping of texts; ValueError otherwise."""
    # A thousand records hold a hundred values each, so types are compared all at once.
    if not isinstance(found, dict) or not set(map(type, found.values())) <= {str}:
        raise ValueError("expected an object of texts")
    return found


def count(found: object) -> int:
    """A whole number; ValueError otherwise."""
    if not isinstance(found, int) or isinstance(found, bool):
        raise ValueError(f"expected a whole number, found {type(found).__name__}")
    return found


def instant(found: object) -> datetime:
    """An aware instant, UTC where it does not say; ValueError otherwise."""
    if not isinstance(found, datetime):
        raise ValueError(f"expected an instant, found {type(found).__name__}")
    return found if found.tzinfo else found.replace(tzinfo=timezone.utc)
