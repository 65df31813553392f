"""Syntax errors of YAML in plain words, at the location of the mistake."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import yaml

from lancestat.formats import quoted

# Line and column, counted from 0 as YAML libraries do.
Mark = tuple[int, int]

_QUOTE = "put quotes around the whole text"
_INDENT = "indent the keys of a mapping equally; those of a list item begin two after its '-'"
_TEMPLATE = 'put quotes around a template: "{{ ... }}"'
_LONGEST_KEY = 1024
_LINE_BREAK = re.compile("\r\n|[\r\n\x85\u2028\u2029]")
_CLOSING = {"[": "]", "{": "}"}


def lines_of(text: str) -> list[str]:
    """Return the lines of a text, which end where YAML says so."""
    return _LINE_BREAK.split(text)


class Explanation(NamedTuple):
    """What is wrong, where, and what to do about it."""

    mark: Mark
    message: str
    hint: str | None = None


def explain(error: yaml.MarkedYAMLError, text: str, opened: Mark | None) -> Explanation:
    """Return in plain words what keeps a text from being YAML."""
    problem = _Problem(error, lines_of(text), opened)
    if problem.has_tab():
        return Explanation(
            problem.mark, "a tab where YAML allows only spaces", "indent with spaces"
        )
    for part, explanation in _EXPLANATIONS.items():
        if part in problem.words:
            if callable(explanation):
                return explanation(problem)
            message, hint = explanation
            message = message.format(quoted=quoted(problem.character), two=problem.rest[:2])
            mark = problem.start if part in _FROM_START else problem.mark
            return Explanation(mark, message, hint)
    return Explanation(problem.mark, f"not YAML: {problem.words}")


@dataclass(frozen=True, slots=True)
class _Problem:
    """The parser's error: `start` is where what it was reading begins, `mark` where it stopped."""

    error: yaml.MarkedYAMLError
    lines: Sequence[str]
    opened: Mark | None

    @property
    def words(self) -> str:
        return self.error.problem or "unknown reason"

    @property
    def mark(self) -> Mark:
        mark = self.error.problem_mark or self.error.context_mark
        return (mark.line, mark.column) if mark else (0, 0)

    @property
    def start(self) -> Mark:
        mark = self.error.context_mark
        return (mark.line, mark.column) if mark else self.mark

    def line(self, number: int) -> str:
        return self.lines[number] if 0 <= number < len(self.lines) else ""

    @property
    def before(self) -> str:
        return self.line(self.mark[0])[: self.mark[1]]

    @property
    def rest(self) -> str:
        return self.line(self.mark[0])[self.mark[1] :]

    @property
    def character(self) -> str:
        return self.rest[:1]

    @property
    def is_at_end(self) -> bool:
        return not self.rest.strip() and not any(map(str.strip, self.lines[self.mark[0] + 1 :]))

    def has_tab(self) -> bool:
        return self.character == "\t" or "tab" in self.words

    def previous(self) -> int:
        """Return the number of the last line above that is neither empty nor a comment."""
        for number in range(self.mark[0] - 1, -1, -1):
            content = self.line(number).strip()
            if content and not content.startswith("#"):
                return number
        return -1

    def has_template(self) -> bool:
        return "{{" in self.line(self.mark[0])


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _key_without_colon(problem: _Problem) -> Explanation:
    if problem.line(problem.start[0]).startswith(("<<<<<<<", "=======", ">>>>>>>")):
        hint = "resolve it, and remove the lines that begin with <<<<<<<, ======= and >>>>>>>"
        return Explanation(problem.start, "a merge conflict of git", hint)
    return Explanation(
        problem.start,
        "a line without ':' where 'key: value' is expected",
        "write a ':' and a space after the key; a text of several lines needs quotes",
    )


def _colon(problem: _Problem) -> Explanation:
    """Explain a ':' that cannot belong to a key."""
    line, (number, column) = problem.line(problem.mark[0]), problem.mark
    start = _indent(line)
    if column - start > _LONGEST_KEY:
        return Explanation((number, start), f"a key of more than {_LONGEST_KEY:,} characters")
    if re.search(r":\s", problem.before):
        hint = _TEMPLATE if problem.has_template() else f"{_QUOTE} if it contains ': '"
        return Explanation(problem.mark, "a second ':' on one line", hint)
    above = problem.previous()
    content = problem.line(above).strip() if above >= 0 else ""
    if re.match(r"-[^\s\-]", content):
        mark = above, _indent(problem.line(above))
        return Explanation(mark, "no space after the '-'", "write a space after each '-'")
    if match := re.match(r"(?:- +)*[\w.\-]+:(?=[^\s/])", content):
        mark = above, _indent(problem.line(above)) + match.end() - 1
        return Explanation(mark, "no space after the ':'", "write a space after each ':'")
    if above >= 0 and start > _indent(problem.line(above)):
        message = f"a key that is indented deeper than line {above + 1}, which has a value already"
        return Explanation((number, start), message, _INDENT)
    return Explanation(problem.mark, "a ':' where no key can be", _QUOTE)


