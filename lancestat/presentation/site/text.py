"""Texts on pages: strings made safe, moments, and the YAML that declares nodes."""

from __future__ import annotations

import hashlib
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from lancestat import formats
from lancestat.errors import Location, SpecError, error_class
from lancestat.redact import EMPTY_REDACTOR, MASK, Audience, Redactor, redact_line
from lancestat.report.duplicates import DuplicatesReport
from lancestat.report.tables import TableReport
from lancestat.report.values import NodeReport
from lancestat.spec.document import MAX_BYTES
from lancestat.spec.files import Folder

if TYPE_CHECKING:
    import yaml

# Longer than any text that is shown; patterns of secrets would take long over a megabyte.
_LONGEST_READ = 2000
_LONGEST_LINE = 400

# Controls, lone surrogates, and what reorders or hides the text around it.
_UNSEEN = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
# Texts that no pattern of a secret matches.
_FIGURE = re.compile(r"[0-9.,%()+-]*")


def _spelled(unseen: re.Match[str]) -> str:
    return formats.visible(unseen[0])


class PageSanitizer:
    """Sanitizes strings: no secrets, control and direction characters spelled out, not too long."""

    def __init__(self, redactor: Redactor = EMPTY_REDACTOR, root: Path | None = None) -> None:
        """Redact for the public; paths in the folder `root` become relative to it."""
        self._redactor = redactor
        is_folder = root is not None and root.is_absolute() and root != root.parent
        self._root = f"{root.as_posix().rstrip('/')}/" if root is not None and is_folder else None
        self._line = lru_cache(maxsize=50_000)(self._made)

    def line(self, text: str) -> str:
        """One line of at most 600 characters."""
        return self._line(text) if len(text) <= _LONGEST_READ else self._made(text)

    def verbatim(self, text: str) -> Markup:
        """A line of source, escaped already; its spaces stay unless a secret is masked in it."""
        masked = self._masked(text.rstrip())[:_LONGEST_LINE]
        bare = masked.lstrip()
        cleaned = redact_line(bare)
        content = cleaned if cleaned.count(MASK) > bare.count(MASK) else bare
        indent = masked[: len(masked) - len(bare)]
        return escape(_UNSEEN.sub(_spelled, indent + content))

    def _made(self, text: str) -> str:
        masked = self._masked(text)
        if _FIGURE.fullmatch(masked):
            return masked
        return _UNSEEN.sub(_spelled, redact_line(masked))

    def _masked(self, text: str) -> str:
        redacted = self._redactor.text(text, Audience.PUBLIC)
        return (redacted if self._root is None else redacted.replace(self._root, ""))[
            :_LONGEST_READ
        ]


def shorten(text: str, longest: int) -> str:
    """The beginning of a text that is longer than a cell has room for."""
    return text if len(text) <= longest else f"{text[: longest - 1].rstrip()}\u2026"


NOTHING = "\u2013"


def instant(moment: datetime | None) -> str:
    """Return a moment to the minute, in UTC."""
    return NOTHING if moment is None else formats.instant(moment)


def ago(moment: datetime) -> Markup:
    """Return a moment, in place of which a page's script has how long ago it is: `2 d ago`."""
    return _time(moment, "ago")


def since(moment: datetime) -> Markup:
    """Return a moment, to which a page's script adds how long ago it is."""
    return _time(moment, "since")


def _time(moment: datetime, kind: str) -> Markup:
    at = moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    text = formats.instant(moment)
    return Markup('<time datetime="{}" data-age="{}">{}</time>').format(at, kind, text)


_CODE = re.compile(r"\bLS\d{3}(?!\d)")
_AGE = re.compile(r"\b((?:[\d,.]+ (?:d|h|min|s|ms) ?){1,2}) ?ago\b")
_SECONDS = {"d": 86400.0, "h": 3600.0, "min": 60.0, "s": 1.0, "ms": 0.001}


def error_codes(text: str) -> list[str]:
    """Return the codes of errors that a text names."""
    return [code for code in _CODE.findall(text) if error_class(code) is not None]


def live(text: str, made_at: datetime, errors_page: str) -> Markup:
    """Return a sanitized sentence with links from codes of errors, and with ages of the moment."""
    parts, end = [], 0
    for age in _AGE.finditer(text):
        words = age[1].split()
        seconds = sum(
            float(number.replace(",", "")) * _SECONDS[unit]
            for number, unit in zip(words[::2], words[1::2], strict=True)
        )
        parts += [_linked(text[end : age.start()], errors_page)]
        parts += [ago(made_at - timedelta(seconds=seconds))]
        end = age.end()
    return Markup("").join([*parts, _linked(text[end:], errors_page)])


