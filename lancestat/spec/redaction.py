"""What may be shown: nodes, with templates for hidden values, and lines of files in errors."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, TypeVar

from lancestat.errors import LancestatError, Location, SpecError, UnreadableFile
from lancestat.formats import visible
from lancestat.redact import (
    MASK,
    Audience,
    KnownValue,
    Origin,
    Redactor,
    is_secret_name,
    redact_line,
)
from lancestat.spec.declaration import (
    Declared,
    Either,
    Listed,
    Nested,
    PathOrUri,
    Settings,
    Shape,
    Text,
    key_fields,
)
from lancestat.spec.files import Files
from lancestat.spec.model import Node, ProjectSpec
from lancestat.spec.schema_check import SECRET_KEYS
from lancestat.spec.syntax import lines_of

Origins = Mapping[str, Origin]
AnyNode = TypeVar("AnyNode", bound=Node)
NO_ORIGINS: Origins = MappingProxyType({})


def redacted_node(node: AnyNode, origins: Origins, audience: Audience) -> AnyNode:
    """Return a node as an audience may see it; `origins` are the node's, by dotted key."""
    hidden = {
        key: origin.template for key, origin in origins.items() if origin.hides_from(audience)
    }
    redacted: AnyNode = _redacted(node, hidden, "")
    return redacted


def _redacted(resource: Declared, hidden: Mapping[str, str], prefix: str) -> Any:
    """Return a resource whose dotted keys start with `prefix`, with its texts as they are shown."""
    redacted: dict[str, object] = {}
    for declared in key_fields(type(resource)):
        value = shown = getattr(resource, declared.name)
        for key in declared.spelled:
            shown = _redacted_value(key.shape, shown, hidden, f"{prefix}{key.name}")
        if shown is not value:
            redacted[declared.name] = shown
    return replace(resource, **redacted) if redacted else resource


def _redacted_value(shape: Shape, value: Any, hidden: Mapping[str, str], name: str) -> Any:
    match shape:
        case Text(is_public=False):
            return hidden.get(name, value)
        case Settings():
            return dict.fromkeys(value, MASK)
        case Listed(items=items, is_ordered=True) if value is not None:
            shown = tuple(
                _redacted_value(items, part, hidden, f"{name}.{index}")
                for index, part in enumerate(value)
            )
            is_same = all(one is other for one, other in zip(shown, value, strict=True))
            return value if is_same else shown
        case Nested() if value is not None:
            return _redacted(value, hidden, f"{name}.")
        case Either(shapes=(_, Nested(resource=resource))) if isinstance(value, resource):
            return _redacted(value, hidden, f"{name}.")
    return value


def redacted_nodes(spec: ProjectSpec, nodes: Iterable[Node], audience: Audience) -> Iterator[Node]:
    for node in nodes:
        yield redacted_node(node, spec.origins.get(node.name, NO_ORIGINS), audience)


def named(origins: Origins, *keys: str) -> str | None:
    """Return what is shown in place of values at dotted keys or below: the template of one value,
    or the variables that gave parts of several, None if no origin is there.
    """
    parts = {
        key: origin
        for key, origin in origins.items()
        if any(key == prefix or key.startswith(f"{prefix}.") for prefix in keys)
    }
    if len(parts) == 1 and (key := next(iter(parts))) in keys:
        return parts[key].template
    variables = dict.fromkeys(
        variable for origin in parts.values() for variable in origin.variables
    )
    return ", ".join(f"{{{{ {variable} }}}}" for variable in variables) or None


def query_variables(origins: Origins, audience: Audience) -> str | None:
    """Return the variables in a node's queries whose values are hidden from an audience."""
    hidden = [
        origin
        for key, origin in origins.items()
        if key.endswith(".sql") and origin.hides_from(audience)
    ]
    names = dict.fromkeys(str(variable) for origin in hidden for variable in origin.variables)
    return " and ".join(names) or None


def hidden_locations(
    resource: Declared, origins: Origins, prefix: str = ""
) -> Iterator[KnownValue]:
    """Yield the paths and URIs of a node, as they are used, that messages must not show."""
    for declared in key_fields(type(resource)) if origins else ():
        value = getattr(resource, declared.name)
        names = [f"{prefix}{key.name}" for key in declared.spelled]
        match declared.first.shape:
            case PathOrUri() if value is not None:
                for origin in (origins[name] for name in names if name in origins):
                    yield KnownValue(value, origin.template, origin.is_secret)
            case Nested() if value is not None:
                yield from hidden_locations(value, origins, f"{names[0]}.")


_INDENT = " " * 6
_WIDTH = 88
_CUT = "..."
_DEEPEST = 1_000_000

