"""Parses statements, and explains why Spark refused one, with the place in its text."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lancestat.errors.base import LancestatError, Location, UsageError, did_you_mean
from lancestat.errors.codes import (
    Cancelled,
    InvalidQuery,
    QueryFailed,
    UnknownTable,
    UnsupportedStatement,
)
from lancestat.redact import redact_line
from lancestat.spark.failure import carried_by, cause, is_cancelled
from lancestat.spark.session import VIEW_SCHEMA
from lancestat.spark.versions import condition, python_error, query_contexts
from lancestat.spec.catalog import TableName, table_name_of
from lancestat.spec.model import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_WIDEST_EXCERPT = 100


@dataclass(frozen=True, slots=True)
class QueryText:
    """A query and where it came from."""

    text: str
    source: str = "query"

    def location(self, offset: int) -> Location:
        """Return where a character is."""
        before = self.text[:offset]
        return Location(self.source, before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1)

    def offset(self, line: int, position: int) -> int:
        """Return the character at a line, counted from 1, and a position in it, counted from 0."""
        lines = self.text.split("\n")
        return sum(len(earlier_line) + 1 for earlier_line in lines[: line - 1]) + position

    def excerpt(self, start: int, stop: int | None = None) -> str:
        """Return the line of a character, and carets under it and the others up to `stop`."""
        begin = self.text.rfind("\n", 0, start) + 1
        end = self.text.find("\n", start)
        line = self.text[begin : end if end >= 0 else len(self.text)].replace("\t", " ").rstrip()
        position = start - begin
        width = max(1, min((stop if stop is not None else start) - start + 1, len(line) - position))
        left = max(0, position - _WIDEST_EXCERPT // 2) if len(line) > _WIDEST_EXCERPT else 0
        visible = line[left : left + _WIDEST_EXCERPT]
        carets = "^" * max(1, min(width, len(visible) - (position - left)))
        return f"      | {visible}\n      | {' ' * (position - left)}{carets}"


def query_text(content: bytes, source: str) -> QueryText:
    """Decode a query.

    Raises:
        InvalidQuery: it is not UTF-8.
    """
    try:
        return QueryText(content.decode("utf-8-sig"), source)
    except UnicodeDecodeError as error:
        before = QueryText(content[: error.start].decode("utf-8-sig"), source)
        raise InvalidQuery(
            f"byte 0x{content[error.start]:02x} is not UTF-8",
            location=before.location(len(before.text)),
            hint="save the query as UTF-8",
        ) from None


_LINE_AND_POSITION = re.compile(r"\(line (\d+), pos (\d+)\)|; line (\d+) pos (\d+)")
# What follows a message; before Spark 4.0 without a state.
_REST = re.compile(
    r"\s*(?:SQLSTATE:|\(line \d+, pos \d+\)\s*== SQL|; line \d+ pos \d+;).*", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class QueryContext:
    """The tables that a query may name, each with the error if it could not be opened.

    `views` are the full names of lancestat's own. `secrets` are values that messages must not show.
    """

    tables: Mapping[str, LancestatError | None] = field(default_factory=dict)
    secrets: frozenset[str] = field(default=frozenset(), repr=False)
    views: tuple[str, ...] = ()

    def hint_for(self, name: str) -> str:
        """Suggest a name: one of lancestat's own views where the schema is named."""
        schema, _, view = name.rpartition(".")
        own = {full_name.rpartition(".")[0].lower() for full_name in self.views} | {VIEW_SCHEMA}
        if self.views and schema.lower() in own:
            by_name = {full_name.rpartition(".")[2]: full_name for full_name in self.views}
            near = difflib.get_close_matches(view.lower(), by_name, n=1)
            listed = ", ".join(self.views)
            return f"did you mean '{by_name[near[0]]}'?" if near else f"there are {listed}"
        return did_you_mean(name, self.tables, "declared tables")


NO_CONTEXT = QueryContext()


def explain_failure(
    error: Exception, text: QueryText, query_context: QueryContext = NO_CONTEXT
) -> LancestatError:
    """Return the error that a user should see for a query at which Spark raised `error`.

    An error of a worker is restored. A query that names a missing table is an `UnknownTable`,
    another one that Spark cannot parse or resolve an `InvalidQuery`; anything else is `Cancelled`
    or `QueryFailed`.
    """
    from pyspark.errors import AnalysisException, ParseException

    carried = carried_by(error)
    if carried is not None:
        return carried
    error = _unwrapped(error)
    if condition(error) == "TABLE_OR_VIEW_NOT_FOUND":
        return _no_table(error, text, query_context)
    # Its message, without what follows.
    message_text = str(getattr(error, "desc", None) or error).strip()
    sentence = redact_line(_REST.sub("", message_text), query_context.secrets)
    span = _error_span(error, text)
    message = sentence if span is None else f"{sentence}\n{text.excerpt(*span)}"
    location = None if span is None else text.location(span[0])
    if isinstance(error, (AnalysisException, ParseException)):
        return InvalidQuery(message, location=location)
    if is_cancelled(error):
        return Cancelled("the query was cancelled")
    reason, hint = cause(error, query_context.secrets)
    explained = python_error("the query", reason, str(error))
    if explained is not None:
        return explained
    if condition(error) is None:
        message = reason
    return QueryFailed(f"the query failed: {message}", location=location, hint=hint)