def _linked(text: str, errors_page: str) -> Markup:
    parts, end = [], 0
    for code in _CODE.finditer(text):
        if error_class(code[0]) is not None:
            link = Markup('<a href="{}#{}">{}</a>').format(errors_page, code[0], code[0])
            parts += [escape(text[end : code.start()]), link]
            end = code.end()
    return Markup("").join([*parts, escape(text[end:])])


def prose(text: str) -> Markup:
    """Return a text of this package as HTML: what is between backticks is code."""
    spans = text.split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(span) if number % 2 else escape(span)
        for number, span in enumerate(spans)
    )


def sentence(text: str) -> str:
    """A text that begins a sentence."""
    return text[:1].upper() + text[1:]


_PLAIN = re.compile(r"[a-z0-9]+(?:[_-][a-z0-9]+)*")
_OTHER = re.compile(r"[^a-z0-9_]+")
_LIKE_HASHED = re.compile(r".*-[0-9a-f]{12}")
_LONGEST = 60
# Windows opens devices under these names, whatever the suffix.
_RESERVED = frozenset(
    ("con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10)))
)


def slug(name: str) -> str:
    """A lower-case ASCII file name without suffix, different for different names.

    A short name of lower-case letters and digits is itself; any other gets a digest of the whole.
    """
    is_plain = _PLAIN.fullmatch(name) and len(name) <= _LONGEST
    if is_plain and name not in _RESERVED and not _LIKE_HASHED.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    readable = _OTHER.sub("-", name.lower())[:_LONGEST].strip("-_")
    return f"{readable or 'node'}-{digest}"


def addresses(nodes: Iterable[NodeReport]) -> Mapping[str, str]:
    """The page of each node, relative to the site's folder."""
    return {node.spec.name: f"{_folder(node)}/{slug(node.spec.name)}.html" for node in nodes}


def _folder(node: NodeReport) -> str:
    if isinstance(node, DuplicatesReport):
        return "duplicates"
    return "tables" if isinstance(node, TableReport) else "joins"


# Of a file: its lines, and the ends of the items of its lists by the positions of their names.
_Mark = tuple[int, int]
_File = tuple[list[str], dict[_Mark, tuple[_Mark, _Mark]]]


class Sources:
    """The YAML that declares nodes, as it is written, in spec files that are read once each."""

    def __init__(self, root: Path) -> None:
        """Read the files of the project at `root`."""
        self._root = root
        self._files: dict[str, _File | None] = {}

    def of(self, location: Location) -> list[str] | None:
        """The lines of the item that is named at a location.

        None where they cannot be read, or are no longer what was loaded.
        """
        if location.file not in self._files:
            self._files[location.file] = _read(self._root, location.file)
        lines, items = self._files[location.file] or ([], {})
        span = items.get((location.line - 1, location.column - 1))
        if span is None:
            return None
        (first, column), end = span
        lines = lines[first : end[0] + (end[1] > 0)]
        # A block ends where the next one begins: at the start of its line, or within its indent.
        while len(lines) > 1 and (not lines[-1].strip() or _is_past(lines[-1], column)):
            lines.pop()
        return textwrap.dedent("\n".join(lines)).split("\n")


def _is_past(line: str, column: int) -> bool:
    indent = len(line) - len(line.lstrip())
    return indent < column and not line.lstrip().startswith(("}", "]"))


def _read(folder: Path, name: str) -> _File | None:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        content = Folder(folder).read(name)
        if len(content) > MAX_BYTES:
            return None
        text = content.decode("utf-8-sig")
        root = yaml.compose(text, Loader=loader)
    except (OSError, SpecError, ValueError, RecursionError, yaml.YAMLError):
        return None
    return text.splitlines(), dict(_items(root))


def _items(root: yaml.Node | None) -> Iterator[tuple[_Mark, tuple[_Mark, _Mark]]]:
    """Yield the items of the lists in a spec file, by the positions of what names them."""
    import yaml

    if not isinstance(root, yaml.MappingNode):
        return
    for _, items in root.value:
        if not isinstance(items, yaml.SequenceNode):
            continue
        for item in items.value:
            if not isinstance(item, yaml.MappingNode):
                continue
            for key, value in item.value:
                # A source is named by what it is of.
                if key.value in ("name", "catalog", "uri"):
                    yield _mark(value.start_mark), (_mark(item.start_mark), _mark(item.end_mark))


def _mark(mark: yaml.Mark) -> _Mark:
    return mark.line, mark.column
