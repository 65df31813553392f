"""Checks of what callers of the Python interface pass, so that an error names the argument."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from datetime import date
from numbers import Integral, Number, Real

from lancestat.errors import InvalidArgument


def check(
    name: str, value: object, is_right: bool, expected: str, *, hint: str | None = None
) -> None:
    """Raise InvalidArgument, which says what was expected, unless an argument is right."""
    if not is_right:
        raise InvalidArgument(f"{name} is {shown(value)}; expected {expected}", hint=hint)


def shown(value: object) -> str:
    """Return a plain value as it is written, and what anything else is."""
    is_plain = value is None or isinstance(value, (str, Number))
    return repr(value) if is_plain else f"a {type(value).__name__}"


def is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def is_whole(value: object, least: int, most: int | None = None) -> bool:
    if not isinstance(value, Integral) or isinstance(value, bool):
        return False
    return int(value) >= least and (most is None or int(value) <= most)


def check_whole(name: str, value: object, least: int) -> None:
    """Refuse what is neither None nor a whole number of at least `least`."""
    is_right = value is None or is_whole(value, least)
    check(name, value, is_right, f"a whole number, {least} or more")


def check_name(name: str, value: object) -> None:
    """Refuse what is no string."""
    check(name, value, isinstance(value, str), "a string")


def check_path(name: str, value: object) -> None:
    """Refuse what is no path."""
    check(name, value, isinstance(value, (str, os.PathLike)), "a path")


def check_names(name: str, value: object) -> None:
    """Refuse what is no list of strings; a single string would be taken for its characters."""
    hint = f"{name}=[{value!r}]" if isinstance(value, str) else None
    check(name, value, not isinstance(value, str), "a list of names", hint=hint)
    _check_strings(name, value, "a list of names")


def check_selectors(**selectors: object) -> None:
    """Refuse selectors that are neither None, a string nor a list of strings."""
    for name, value in selectors.items():
        if value is not None and not isinstance(value, str):
            _check_strings(name, value, "a selector, or a list of selectors")


def _check_strings(name: str, value: object, expected: str) -> None:
    check(name, value, isinstance(value, Collection) and not isinstance(value, bytes), expected)
    for item in value:  # type: ignore[attr-defined]
        check(f"{name} has an item that", item, isinstance(item, str), "a string")


def check_session(name: str, value: object) -> None:
    """Refuse what is no session of Spark, classic or of Spark Connect."""
    check(name, value, hasattr(value, "createDataFrame"), "a session of Spark")


def check_vars(value: object) -> None:
    """Refuse variables that are no mapping of names to values as YAML has them.

    Values are not shown, since variables may be secrets.
    """
    expected = "a mapping of names to values"
    check("vars", value, value is None or isinstance(value, Mapping), expected)
    for name, item in value.items() if isinstance(value, Mapping) else ():
        check("a name in vars", name, isinstance(name, str), "a string")
        if not _is_plain(item):
            kind = type(item).__name__
            raise InvalidArgument(
                f"vars['{name}'] is or has a {kind}; expected values that YAML has: strings, "
                "numbers, booleans, dates, lists, mappings and None"
            )


def _is_plain(value: object) -> bool:
    if isinstance(value, Mapping):
        return all(map(_is_plain, (*value.keys(), *value.values())))
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (str, bool, int, float, date))


def check_loading(project_dir: object, target: object, vars: object) -> None:
    check_path("project_dir", project_dir)
    check("target", target, target is None or isinstance(target, str), "a name, or None")
    check_vars(vars)
