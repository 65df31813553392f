"""Random conditions on one column as Spark's SQL: comparisons, lists, ranges, casts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from tests.filters.columns import Extremes, count
from tests.integration.spark_predicates import spark_literal
from tests.versions.needs import HAS_COLLATIONS

_OPERATORS = ("=", "<=>", "<", "<=", ">", ">=", "<>")
_PLAIN_DATES = ("1582-10-10", "1582-10-04", "1582-10-15", "0001-01-03", "1970-01-01", "2011-12-30")
_NUMBERS = ("0", "1.5D", "-1.5D", "0.1D", "1.005BD", "7", "1e-7D", "CAST('NaN' AS DOUBLE)", "'7'")
# Bytes that are no text, as literals of text.
_NO_TEXTS = ("X'80'", "X'ff'", "X'c3'", "X'61ff'", "X'eda080'", "X'f09f98'")
_PATTERNS = ("a%", "%b", "%a%", "a_b", r"100\\%", "_", "zero%", r"\\_%")


def condition(random: Random, column: Extremes) -> str:
    """A condition on the column, and sometimes its negation."""
    forms: list[Callable[[Random, Extremes], str]] = [_compared, _compared, _listed, _ranged]
    forms += [_WITH_CASTS.get(column.family, _compared)]
    text = random.choice(forms)(random, column)
    kind = random.random()
    if kind < 0.25:
        return f"NOT ({text})"
    if kind < 0.35:
        return f"(({text}) OR `{column.name}` IS NULL)"
    return f"({text})"


def _of(random: Random, column: Extremes) -> str:
    return column.spell(random.choice((*column.seen, *column.others)))


def _compared(random: Random, column: Extremes) -> str:
    sides = [f"`{column.name}`", _of(random, column)]
    if random.random() < 0.3:
        sides.reverse()
    return f" {random.choice(_OPERATORS)} ".join(sides)


def _listed(random: Random, column: Extremes) -> str:
    # From eleven members on, Spark has sets.
    members = [_of(random, column) for _ in range(random.choice((1, 2, 5, 14)))]
    members += ["NULL"] if random.random() < 0.2 else []
    return f"`{column.name}` {random.choice(('IN', 'NOT IN'))} ({', '.join(members)})"


def _ranged(random: Random, column: Extremes) -> str:
    values: Sequence[object] = sorted(random.sample(range(len(column.seen)), 2))
    low, high = (column.spell(column.seen[place]) for place in values)  # type: ignore[index]
    return f"`{column.name}` {random.choice(('', 'NOT '))}BETWEEN {low} AND {high}"


def _numeric(random: Random, column: Extremes) -> str:
    operator, number = random.choice(_OPERATORS), random.choice(_NUMBERS)
    if column.family == "decimal" or number == "'7'":
        return f"CAST(`{column.name}` AS DOUBLE) {operator} {number}"
    return f"`{column.name}` {operator} {number}"


def _textual(random: Random, column: Extremes) -> str:
    name = f"`{column.name}`"
    kind = random.randrange(5)
    if kind == 0:
        return f"{name} LIKE '{random.choice(_PATTERNS)}'"
    if kind == 1:
        operator, odd = random.choice(_OPERATORS), random.choice(_NO_TEXTS)
        return f"{name} {operator} CAST({odd} AS STRING)"
    if kind == 2:
        function = random.choice(("startswith", "endswith", "contains"))
        return f"{function}({name}, CAST({random.choice(_NO_TEXTS)} AS STRING))"
    text = _of(random, column)
    if kind == 3 and HAS_COLLATIONS:
        return f"{name} COLLATE UTF8_LCASE {random.choice(_OPERATORS)} {text}"
    return f"upper({name}) {random.choice(_OPERATORS)} {text}"


def _binary(random: Random, column: Extremes) -> str:
    return f"`{column.name}` {random.choice(_OPERATORS)} CAST('a' AS BINARY)"


def _boolean(random: Random, column: Extremes) -> str:
    name = f"`{column.name}`"
    return random.choice((name, f"{name} = (1 = 1)", f"{name} > false", f"coalesce({name}, true)"))


def _dates(random: Random, column: Extremes) -> str:
    name, operator = f"`{column.name}`", random.choice(_OPERATORS)
    plain = random.choice(_PLAIN_DATES)
    return random.choice(
        (
            f"CAST({name} AS TIMESTAMP) {operator} TIMESTAMP'{plain} 00:00:00'",
            f"CAST({name} AS TIMESTAMP) {operator} TIMESTAMP'{plain} 12:00:00'",
            f"CAST({name} AS TIMESTAMP_NTZ) {operator} TIMESTAMP_NTZ'{plain} 00:00:00'",
            f"CAST({name} AS STRING) {operator} '{plain}'",
            f"{name} {operator} CAST('{plain}' AS DATE)",
            f"{name} {operator} '{plain}'",
            f"date_add({name}, 1) {operator} DATE'{plain}'",
            f"year({name}) {operator} 1582",
        )
    )


def _instants(random: Random, column: Extremes) -> str:
    name, operator = f"`{column.name}`", random.choice(_OPERATORS)
    plain = random.choice(_PLAIN_DATES)
    of_zone = "TIMESTAMP" if column.family == "mid timestamp" else "TIMESTAMP_NTZ"
    return random.choice(
        (
            f"CAST({name} AS DATE) {operator} DATE'{plain}'",
            f"CAST({name} AS DATE) IN (DATE'{plain}', DATE'1582-10-12')",
            f"{name} {operator} {of_zone}'{plain} 12:00:00'",
            f"{name} {operator} CAST('{plain} 01:30:00.5' AS {of_zone})",
            f"{name} {operator} DATE'{plain}'",
            f"date_trunc('DAY', {name}) {operator} TIMESTAMP'{plain} 00:00:00'",
            f"CAST({name} AS TIMESTAMP_NTZ) {operator} TIMESTAMP_NTZ'{plain} 12:00:00'",
            f"CAST({name} AS TIMESTAMP) {operator} TIMESTAMP'{plain} 12:00:00'",
        )
    )


def _counted(random: Random, column: Extremes) -> str:
    # An instant beside the value by less than the unit of a column.
    value = count(random.choice(column.seen))
    near = max(-(2**63), min(2**63 - 1, value + random.choice((-1, 1, 999))))
    kind = type(column.seen[0])
    return f"`{column.name}` {random.choice(_OPERATORS)} {spark_literal(kind(near), column.family)}"


_WITH_CASTS: dict[str, Callable[[Random, Extremes], str]] = {
    **dict.fromkeys(
        ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal"), _numeric
    ),
    "string": _textual,
    "binary": _binary,
    "boolean": _boolean,
    "mid date": _dates,
    "mid timestamp": _instants,
    "mid timestamp_ntz": _instants,
    "timestamp": _counted,
    "timestamp_ntz": _counted,
}
