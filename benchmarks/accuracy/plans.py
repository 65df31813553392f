"""Operators of Spark's optimized plans, each with SQL that has as many rows.

A subplan becomes a block: `select outputs from sources where conditions`. Inner joins, filters and
projections above each other are one block, so that plans that differ in their join order alone
share the SQL of equal subplans, and with it the truth. Semi-joins and anti-joins are conditions of
their left side. Other joins, aggregates and unions become a source of the block above. A window, a
limit or a function that has no equal in SQL leaves what is above it without SQL.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from accuracy.expressions import Expressions, Node, NotTranslatable, Tree, identity, tree

# Stands for an alias until all of a query is known: their names depend on their order.
ALIAS = re.compile("\x02(\\d+)\x03")
FILTER, NOT_NULL, JOIN, AGGREGATE = "filter", "not null", "join", "aggregate"
RELATIONS = frozenset({"DataSourceV2ScanRelation", "LogicalRelation"})
OUTER = {"LeftOuter": "left", "RightOuter": "right", "FullOuter": "full", "LeftSingle": "left"}
# They have the rows of their child; what a window computes has no SQL.
PASSING = frozenset(
    {"Sort", "Window", "Repartition", "RepartitionByExpression", "RebalancePartitions"}
)


@dataclass(frozen=True)
class Block:
    """A subplan as `select outputs from sources where conditions`.

    Outputs are SQL by the ids of their attributes; `joins` are the places of its inner joins.
    """

    sources: tuple[str, ...]
    conditions: tuple[str, ...] = ()
    outputs: tuple[tuple[int, str], ...] = ()
    joins: frozenset[int] = frozenset()

    @property
    def body(self) -> str:
        """What follows `select outputs`, in an order that does not depend on the plan's."""
        own = {
            source: sorted(
                masked(condition)
                for condition in self.conditions
                if aliases(condition) == {alias_of(source)}
            )
            for source in self.sources
        }
        sources = sorted(self.sources, key=lambda source: (masked(source), own[source]))
        ranks = {alias_of(source): f"{rank:04}" for rank, source in enumerate(sources)}

        def ranked(condition: str) -> str:
            return ALIAS.sub(lambda found: ranks.get(found[1], "?"), condition)

        conditions = sorted(set(self.conditions), key=ranked)
        where = f" where {' and '.join(conditions)}" if conditions else ""
        return f"from {', '.join(sources)}{where}"

    @property
    def rows(self) -> str:
        """A query with as many rows."""
        return named(f"select 1 {self.body}")


@dataclass(frozen=True)
class Operator:
    """A filter, join or aggregate at a place of a plan, counted in preorder.

    The operators below it have places before `end`. `sql` has its rows. Where there is none,
    `reason` says why. `sides` are those of a join, `block` is that of an inner one.
    """

    kind: str
    place: int
    end: int
    sql: str | None = None
    reason: str | None = None
    sides: tuple[str, str] | None = None
    block: Block | None = None


def named(query: str) -> str:
    """Return a query whose aliases are named in the order in which they appear."""
    names: dict[str, str] = {}
    return ALIAS.sub(lambda found: names.setdefault(found[1], f"t{len(names) + 1}"), query)


def masked(text: str) -> str:
    """Return a text whose aliases are all the same."""
    return ALIAS.sub("?", text)


def aliases(text: str) -> set[str]:
    """Return the aliases in a text."""
    return set(ALIAS.findall(text))


def alias_of(source: str) -> str:
    """Return the alias of a source, which ends with it."""
    return str(ALIAS.findall(source)[-1])


def kind_of(part: Tree) -> str | None:
    """Return which kind of operator a node is; None where its rows need no estimate."""
    if part.kind == "Join":
        return JOIN
    if part.kind == "Aggregate":
        return AGGREGATE if part.node["groupingExpressions"] else None
    if part.kind != "Filter":
        return None
    kinds = [node["class"].rpartition(".")[2] for node in part.node["condition"]]
    trivial = {"And", "IsNotNull", "AttributeReference"}
    return NOT_NULL if trivial.issuperset(kinds) else FILTER