def _list_item(problem: _Problem) -> Explanation:
    line = problem.start[0] + 1
    message = f"neither an item of the list that starts on line {line} nor a key of one"
    return Explanation(problem.mark, message, f"begin an item with '- '; {_INDENT}")


def _key(problem: _Problem) -> Explanation:
    """Explain what is neither a key of a block mapping nor its end."""
    before = problem.before.rstrip()
    if not before.strip():
        if problem.rest.startswith("- "):
            hint = "indent every '-' of a list equally; a mapping has no '-'"
            return Explanation(problem.mark, "a list item where a key is expected", hint)
        if problem.character == ":":
            return Explanation(problem.mark, "a ':' without a key")
        line = problem.start[0] + 1
        message = f"not indented like the mapping that starts on line {line}"
        return Explanation(problem.mark, message, _INDENT)
    if problem.has_template():
        return Explanation(problem.mark, "text after a mapping in braces", _TEMPLATE)
    if before[-1] in "'\"":
        twice = "''" if before[-1] == "'" else '\\"'
        hint = f"close every quote on its line, and write {twice} for a quote within"
        return Explanation(problem.mark, "text after a closing quote", hint)
    if problem.character in ("]", "}"):
        return Explanation(problem.mark, f"no bracket is open for this '{problem.character}'")
    return Explanation(problem.mark, "text after the end of a value", _QUOTE)


def _bracket(problem: _Problem) -> Explanation:
    """Explain a list or mapping in brackets that goes on without a comma."""
    opening = problem.line(problem.start[0])[problem.start[1] :][:1]
    closing = _CLOSING.get(opening, "]")
    if problem.mark[0] == problem.start[0]:
        hint = _TEMPLATE if problem.has_template() else "write a ',' between two items"
        return Explanation(problem.mark, f"expected ',' or '{closing}'", hint)
    where = "end of the file" if problem.is_at_end else f"line {problem.mark[0] + 1}"
    message = f"this '{opening}' is not closed, or a ',' is missing, before {where}"
    return Explanation(problem.start, message, f"close it with '{closing}'")


def _no_value(problem: _Problem) -> Explanation:
    if problem.is_at_end and problem.opened is not None:
        opening = problem.line(problem.opened[0])[problem.opened[1] :][:1]
        if opening in _CLOSING:
            hint = f"close it with '{_CLOSING[opening]}'"
            return Explanation(problem.opened, f"this '{opening}' is not closed", hint)
    found = quoted(problem.character) if problem.character else "the end of the line"
    return Explanation(problem.mark, f"a value is expected, found {found}")


def _reference(problem: _Problem) -> Explanation:
    if "alias" in (problem.error.context or ""):
        message = "a '*' starts an alias in YAML, and no name follows"
        return Explanation(problem.start, message, 'put quotes around a pattern: "*"')
    message = "a '&' starts an anchor in YAML, and no name follows"
    return Explanation(problem.start, message, _QUOTE)


_UNCLOSED = "this quote is not closed", "close it on the same line"
_TAG = "a '!' starts a tag in YAML", "remove the tag, or use quotes"

# By a part of the parser's words, the first that fits: a function; or a message and a hint, about
# where the parser stopped, or started (`_FROM_START`). They may name the character, or two.
_FROM_START = (
    "found unexpected end of stream", "found unexpected document indicator", "directive"
)  # fmt: skip
_EXPLANATIONS: Mapping[str, Callable[[_Problem], Explanation] | tuple[str, str | None]] = {
    "could not find expected ':'": _key_without_colon,
    "mapping values are not allowed": _colon,
    "did not find expected '-' indicator": _list_item,
    "did not find expected key": _key,
    "did not find expected ',' or": _bracket,
    "did not find expected node content": _no_value,
    "found unexpected end of stream": _UNCLOSED,
    "found unexpected document indicator": _UNCLOSED,
    "found character that cannot start": ("a text cannot start with {quoted}", _QUOTE),
    "expected alphabetic or numeric character": _reference,
    "undefined tag handle": _TAG,
    "expected tag URI": _TAG,
    "expected '!'": _TAG,
    "unknown escape character": (
        "'{two}' is no escape sequence of YAML",
        "within double quotes write \\\\ for a backslash, or use single quotes",
    ),
    "expected hexdecimal number": ("hexadecimal digits are missing in an escape sequence", None),
    "expected comment or line break": (
        "text on the line of a '|' or '>'", "begin the text on the next line"
    ),
    "indentation indicator equal to 0": ("an indentation is a number from 1 to 9", None),
    "block sequence entries are not allowed": (
        "a list cannot start on the line of its key", "begin each item, '- ', on a line of its own"
    ),
    "incompatible YAML document": (
        "a version of YAML other than 1.1 and 1.2", "remove the line that starts with '%YAML'"
    ),
    "directive": (
        "a line that starts with '%' is a directive, and this one is unknown", "remove the line"
    ),
    "expected <document start>": (
        "text after the end of the document, '...'", "a file holds one document; remove '...'"
    ),
}  # fmt: skip
