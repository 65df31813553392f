"""Which value a YAML scalar stands for.

The rules are those of the core schema of YAML 1.2 (https://yaml.org/spec/1.2.2/#103-core-schema):
`yes`, `on`, `1_000`, `12:30` and `2024-01-01` are text. Numbers that are not finite are refused.
"""

from __future__ import annotations

import math
import re

from lancestat.spec.quoting import quoted

_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_NUMBER_STARTS = frozenset("+-.0123456789")
_LONGEST_NUMBER = 64

Scalar = str | int | float | bool | None


def plain_scalar(text: str) -> Scalar:
    """The value of an unquoted scalar; ValueError says what is wrong with a number."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMBER_STARTS:
        return text
    if _INTEGER.fullmatch(text):
        return _integer(text)
    if _FLOAT.fullmatch(text):
        return _finite(text)
    if _NOT_FINITE.fullmatch(text):
        raise ValueError(f"'{text}' is not a finite number")
    return text


def tagged_scalar(tag: str, text: str) -> Scalar:
    """The value of a scalar under one of the core schema's tags; LookupError for any other tag."""
    if tag in ("!", "!!str"):
        return text
    kinds: dict[str, type | tuple[type, ...]] = {
        "!!null": type(None),
        "!!bool": bool,
        "!!int": int,
        "!!float": (int, float),
    }
    kind = kinds[tag]
    value = plain_scalar(text)
    if not isinstance(value, kind) or (isinstance(value, bool) and tag != "!!bool"):
        raise ValueError(f"{quoted(text)} is not what its tag {tag} says")
    return float(value) if tag == "!!float" and value is not None else value


def _integer(text: str) -> int:
    _refuse_long(text)
    return int(text, 0) if text[:2] in ("0o", "0x") else int(text)


def _finite(text: str) -> float:
    _refuse_long(text)
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"'{text}' is not a finite number")
    return value


def _refuse_long(text: str) -> None:
    if len(text) > _LONGEST_NUMBER:
        raise ValueError(f"a number of {len(text)} characters is too long")
