"""Bounds: the least and greatest values of some rows, or short bytes that enclose them."""

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


# Stored form, little-endian: tag, length of the payload, payload.
_HEAD = struct.Struct("<BI")
_FLOAT = struct.Struct("<d")
_NONE, _INTEGER, _FLOATING, _BYTES = range(4)


def encode_bound(bound: Bound | None) -> bytes:
    """Return the stored form of a bound."""
    if bound is None:
        tag, payload = _NONE, b""
    elif isinstance(bound, int):
        # One bit more than the magnitude holds the sign.
        tag = _INTEGER
        payload = bound.to_bytes(bound.bit_length() // 8 + 1, "little", signed=True)
    elif isinstance(bound, float):
        tag, payload = _FLOATING, _FLOAT.pack(bound)
    else:
        tag, payload = _BYTES, bound
    return _HEAD.pack(tag, len(payload)) + payload


def decode_bound(body: bytes, start: int) -> tuple[Bound | None, int]:
    """Return the bound stored at `start`, and where it ends; raises ValueError on anything else."""
    try:
        tag, length = _HEAD.unpack_from(body, start)
    except struct.error:
        raise ValueError("a stored partial ends inside a bound") from None
    start += _HEAD.size
    payload = body[start : start + length]
    if len(payload) != length:
        raise ValueError("a stored partial ends inside a bound")
    if tag == _NONE and not payload:
        return None, start
    if tag == _INTEGER and payload:
        return int.from_bytes(payload, "little", signed=True), start + length
    if tag == _FLOATING and length == _FLOAT.size:
        return float(_FLOAT.unpack(payload)[0]), start + length
    if tag == _BYTES:
        return payload, start + length
    raise ValueError(f"a stored partial has a bound of tag {tag} and {length} bytes")


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
