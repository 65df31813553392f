"""Jinja in scalars: `var`, `env_var`, `target.name` and, in `sql`, `ref`.

A scalar that is one `{{ expression }}` and nothing else stands for the expression's own text,
number or boolean, so that `k: "{{ var('k') }}"` is a number. Any other scalar is rendered to text.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lancestat.errors import InvalidTemplate, Location, SpecError
from lancestat.formats import quoted
from lancestat.redact import KnownValue, Origin
from lancestat.spec.document import Document, KeyPath
from lancestat.spec.template_scope import (
    MAX_CHARACTERS,
    BadTemplateError,
    TemplateNames,
    TemplateScope,
    scalar_result,
)

_MARKERS = ("{{", "{%", "{#")


@dataclass(frozen=True, slots=True)
class Rendered:
    """A rendered scalar; `origin` when the environment had a part in it.

    `known` has the values that came from the environment, of which the text is made.
    """

    value: str | int | float | bool = field(repr=False)
    refs: tuple[str, ...] = ()
    origin: Origin | None = None
    known: tuple[KnownValue, ...] = field(default=(), repr=False)


def is_template(text: str) -> bool:
    """Whether a scalar holds anything for Jinja."""
    return any(marker in text for marker in _MARKERS)


def render(
    text: str, scope: TemplateScope, location: Location, *, allow_ref: bool = False
) -> Rendered:
    """Render one scalar; SpecError at `location` when that cannot be done."""
    names = TemplateNames(scope, allow_ref, text)
    try:
        if len(text) > MAX_CHARACTERS:
            raise BadTemplateError(f"a template of more than {MAX_CHARACTERS:,} characters")
        from lancestat.spec.sandbox import evaluate

        value = scalar_result(evaluate(text, names))
        if isinstance(value, str) and len(value) > MAX_CHARACTERS:
            raise BadTemplateError(f"the rendered text has more than {MAX_CHARACTERS:,} characters")
    except BadTemplateError as problem:
        raise _failure(problem, names.origin(), location) from None
    return Rendered(value, tuple(dict.fromkeys(names.refs)), names.origin(), names.known(value))


def _failure(problem: BadTemplateError, origin: Origin | None, location: Location) -> SpecError:
    message, hint = problem.message, problem.hint
    if origin is not None and problem.quotes:
        # Whatever is quoted may be made of the environment's values, in whichever way.
        message, hint = f"{quoted(origin.brief)} fails on what {origin.names} holds", None
    return InvalidTemplate(f"template: {message}", location=location, hint=hint)


def _is_rendered_later(path: KeyPath) -> bool:
    """Whether a template is rendered for each table of a source."""
    return path[:1] == ("sources",) and path[2:] == ("name",)


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
        """`value`, found at `path` of `document`, with the templates in it rendered.

        A template that fails is left as it is.
        """
        if isinstance(value, str):
            is_rendered = is_template(value) and not _is_rendered_later(path)
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
            self.refs[path] = rendered.refs
        if rendered.origin is not None:
            self.origins[path] = rendered.origin
            self.known |= dict.fromkeys(rendered.known)
        return rendered.value
