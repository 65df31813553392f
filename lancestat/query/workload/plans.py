"""Spark's physical plans, as event logs have them, to the uses of columns.

A plan is a tree of operators, each a line of text in which attributes are written as
`name#12` or `name#12L`. An id stands for one column of one scan, or for what an operator computes.
Of the text nothing is kept but the names of columns that scans list, so no literal leaves this
module: strings are printed without quotes, and may look like anything.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from math import isfinite

import msgspec

from lancestat.query.q_error import added_error, q_error, row_ratio
from lancestat.query.workload.queries import ALL_COLUMNS, ColumnUse, Query, Role

ROWS_METRIC = "number of output rows"
# Ids of operators are written `[id=#12]`.
_ID = re.compile(r"(?<!=)#(\d+)L?")


class Metric(msgspec.Struct, rename="camel"):
    """A metric of an operator; its value is in events, by the accumulator's id."""

    name: str
    accumulator_id: int


class PlanNode(msgspec.Struct, rename="camel"):
    """An operator of a plan (`SparkPlanInfo`)."""

    node_name: str
    simple_string: str
    children: list[PlanNode] = []
    metrics: list[Metric] = []


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of a scan, which is numbered in the order of the plan."""

    scan: int
    table: str
    name: str


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator by which rows are estimated: its kind, and the ids of the attributes in it."""

    kind: str
    ids: frozenset[str]


@dataclass(slots=True)
class PlanUses:
    """The uses of columns in a plan, those of each operator, and operators by their metric.

    `rows` has the accumulators that count the rows of an operator, `inputs` the operators that are
    next below it. Those in `sampled` count twice: Spark runs a stage to sample the rows, which it
    then cuts into ranges.
    """

    uses: set[ColumnUse] = field(default_factory=set)
    reads: dict[str, set[str]] = field(default_factory=dict)
    by_operator: dict[Operator, set[ColumnUse]] = field(default_factory=dict)
    inputs: dict[Operator, set[Operator]] = field(default_factory=dict)
    rows: dict[int, Operator] = field(default_factory=dict)
    sampled: set[int] = field(default_factory=set)

    def add(self, later: PlanUses) -> None:
        """Add a later plan of the same query, or a part of it; its rows count."""
        self.uses |= later.uses
        for table, columns in later.reads.items():
            self.reads.setdefault(table, set()).update(columns)
        for operator, uses in later.by_operator.items():
            self.by_operator.setdefault(operator, set()).update(uses)
        for operator, inputs in later.inputs.items():
            self.inputs.setdefault(operator, set()).update(inputs)
        self.rows.update(later.rows)
        self.sampled |= later.sampled

    def query(self, true: Mapping[int, int], expected: Mapping[Operator, float]) -> Query:
        """Return the query of this plan, with q-errors where both numbers of rows are known."""
        ratios: dict[Operator, float] = {}
        for accumulator, operator in self.rows.items():
            if accumulator in true and operator in expected:
                times_run = 2 if accumulator in self.sampled else 1
                ratio = row_ratio(expected[operator], true[accumulator] / times_run)
                ratios[operator] = max(ratio, ratios.get(operator, 1.0), key=q_error)
        errors: dict[ColumnUse, float] = {}
        for operator, ratio in ratios.items():
            error = added_error(ratio, [ratios[below] for below in self._below(operator, ratios)])
            for use in self.by_operator.get(operator, ()):
                errors[use] = max(error, errors.get(use, 1.0))
        reads = {table: frozenset(columns) for table, columns in self.reads.items()}
        return Query(frozenset(self.uses), reads, errors)

    def _below(self, operator: Operator, known: Collection[Operator]) -> Iterator[Operator]:
        """Yield the nearest operators below one that are among some."""
        passed, waiting = {operator}, [*self.inputs.get(operator, ())]
        while waiting:
            below = waiting.pop()
            if below in passed:
                continue
            passed.add(below)
            if below in known:
                yield below
            else:
                waiting.extend(self.inputs.get(below, ()))


def plan_uses(root: PlanNode) -> PlanUses:
    """Return what a plan does with the columns of the tables that it scans."""
    return _Plan(root).uses


