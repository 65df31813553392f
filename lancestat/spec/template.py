"""Jinja in scalars: `var`, `env_var`, `target.name` and, in `sql`, `ref`.

A scalar that is one `{{ expression }}` and nothing else stands for the expression's own text,
number or boolean, so that `k: "{{ var('k') }}"` is a number. Any other scalar is rendered to text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from lancestat.errors import did_you_mean
from lancestat.formats import quoted
from lancestat.redact import KnownValue, Origin, Variable

_MARKERS = ("{{", "{%", "{#")
MAX_CHARACTERS = 100_000
MAX_BITS = 256
_SHAPES = {type(None): "nothing", list: "a list", tuple: "a list", dict: "a mapping"}
_MISSING = object()

# References in the source of a template.
_VAR = re.compile(r"(?<![\w.])var\(\s*(['\"])([^'\"]*)\1\s*\)")
_TARGET = re.compile(r"(?<![\w.])target\.name\b")


class BadTemplateError(Exception):
    """An error inside a template, before its location is known.

    `quotes` is set where the message has a value in it, which may come from the environment.
    """

    def __init__(self, message: str, hint: str | None = None, *, quotes: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.quotes = quotes


class UnsetVariableError(BadTemplateError):
    """A template needs a variable of the environment that is not set."""


@dataclass(frozen=True, slots=True)
class TemplateScope:
    """The values that templates may refer to.

    `vars` None means that `var` is not available, as in `vars` itself. `var_origins` has the
    origins of those that came from the environment, `target_origin` that of the target's name.
    `words` are further names with their values. `asked` collects the variables that templates name.
    Values may be secrets: `repr` omits them.
    """

    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    vars: Mapping[str, object] | None = field(default=None, repr=False)
    var_origins: Mapping[str, Origin] = field(default_factory=dict)
    target: str | None = None
    target_origin: Origin | None = None
    words: Mapping[str, str] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set, compare=False)


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
class TemplateNames:
    """One rendering of `source`: the functions and values that it may use, what it used, its value.

    `used` has the origins of what was asked for and came from the environment, by the text that
    refers to it. `pieces` has the results of the expressions that used any.
    """

    scope: TemplateScope
    allow_ref: bool
    source: str = ""
    value: str | int | float | bool = field(default="", repr=False)
    refs: dict[str, None] = field(default_factory=dict)
    used: dict[str, Origin] = field(default_factory=dict)
    pieces: list[KnownValue] = field(default_factory=list)

    def var(self, name: object, default: object = _MISSING) -> object:
        text = self._word("var", name)
        if self.scope.vars is None:
            raise BadTemplateError("var() cannot be used here; only env_var() and target.name can")
        self.scope.asked.add(text)
        if text in self.scope.var_origins:
            self.used[str(Variable(text, "var"))] = self.scope.var_origins[text]
        if text in self.scope.vars:
            return self.scope.vars[text]
        if default is not _MISSING:
            return default
        known = ", ".join(sorted(self.scope.vars)) or "none"
        raise BadTemplateError(
            f"unknown variable {quoted(text)}; known variables: {known}",
            did_you_mean(text, self.scope.vars)
            or "declare it under 'vars' in lancestat_project.yml or pass it with --vars",
            quotes=not self._is_written(text),
        )

    def env_var(self, name: object, default: object = _MISSING) -> object:
        """A variable of the environment; always text unless the default is not."""
        text = self._word("env_var", name)
        is_written, is_set = self._is_written(text), text in self.scope.environment
        if is_set or default is not _MISSING:
            variable = Variable(text, is_written=is_written)
            self.used[f"{variable} {text}"] = Origin((variable,), str(variable), is_set)
        if is_set:
            return self.scope.environment[text]
        if default is not _MISSING:
            return default
        raise UnsetVariableError(
            f"environment variable {quoted(text)} is not set",
            f"set it, or give a default: env_var({quoted(text)}, '...')",
            quotes=not is_written,
        )

    def ref(self, name: object) -> str:
        """A node's name as SQL spells it; the node becomes an input."""
        if not self.allow_ref:
            raise BadTemplateError("ref() can be used only in 'sql'")
        text = self._word("ref", name)
        self.refs[text] = None
        return "`" + text.replace("`", "``") + "`"

    def target_name(self) -> str:
        if self.scope.target is None:
            raise BadTemplateError("target.name cannot be used here")
        if self.scope.target_origin is not None:
            self.used["target.name"] = self.scope.target_origin
        return self.scope.target

    def allowed(self) -> str:
        words = ["env_var('NAME')", "target.name", *self.scope.words]
        if self.scope.vars is not None:
            words.insert(0, "var('name')")
        return ", ".join([*words, "ref('table')"] if self.allow_ref else words)

    def origin(self, source: str | None = None) -> Origin | None:
        """Return the origin of the result, None when the environment has no part in it.

        In the template as it is shown, variables of the project give way to those of the
        environment that they stand for.
        """
        if not self.used:
            return None
        template = self.source if source is None else source
        template = _VAR.sub(lambda match: self._spelled(f"var('{match[2]}')", match[0]), template)
        template = _TARGET.sub(lambda match: self._spelled("target.name", match[0]), template)
        variables = dict.fromkeys(
            variable for used in self.used.values() for variable in used.variables
        )
        return Origin(tuple(variables), template, any(used.is_set for used in self.used.values()))

    def known(self) -> list[KnownValue]:
        """The values of the environment in the result: all of it, of expressions, of variables."""
        origin = self.origin()
        if origin is None or not origin.is_set:
            return []
        values = {"env_var": self.scope.environment, "var": self.scope.vars or {}}
        known = [KnownValue(str(self.value), origin.template, origin.is_secret), *self.pieces]
        for variable in origin.variables:
            text = values[variable.function].get(variable.name)
            if text is not None:
                template = f"{{{{ {variable} }}}}"
                known.append(KnownValue(str(text), template, variable.is_secret, is_whole=True))
        return known

    def _spelled(self, reference: str, written: str) -> str:
        origin = self.used.get(reference)
        variables = origin.variables if origin else ()
        return (
            " ~ ".join(str(variable) for variable in variables if variable.function == "env_var")
            or written
        )

    def _is_written(self, word: str) -> bool:
        """Whether the template holds a word as it is, and not as the result of an expression."""
        return f"'{word}'" in self.source or f'"{word}"' in self.source

    @staticmethod
    def _word(function: str, name: object) -> str:
        if not isinstance(name, str):
            # For an undefined name this raises Jinja's own error.
            str(name)
            raise BadTemplateError(f"{function}() takes a name in quotes")
        return name


def is_template(text: str) -> bool:
    """Whether a scalar holds anything for Jinja."""
    return any(marker in text for marker in _MARKERS)
