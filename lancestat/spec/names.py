"""Documents rendered, their items, which a schema has accepted, and the namespaces of names."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from lancestat.errors import (
    DuplicateName,
    InvalidTemplate,
    LancestatError,
    Location,
    SpecError,
    UnknownReference,
    UnsetVariable,
    did_you_mean,
    listed,
)
from lancestat.formats import quoted
from lancestat.redact import KnownValue, Origin
from lancestat.spec.document import Document, KeyPath
from lancestat.spec.template import (
    MAX_CHARACTERS,
    BadTemplateError,
    TemplateNames,
    TemplateScope,
    UnsetVariableError,
    is_template,
    scalar_result,
)


def render(
    text: str, scope: TemplateScope, location: Location, *, allow_ref: bool = False
) -> TemplateNames:
    """Render one scalar; SpecError at `location` when that cannot be done."""
    names = TemplateNames(scope, allow_ref, text)
    try:
        if len(text) > MAX_CHARACTERS:
            raise BadTemplateError(f"a template of more than {MAX_CHARACTERS:,} characters")
        from lancestat.spec.sandbox import evaluate

        names.value = scalar_result(evaluate(text, names))
        if isinstance(names.value, str) and len(names.value) > MAX_CHARACTERS:
            raise BadTemplateError(f"the rendered text has more than {MAX_CHARACTERS:,} characters")
    except BadTemplateError as problem:
        raise _failure(problem, names.origin(), location) from None
    return names


def _failure(problem: BadTemplateError, origin: Origin | None, location: Location) -> SpecError:
    message, hint = problem.message, problem.hint
    if origin is not None and problem.quotes:
        # Whatever is quoted may be made of the environment's values, in whichever way.
        message, hint = f"{quoted(origin.brief)} fails on what {origin.names} holds", None
    kind = UnsetVariable if isinstance(problem, UnsetVariableError) else InvalidTemplate
    return kind(f"template: {message}", location=location, hint=hint)


@dataclass(slots=True)
class Rendering:
    """The results of rendering besides values: inputs named by `ref`, origins, failures by path.

    `origins` are of values that came from the environment, `known` are the parts of those values.
    """

    refs: dict[KeyPath, tuple[str, ...]] = field(default_factory=dict)
    origins: dict[KeyPath, Origin] = field(default_factory=dict)
    known: dict[KnownValue, None] = field(default_factory=dict, repr=False)
    failures: dict[KeyPath, SpecError] = field(default_factory=dict)

    def render(
        self, document: Document, value: object, path: KeyPath, scope: TemplateScope
    ) -> object:
        """`value`, found at `path` of `document`, with the templates in it rendered."""
        if isinstance(value, str):
            # The names of a source's tables are rendered for each of them.
            is_later = path[:1] == ("sources",) and path[2:] == ("name",)
            is_rendered = is_template(value) and not is_later
            return self._scalar(document, value, path, scope) if is_rendered else value
        if isinstance(value, dict):
            return {
                key: self.render(document, item, (*path, key), scope) for key, item in value.items()
            }
        if isinstance(value, list):
            return [
                self.render(document, item, (*path, index), scope)
                for index, item in enumerate(value)
            ]
        return value

    def _scalar(self, document: Document, text: str, path: KeyPath, scope: TemplateScope) -> object:
        allow_ref = path[:1] == ("knn_joins",) and path[-1:] == ("sql",)
        try:
            rendered = render(text, scope, document.at(path), allow_ref=allow_ref)
        except SpecError as error:
            self.failures[path] = error
            return text
        if rendered.refs:
            self.refs[path] = tuple(rendered.refs)
        if (origin := rendered.origin()) is not None:
            self.origins[path] = origin
            self.known |= dict.fromkeys(rendered.known())
        return rendered.value


@dataclass(frozen=True, slots=True)
class Item:
    """A mapping at `path` of a document. Its shape is proven by the schema, hence `Any`."""

    document: Document
    path: KeyPath
    value: Mapping[str, Any]
    refs: Mapping[KeyPath, tuple[str, ...]]
    origins: Mapping[KeyPath, Origin]

    @property
    def location(self) -> Location:
        return self.at("name")

    def at(self, *steps: str | int) -> Location:
        return self.document.at((*self.path, *steps))

    def origin(self, *steps: str | int) -> Origin | None:
        """Return the origin of a value inside the item, None when the file holds it as it is."""
        return self.origins.get((*self.path, *steps))

    def origins_below(self, *steps: str | int) -> dict[str, Origin]:
        """The origins of the values below a key of the item, by dotted key."""
        start = (*self.path, *steps)
        return {
            ".".join(map(str, path[len(start) :])): origin
            for path, origin in self.origins.items()
            if path[: len(start)] == start
        }

    def quoted(self, text: str, *steps: str | int) -> str:
        """Quote a value inside the item for a message, with variables for the environment's."""
        origin = self.origin(*steps)
        return quoted(text if origin is None else origin.brief)

    def error(
        self, kind: type[SpecError], message: str, *steps: str | int, hint: str | None = None
    ) -> SpecError:
        return kind(message, location=self.at(*steps), hint=hint)

    def settings(self, *steps: str) -> dict[str, str]:
        """A mapping of settings as text: numbers as written, booleans as Spark spells them."""
        values: Any = self.value
        for step in steps:
            values = values.get(step, {})
        return {
            key: str(value).lower()
            if isinstance(value, bool)
            else self.document.numbers.get((*self.path, *steps, key), str(value))
            for key, value in values.items()
        }


