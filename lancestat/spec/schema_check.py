"""Errors of documents that do not keep to the JSON Schemas."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from lancestat.errors import (
    MissingKey,
    SpecError,
    UnknownKey,
    WrongType,
    WrongValue,
    did_you_mean,
    nearest,
)
from lancestat.formats import quoted
from lancestat.redact import Origin
from lancestat.spec.declaration import Settings, Text, key_fields
from lancestat.spec.document import Document, KeyPath
from lancestat.spec.hooks import Hook
from lancestat.spec.model import RESOURCES, KnnSide, Target
from lancestat.spec.names import PUNCTUATION, Rendering, composed, is_name
from lancestat.spec.schema import schema

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator, FormatChecker, ValidationError


def check(
    schema_name: str, document: Document, rendering: Rendering
) -> Iterator[tuple[KeyPath, SpecError | None]]:
    """Yield the errors of a rendered document, with the paths that they are about.

    The error is None where the error of a misspelled key says it already. A value whose template
    failed has none.
    """
    seen: set[tuple[KeyPath, str]] = set()
    silent, is_said = False, bool(rendering.failures)
    for error in _validator(schema_name).iter_errors(document.value):
        violation = SchemaViolation.of(error)
        # The validator repeats itself: `required`, for one, once for each key that is missing.
        about = violation.path, violation.topic
        if about not in seen and violation.path not in rendering.failures:
            seen.add(about)
            errors = [*violation.errors(document, rendering.origins)]
            silent, is_said = silent or not errors, is_said or bool(errors)
            yield from ((violation.path, error) for error in errors or (None,))
    assert is_said or not silent, "what a schema refuses has an error"


@cache
def _validator(schema_name: str) -> Draft202012Validator:
    from jsonschema import Draft202012Validator

    whole = schema(schema_name)
    return Draft202012Validator(written_out(whole, whole["$defs"]), format_checker=format_checker())


@cache
def format_checker() -> FormatChecker:
    """Return a checker of the formats of the schemas: names, by Unicode's categories."""
    from jsonschema import FormatChecker

    checker = FormatChecker(formats=())
    for name, punctuation in PUNCTUATION.items():
        checker.checks(name)(partial(_is_format, punctuation))
    return checker


def _is_format(punctuation: str, value: object) -> bool:
    return not isinstance(value, str) or is_name(value, punctuation)


