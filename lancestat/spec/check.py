"""Checks values against rules, with one problem per place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from lancestat.errors import did_you_mean
from lancestat.spec import codes
from lancestat.spec.document import KeyPath
from lancestat.spec.quoting import quoted
from lancestat.spec.rules import Rule


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that a schema refuses; `path` leads to what the sentence is about.

    `message` holds `{subject}` where the name of that thing belongs and, when the value itself is
    wrong, `{found}` where a description of it belongs. `at` leads to the place to point at.
    """

    path: KeyPath
    code: str
    message: str
    at: KeyPath
    hint: str | None = None
    is_leaf: bool = False


_WHOLE = frozenset(("number", "integer"))
_TYPES = {
    str: frozenset(("string",)),
    bool: frozenset(("boolean",)),
    int: _WHOLE,
    float: frozenset(("number",)),
    type(None): frozenset(("null",)),
    list: frozenset(("array",)),
    dict: frozenset(("object",)),
}


def check(rule: Rule, value: object, path: KeyPath = ()) -> Iterator[Problem]:
    """Everything that `rule` refuses in `value`, in the order of the value."""
    if rule.alternatives:
        yield from _check_alternatives(rule, value, path)
        return
    problem = _leaf_problem(rule, value, path)
    if problem is not None:
        yield problem
    elif isinstance(value, dict):
        yield from _check_mapping(rule, value, path)
    elif isinstance(value, list):
        yield from _check_list(rule, value, path)


def _check_alternatives(rule: Rule, value: object, path: KeyPath) -> Iterator[Problem]:
    found = _types(value)
    fitting = next((option for option in rule.alternatives if option.types & found), None)
    if fitting is None:
        yield _wrong(rule, value, path, codes.WRONG_TYPE)
        return
    for problem in check(fitting, value, path):
        if problem.is_leaf and problem.path == path:
            yield _wrong(rule, value, path, problem.code, problem.hint)
        else:
            yield problem


def _leaf_problem(rule: Rule, value: object, path: KeyPath) -> Problem | None:
    if not rule.types & _types(value):
        return _wrong(rule, value, path, codes.WRONG_TYPE)
    if isinstance(value, str):
        wrong = (
            (rule.enum and value not in rule.enum)
            or not rule.length[0] <= len(value) <= rule.length[1]
            or (rule.pattern is not None and not rule.pattern.search(value))
        )
    elif isinstance(value, int | float):
        wrong = not (rule.bounds[0] <= value <= rule.bounds[1] and value > rule.above)
    else:
        return None
    if not wrong:
        return None
    hint = did_you_mean(value, rule.enum) if isinstance(value, str) else None
    return _wrong(rule, value, path, codes.WRONG_VALUE, hint)


def _wrong(rule: Rule, value: object, path: KeyPath, code: str, hint: str | None = None) -> Problem:
    words = ", ".join(f"'{word}'" for word in rule.enum)
    expected = f"one of {words}" if words else rule.title
    message = "{subject} must be " + expected + ", found {found}"
    hint = hint or _type_hint(rule, value)
    return Problem(path, code, message, path, hint, is_leaf=True)


def _type_hint(rule: Rule, value: object) -> str | None:
    types = rule.types.union(*(option.types for option in rule.alternatives))
    if value is None:
        return "write a value, or remove the key"
    if isinstance(value, str):
        if "boolean" in types and value.lower() in ("yes", "no", "on", "off", "true", "false"):
            return "write true or false, without quotes"
        if "integer" in types and re.fullmatch("[0-9]+", value):
            return "remove the quotes; a template gives a number with '| int'"
        return None
    if isinstance(value, int | float) and "string" in types and "number" not in types:
        return None if rule.alternatives or rule.enum or rule.pattern else "put quotes around it"
    return None


def _check_mapping(rule: Rule, value: dict[str, object], path: KeyPath) -> Iterator[Problem]:
    if len(value) < rule.min_properties:
        yield Problem(path, codes.MISSING_KEY, "{subject} must not be empty", path)
        return
    for key in rule.required:
        if key not in value:
            yield Problem(path, codes.MISSING_KEY, f"missing key '{key}' in {{subject}}", path)
    for key, item in value.items():
        at = (*path, key)
        known = rule.properties.get(key)
        if known is not None:
            yield from check(known, item, at)
        elif rule.additional is False:
            hint = did_you_mean(key, rule.properties) or _list_keys(rule)
            yield Problem(path, codes.UNKNOWN_KEY, f"unknown key {quoted(key)} in {{subject}}",
                          at, hint)  # fmt: skip
        else:
            yield from _check_additional(rule, key, item, at)
    yield from _check_combination(rule, value, path)


def _check_additional(rule: Rule, key: str, item: object, at: KeyPath) -> Iterator[Problem]:
    if rule.names is not None and _leaf_problem(rule.names, key, at) is not None:
        message = f"the name {quoted(key)} must be {rule.names.title}"
        yield Problem(at, codes.WRONG_VALUE, message, at)
    if isinstance(rule.additional, Rule):
        yield from check(rule.additional, item, at)


def _check_combination(rule: Rule, value: dict[str, object], path: KeyPath) -> Iterator[Problem]:
    if rule.exactly_one:
        given = [key for key in rule.exactly_one if key in value]
        if len(given) != 1:
            choices = ", ".join(f"'{key}'" for key in rule.exactly_one)
            found = " and ".join(f"'{key}'" for key in given) or "none"
            yield Problem(path, codes.WRONG_VALUE,
                          f"{{subject}} must have exactly one of {choices}; found {found}",
                          path)  # fmt: skip
    for key, others in rule.needs.items():
        for other in others:
            if key in value and other not in value:
                yield Problem(path, codes.MISSING_KEY,
                              f"'{key}' needs '{other}' in {{subject}}", (*path, key))  # fmt: skip


def _check_list(rule: Rule, value: list[object], path: KeyPath) -> Iterator[Problem]:
    if len(value) < rule.min_items:
        yield Problem(path, codes.WRONG_VALUE, "{subject} must not be empty", path)
    seen: list[object] = []
    for index, item in enumerate(value):
        at = (*path, index)
        if rule.items is not None:
            problems = list(check(rule.items, item, at))
            yield from problems
            if problems:
                continue
        if rule.unique and item in seen:
            yield Problem(path, codes.WRONG_VALUE,
                          f"{{subject}} names {quoted(str(item))} twice", at)  # fmt: skip
        seen.append(item)


def _list_keys(rule: Rule) -> str:
    return "known keys: " + ", ".join(rule.properties)


def _types(value: object) -> frozenset[str]:
    if isinstance(value, float) and value.is_integer():
        return _WHOLE
    return _TYPES[type(value)]
