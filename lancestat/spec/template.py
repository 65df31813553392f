"""Jinja in scalars: `var`, `env_var`, `target.name` and, in `sql`, `ref`.

A scalar that is one `{{ expression }}` and nothing else stands for the expression's own text,
number or boolean, so that `k: "{{ var('k') }}"` is a number. Any other scalar is rendered to text.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from lancestat.errors import Location, SpecError, did_you_mean
from lancestat.spec import codes
from lancestat.spec.quoting import quoted

MAX_CHARACTERS = 100_000
MAX_BITS = 256

_MARKERS = ("{{", "{%", "{#")
_SHAPES = {type(None): "nothing", list: "a list", tuple: "a list", dict: "a mapping"}
_MISSING = object()


class BadTemplateError(Exception):
    """What is wrong inside a template, before its place is known."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Scope:
    """What templates may refer to.

    `vars` None means that `var` is not available, as in `vars` itself. `secret_vars` are the
    variables that came from the environment. Values may be secrets: `repr` omits them.
    """

    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    vars: Mapping[str, object] | None = field(default=None, repr=False)
    secret_vars: frozenset[str] = frozenset()
    target: str | None = None


@dataclass(frozen=True, slots=True)
class Rendered:
    """A rendered scalar; `secret` when the environment had a part in it."""

    value: str | int | float | bool = field(repr=False)
    refs: tuple[str, ...] = ()
    secret: bool = False


def is_template(text: str) -> bool:
    """Whether a scalar holds anything for Jinja."""
    return any(marker in text for marker in _MARKERS)


def render(text: str, scope: Scope, location: Location, *, allow_ref: bool = False) -> Rendered:
    """Render one scalar; SpecError at `location` when that cannot be done."""
    names = Names(scope, allow_ref)
    try:
        if len(text) > MAX_CHARACTERS:
            raise BadTemplateError(f"a template of more than {MAX_CHARACTERS:,} characters")
        from lancestat.spec.sandbox import evaluate

        value = scalar_result(evaluate(text, names))
        if isinstance(value, str) and len(value) > MAX_CHARACTERS:
            raise BadTemplateError(f"the rendered text has more than {MAX_CHARACTERS:,} characters")
    except BadTemplateError as problem:
        raise SpecError(
            codes.TEMPLATE, f"template: {problem.message}", location=location, hint=problem.hint
        ) from None
    return Rendered(value, tuple(dict.fromkeys(names.refs)), names.secret)


def scalar_result(value: object) -> str | int | float | bool:
    """The value, when a scalar can hold it."""
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise BadTemplateError(f"a number of more than {MAX_BITS} bits")
    if isinstance(value, float) and not math.isfinite(value):
        raise BadTemplateError("a number that is not finite")
    if isinstance(value, str | bool | int | float):
        return value
    shape = _SHAPES.get(type(value), "something else")
    raise BadTemplateError(f"an expression gives {shape}; expected text, a number, true or false")


@dataclass(slots=True)
class Names:
    """The functions and values of one rendering, and what it used."""

    scope: Scope
    allow_ref: bool
    refs: list[str] = field(default_factory=list)
    secret: bool = False

    def var(self, name: object, default: object = _MISSING) -> object:
        """A variable of the project or of `--vars`."""
        text = self._word("var", name)
        if self.scope.vars is None:
            raise BadTemplateError("var() cannot be used here; only env_var() and target.name can")
        if text in self.scope.secret_vars:
            self.secret = True
        if text in self.scope.vars:
            return self.scope.vars[text]
        if default is not _MISSING:
            return default
        known = ", ".join(sorted(self.scope.vars)) or "none"
        raise BadTemplateError(
            f"unknown variable {quoted(text)}; known variables: {known}",
            did_you_mean(text, self.scope.vars)
            or "declare it under 'vars' in lancestat_project.yml or pass it with --vars",
        )

    def env_var(self, name: object, default: object = _MISSING) -> object:
        """A variable of the environment; always text unless the default is not."""
        text = self._word("env_var", name)
        self.secret = True
        if text in self.scope.environment:
            return self.scope.environment[text]
        if default is not _MISSING:
            return default
        raise BadTemplateError(
            f"environment variable {quoted(text)} is not set",
            f"set it, or give a default: env_var({quoted(text)}, '...')",
        )

    def ref(self, name: object) -> str:
        """A node's name as SQL spells it; the node becomes an input."""
        if not self.allow_ref:
            raise BadTemplateError("ref() can be used only in 'sql'")
        text = self._word("ref", name)
        self.refs.append(text)
        return "`" + text.replace("`", "``") + "`"

    def target_name(self) -> str:
        """The name of the target that the project was loaded with."""
        if self.scope.target is None:
            raise BadTemplateError("target.name cannot be used here")
        return self.scope.target

    def known(self) -> str:
        """What a template may use, for messages."""
        words = ["env_var('NAME')", "target.name"]
        if self.scope.vars is not None:
            words.insert(0, "var('name')")
        return ", ".join([*words, "ref('table')"] if self.allow_ref else words)

    @staticmethod
    def _word(function: str, name: object) -> str:
        if not isinstance(name, str):
            # Of an undefined name this is Jinja's own error, which says so.
            str(name)
            raise BadTemplateError(f"{function}() takes a name in quotes")
        return name