def _no_table(error: Any, text: QueryText, query_context: QueryContext) -> LancestatError:
    name = str(error.getMessageParameters()["relationName"]).replace("`", "")
    for declared, failure in query_context.tables.items():
        if failure is not None and declared.lower() == name.lower():
            return failure
    span = _error_span(error, text)
    message = f"there is no table or view '{name}'"
    return UnknownTable(
        message if span is None else f"{message}\n{text.excerpt(*span)}",
        location=None if span is None else text.location(span[0]),
        hint=query_context.hint_for(name),
    )


def _unwrapped(error: Any) -> Any:
    """Return the innermost of Java's causes that has a condition, if the outer ones have none."""
    from pyspark.errors.exceptions.captured import convert_exception

    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    while condition(error) is None and java is not None:
        java = java.getCause()
        if java is not None:
            converted = convert_exception(java)
            error = converted if condition(converted) is not None else error
    return error


def _error_span(error: Any, text: QueryText) -> tuple[int, int] | None:
    contexts = query_contexts(error)
    for context in contexts:
        start, stop = context.startIndex(), context.stopIndex()
        # A view's own text is elsewhere.
        if not context.objectType() and 0 <= start <= stop < len(text.text):
            return start, stop
    if contexts:
        return None
    matched = _LINE_AND_POSITION.search(str(error))
    if matched is None:
        return None
    line, position = (int(group) for group in matched.groups() if group is not None)
    start = min(text.offset(line, position), len(text.text))
    return start, start


_FORMS = (
    "ANALYZE TABLE t COMPUTE STATISTICS, with FOR COLUMNS a, b or FOR ALL COLUMNS where the "
    "declared columns are not meant"
)


@dataclass(frozen=True, slots=True)
class AnalyzeStatement:
    """Compute statistics of one table.

    `columns` are the named ones; `all_columns` means FOR ALL COLUMNS. With neither, the declared
    ones are meant. `objection` is why lancestat cannot do it, if it cannot: a table of Spark's own
    catalog may still allow it.
    """

    name_parts: tuple[str, ...]
    columns: tuple[str, ...] = ()
    all_columns: bool = False
    objection: UsageError | None = None

    @property
    def name(self) -> str:
        """The table's name as it was written, for people."""
        return ".".join(self.name_parts)

    @property
    def quoted_name(self) -> str:
        """The table's name for Spark."""
        return ".".join(f"`{part.replace('`', '``')}`" for part in self.name_parts)


def parse_analyze(text: QueryText, *, is_strict: bool = False) -> AnalyzeStatement | None:
    """Return the `ANALYZE TABLE` that a text is, None when it is another statement.

    `ANALYZE TABLES` is another one: it is about a namespace of Spark's catalog.

    Raises:
        InvalidQuery: when strict, a text that begins as `ANALYZE TABLE` does and goes on otherwise;
            else that is left to Spark's parser.
    """
    code = "".join(
        " " if _is_blank(token.group()) else token.group() for token in _TOKEN.finditer(text.text)
    ).strip()
    matched = _ANALYZE.fullmatch(code)
    if matched is None:
        if is_strict and re.match(r"analyze\s+table\b", code, re.IGNORECASE):
            start = _starts(text.text)[0]
            raise InvalidQuery(
                f"this is not a valid ANALYZE TABLE statement\n{text.excerpt(start)}",
                location=text.location(start),
                hint=f"there is {_FORMS}",
            )
        return None
    parts, objection = _names(matched["table"]), None
    statement = f"ANALYZE TABLE {'.'.join(parts)}"
    if matched["partition"]:
        objection = UnsupportedStatement(
            f"{statement} PARTITION (...): Lance tables have no partitions",
            hint=f"leave PARTITION out; only fragments that are new are read. There is {_FORMS}",
        )
    elif matched["noscan"]:
        objection = UnsupportedStatement(
            f"{statement} ... NOSCAN: there is nothing to do without a scan, because row count and "
            "size of a Lance table are always read from its manifest",
            hint=f"leave NOSCAN out; what is known already is not read again. There is {_FORMS}",
        )
    columns = _names(matched["columns"] or "")
    return AnalyzeStatement(parts, columns, matched["all"] is not None, objection)


def _names(written: str) -> tuple[str, ...]:
    names = re.findall(_NAME, written)
    return tuple(name[1:-1].replace("``", "`") if name.startswith("`") else name for name in names)


