"""Checks what catalogs answer: nothing of it is used before it is known to make sense."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from lancestat.formats import count

# No file system and no object store has longer paths.
_LONGEST_LOCATION = 4096
_LONGEST_NAME = 1024
# Milliseconds to the end of the year 33658.
_MOST_DIGITS = 15
_NUL = re.compile("\0")
# As the YAML refuses them in a `uri`; keys in options have line breaks.
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_MILLIS = ("expires_at_millis", "refresh_offset_millis")


class AnswerError(ValueError):
    """An answer of a catalog makes no sense; the text says why and shows no value of it."""


def is_unreadable(error: BaseException) -> bool:
    """Whether a client could not read what its server answered, which it will answer again."""
    return type(error).__name__ == "ValidationError" or "Failed to parse response" in str(error)


def names_in(answer: Any, kind: str) -> list[str]:
    """Return the names in one page of a list.

    Args:
        answer: What the catalog's client returned.
        kind: `tables` or `namespaces`.

    Raises:
        AnswerError: it is no list of names.
    """
    names = getattr(answer, kind, None)
    if names is None and answer is not None:
        return []
    if not isinstance(names, (list, tuple, set, frozenset)):
        raise AnswerError(f"its list of {kind} is a {type(names).__name__}")
    for name in names:
        if not isinstance(name, str) or not name:
            raise AnswerError(f"its list of {kind} has a name that is empty or no text")
        if len(name) > _LONGEST_NAME:
            limit = count(_LONGEST_NAME, "character")
            raise AnswerError(f"its list of {kind} has a name of more than {limit}")
    return list(names)


def token_in(answer: Any) -> str | None:
    """Return the token of the next page, None or nothing where there is none.

    Raises:
        AnswerError: it is no text.
    """
    token = getattr(answer, "page_token", None)
    if token is not None and not isinstance(token, str):
        raise AnswerError(f"the token of its next page is a {type(token).__name__}")
    return token


def check_description(answer: Any) -> None:
    """Check where a table is said to be, and what is said to open it.

    Raises:
        AnswerError: no dataset can be there, or the options are none.
    """
    location = getattr(answer, "location", None)
    if location is not None:
        _check_text(location, "the location", _CONTROL)
        if len(location) > _LONGEST_LOCATION:
            limit = count(_LONGEST_LOCATION, "character")
            raise AnswerError(f"the location has more than {limit}")
    options = getattr(answer, "storage_options", None) or {}
    if not isinstance(options, Mapping):
        raise AnswerError(f"the storage options are a {type(options).__name__}")
    for key, value in options.items():
        _check_text(key, "the name of a storage option")
        _check_text(value, f"the storage option {key!r}")
    for key in _MILLIS:
        text = options.get(key, "0")
        if not (text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS):
            raise AnswerError(f"the storage option {key!r} is no number of milliseconds")


def _check_text(value: object, what: str, refused: re.Pattern[str] = _NUL) -> None:
    if not isinstance(value, str):
        raise AnswerError(f"{what} is a {type(value).__name__}")
    if (found := refused.search(value)) is not None:
        raise AnswerError(f"{what} holds the control character {found[0]!r}")
