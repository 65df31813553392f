"""Bounds: values of a column as the kernel sees them, their short forms, and their stored form."""

from __future__ import annotations

import math
import struct

# Values as the kernel sees them: booleans and integers as int, dates as days and timestamps as
# microseconds since 1970-01-01 (UTC, or local time of a zone that is not known), times of day as
# microseconds since midnight, decimals as their unscaled integer, floats as float, strings and
# binary as bytes (UTF-8). Integers are unbounded: an instant or an unsigned integer beyond what
# Spark can hold keeps its true value here.
Bound = int | float | bytes

BOUND_BYTES = 256


def lower_bound(value: bytes) -> bytes:
    """Return the greatest bytes that are no longer than 256 and not above `value`."""
    return value[:BOUND_BYTES]


def upper_bound(value: bytes) -> bytes | None:
    """Return the least bytes no longer than 256 and not below `value`; None when there are none."""
    if len(value) <= BOUND_BYTES:
        return value
    prefix = value[:BOUND_BYTES].rstrip(b"\xff")
    return prefix[:-1] + bytes([prefix[-1] + 1]) if prefix else None


def whole_characters(prefix: bytes) -> bytes:
    """Return the longest valid UTF-8 at the start."""
    return prefix.decode("utf-8", errors="ignore").encode() if not _is_utf8(prefix) else prefix


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def next_characters(bound: bytes) -> bytes | None:
    """Return valid UTF-8 that is not below `bound`, in byte order; None when there is none."""
    try:
        bound.decode()
    except UnicodeDecodeError as error:
        characters = bound[: error.start].decode()
    else:
        return bound
    # UTF-8 sorts like code points, so the next code point after a shared prefix is above all that
    # share it.
    for end in range(len(characters), 0, -1):
        following = _next_code_point(characters[end - 1])
        if following is not None:
            return (characters[: end - 1] + following).encode()
    return None


def _next_code_point(character: str) -> str | None:
    following = ord(character) + 1
    if following == 0xD800:
        return "\ue000"
    return chr(following) if following <= 0x10FFFF else None


# Stored form: a byte for the type, and the value, little-endian.
_FLOAT = struct.Struct("<d")
_INTEGER, _FLOATING, _BYTES = b"\1", b"\2", b"\3"


def encode_bound(bound: Bound) -> bytes:
    """Return the stored form of a bound."""
    if isinstance(bound, int):
        # One bit more than the magnitude holds the sign.
        return _INTEGER + bound.to_bytes(bound.bit_length() // 8 + 1, "little", signed=True)
    if isinstance(bound, float):
        return _FLOATING + _FLOAT.pack(bound)
    return _BYTES + bound


def decode_bound(stored: bytes) -> Bound:
    """Invert `encode_bound`; raises ValueError on anything else."""
    type, payload = stored[:1], stored[1:]
    if type == _INTEGER and payload:
        return int.from_bytes(payload, "little", signed=True)
    if type == _FLOATING and len(payload) == _FLOAT.size:
        return float(_FLOAT.unpack(payload)[0])
    if type == _BYTES:
        return payload
    raise ValueError(f"a stored partial has a bound of type {type!r} and {len(payload)} bytes")


def check_bounds(minimum: Bound | None, maximum: Bound | None) -> None:
    """Raise ValueError unless these can be the bounds of one column."""
    if minimum is None:
        ordered = maximum is None
    elif maximum is None:
        ordered = isinstance(minimum, bytes)
    else:
        ordered = type(minimum) is type(maximum) and minimum <= maximum  # type: ignore[operator]
    if not ordered or any(
        isinstance(bound, float) and math.isnan(bound) for bound in (minimum, maximum)
    ):
        raise ValueError(f"a stored partial has bounds {minimum!r} and {maximum!r}")
