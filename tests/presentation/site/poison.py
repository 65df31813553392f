"""Reports whose texts all contain markup that would harm a page without escapes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import TypeVar, cast

from lancestat.errors import LancestatError

T = TypeVar("T")

PAYLOADS = {
    "script": "<script>window.pwned=1;alert(1)</script>",
    "image": '"><img src=x onerror="window.pwned=1;alert(2)">',
    "attribute": "' onmouseover='window.pwned=1' autofocus onfocus='alert(3)",
    "svg": "</title></text></svg><svg onload=alert(4)>",
    "data": "</script><script>window.pwned=1</script><!--",
    "link": "javascript:alert(5)//https://evil.example/x",
    "template": "{{ 7 * 7 }}{% for x in (1,) %}{{ cycler.__init__ }}{% endfor %}",
    "style": "</style><style>@import url(https://evil.example/x.css)</style>",
    "quotes": "\\u0022);alert(6)//\u2028alert(7)",
    "controls": "\x00\x1b[31m\x07\u202e\u2066\ufeff\ud800",
    "path": "../../..//etc/passwd%2e%2e",
}


def poisoned(value: T, payload: str) -> T:
    """The same value with a payload at the end of every text in it, keys included."""
    return cast(T, _poisoned(value, lambda text: text + payload))


def _poisoned(value: object, change: Callable[[str], str]) -> object:
    if isinstance(value, Enum) or value is None:
        return value
    if isinstance(value, str):
        return change(value)
    if isinstance(value, LancestatError):
        hint = None if value.hint is None else change(value.hint)
        poisoned = type(value)(change(value.message), hint=hint)
        poisoned.code = change(value.code)  # type: ignore[misc]
        return poisoned
    if isinstance(value, tuple):
        return tuple(_poisoned(item, change) for item in value)
    if isinstance(value, dict):
        return {_poisoned(key, change): _poisoned(item, change) for key, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        values = {field.name: getattr(value, field.name) for field in fields(value) if field.init}
        return replace(value, **{name: _poisoned(item, change) for name, item in values.items()})
    return value


def yaml_comment(payload: str) -> str:
    """A payload as far as YAML takes it in a comment."""
    return "# " + re.sub(r"[\x00-\x1f\u2028\ud800-\udfff\ufeff]", "", payload)
