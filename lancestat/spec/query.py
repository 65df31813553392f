"""Checks the text of a query without Spark, whose parser decides in the end."""

from __future__ import annotations

import re

# Options of Spark's JDBC source, in lower case.
_STATEMENT_OPTIONS = frozenset({"sessioninitstatement", "preparequery"})
# What a query of Spark's SQL may begin with, after comments and parentheses.
_BEGINNINGS = ("select", "with", "from", "values", "table")
_BLANK = re.compile(r"\s+|--[^\n]*(?:\n|\Z)|\(")
_WORD = re.compile(r"[A-Za-z_]+")
# Text that ends no statement, the end of one, or anything else.
_TOKEN = re.compile(
    r"(?P<text>'[^']*'|\"[^\"]*\"|`[^`]*`)|(?P<blank>\s+|--[^\n]*)|(?P<end>;)|(?P<other>.)",
    re.DOTALL,
)


def query_objection(sql: str) -> str | None:
    """Return why a text cannot be one plain query, None when it may be one.

    It is conservative: what it objects to, Spark would not take for a plain query either.
    """
    start = _start(sql)
    if start == len(sql):
        return "is empty"
    word = _WORD.match(sql, start)
    if word is not None and word.group().lower() not in _BEGINNINGS:
        return "is not a query, which begins with SELECT, WITH, FROM, VALUES or TABLE"
    if _is_followed(sql, start):
        return "has more than one statement"
    return None


def option_objection(format: str, key: str, value: str) -> str | None:
    """Return why an option of a format would do more than read rows, None when it reads only.

    Databases run the text of some options as it is.
    """
    if key.lower() in _STATEMENT_OPTIONS:
        return "is a statement that the database runs"
    if "jdbc" in format.lower() and key.lower() == "query":
        return query_objection(value)
    if "jdbc" in format.lower() and key.lower() == "dbtable" and _is_followed(value, 0):
        return "has more than one statement"
    return None


def _start(sql: str) -> int:
    """Return where the first word is: comments may be nested, hints are no comments."""
    at = 0
    while at < len(sql):
        if sql.startswith("/*", at):
            at = _comment_end(sql, at)
            continue
        blank = _BLANK.match(sql, at)
        if blank is None:
            return at
        at = blank.end()
    return len(sql)


def _comment_end(sql: str, start: int) -> int:
    depth, at = 1, start + 2
    while depth and at < len(sql):
        step = {"/*": 1, "*/": -1}.get(sql[at : at + 2], 0)
        depth += step
        at += 2 if step else 1
    return at


def _is_followed(sql: str, start: int) -> bool:
    """Whether anything follows the end of the first statement."""
    # Where text ends depends on Spark's settings once there is a backslash, or a nested comment.
    if "\\" in sql or "/*" in sql[start:]:
        return False
    has_ended = False
    for token in _TOKEN.finditer(sql, start):
        if token.lastgroup == "end":
            has_ended = True
        elif has_ended and token.lastgroup != "blank":
            return True
    return False