def _nodes(root: PlanNode) -> Iterator[PlanNode]:
    """Yield operators from the top down, as deep as plans are."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(node.children))


# Names of tables; what else stands behind `Scan`, such as the query of a JDBC relation, may hold
# literals. Formats come before the name: `Scan parquet spark_catalog.default.t`.
_NAMED_SCAN = re.compile(r"(?:BatchScan(?: \w+)?|Scan \w+) +(\S+)")
_TABLE = re.compile(r"(?:[\w.+-]+:)?/[^\s?#@]+|[\w.`$-]+")


def scanned_table(node_name: str) -> str | None:
    """Return the name of the table that an operator scans, None where it scans none by name.

    User, password and query of a URI are never part of it.
    """
    match = _NAMED_SCAN.fullmatch(node_name.strip())
    if match is None or _TABLE.fullmatch(match[1]) is None:
        return None
    return match[1].replace("`", "")


# What cuts rows into more than one range.
_IN_RANGES = re.compile(r"Exchange rangepartitioning\(.*, (?!1\))\d+\)", re.DOTALL)


class _Plan:
    """Reads a plan: first which column each id is, then what operators do with them."""

    def __init__(self, root: PlanNode) -> None:
        self.uses = PlanUses()
        self.columns: dict[str, _Column | None] = {}
        nodes = list(_nodes(root))
        for index, node in enumerate(nodes):
            table = scanned_table(node.node_name)
            if table is not None:
                self._scan(index, table, node)
        # Below operators are what those above compute from.
        for node in reversed(nodes):
            self._aliases(node)
        operators = {id(node): self._operator(node) for node in nodes}
        waiting: list[tuple[PlanNode, Operator | None, bool]] = [(root, None, False)]
        while waiting:
            node, above, is_sampled = waiting.pop()
            operator = operators[id(node)] or above
            if operator is not None and above not in (None, operator):
                self.uses.inputs.setdefault(above, set()).add(operator)
            if node.node_name.endswith("Exchange"):
                is_sampled = _IN_RANGES.match(node.simple_string) is not None
            elif is_sampled:
                self.uses.sampled.update(metric.accumulator_id for metric in node.metrics)
            waiting.extend((child, operator, is_sampled) for child in node.children)

    def _scan(self, index: int, table: str, node: PlanNode) -> None:
        reads = self.uses.reads.setdefault(table, set())
        for name, id in _attributes(node.simple_string, node.node_name):
            answered = _ANSWERED.fullmatch(name)
            if answered is None:
                self.columns[id] = _Column(index, table, name)
            reads.add(name if answered is None else answered[1])
        if _SHORTENED in node.simple_string:
            reads.add(ALL_COLUMNS)

    def _aliases(self, node: PlanNode) -> None:
        """Learn which of the attributes that an operator makes are columns under other names."""
        text = node.simple_string
        if node.node_name == "ReusedExchange":
            self._reused(node)
        elif node.node_name == "Expand":
            self._expanded(text)
        else:
            for source, id in _ALIAS.findall(text):
                if id not in self.columns:
                    self.columns[id] = self.columns.get(source)

    def _reused(self, node: PlanNode) -> None:
        """The attributes of a reused exchange are those of the one that is reused, in order."""
        own = [id for _, id in _attributes(node.simple_string, "ReusedExchange ")]
        for child in node.children[:1]:
            for known in _nodes(child):
                other = [id for _, id in _outputs(known)]
                if len(other) == len(own):
                    for id, original in zip(own, other, strict=True):
                        self.columns.setdefault(id, self.columns.get(original))
                    return

    def _expanded(self, text: str) -> None:
        """In grouping sets, what comes out has the name of what goes in, or null."""
        head, _, output = text.rpartition("], [")
        known = {
            match[1]: match[2] for match in re.finditer(r"[\[ ]([^\[\],#]+)#(\d+)L?(?=[,\]])", head)
        }
        for name, id in _attributes("[" + output, ""):
            if name in known:
                self.columns.setdefault(id, self.columns.get(known[name]))

    def _operator(self, node: PlanNode) -> Operator | None:
        """Learn what an operator does with columns; return it, if rows are estimated by it."""
        text, name = node.simple_string, node.node_name
        if "Join" in name:
            operator = Operator("join", frozenset(_ID.findall(text)))
            found = self._joined(text)
        elif name.endswith("Aggregate"):
            keys = _bracketed(text, "keys=[")
            operator = Operator("aggregate", frozenset(_ID.findall(keys)))
            found = self._together(_ID.findall(keys), Role.GROUP, are_plain=_plain(keys))
            # The partial ones, below, give more rows.
            if operator in self.uses.rows.values():
                self.uses.uses |= found
                return operator
        elif name == "Filter":
            operator = Operator("filter", frozenset(_ID.findall(text)))
            found = self._filtered(text.removeprefix("Filter "))
        else:
            return None
        self.uses.uses |= found
        self.uses.by_operator.setdefault(operator, set()).update(found)
        for metric in node.metrics:
            if metric.name == ROWS_METRIC:
                self.uses.rows[metric.accumulator_id] = operator
        return operator

    def _joined(self, text: str) -> set[ColumnUse]:
        """Return the uses of a join by equal keys; both sides list theirs in the same order."""
        sides = _KEYS.match(text)
        if sides is None:
            return set()
        left, right = (_plain_ids(_split(side)) for side in sides.groups())
        if len(left) != len(right):
            return set()
        pairs = [
            (self.columns.get(one or ""), self.columns.get(other or ""))
            for one, other in zip(left, right, strict=True)
        ]
        return {
            *_sides(pairs),
            *_sides((other, one) for one, other in pairs),
        }

    def _together(
        self, ids: Iterable[str], role: Role, *, are_plain: frozenset[str] | None = None
    ) -> set[ColumnUse]:
        """Return one use per scan, of those of its columns that are among some ids."""
        by_scan: dict[tuple[int, str], set[str]] = {}
        for id in ids:
            column = self.columns.get(id)
            if column is not None and (are_plain is None or id in are_plain):
                by_scan.setdefault((column.scan, column.table), set()).add(column.name)
        return {
            ColumnUse(table, tuple(sorted(names)), role) for (_, table), names in by_scan.items()
        }

    def _filtered(self, condition: str) -> set[ColumnUse]:
        """Return the uses of each condition, and of those by equality together."""
        by_role: dict[Role, set[str]] = {}
        for part in _conjuncts(condition):
            role = _role_of(part)
            if role is not None:
                by_role.setdefault(role, set()).update(_ID.findall(part))
        found: set[ColumnUse] = set()
        for role, ids in by_role.items():
            for id in ids:
                found |= self._together([id], role)
            if role is Role.EQUALITY:
                found |= self._together(ids, role)
        return found


def _sides(pairs: Iterable[tuple[_Column | None, _Column | None]]) -> Iterator[ColumnUse]:
    """Yield the uses of the first sides of pairs of keys, by scan."""
    by_scan: dict[tuple[int, str], dict[str, _Column | None]] = {}
    for one, other in pairs:
        if one is not None:
            by_scan.setdefault((one.scan, one.table), {})[one.name] = other
    for (_, table), others in by_scan.items():
        names = tuple(sorted(others))
        columns = [others[name] for name in names]
        scans = {(column.scan, column.table) for column in columns if column is not None}
        if None in columns or len(scans) != 1:
            yield ColumnUse(table, names, Role.JOIN)
        else:
            [(_, other_table)] = scans
            other_names = tuple(column.name for column in columns if column is not None)
            yield ColumnUse(table, names, Role.JOIN, other_table, other_names)


# `o_custkey#1L AS key#9L`, also through casts, which keep what values are equal.
# Names are tried from their beginning alone, for the sake of long literals.
_ALIAS = re.compile(r"(?<![^\s\[(,#])[^\s\[(,#]+#(\d+)L?(?: as [\w(),]+\))? AS [^\[\],]+?#(\d+)L?")
# The keys of a join: `SortMergeJoin [a#1], [b#2], Inner` and its like.
_KEYS = re.compile(r"\w+Join(?:\(skew=true\))? \[(.*?)\], \[(.*?)\], \w+")
_PLAIN = re.compile(r"(?:cast\()?[^\s(,]+#(\d+)L?(?: as [\w(),]+\))?", re.DOTALL)


def _attributes(text: str, before: str) -> list[tuple[str, str]]:
    """Return names and ids of the attributes in the first list of an operator's text."""
    listed = text[len(before) :] if text.startswith(before) else text
    found: list[tuple[str, str]] = []
    position = listed.find("[") + 1
    while match := _ATTRIBUTE.match(listed, position):
        found.append((match[1], match[2]))
        if match[3] == "]":
            break
        position = match.end()
    return found


