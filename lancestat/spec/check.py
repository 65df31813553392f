"""Documents judged by the JSON Schemas that ship with the package."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from lancestat.errors import SpecError
from lancestat.spec import resources
from lancestat.spec.document import Document, KeyPath
from lancestat.spec.names import PUNCTUATION, is_name
from lancestat.spec.refusal import Refusal
from lancestat.spec.rendering import Rendering

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator, FormatChecker


def check(
    schema_name: str, document: Document, rendering: Rendering
) -> Iterator[tuple[KeyPath, SpecError]]:
    """Every error that a schema finds in a rendered document, with the path that it is about.

    There is none about a value whose template failed.
    """
    seen: set[tuple[KeyPath, str]] = set()
    for error in _validator(schema_name).iter_errors(document.value):
        refusal = Refusal.of(error)
        # The validator repeats itself: `required`, for one, once for each key that is missing.
        about = refusal.path, refusal.topic
        if about not in seen and refusal.path not in rendering.failures:
            seen.add(about)
            for sentence in refusal.errors(document, rendering.origins):
                yield refusal.path, sentence


@cache
def _validator(schema_name: str) -> Draft202012Validator:
    from jsonschema import Draft202012Validator

    schema = resources.schema(schema_name)
    return Draft202012Validator(
        written_out(schema, schema["$defs"]), format_checker=format_checker()
    )


@cache
def format_checker() -> FormatChecker:
    """Judges the formats of the schemas: names, by Unicode's categories."""
    from jsonschema import FormatChecker

    checker = FormatChecker(formats=())
    for name, punctuation in PUNCTUATION.items():
        checker.checks(name)(partial(_is_format, punctuation))
    return checker


def _is_format(punctuation: str, value: object) -> bool:
    return not isinstance(value, str) or is_name(value, punctuation)


def written_out(part: Any, definitions: Mapping[str, Any]) -> Any:
    """A schema with its references replaced, so that what stands beside `$ref` prevails.

    Values are also judged twice as fast, since the validator resolves references for each anew.
    """
    if isinstance(part, list):
        return [written_out(each, definitions) for each in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        part = {**definitions[part["$ref"].removeprefix("#/$defs/")], **part}
        del part["$ref"]
    return {key: written_out(value, definitions) for key, value in part.items()}
