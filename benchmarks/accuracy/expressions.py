"""Expressions of Spark's optimizer, from its JSON, in SQL that DuckDB and PostgreSQL read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

# One node of `TreeNode.toJSON`, and a tree of such nodes in preorder.
Node = dict[str, Any]


class NotTranslatable(Exception):  # noqa: N818
    """A subplan that has no SQL with the same rows."""


class Tree:
    """A node with its children."""

    __slots__ = ("children", "kind", "node")

    def __init__(self, node: Node, children: list[Tree]) -> None:
        self.node = node
        self.children = children
        self.kind: str = node["class"].rpartition(".")[2]


def tree(nodes: Sequence[Node]) -> Tree:
    """Return the tree that nodes in preorder describe."""
    rest = iter(nodes)

    def take() -> Tree:
        node = next(rest)
        return Tree(node, [take() for _ in range(node["num-children"])])

    return take()


INFIX = {
    "EqualTo": "=",
    "EqualNullSafe": "is not distinct from",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "And": "and",
    "Or": "or",
    "Add": "+",
    "Subtract": "-",
    "Multiply": "*",
    "Divide": "/",
    "Remainder": "%",
}
# Aggregates among them: those of `group by`, without `distinct` and `filter`.
FUNCTIONS = {
    "Abs": "abs",
    "Coalesce": "coalesce",
    "Lower": "lower",
    "Upper": "upper",
    "Round": "round",
    "StringTrim": "trim",
    "Substring": "substring",
    "Average": "avg",
    "Max": "max",
    "Min": "min",
    "StddevSamp": "stddev_samp",
    "Sum": "sum",
}
PREFIX = {"Not": "not", "UnaryMinus": "-"}
POSTFIX = {"IsNull": "is null", "IsNotNull": "is not null"}
# What Spark wraps values in that are the same values in SQL.
SAME = frozenset(
    {"KnownFloatingPointNormalized", "KnownNotNull", "NormalizeNaNAndZero", "PromotePrecision"}
)
PATTERNS = {"StartsWith": "{}%", "EndsWith": "%{}", "Contains": "%{}%"}
PARTS = {"Year": "year", "Month": "month", "DayOfMonth": "day", "Quarter": "quarter"}
TYPES = {
    "byte": "smallint",
    "short": "smallint",
    "integer": "integer",
    "long": "bigint",
    "float": "real",
    "double": "double precision",
    "string": "varchar",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ntz": "timestamp",
    "boolean": "boolean",
}
DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)")


def identity(attribute: Node) -> int:
    """Return the id of an attribute or alias, which is unique in a plan."""
    return int(attribute["exprId"]["id"])


class Expressions:
    """Translates expressions over columns with known SQL.

    `columns` maps ids of attributes to SQL, `subquery` gives the SQL of a scalar subquery's plan.
    """

    def __init__(
        self, columns: Mapping[int, str], subquery: Callable[[Sequence[Node]], str]
    ) -> None:
        self.columns = columns
        self.subquery = subquery

    def conjuncts(self, nodes: Sequence[Node] | None) -> list[str]:
        """Return the SQL of each conjunct of a condition; none if there is no condition."""
        return [self.sql(part) for part in _conjuncts(tree(nodes))] if nodes else []

    def of(self, nodes: Sequence[Node]) -> str:
        """Return the SQL of a whole expression."""
        return self.sql(tree(nodes))

    def sql(self, part: Tree) -> str:
        """Return the SQL of a part of an expression; NotTranslatable if there is none."""
        kind = part.kind
        if special := getattr(self, f"_{kind.lower()}", None):
            return str(special(part))
        if kind in SAME:
            return self.sql(part.children[0])
        operands = [self.sql(child) for child in part.children]
        if kind in INFIX:
            return f"({operands[0]} {INFIX[kind]} {operands[1]})"
        if kind in PREFIX:
            return f"({PREFIX[kind]} {operands[0]})"
        if kind in POSTFIX:
            return f"({operands[0]} {POSTFIX[kind]})"
        if kind in PARTS:
            return f"extract({PARTS[kind]} from {operands[0]})"
        if kind in FUNCTIONS:
            return f"{FUNCTIONS[kind]}({', '.join(operands)})"
        raise NotTranslatable(kind)

    def _attributereference(self, part: Tree) -> str:
        try:
            return self.columns[identity(part.node)]
        except KeyError:
            raise NotTranslatable(f"the column {part.node['name']}") from None

    def _alias(self, part: Tree) -> str:
        return self.sql(part.children[0])

    def _literal(self, part: Tree) -> str:
        return literal(part.node["value"], part.node["dataType"])

    def _in(self, part: Tree) -> str:
        value, *others = [self.sql(child) for child in part.children]
        return f"({value} in ({', '.join(sorted(others))}))"

    def _concat(self, part: Tree) -> str:
        # The function of that name leaves nulls out.
        return f"({' || '.join(map(self.sql, part.children))})"

    def _count(self, part: Tree) -> str:
        if len(part.children) > 1:
            raise NotTranslatable("a count of several columns")
        return f"count({self.sql(part.children[0])})"

    def _like(self, part: Tree) -> str:
        value, pattern = (self.sql(child) for child in part.children)
        return f"({value} like {pattern})"

    def _pattern(self, part: Tree) -> str:
        value, text = part.children
        if text.kind != "Literal" or re.search(r"[%_\\]", text.node["value"]):
            raise NotTranslatable("a pattern")
        pattern = literal(PATTERNS[part.kind].format(text.node["value"]), "string")
        return f"({self.sql(value)} like {pattern})"

    def _dateadd(self, part: Tree) -> str:
        day, days = map(self.sql, part.children)
        return f"({day} + {days})"

    _startswith = _endswith = _contains = _pattern

    def _cast(self, part: Tree) -> str:
        return f"cast({self.sql(part.children[0])} as {type_of(part.node['dataType'])})"

    def _checkoverflow(self, part: Tree) -> str:
        return self._cast(part)

    def _if(self, part: Tree) -> str:
        condition, then, otherwise = (self.sql(child) for child in part.children)
        return f"(case when {condition} then {then} else {otherwise} end)"

    def _casewhen(self, part: Tree) -> str:
        values = [self.sql(child) for child in part.children]
        pairs = zip(values[0::2], values[1::2], strict=False)
        branches = " ".join(f"when {condition} then {then}" for condition, then in pairs)
        last = f" else {values[-1]}" if len(values) % 2 else ""
        return f"(case {branches}{last} end)"

    def _unscaledvalue(self, part: Tree) -> str:
        value = part.children[0]
        return f"cast({self.sql(value)} * {10 ** scale_of(value)} as bigint)"

    def _makedecimal(self, part: Tree) -> str:
        precision, scale = part.node["precision"], part.node["scale"]
        value = self.sql(part.children[0])
        return f"cast({value} / {10.0**scale} as decimal({precision},{scale}))"

    def _aggregateexpression(self, part: Tree) -> str:
        if len(part.children) > 1:
            raise NotTranslatable("an aggregate with a filter")
        call = self.sql(part.children[0])
        name, _, rest = call.partition("(")
        return f"{name}(distinct {rest}" if part.node.get("isDistinct") else call

    def _scalarsubquery(self, part: Tree) -> str:
        return self.subquery(part.node["plan"])


def _conjuncts(part: Tree) -> list[Tree]:
    if part.kind == "And":
        return [conjunct for child in part.children for conjunct in _conjuncts(child)]
    return [part]


def literal(value: object, type: Any) -> str:
    """Return a literal of one of Spark's types."""
    if value is None:
        return "null"
    text = str(value)
    if type in ("date", "timestamp", "timestamp_ntz"):
        return f"{TYPES[type]} '{text}'"
    if type == "boolean":
        return text.lower()
    if type in ("byte", "short", "integer", "long") or DECIMAL.fullmatch(str(type)):
        return text
    if type in ("float", "double"):
        return f"cast({text} as double precision)"
    if type == "string":
        return "'" + text.replace("'", "''") + "'"
    raise NotTranslatable(f"a literal of type {type}")


def type_of(type: Any) -> str:
    """Return SQL's name of one of Spark's types."""
    if isinstance(type, str):
        if DECIMAL.fullmatch(type):
            return type
        if type in TYPES:
            return TYPES[type]
    raise NotTranslatable(f"the type {type}")


def scale_of(part: Tree) -> int:
    """Return the digits after the point of a decimal, as Spark derives them."""
    if (matched := DECIMAL.fullmatch(str(part.node.get("dataType")))) is not None:
        return int(matched[2])
    if part.kind in ("Add", "Subtract", "UnaryMinus", "Abs", "Coalesce", *SAME):
        return max(map(scale_of, part.children))
    if part.kind == "Multiply":
        return sum(map(scale_of, part.children))
    if part.kind in ("If", "CaseWhen"):
        return scale_of(part.children[1])
    raise NotTranslatable(f"the scale of {part.kind}")
