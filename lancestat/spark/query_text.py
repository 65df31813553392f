"""A query as text, and places in it."""

from __future__ import annotations

from dataclasses import dataclass

from lancestat.errors import Location, UsageError

BAD_QUERY = "LS420"

_WIDEST_EXCERPT = 100


@dataclass(frozen=True, slots=True)
class QueryText:
    """A query and where it came from."""

    text: str
    source: str = "query"

    def location(self, offset: int) -> Location:
        """The place of a character."""
        before = self.text[:offset]
        return Location(self.source, before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1)

    def offset(self, line: int, position: int) -> int:
        """The character at a line, counted from 1, and a position in it, counted from 0."""
        lines = self.text.split("\n")
        return sum(len(each) + 1 for each in lines[: line - 1]) + position

    def excerpt(self, start: int, stop: int | None = None) -> str:
        """The line of a character, and carets under it and the others up to `stop`."""
        begin = self.text.rfind("\n", 0, start) + 1
        end = self.text.find("\n", start)
        line = self.text[begin : end if end >= 0 else len(self.text)].replace("\t", " ").rstrip()
        position = start - begin
        width = max(1, min((stop if stop is not None else start) - start + 1, len(line) - position))
        left = max(0, position - _WIDEST_EXCERPT // 2) if len(line) > _WIDEST_EXCERPT else 0
        shown = line[left : left + _WIDEST_EXCERPT]
        carets = "^" * max(1, min(width, len(shown) - (position - left)))
        return f"      | {shown}\n      | {' ' * (position - left)}{carets}"


def query_text(content: bytes, source: str) -> QueryText:
    """Decode a query.

    Raises:
        UsageError: it is not UTF-8 (LS420).
    """
    try:
        return QueryText(content.decode("utf-8-sig"), source)
    except UnicodeDecodeError as error:
        before = QueryText(content[: error.start].decode("utf-8-sig"), source)
        raise UsageError(
            BAD_QUERY,
            f"byte 0x{content[error.start]:02x} is not UTF-8",
            location=before.location(len(before.text)),
            hint="save the query as UTF-8",
        ) from None