# Without brackets in names, nothing behind the list can be taken for a part of it.
_ATTRIBUTE = re.compile(r"([^#\[\]]*?)#(\d+)L?(\]|, )")
# Spark lists 25 columns (`spark.sql.debug.maxToStringFields`).
_SHORTENED = " more fields]"
# An aggregate that a scan answers: `min(o_totalprice)#7`.
_ANSWERED = re.compile(r"\w+\((?:DISTINCT )?([^()]*)\)", re.IGNORECASE)


def _outputs(node: PlanNode) -> list[tuple[str, str]]:
    """Return the attributes that an operator gives, where its text lists them."""
    name = node.node_name
    if name.startswith(("BatchScan", "Scan ", "FileScan")):
        return _attributes(node.simple_string, name)
    if name == "Project":
        return [(id, id) for id in _output_ids(node.simple_string.removeprefix("Project "))]
    return []


def _output_ids(listed: str) -> list[str]:
    ids = [_ID.findall(part)[-1:] for part in _split(listed[1:-1])]
    return list(chain.from_iterable(ids)) if all(ids) else []


def _split(listed: str) -> list[str]:
    """Split a list at its commas, but for those in parentheses."""
    parts, depth, start = [], 0, 0
    for position, char in enumerate(listed):
        depth += (char in "([") - (char in ")]")
        if char == "," and depth == 0:
            parts.append(listed[start:position].strip())
            start = position + 1
    return [*parts, listed[start:].strip()]


