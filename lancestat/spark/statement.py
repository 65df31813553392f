"""One statement, parsed by Spark."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lancestat.errors import UsageError
from lancestat.spark.analyze_statement import AnalyzeStatement, read_analyze
from lancestat.spark.query_failure import explain_failure
from lancestat.spark.query_text import BAD_QUERY, QueryText

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Text that a name cannot be in, then the end of a statement, then anything.
_TOKEN = re.compile(
    r"""(?P<skip>--[^\n]*|/\*.*?\*/|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|`[^`]*`|\s+)"""
    r"""|(?P<end>;)|(?P<other>.)""",
    re.DOTALL,
)
# Statements in which a table's name need not be written, or which list tables.
_NAMES_ANYTHING = re.compile(r"\b(show|identifier|execute)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Statement:
    """A parsed statement: `plan` is the JVM's, `analyze` what it says if it is `ANALYZE TABLE`."""

    text: QueryText
    plan: Any
    analyze: AnalyzeStatement | None


def parse(spark: SparkSession, text: QueryText) -> Statement:
    """Parse one statement with Spark's own parser; a semicolon at its end is allowed.

    Raises:
        UsageError: there is none, there are several, or Spark cannot parse it (LS420).
    """
    starts = _starts(text.text)
    if not starts:
        raise UsageError(BAD_QUERY, "the query is empty", location=text.location(0))
    try:
        plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(text.text)
    except Exception as error:
        if len(starts) > 1 and not _is_compound(text.text[starts[0] :]):
            raise UsageError(
                BAD_QUERY,
                "another statement follows the first\n" + text.excerpt(starts[1]),
                location=text.location(starts[1]),
                hint="give one statement at a time",
            ) from None
        raise explain_failure(error, text) from None
    return Statement(text, plan, read_analyze(plan))


def mentioned(text: str, names: Sequence[str]) -> tuple[str, ...]:
    """Those of `names` that a query may read: whose letters stand in it, in whatever case.

    Others need not be opened for it. Statements that name tables in other ways, or list them, may
    read any.
    """
    if _NAMES_ANYTHING.search(text):
        return tuple(names)
    lowered = text.lower()
    return tuple(name for name in names if name.lower() in lowered)


def _starts(text: str) -> list[int]:
    """Where statements begin: what is between semicolons and more than space and comments."""
    starts: list[int] = []
    is_inside = False
    for token in _TOKEN.finditer(text):
        if token.lastgroup == "end":
            is_inside = False
        elif not is_inside and not _is_blank(token.group()):
            starts.append(token.start())
            is_inside = True
    return starts


def _is_blank(token: str) -> bool:
    return token.isspace() or token.startswith("--") or (token.startswith("/*") and len(token) > 3)


def _is_compound(text: str) -> bool:
    return re.match(r"begin\b", text, re.IGNORECASE) is not None
