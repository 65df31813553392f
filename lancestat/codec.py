"""The codec of stored JSON: dataclasses to JSON and back, checked against their annotations.

Reading ignores unknown keys and gives missing keys their defaults. No type is taken for another,
but for integers where floats are expected. msgspec does this from the dataclasses as they are. It
was chosen over cattrs for its import time (18 ms of CPU against 70 ms) and because cattrs coerces
stored values (`int("5")`, `str(None)`) where they must have the right type.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Annotated, Any, TypeVar

import msgspec

Value = TypeVar("Value")

Instant = Annotated[datetime, msgspec.Meta(tz=True)]
"""An aware instant: stored as ISO 8601 in UTC, refused when its stored form names no zone."""


def builtins(value: object) -> Any:
    """Return a value in types of JSON but for instants; a dataclass is a dict of its fields."""
    return msgspec.to_builtins(value, builtin_types=(datetime,), enc_hook=dict)


def encode(value: object, **layout: Any) -> str:
    """Return the JSON of a value."""
    return json.dumps(builtins(value), default=_utc, **layout)


def decode(stored: str, form: type[Value]) -> Value:
    """Return the value that JSON stores; ValueError names the path of what is not of this form."""
    return convert(json.loads(stored), form)


def convert(stored: object, form: type[Value]) -> Value:
    """Return the value that parsed JSON stores, as `decode`."""
    try:
        return msgspec.convert(stored, form)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None


def flattened(members: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return an object with the members of some of its members, objects too, in their place."""
    flat: dict[str, Any] = {}
    for name, member in members.items():
        flat.update(member if name in names else {name: member})
    return flat


def nested(stored: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return an object that `convert` understands where `flattened` took those members away."""
    return {**stored, **dict.fromkeys(names, stored)}


def _utc(instant: datetime) -> str:
    return instant.astimezone(timezone.utc).isoformat()