def _plain_ids(parts: Iterable[str]) -> list[str | None]:
    """Return the ids of attributes and of casts of them, None for what is computed."""
    matches = (_PLAIN.fullmatch(part) for part in parts)
    return [None if match is None else match[1] for match in matches]


def _plain(listed: str) -> frozenset[str]:
    return frozenset(id for id in _plain_ids(_split(listed)) if id is not None)


def _bracketed(text: str, start: str) -> str:
    """Return what stands between a bracket that opens and the one that closes it."""
    begin = text.find(start) + len(start)
    if begin < len(start):
        return ""
    depth = 1
    for position in range(begin, len(text)):
        depth += (text[position] == "[") - (text[position] == "]")
        if depth == 0:
            return text[begin:position]
    return ""


def _conjuncts(condition: str) -> list[str]:
    """Split a condition at its AND; where a literal upsets the parentheses, it stays whole."""
    text = condition.strip()
    parts: list[str] = []
    waiting = [text]
    while waiting:
        part = waiting.pop()
        split = _at_and(part)
        if split is None:
            parts.append(part)
        else:
            waiting.extend(split)
    return parts


def _at_and(text: str) -> tuple[str, str] | None:
    """Split `(a AND b)` in two, None where it is anything else."""
    if not (text.startswith("(") and text.endswith(")")):
        return None
    depth = 0
    for position in range(1, len(text) - 1):
        depth += (text[position] == "(") - (text[position] == ")")
        if depth < 0:
            return None
        if depth == 0 and text.startswith(" AND ", position):
            return text[1:position].strip(), text[position + 5 : -1].strip()
    return None


_ATTRIBUTE_TEXT = r"(?:cast\()?[^\s(),]+#\d+L?(?: as [\w(),]+\))?"
_COMPARED = re.compile(rf"\(*{_ATTRIBUTE_TEXT} (=|<=>|<=|>=|<|>) ")
_COMPARED_RIGHT = re.compile(rf" (=|<=>|<=|>=|<|>) {_ATTRIBUTE_TEXT}\)*$", re.DOTALL)
_MEMBER = re.compile(rf"\(*{_ATTRIBUTE_TEXT} (?:IN|INSET) ")
_NULL = re.compile(r"\(*(?:isnotnull|isnull)\(")


def _role_of(condition: str) -> Role | None:
    """Return what a condition does with its columns, None where it only rules null out.

    Spark adds `isnotnull` to what it infers; nobody asked for it.
    """
    if _NULL.match(condition) and " OR " not in condition and " AND " not in condition:
        return None
    if _MEMBER.match(condition):
        return Role.EQUALITY
    compared = _COMPARED.match(condition) or _COMPARED_RIGHT.search(condition)
    if " OR " in condition:
        # Of alternatives, only those by equality depend on common values.
        is_equal = compared is not None and compared[1] in ("=", "<=>")
        return Role.EQUALITY if is_equal else Role.CONDITION
    if compared is None:
        return Role.CONDITION
    # Two columns that are compared with each other depend on no value.
    if len(set(_ID.findall(condition))) > 1:
        return Role.CONDITION
    return Role.EQUALITY if compared[1] in ("=", "<=>") else Role.RANGE


# At the end of a line: before it, literals may look like anything.
_ROWS = r"rowCount=([0-9]+(?:\.[0-9]+)?(?:E[+-]?[0-9]+)?)"
_STATISTICS = re.compile(rf"Statistics\(sizeInBytes=[^,()]*, {_ROWS}(?:, [^()]*)?\)\s*$")
_OPTIMIZED = "== Optimized Logical Plan =="
_LOGICAL = re.compile(r"[\s:+-]*(Join|Filter|Aggregate) (.*)")


def logical_operator(text: str) -> Operator | None:
    """Return the join, filter or aggregate that a line of a logical plan is, without its costs."""
    match = _LOGICAL.match(text)
    if match is None:
        return None
    kind, content = match[1].lower(), match[2]
    if kind == "aggregate":
        content = _bracketed(content, "[")
    return Operator(kind, frozenset(_ID.findall(content)))


def expected_rows(description: str) -> dict[Operator, float]:
    """Return the rows that Spark expects of operators, where the text of a plan has its costs.

    That is so under `spark.sql.ui.explainMode=cost`.
    """
    _, found, text = description.partition(_OPTIMIZED)
    rows: dict[Operator, float] = {}
    if not found:
        return rows
    for line in text.split("\n"):
        if line.startswith("== "):
            break
        statistics = _STATISTICS.search(line)
        operator = None if statistics is None else logical_operator(line[: statistics.start()])
        if statistics is not None and operator is not None and isfinite(float(statistics[1])):
            rows[operator] = float(statistics[1])
    return rows