def written_out(part: Any, definitions: Mapping[str, Any]) -> Any:
    """Return a schema without references; keywords beside a `$ref` prevail."""
    if isinstance(part, list):
        return [written_out(item, definitions) for item in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        part = {**definitions[part["$ref"].removeprefix("#/$defs/")], **part}
        del part["$ref"]
    return {key: written_out(value, definitions) for key, value in part.items()}


_ABOUT_PARTS = frozenset(
    ("required", "dependentRequired", "additionalProperties", "oneOf", "minProperties", "minItems",
     "uniqueItems")
)  # fmt: skip

Origins = Mapping[KeyPath, Origin]

# Code, message, the key that it is about when it is not the value itself, and hint.
_Complaint = tuple[type[SpecError], str, str | int | None, str | None]


@dataclass(frozen=True, slots=True)
class SchemaViolation:
    """A value that does not keep to a keyword; `expected` is what the schema gives the keyword.

    One violation is enough for a topic at a path: most keywords describe the required value.
    """

    path: KeyPath
    topic: str
    keyword: str
    expected: Any
    value: Any
    schema: Mapping[str, Any]

    @classmethod
    def of(cls, error: ValidationError) -> SchemaViolation:
        path, keyword = tuple(error.absolute_path), str(error.validator)
        topic = keyword if keyword in _ABOUT_PARTS else "value"
        if "propertyNames" in error.absolute_schema_path:
            path, topic = (*path, str(error.instance)), "name"
        schema: Any = error.schema
        return cls(path, topic, keyword, error.validator_value, error.instance, schema)

    def errors(self, document: Document, origins: Origins) -> Iterator[SpecError]:
        """Yield the errors; a value that has an origin is named by it."""
        words = subject(self.path, document.value, origins)
        if self.topic == "value":
            yield self._wrong_value(words, document, origins)
        for kind, message, key, hint in self._complaints(words, origins):
            path = self.path if key is None else (*self.path, key)
            yield kind(message, location=document.key_at(path), hint=hint)

    def _wrong_value(self, words: str, document: Document, origins: Origins) -> SpecError:
        is_secret = may_be_secret(self.path, origins)
        value = describe(self.value, is_secret=is_secret, origin=origins.get(self.path))
        valid = ", ".join(f"'{word}'" for word in self.schema.get("enum", ()))
        expected = f"one of {valid}" if valid else self.schema["title"]
        kind = WrongType if self.keyword == "type" else WrongValue
        return kind(
            f"{words} must be {expected}, found {value}",
            location=document.at(self.path),
            hint=None if is_secret else _value_hint(self.schema, self.value),
        )

    def _complaints(self, words: str, origins: Origins) -> Iterator[_Complaint]:
        match self.topic:
            case "required":
                for key in self.expected:
                    if key not in self.value and key not in self._misspelled():
                        yield MissingKey, f"missing key '{key}' in {words}", None, None
            case "dependentRequired":
                for key, others in self.expected.items():
                    for other in others:
                        if key in self.value and other not in self.value:
                            message = f"'{key}' needs '{other}' in {words}"
                            yield MissingKey, message, key, None
            case "additionalProperties":
                yield from self._unknown_keys(words)
            # `required` accepts whatever is not a mapping; the type of that is refused anyway.
            case "oneOf" if isinstance(self.value, dict) and (choice := self._choice()):
                yield WrongValue, f"{words} {choice}", None, None
            case "minProperties" | "minItems":
                kind = MissingKey if self.topic == "minProperties" else WrongValue
                is_one = self.expected == 1
                must = "not be empty" if is_one else f"be {self.schema['title']}"
                found = "" if is_one else f", found {len(self.value)}"
                yield kind, f"{words} must {must}{found}", None, None
            case "uniqueItems":
                for index, item in enumerate(self.value):
                    if not isinstance(item, str) or item not in self.value[:index]:
                        continue
                    path = (*self.path, index)
                    is_secret = may_be_secret(path, origins)
                    shown = describe(item, is_secret=is_secret, origin=origins.get(path))
                    yield WrongValue, f"{words} names {shown} twice", index, None
            case "name":
                message = f"the name {quoted(self.value)} must be {self.schema['title']}"
                yield WrongValue, message, None, None

    def _unknown_keys(self, words: str) -> Iterator[_Complaint]:
        known = self.schema["properties"]
        for key in self.value:
            if key not in known:
                hint = did_you_mean(key, known) or "known keys: " + ", ".join(known)
                yield UnknownKey, f"unknown key {quoted(key)} in {words}", key, hint

    def _misspelled(self) -> set[str | None]:
        """Return the known keys that unknown ones most likely mean: they are one error already."""
        known = self.schema["properties"]
        return {nearest(key, known) for key in self.value if key not in known}

    def _choice(self) -> str | None:
        """Return what a choice must have, None where an error of a misspelled key says it."""
        choices = [key for option in self.expected for key in option.get("required", ())]
        if not self._misspelled().isdisjoint(choices):
            return None
        given = " and ".join(f"'{key}'" for key in choices if key in self.value) or "none"
        valid = ", ".join(f"'{key}'" for key in choices)
        return f"must have exactly one of {valid}; found {given}"


def _value_hint(schema: Mapping[str, Any], value: object) -> str | None:
    types = schema.get("type", ())
    if value is None:
        return "write a value, or remove the key"
    if isinstance(value, str):
        if "boolean" in types and value.lower() in ("yes", "no", "on", "off", "true", "false"):
            return "write true or false, without quotes"
        if "integer" in types and re.fullmatch("[0-9]+", value):
            return "remove the quotes; a template gives a number with '| int'"
        if schema.get("format") in PUNCTUATION and value != composed(value):
            return f"write {quoted(composed(value))} in the normal form NFC, of composed characters"
        return did_you_mean(value, schema.get("enum", schema.get("examples", ())))
    if isinstance(value, int | float) and types == "string":
        return None if "enum" in schema or "pattern" in schema else "put quotes around it"
    return None


_OWNERS = {
    **{key: resource.declares.noun for key, resource in RESOURCES.items()},
    "targets": Target.declares.noun,
}
# Below these keys lie settings that may be secret, so their values are never shown.
SECRET_KEYS = frozenset(
    key.path[-1]
    for resource in (Target, KnnSide, Hook)
    for declared in key_fields(resource)
    for key in declared.keys
    if isinstance(key.shape, Settings) or (isinstance(key.shape, Text) and key.shape.is_secret)
)


def may_be_secret(path: KeyPath, origins: Container[KeyPath]) -> bool:
    return path in origins or bool(SECRET_KEYS.intersection(path))


def subject(path: KeyPath, root: object, origins: Container[KeyPath] = ()) -> str:
    """Return words for the value at a path.

    A resource whose name came from the environment is named by its number.
    """
    if not path:
        return "the file"
    owner_length = 2 if path[0] in _OWNERS and len(path) > 1 else 0
    owner = _owner(path[:2], root, origins) if owner_length else ""
    if len(path) == owner_length:
        return owner
    *_, key = (step for step in path if isinstance(step, str))
    inside = path[len(path) - path[::-1].index(key) :]
    items = "".join(f"item {int(index) + 1} of " for index in reversed(inside))
    words = items + quoted(key)
    return f"{words} of {owner}" if owner else words


def describe(value: object, *, is_secret: bool = False, origin: Origin | None = None) -> str:
    """Return a value, shortened, for the end of 'found ...'.

    Of a secret only the kind is named. A value from the environment comes with its template.
    """
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, bool):
        return "true or false" if is_secret else str(value).lower()
    if isinstance(value, str):
        words = "text" if is_secret else quoted(value)
    else:
        words = "a number" if is_secret else f"the number {value}"
    return words if origin is None else f"{words} from {quoted(origin.brief)}"


def value_at(root: object, path: KeyPath) -> object:
    for step in path:
        if isinstance(root, dict) and step in root:
            root = root[step]
            continue
        if not isinstance(root, list) or not isinstance(step, int) or step >= len(root):
            return None
        root = root[step]
    return root


def _owner(path: KeyPath, root: object, origins: Container[KeyPath]) -> str:
    kind, step = _OWNERS[str(path[0])], path[1]
    if isinstance(step, str):
        return f"{kind} {quoted(step)}"
    if path[0] == "sources":
        # Its name is a template of others.
        return f"{kind} {step + 1}"
    at_name = (*path, "name")
    declared = None if at_name in origins else value_at(root, at_name)
    return f"{kind} {quoted(declared)}" if isinstance(declared, str) else f"{kind} {step + 1}"
