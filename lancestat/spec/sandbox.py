"""A small, bounded part of Jinja.

Templates come from files that a reviewer may not have seen yet, so they get expressions, `if`,
`for` and `set`, a list of harmless filters and string methods, and bounds on sizes and steps:
rendering any template ends soon and has no side effects.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from jinja2 import StrictUndefined, Template, TemplateError, TemplateSyntaxError, Undefined, nodes
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import SandboxedEnvironment
from jinja2.utils import pass_context
from jinja2.visitor import NodeTransformer

from lancestat.errors import did_you_mean
from lancestat.redact import KnownValue
from lancestat.spec.template import (
    MAX_BITS,
    MAX_CHARACTERS,
    BadTemplateError,
    TemplateNames,
    scalar_result,
)

MAX_STEPS = 10_000
MAX_EXPONENT = 64

_FILTERS = (
    "abs", "count", "d", "default", "first", "float", "int", "last", "length", "list", "lower",
    "reverse", "round", "sort", "string", "title", "tojson", "trim", "unique", "upper",
)  # fmt: skip
_STRING_METHODS = frozenset(
    ("upper", "lower", "title", "strip", "lstrip", "rstrip", "removeprefix", "removesuffix",
     "split", "startswith", "endswith", "isdigit")
)  # fmt: skip
_MAPPING_METHODS = frozenset(("get", "items", "keys", "values"))
_LOOP_ATTRIBUTES = frozenset(("first", "last", "index", "index0", "length"))
_REFUSED_STATEMENTS = (
    nodes.Macro, nodes.CallBlock, nodes.FilterBlock, nodes.AssignBlock, nodes.Include, nodes.Import,
    nodes.FromImport, nodes.Extends, nodes.Block, nodes.With, nodes.ScopedEvalContextModifier,
)  # fmt: skip
_NAMED = re.compile(r"'(\w+)' is undefined")
_WORD = re.compile(r"\w+")
_STEPS = "lancestat steps"
_RESULT = "result"


@dataclass(frozen=True, slots=True)
class _Target:
    """The value of `target`: its only attribute is looked up when it is used."""

    names: TemplateNames

    @property
    def name(self) -> str:
        return self.names.target_name()


def evaluate(text: str, names: TemplateNames) -> object:
    """The value of a template, BadTemplateError when it has none."""
    scope: dict[str, object] = {
        "var": names.var,
        "env_var": names.env_var,
        "ref": names.ref,
        "target": _Target(names),
        "range": _range,
        **names.scope.words,
        _STEPS: [0],
    }
    try:
        pieces = _pieces(text)
        if pieces is None:
            return _joined(_with_statements(text).generate(scope))
        values = (
            _value(piece, scope, names) if isinstance(piece, _Expression) else piece
            for piece in pieces
        )
        if len(pieces) == 1:
            return next(values)
        return _joined(str(scalar_result(value)) for value in values)
    except BadTemplateError:
        raise
    except Exception as error:
        # A template is a program in a user's file: whatever it raises is an error in that file.
        is_of_jinja = isinstance(error, TemplateError)
        hint = _undefined_hint(str(error), names) if is_of_jinja else None
        is_harmless = isinstance(error, TemplateSyntaxError) or (
            is_of_jinja and _is_of_source(error, names)
        )
        raise BadTemplateError(_one_line(error), hint, quotes=not is_harmless) from None


def _value(expression: _Expression, scope: dict[str, object], names: TemplateNames) -> object:
    """The value of an expression, which is remembered when the environment has a part in it."""
    before, names.used = names.used, {}
    try:
        value = expression.value(scope)
        origin = names.origin("{{" + expression.source + "}}")
        if origin is not None and origin.is_set:
            names.pieces.append(
                KnownValue(str(value), origin.template, origin.is_secret, is_whole=True)
            )
        return value
    finally:
        names.used = {**before, **names.used}


def _one_line(error: Exception) -> str:
    message = error.message if isinstance(error, TemplateError) else str(error)
    return " ".join((message or type(error).__name__).split())[:200]


def _is_of_source(error: Exception, names: TemplateNames) -> bool:
    """Whether all that an error names is a name that the template holds."""
    named = _NAMED.fullmatch(str(error))
    return named is not None and named[1] in _WORD.findall(names.source)


def _undefined_hint(message: str, names: TemplateNames) -> str | None:
    if "is undefined" not in message:
        return None
    word = message.split("'")[1] if "'" in message else ""
    if word in (names.scope.vars or {}):
        return f"did you mean var('{word}')?"
    functions = ("var", "env_var", "ref", "target", *names.scope.words)
    return did_you_mean(word, functions) or f"a template may use {names.allowed()}"


@dataclass(frozen=True, slots=True)
class _Expression:
    """The code between `{{` and `}}`, compiled as Environment.compile_expression does."""

    template: Template
    source: str

    def value(self, scope: dict[str, object]) -> object:
        context = self.template.new_context(scope)
        for _ in self.template.root_render_func(context):
            pass
        result = context.vars[_RESULT]
        return str(result) if isinstance(result, Undefined) else result


def _pieces(text: str) -> list[str | _Expression] | None:
    """The texts and expressions that a template is made of, None when it holds statements."""
    pieces: list[str | _Expression] = []
    source: list[str] | None = None
    for _, kind, token in _environment().lex(text):
        if kind == "data":
            pieces.append(token)
        elif kind == "variable_begin":
            source = []
        elif kind == "variable_end" and source is not None:
            pieces.append(_expression("".join(source)))
            source = None
        elif source is not None:
            source.append(token)
        elif not kind.startswith("comment"):
            return None
    return pieces if source is None else None


@lru_cache(maxsize=64)
def _with_statements(text: str) -> Template:
    # The name of a source's tables is such a template, and may be rendered for thousands.
    environment = _environment()
    return environment.from_string(_Bounds().visit(environment.parse(text)))


@lru_cache(maxsize=512)
def _expression(source: str) -> _Expression:
    # The tables of a project have few expressions in common; compiling costs more than all else.
    environment = _environment()
    tree = _Bounds().visit(environment.parse(f"{{{{ {source} }}}}"))
    assign = nodes.Assign(nodes.Name(_RESULT, "store"), tree.body[0].nodes[0], lineno=1)
    return _Expression(environment.from_string(nodes.Template([assign], lineno=1)), source)


def _joined(pieces: Iterable[str]) -> str:
    parts: list[str] = []
    size = 0
    for piece in pieces:
        size += len(piece)
        if size > MAX_CHARACTERS:
            raise BadTemplateError(f"the rendered text has more than {MAX_CHARACTERS:,} characters")
        parts.append(piece)
    return "".join(parts)


class _Bounds(NodeTransformer):
    """Refuses statements that could hide work, and routes loops and `~` through bounded filters."""

    def generic_visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> nodes.Node:
        if isinstance(node, _REFUSED_STATEMENTS):
            word = type(node).__name__.lower()
            raise BadTemplateError(f"'{word}' blocks are not allowed; only if, for and set are")
        return super().generic_visit(node, *args, **kwargs)

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802
        if node.recursive:
            raise BadTemplateError("recursive loops are not allowed")
        visited = self.generic_visit(node)
        assert isinstance(visited, nodes.For)
        visited.iter = _filter(visited.iter, "_steps", node.lineno)
        return visited

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        visited = self.generic_visit(node)
        assert isinstance(visited, nodes.Concat)
        return _filter(nodes.List(visited.nodes, lineno=node.lineno), "join", node.lineno)


def _filter(value: nodes.Node, name: str, lineno: int) -> nodes.Filter:
    return nodes.Filter(value, name, [], [], None, None, lineno=lineno)


class _Environment(SandboxedEnvironment):
    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def getattr(self, obj: Any, attribute: str) -> Any:
        if isinstance(obj, _Target) and attribute != "name":
            raise BadTemplateError(f"target has no '{attribute}', only 'name'", quotes=True)
        return super().getattr(obj, attribute)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if isinstance(obj, _Target):
            return attr == "name"
        if isinstance(obj, LoopContext):
            return attr in _LOOP_ATTRIBUTES
        if isinstance(obj, str):
            return attr in _STRING_METHODS
        return isinstance(obj, dict) and attr in _MAPPING_METHODS

    def is_safe_callable(self, obj: Any) -> bool:
        if obj is _range or isinstance(obj, Undefined):
            return True
        owner = getattr(obj, "__self__", None)
        if isinstance(owner, str | dict) and self.is_safe_attribute(owner, obj.__name__, obj):
            return True
        if not isinstance(owner, TemplateNames):
            raise BadTemplateError("only var, env_var, ref, range and string methods can be called")
        return True

    def unsafe_undefined(self, obj: Any, attribute: str) -> Undefined:
        raise BadTemplateError(f"attribute '{attribute}' is not available", quotes=True)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        _check_operation(operator, left, right)
        return super().call_binop(context, operator, left, right)


def _check_operation(operator: str, left: object, right: object) -> None:
    if operator == "%":
        if isinstance(left, str):
            raise BadTemplateError("'%' works on numbers; use '~' to join text")
    elif operator == "**":
        if not isinstance(right, int | float) or abs(right) > MAX_EXPONENT:
            raise BadTemplateError(f"an exponent over {MAX_EXPONENT}")
        _refuse_long_numbers(left)
    elif operator == "*":
        _refuse_long_numbers(left, right)
        for text, count in ((left, right), (right, left)):
            if isinstance(text, Sequence) and isinstance(count, int):
                _refuse_long(len(text) * count)
    elif isinstance(left, Sequence) and isinstance(right, Sequence):
        _refuse_long(len(left) + len(right))


def _refuse_long_numbers(*operands: object) -> None:
    if any(isinstance(number, int) and number.bit_length() > MAX_BITS for number in operands):
        raise BadTemplateError(f"a number of more than {MAX_BITS} bits")


def _refuse_long(size: int) -> None:
    if size > MAX_CHARACTERS:
        raise BadTemplateError(f"a value of more than {MAX_CHARACTERS:,} characters or items")


def _range(*bounds: int) -> range:
    values = range(*bounds)
    if len(values) > MAX_STEPS:
        raise BadTemplateError(f"a range of more than {MAX_STEPS:,} steps")
    return values


def _join(values: Iterable[object], separator: str = "") -> str:
    texts = [str(_finalize(value)) for value in values]
    _refuse_long(sum(map(len, texts)) + len(separator) * len(texts))
    return separator.join(texts)


def _replace(text: object, old: str, new: str) -> str:
    source = str(scalar_result(text))
    _refuse_long(len(source) + source.count(old) * len(new))
    return source.replace(old, new)


@pass_context
def _steps(context: Context, values: Iterable[object]) -> Iterator[object]:
    counter = context[_STEPS]
    for value in values:
        counter[0] += 1
        if counter[0] > MAX_STEPS:
            raise BadTemplateError(f"loops of more than {MAX_STEPS:,} steps")
        yield value


def _finalize(value: object) -> object:
    return value if isinstance(value, Undefined) else scalar_result(value)


@cache
def _environment() -> SandboxedEnvironment:
    environment = _Environment(undefined=StrictUndefined, finalize=_finalize, autoescape=False)
    filters: dict[str, Callable[..., Any]] = {name: environment.filters[name] for name in _FILTERS}
    environment.filters = {**filters, "join": _join, "replace": _replace, "_steps": _steps}
    environment.globals = {}
    return environment