@dataclass(frozen=True)
class Translated:
    """The operators of a plan in preorder; ids of the columns that aliases of sources have."""

    operators: Sequence[Operator]
    columns: Mapping[str, frozenset[int]]
    # How many nodes the plan has.
    places: int


def translated(nodes: Sequence[Node], tables: Mapping[frozenset[str], str]) -> Translated:
    """Return what SQL has of an optimized plan that is given in Spark's JSON.

    `tables` are names by the columns of the table.
    """
    translation = _Translation(tables)
    translation.visit(tree(nodes))
    found = sorted(translation.operators, key=lambda operator: operator.place)
    return Translated(found, translation.columns, translation.places)


class _Translation:
    """Translates one plan, from its leaves up."""

    def __init__(self, tables: Mapping[frozenset[str], str]) -> None:
        self.operators: list[Operator] = []
        self.columns: dict[str, frozenset[int]] = {}
        self.places = 0
        self._tables = tables
        self._aliases = count()

    def visit(self, part: Tree) -> Block | NotTranslatable:
        """Add the operators of a subplan; return its block, or why there is none."""
        place = self.places
        self.places += 1
        children = [self.visit(child) for child in part.children]
        blocks = [child for child in children if isinstance(child, Block)]
        made: Block | NotTranslatable
        try:
            for child in children:
                if isinstance(child, NotTranslatable):
                    raise child
            made = self._block(part, place, blocks)
        except NotTranslatable as reason:
            made = reason
        kind = kind_of(part)
        if kind is not None:
            self.operators.append(_operator(kind, (place, self.places), made, blocks))
        return made

    def _block(self, part: Tree, place: int, children: Sequence[Block]) -> Block:
        if part.kind in RELATIONS:
            return self._relation(part)
        if part.kind in PASSING:
            return children[0]
        match part.kind:
            case "Filter":
                conditions = self._expressions(children[0]).conjuncts(part.node["condition"])
                return replace(children[0], conditions=(*children[0].conditions, *conditions))
            case "Project":
                outputs = self._outputs(part.node["projectList"], children[0])
                return replace(children[0], outputs=outputs)
            case "Aggregate":
                return self._aggregate(part, children[0])
            case "Expand":
                return self._expand(part, children[0])
            case "Union":
                return self._union(children)
            case "Join":
                return self._join(part, place, *children)
        raise NotTranslatable(part.kind)

    def _relation(self, part: Tree) -> Block:
        relation = part.node
        if part.kind == "DataSourceV2ScanRelation":
            relation = relation["relation"][0]
        columns = [column for [column] in relation["output"]]
        table = self._tables.get(frozenset(column["name"] for column in columns))
        if table is None:
            raise NotTranslatable("a relation that is not a table")
        alias = self._alias(map(identity, columns))
        names = {identity(column): f"{alias}.{column['name']}" for column in columns}
        # The filters that the scan alone applies.
        block = Block((f"{table} {alias}",), (), tuple(names.items()))
        pushed = [
            condition
            for nodes in part.node.get("pushedFilters") or ()
            for condition in self._expressions(block).conjuncts(nodes)
        ]
        outputs = [identity(column) for [column] in part.node["output"]]
        if not names.keys() >= set(outputs):
            raise NotTranslatable("a scan that computes")
        return replace(
            block,
            conditions=tuple(pushed),
            outputs=tuple((column, names[column]) for column in outputs),
        )

    def _aggregate(self, part: Tree, child: Block) -> Block:
        translate = self._expressions(child).of
        keys = sorted({translate(key) for key in part.node["groupingExpressions"]})
        by = f" group by {', '.join(keys)}" if keys else ""
        outputs = self._outputs(part.node["aggregateExpressions"], child)
        if not keys and not outputs:
            raise NotTranslatable("an aggregate of nothing")
        return self._source(outputs, child.body + by)

    def _expand(self, part: Tree, child: Block) -> Block:
        translate = self._expressions(child).of
        if not part.node["projections"]:
            raise NotTranslatable("Expand")
        ids = [identity(column) for [column] in part.node["output"]]
        rows = [[translate(value) for value in row] for row in part.node["projections"]]
        return self._united(ids, [(row, child.body) for row in rows])

    def _union(self, children: Sequence[Block]) -> Block:
        ids = [column for column, _ in children[0].outputs]
        if any(len(child.outputs) != len(ids) for child in children):
            raise NotTranslatable("Union")
        return self._united(
            ids, [([sql for _, sql in child.outputs], child.body) for child in children]
        )

    def _join(self, part: Tree, place: int, left: Block, right: Block) -> Block:
        kind = str(part.node["joinType"].get("object") or part.node["joinType"]["product-class"])
        kind = kind.rpartition(".")[2].rstrip("$")
        both = left.outputs + right.outputs
        if kind in OUTER:
            left, right = self._opaque(left), self._opaque(right)
            both = left.outputs + right.outputs
        on = self._expressions(Block((), (), both)).conjuncts(part.node.get("condition"))
        if kind in ("Inner", "Cross"):
            return Block(
                left.sources + right.sources,
                (*left.conditions, *right.conditions, *on),
                both,
                left.joins | right.joins | {place},
            )
        if kind in OUTER:
            matches = " and ".join(sorted(on)) or "true"
            joined = f"{left.sources[0]} {OUTER[kind]} join {right.sources[0]} on {matches}"
            return self._source(both, f"from {joined}")
        found = f"exists (select 1 {replace(right, conditions=(*right.conditions, *on)).body})"
        if kind == "ExistenceJoin":
            attribute = identity(part.node["joinType"]["exists"][0])
            return replace(left, outputs=(*left.outputs, (attribute, found)))
        if kind not in ("LeftSemi", "LeftAnti"):
            raise NotTranslatable(kind)
        condition = found if kind == "LeftSemi" else f"not {found}"
        return replace(left, conditions=(*left.conditions, condition))

    def _opaque(self, block: Block) -> Block:
        """Return a block that has one source and no conditions."""
        is_table = len(block.sources) == 1 and not block.sources[0].startswith("(")
        plain = all(re.fullmatch("\x02\\d+\x03\\.\\w+", sql) for _, sql in block.outputs)
        if is_table and plain and not block.conditions:
            return block
        return self._source(block.outputs, block.body)

    def _source(self, outputs: Sequence[tuple[int, str]], body: str) -> Block:
        return self._united(
            [column for column, _ in outputs], [([sql for _, sql in outputs], body)]
        )

    def _united(self, ids: Sequence[int], parts: Sequence[tuple[Sequence[str], str]]) -> Block:
        """Return a block over the union of parts, each with values for the columns."""
        alias = self._alias(ids)
        selects = []
        for values, body in parts:
            columns = ", ".join(f"{value} as c{n}" for n, value in enumerate(values))
            selects.append(f"select {columns or '1 as c0'} {body}")
        outputs = tuple((column, f"{alias}.c{n}") for n, column in enumerate(ids))
        return Block((f"({' union all '.join(selects)}) {alias}",), (), outputs)

    def _outputs(
        self, expressions: Sequence[Sequence[Node]], child: Block
    ) -> tuple[tuple[int, str], ...]:
        translate = self._expressions(child).of
        return tuple((identity(nodes[0]), translate(nodes)) for nodes in expressions)

    def _expressions(self, block: Block) -> Expressions:
        return Expressions(dict(block.outputs), self._subquery)

    def _subquery(self, nodes: Sequence[Node]) -> str:
        """The value of a scalar subquery, whose operators are not measured."""
        inner = _Translation(self._tables)
        inner._aliases = self._aliases
        block = inner.visit(tree(nodes))
        if isinstance(block, NotTranslatable):
            raise block
        [(_, value)] = block.outputs
        return f"(select {value} {block.body})"

    def _alias(self, columns: Iterable[int]) -> str:
        alias = f"\x02{next(self._aliases)}\x03"
        self.columns[alias_of(alias)] = frozenset(columns)
        return alias


def _operator(
    kind: str, places: tuple[int, int], made: Block | NotTranslatable, children: Sequence[Block]
) -> Operator:
    if isinstance(made, NotTranslatable):
        return Operator(kind, *places, reason=str(made))
    if kind != JOIN:
        return Operator(kind, *places, made.rows)
    left, right = children
    inner = made if places[0] in made.joins else None
    return Operator(kind, *places, made.rows, sides=(left.rows, right.rows), block=inner)