def find_declared(
    statement: AnalyzeStatement, tables: Sequence[Table], *, is_case_sensitive: bool
) -> str | None:
    """Return the declared name of the table that the statement means, None when it means none.

    It names the table as the project does, or by a catalog. Declared names differ by more than
    case, so that at most one is meant.
    """
    catalog, *identifier = statement.name_parts
    if identifier:
        meant = TableName(catalog, tuple(identifier))
        written = {table_name_of((table.declared or table).uri): table.name for table in tables}
        return written.get(meant)
    names = {
        table.name if is_case_sensitive else table.name.lower(): table.name for table in tables
    }
    return names.get(catalog if is_case_sensitive else catalog.lower())


def not_declared(
    statement: AnalyzeStatement, declared: Sequence[str], *, asked_catalog: bool
) -> UsageError:
    """The error for a table that the project has not, nor Spark's catalog where it was asked."""
    return UnknownTable(
        f"no table '{statement.name}' is declared"
        + (", nor is it in Spark's catalog" if asked_catalog else ""),
        hint=did_you_mean(statement.name, declared, "declared tables"),
    )


# Text that a name cannot be in, then the end of a statement, then anything.
_TOKEN = re.compile(
    r"""(?P<skip>--[^\n]*|/\*.*?\*/|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|`[^`]*`|\s+)"""
    r"""|(?P<end>;)|(?P<other>.)""",
    re.DOTALL,
)
_NAME = r"(?:`(?:[^`]|``)*`|[A-Za-z0-9_]+)"
_ANALYZE = re.compile(
    rf"""analyze\s+table\b\s*(?P<table>{_NAME}(?:\s*\.\s*{_NAME})*)
    (?P<partition>\s*\bpartition\s*\(.*\))?
    \s*\bcompute\s+statistics
    (?:\s+(?P<noscan>noscan)
    |\s+for\s+columns\s+(?P<columns>{_NAME}(?:\s*,\s*{_NAME})*)
    |\s+(?P<all>for\s+all\s+columns))?
    \s*;?\s*""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
# Statements in which a table's name need not be written, or which list tables.
_NAMES_ANYTHING = re.compile(r"\b(show|identifier|execute)\b", re.IGNORECASE)


# Of Spark's commands, those that only show something, or settings of this one session. Everything
# else that Spark calls a command, or its parser has a plan of its own for, may write or define.
_SHOWS = re.compile(
    r"(?:Show|Describe|List)\w+|DescTable\w*|Explain\w*|Analyze(?:Table|Tables|Column)"
    r"|(?:Set|Reset)Command|SetCatalog\w*|SetNamespaceCommand"
)
_NO_QUERIES = frozenset(
    {"InsertIntoStatement", "InsertIntoDir", "Call", "UnresolvedExecuteImmediate"}
)


def parse(spark: SparkSession, text: QueryText) -> Any:
    """Return the JVM's plan of one statement, which neither writes nor defines anything.

    A semicolon at its end is allowed.

    Raises:
        InvalidQuery: there is none, there are several, or Spark cannot parse it.
        UnsupportedStatement: it is no query, and none that shows something.
    """
    starts = _starts(text.text)
    if not starts:
        raise InvalidQuery("the query is empty", location=text.location(0))
    try:
        parsed = spark._jsparkSession.sessionState().sqlParser().parsePlan(text.text)
    except Exception as error:
        if len(starts) > 1 and not re.match(r"begin\b", text.text[starts[0] :], re.IGNORECASE):
            raise InvalidQuery(
                "another statement follows the first\n" + text.excerpt(starts[1]),
                location=text.location(starts[1]),
                hint="give one statement at a time",
            ) from None
        raise explain_failure(error, text) from None
    plan = parsed
    while plan.nodeName() == "UnresolvedWith":
        plan = plan.child()
    # FROM t INSERT ... INSERT ... is a union of them.
    while plan.nodeName() == "Union":
        plan = plan.children().head()
    name = plan.nodeName()
    is_query = name not in _NO_QUERIES and not _is_command(spark, plan)
    if not is_query and _SHOWS.fullmatch(name) is None:
        raise UnsupportedStatement(
            "this statement is no query: lancestat sql writes and defines nothing",
            hint="give it SELECT, WITH, VALUES, TABLE, SHOW, DESCRIBE, EXPLAIN or ANALYZE TABLE; "
            "run others in a Spark session, such as that of Project.spark",
            location=text.location(starts[0]),
        )
    return parsed


def _is_command(spark: SparkSession, plan: Any) -> bool:
    from py4j.java_gateway import is_instance_of

    command = "org.apache.spark.sql.catalyst.plans.logical.Command"
    gateway = spark.sparkContext._gateway
    return bool(is_instance_of(gateway, plan, command))


def mentioned(text: str, names: Sequence[str]) -> tuple[str, ...]:
    """Return those of `names` that a query may read: those that occur in it, in any case.

    Others need not be opened for it. Statements that name tables in other ways, or list them, may
    read any.
    """
    if _NAMES_ANYTHING.search(text):
        return tuple(names)
    lowered = text.lower()
    return tuple(name for name in names if name.lower() in lowered)


def _starts(text: str) -> list[int]:
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