T = TypeVar("T")

PUNCTUATION: Mapping[str, str] = {
    "lancestat-name": "_-",
    "lancestat-target": "_-.",
    "lancestat-tag": "_-.:/@",
}
"""By `format` of the schemas, what a name may hold besides letters and digits.

The schemas' patterns say the same of ASCII. They let every other character pass, since not all
engines of regular expressions know what a letter is.
"""

# Unicode's Default_Ignorable_Code_Point, as far as they are letters or marks: they cannot be seen.
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


def is_name(text: str, punctuation: str) -> bool:
    """Whether a text is made of letters, digits and `punctuation`, and is distinct from others.

    Letters and decimal digits are Unicode's, and marks may follow them, as several scripts need.
    Text is in the normal form NFC, so that names which look the same are the same.
    """
    starts = text[:1] == "_" or _category(text[:1]) in ("L", "Nd")
    return (
        starts
        and all(char in punctuation or _category(char) in ("L", "M", "Nd") for char in text)
        and unicodedata.is_normalized("NFC", text)
        and _UNSEEN.search(text) is None
    )


def composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _category(char: str) -> str:
    category = unicodedata.category(char) if char else ""
    return category if category == "Nd" else category[:1]


def folded(name: str) -> str:
    """Return the form that names share which differ in case or in forms of their letters alone."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


@dataclass(slots=True)
class Namespace(Generic[T]):
    """Names of one kind of thing. They must differ by more than case, as Spark's views must, and
    by more than forms of letters, such as that of full width.

    A name whose item is broken is declared without a value, so that what refers to it is not
    reported as well.
    """

    noun: str
    values: dict[str, T | None] = field(default_factory=dict)
    declared: dict[str, tuple[str, Location]] = field(default_factory=dict)

    def declare(self, name: str, location: Location, errors: list[LancestatError]) -> bool:
        """Take a name; False, and an error, when it is taken."""
        first = self.declared.setdefault(folded(name), (name, location))
        if first[1] == location:
            self.values[name] = None
            return True
        spelled = "" if first[0] == name else f" as {quoted(first[0])}"
        message = f"{self.noun} {quoted(name)} is declared twice, first{spelled} at {first[1]}"
        errors.append(DuplicateName(message, location=location))
        return False

    def unknown(self, name: str, item: Item, *steps: str | int) -> SpecError | None:
        """The error of a reference to `name`, or None when it is declared."""
        if name in self.values:
            return None
        declared = [spelled for spelled, _ in self.declared.values()]
        hint = None
        if item.origin(*steps) is None:
            hint = did_you_mean(name, declared) or self._same_letters(name)
        return item.error(
            UnknownReference,
            f"unknown {self.noun} {item.quoted(name, *steps)}",
            *steps,
            hint=hint or listed("declared", sorted(declared)),
        )

    def _same_letters(self, name: str) -> str | None:
        declared = self.declared.get(folded(name))
        return f"did you mean '{declared[0]}'?" if declared else None