# Catalogs' properties, and the address of a server, may hold secrets too.
_HIDDEN_KEYS = sorted({*SECRET_KEYS, "properties", "remote"})
_HIDDEN_WORDS = ("password", "secret", "token", "credential", "credentials", "passphrase")
# The `keys` of a table are lists of columns.
_COLUMNS = re.compile(r"\s*(?:\[|$)")
_KEY = re.compile(r"""(?<![^\s{\[,\-?])["']?([\w.\-]+)["']?\s*:""")
_QUOTED = re.compile(r'"(?:\\.|[^"\\])*"|\'[^\']*\'')


def excerpts(
    errors: Iterable[LancestatError], files: Files, redactor: Redactor
) -> Iterator[str | None]:
    """Yield two lines for each error: the source line and a caret, indented by six.

    None where the error has no location in a file, or where the line may hold a secret: below
    settings such as `storage_options` nothing is shown, nor a line that is redacted in any part.
    """
    known: dict[str, list[str | None]] = {}
    for error in errors:
        location = error.location
        if location is None or isinstance(error, UnreadableFile):
            yield None
            continue
        if location.file not in known:
            known[location.file] = _visible_lines(files, location.file)
        lines = known[location.file]
        line = lines[location.line - 1] if location.line <= len(lines) else None
        is_shown = line is not None and _is_harmless(line, redactor)
        yield _excerpt(line, location) if line is not None and is_shown else None


def _visible_lines(files: Files, name: str) -> list[str | None]:
    """Return the lines of a file, None for those that may hold secrets."""
    try:
        text = files.read(name).decode("utf-8-sig", "replace")
    except (OSError, SpecError):
        return []
    lines = lines_of(text)
    hidden = frozenset(hidden_lines(lines))
    return [None if number in hidden else line for number, line in enumerate(lines)]


def _is_harmless(line: str, redactor: Redactor) -> bool:
    if not line.strip():
        return False
    plain = " ".join(line.split())[:_WIDTH]
    return redact_line(line)[: len(plain)] == plain and redactor.text(line, Audience.PUBLIC) == line


def hidden_lines(lines: Sequence[str]) -> Iterator[int]:
    """Yield the indexes of lines that may hold secrets, by their keys, also in what is not YAML.

    A key hides what follows up to a line that is indented like one before it and no deeper, once
    brackets and quotes are closed; and the first line below it, if it has no value in its own.
    """
    column: int | None = None
    indents: set[int] = set()
    depth, is_quoted, is_bare = 0, False, False
    for number, line in enumerate(lines):
        content = line.strip()
        indent = _indent(line)
        if column is not None and content:
            is_open = depth > 0 or is_quoted or indent > column or indent not in indents
            if not is_open and not is_bare:
                column = None
            elif is_bare:
                column, is_bare = min(column, indent - 1), False
        if column is None:
            indents |= {indent, indent + 2} if content.startswith("- ") else {indent}
            column, depth, is_quoted = _secret_column(line), 0, False
            is_bare = column is not None and content.endswith(":")
        if column is not None:
            yield number
            unquoted = _QUOTED.sub("", line)
            depth += sum(unquoted.count(sign) for sign in "[{")
            depth -= sum(unquoted.count(sign) for sign in "]}")
            is_quoted ^= (unquoted.count('"') + unquoted.count("'")) % 2 == 1


def _indent(line: str) -> int:
    """Return how deep a line is indented; a tab, which YAML refuses, is as deep as can be."""
    leading = line[: len(line) - len(line.lstrip())]
    return _DEEPEST if "\t" in leading else len(leading)


def _secret_column(line: str) -> int | None:
    """Return where a line has a key of secrets, None where it has none."""
    keys = _KEY.finditer(line)
    return next((match.start() for match in keys if _hides(match, line)), None)


def _hides(key: re.Match[str], line: str) -> bool:
    names_columns = key[1] == "keys" and _COLUMNS.match(line, key.end())
    return not names_columns and _may_be_secret(key[1])


@lru_cache(maxsize=1000)
def _may_be_secret(key: str) -> bool:
    # Misspelled, it hides what is below it all the same.
    spelled = key.replace("-", "_").lower()
    near = difflib.get_close_matches(spelled, [*_HIDDEN_KEYS, *_HIDDEN_WORDS], 1, 0.75)
    return bool(near) or is_secret_name(key)


def _excerpt(line: str, location: Location) -> str:
    """Return a line and a caret below a column of it; a long line is cut around that."""
    line = line.replace("\t", " ")
    column = min(location.column - 1, len(line))
    start = max(0, column - _WIDTH // 2) if len(line) > _WIDTH else 0
    start = min(start, max(0, len(line) - _WIDTH))
    shown = line[start : start + _WIDTH]
    before = (_CUT if start else "") + visible(line[start:column])
    text = (_CUT if start else "") + visible(shown) + (_CUT if start + _WIDTH < len(line) else "")
    gutter = str(location.line)
    return (
        f"{_INDENT}{gutter} | {text.rstrip()}\n"
        f"{_INDENT}{' ' * len(gutter)} | {' ' * _columns(before)}^"
    )


def _columns(text: str) -> int:
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    return len(text) + wide - sum(unicodedata.combining(char) > 0 for char in text)
