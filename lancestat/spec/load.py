"""A project's files to a `ProjectSpec`, or to all that is wrong with them."""

from __future__ import annotations

import difflib
import logging
import os
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from lancestat.errors import (
    InvalidProject,
    LancestatError,
    Location,
    SpecError,
    UnknownKey,
    UnreadableFile,
    did_you_mean,
)
from lancestat.formats import quoted, visible
from lancestat.redact import (
    Audience,
    KnownValue,
    Origin,
    Redactor,
    is_secret_name,
    redact_line,
    secret_environment,
)
from lancestat.spec.build import Builder
from lancestat.spec.declaration import default_of
from lancestat.spec.document import Document, KeyPath
from lancestat.spec.files import Files, Folder, SpecFolder, read_file, relative_name, spec_files
from lancestat.spec.graph import cycle_errors, dependencies, output_errors
from lancestat.spec.model import (
    RESOURCES,
    ColumnSet,
    KnnJoin,
    Node,
    Policy,
    ProjectFile,
    ProjectSpec,
    Source,
)
from lancestat.spec.names import Item, Namespace
from lancestat.spec.project_file import Arguments, read_header
from lancestat.spec.redaction import hidden_locations
from lancestat.spec.schema import PROJECT_FILE, SPECS_SCHEMA, keywords
from lancestat.spec.schema_check import SECRET_KEYS, check, subject
from lancestat.spec.syntax import lines_of
from lancestat.spec.template import Rendering
from lancestat.spec.template_scope import TemplateScope

_log = logging.getLogger("lancestat.spec")

__all__ = ["dependencies", "load_project"]


def load_project(
    project_dir: Path,
    *,
    target: str | None = None,
    vars: Mapping[str, object] | None = None,
    environment: Mapping[str, str] | None = None,
    files: Files | None = None,
) -> ProjectSpec:
    """The project in a folder, under one target.

    Args:
        project_dir: the folder that holds `lancestat_project.yml`.
        target: the target's name; the project's default otherwise.
        vars: variables that win over the project's.
        environment: what `env_var` reads; the process's environment otherwise.
        files: where the files are read from, such as a revision; the folder otherwise. Relative
            URIs lead from the folder all the same.

    Raises:
        InvalidProject: with every error found, in the order of files and lines.
        UsageError: when `target` does not exist.
    """
    root = project_dir.resolve()
    files_given, files = files, files or Folder(root)
    if not files.has(PROJECT_FILE):
        raise _missing(root)
    errors: list[LancestatError] = []
    arguments = Arguments(target, vars or {}, os.environ if environment is None else environment)
    try:
        project = read_file(files, PROJECT_FILE)
    except InvalidProject as invalid:
        environment = arguments.environment
        raise _unreadable(invalid.errors, files, root, environment) from None
    header = read_header(project, root, arguments, errors)
    catalogs = None if errors else header.target.catalogs
    specs = spec_files(files, root, header.folders, errors)
    names = [name for name in specs if name != PROJECT_FILE]
    declarations = _Declarations(files, root, known=dict.fromkeys(header.known))
    declarations.known |= dict.fromkeys(_file_names(root, header.folders, names))
    for name in names:
        declarations.read(name, header.scope, errors)
    nodes = declarations.build(errors, catalogs)
    sources = declarations.sources(errors, catalogs, header.scope)
    if files_given is None and not errors:
        _warn_of_unknown_variables(project, header.scope, arguments)
    origins = declarations.node_origins()
    redactor = declarations.redactor(nodes, sources, origins, header.public)
    if errors:
        ordered = _in_order(errors, [PROJECT_FILE, *names])
        raise redactor.error(_with_excerpts(ordered, files, redactor), Audience.PUBLIC)
    return ProjectSpec(
        header.name,
        root,
        header.target,
        nodes,
        {name: policy for name, policy in declarations.policies.values.items() if policy},
        origins,
        header.origins,
        redactor,
        sources=sources,
    )


def _warn_of_unknown_variables(
    project: Document, scope: TemplateScope, arguments: Arguments
) -> None:
    """Log the given variables that the project neither declares nor names in a template.

    Templates of other targets are not rendered, so that it is no error.
    """
    value = project.value if isinstance(project.value, dict) else {}
    declared = value.get("vars")
    known = {*scope.asked, *(declared if isinstance(declared, dict) else ())}
    for name in sorted(set(arguments.vars) - known, key=str):
        hint = did_you_mean(name, known)
        _log.warning(
            "variable %s is neither declared under 'vars' nor used by a template%s",
            quoted(name),
            f"; {hint}" if hint else "",
        )


def _missing(root: Path) -> InvalidProject:
    missing = UnreadableFile(
        f"there is no {PROJECT_FILE} in {root}",
        location=Location(PROJECT_FILE, 1, 1),
        hint="run 'lancestat init', or give --project-dir (project_dir in Python)",
    )
    return InvalidProject([missing])


def _unreadable(
    errors: Sequence[LancestatError], files: Files, root: Path, environment: Mapping[str, str]
) -> InvalidProject:
    """The errors of a project file that is not YAML, and of such spec files in the usual folder."""
    start = Location(PROJECT_FILE, 1, 1)
    found = list(errors)
    folders = [SpecFolder(path, start) for path in default_of(ProjectFile, "spec_paths")]
    for name in spec_files(files, root, folders, []):
        try:
            read_file(files, name)
        except InvalidProject as invalid:
            found += invalid.errors
    return _with_excerpts(found, files, Redactor(tuple(secret_environment(environment))))


def _with_excerpts(
    errors: Sequence[LancestatError], files: Files, redactor: Redactor
) -> InvalidProject:
    return InvalidProject(errors, list(excerpts(errors, files, redactor)))


def _in_order(errors: Iterable[LancestatError], files: Sequence[str]) -> list[LancestatError]:
    ranks = {file: rank for rank, file in enumerate(files)}

    def position(error: LancestatError) -> tuple[int, int, int]:
        if error.location is None:
            return -1, 0, 0
        return ranks.get(error.location.file, -1), error.location.line, error.location.column

    return sorted(errors, key=position)


@dataclass(slots=True)
class _Declarations:
    """Items of all spec files by kind; those that a schema or a template refused are not kept."""

    files: Files
    root: Path
    items: list[tuple[str, Item]] = field(default_factory=list)
    sets: Namespace[ColumnSet] = field(default_factory=lambda: Namespace("column set"))
    policies: Namespace[Policy] = field(default_factory=lambda: Namespace("policy"))
    origins: dict[tuple[str, str], dict[str, Origin]] = field(default_factory=dict)
    known: dict[KnownValue, None] = field(default_factory=dict, repr=False)
    nodes: Namespace[Node] = field(default_factory=lambda: Namespace("table or knn join"))

    def read(self, file: str, scope: TemplateScope, errors: list[LancestatError]) -> None:
        try:
            document = read_file(self.files, file)
        except InvalidProject as invalid:
            errors.extend(invalid.errors)
            return
        rendering, written = Rendering(), document.value
        document = document.with_value(rendering.render(document, written, (), scope))
        self.known |= rendering.known
        errors.extend((*document.errors, *rendering.failures.values()))
        rendering.failures.update(document.unread)
        broken = {failed[:2] for failed in rendering.failures}
        judged: set[KeyPath] = set()
        for path, error in check(SPECS_SCHEMA, document, rendering):
            errors += [] if error is None else [error]
            judged.add(path)
            if not isinstance(error, UnknownKey):
                broken.add(path[:2])
        for kind, item in _items(document, rendering):
            if kind == "sources":
                if item.path not in broken:
                    self.items.append((kind, item))
                continue
            namespace: Namespace[Any] = self._namespace(kind)
            name = item.value.get("name")
            usable = (*item.path, "name") not in rendering.failures
            if not isinstance(name, str) or not usable:
                continue
            origin = item.origin("name")
            if origin is not None and origin.is_of_environment:
                noun = subject(item.path, document.value, rendering.origins)
                refusal = namespace.refuse(name, noun, item, origin)
                errors += [] if (*item.path, "name") in judged else [refusal]
                continue
            fresh = namespace.declare(name, item.location, errors)
            if fresh and item.path not in broken:
                self.items.append((kind, item))
                if own := item.origins_below():
                    self.origins[kind, name] = own

    def build(
        self, errors: list[LancestatError], catalogs: Collection[str] | None
    ) -> tuple[Node, ...]:
        """The nodes, in the order of their files and lines; errors are appended."""
        builder = Builder(self.root, errors, catalogs, self.sets, self.policies)
        for kind, item in self.items:
            if kind == "column_sets":
                self.sets.values[item.value["name"]] = builder.column_set(item)
            elif kind == "policies":
                self.policies.values[item.value["name"]] = builder.policy(item)
        nodes: list[Node] = []
        for kind, item in self.items:
            if kind == "tables":
                nodes.append(builder.table(item))
            elif kind == "knn_joins":
                join = builder.knn_join(item)
                if not any(kind == "sources" for kind, _ in self.items):
                    # Otherwise the names are known once the sources were looked up.
                    errors.extend(self._unknown_refs(join, item))
                nodes.append(join)
        errors.extend(cycle_errors(nodes))
        errors.extend(output_errors(nodes))
        return tuple(nodes)

    def sources(
        self,
        errors: list[LancestatError],
        catalogs: Collection[str] | None,
        scope: TemplateScope,
    ) -> tuple[Source, ...]:
        """The sources, after the sets and policies that they name; errors are appended."""
        builder = Builder(self.root, errors, catalogs, self.sets, self.policies)
        return tuple(
            builder.source(item, scope, self._origins_of_found(item))
            for kind, item in self.items
            if kind == "sources"
        )

    def _origins_of_found(self, item: Item) -> dict[str, Origin]:
        """The origins of the values of a source's tables, by dotted key of a table."""
        own = item.origins_below("defaults")
        origin = item.origin("uri") or item.origin("catalog")
        if origin is not None:
            own["uri"] = origin
        return own | self._shared_origins(item.value.get("defaults", {}))

    def _shared_origins(self, value: Mapping[str, Any]) -> dict[str, Origin]:
        shared: dict[str, Origin] = {}
        for key, name, kind in _shared_parts(value):
            parts = self.origins.get((kind, name), {})
            shared |= {f"{key}.{path}": origin for path, origin in parts.items()}
        return shared

    def node_origins(self) -> dict[str, dict[str, Origin]]:
        """By node, the origins of its values, of the policy and the column set it names too."""
        by_node: dict[str, dict[str, Origin]] = {}
        for kind, item in self.items if self.origins else ():
            if kind in ("tables", "knn_joins"):
                own = dict(self.origins.get((kind, item.value["name"]), {}))
                own |= self._shared_origins(item.value)
                if own:
                    by_node[item.value["name"]] = own
        return by_node

    def redactor(
        self,
        nodes: Iterable[Node],
        sources: Iterable[Source],
        origins: Mapping[str, Mapping[str, Origin]],
        public: frozenset[str],
    ) -> Redactor:
        """Finds what must not be shown to everybody; names and words of the language are public."""
        spaces: tuple[Namespace[Any], ...] = (self.nodes, self.sets, self.policies)
        named = {spelled for space in spaces for spelled, _ in space.declared.values()}
        known = list(self.known)
        for node in nodes:
            known += hidden_locations(node, origins.get(node.name, {}))
        for source in sources:
            origin = source.origins.get("uri")
            if source.uri is not None and origin is not None and origin.is_set:
                known.append(KnownValue(source.uri, origin.template, origin.is_secret))
        return Redactor(known, public | named | keywords())

    def _namespace(self, kind: str) -> Namespace[Any]:
        if kind == "column_sets":
            return self.sets
        return self.policies if kind == "policies" else self.nodes

    def _unknown_refs(self, join: KnnJoin, item: Item) -> Iterator[LancestatError]:
        for name, side in (("left", join.left), ("right", join.right)):
            key = "sql" if side.table is None else "table"
            for ref in side.refs:
                error = self.nodes.unknown(ref, item, name, key)
                if error is not None:
                    yield error


def _shared_parts(value: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """The key under which a mapping names something shared, its name and its kind."""
    columns, policy = value.get("columns"), value.get("policy")
    if isinstance(columns, dict) and "set" in columns:
        yield "columns", columns["set"], "column_sets"
    if isinstance(policy, str):
        yield "policy", policy, "policies"


def _file_names(
    root: Path, folders: Iterable[SpecFolder], names: Iterable[str]
) -> Iterator[KnownValue]:
    """Names of files in folders that the environment named."""
    for folder in folders:
        if folder.origin is None or not folder.origin.is_set:
            continue
        top = relative_name(root, Path(os.path.normpath(root / folder.path.replace("\0", ""))))
        for name in names:
            if name.startswith(f"{top}/"):
                template = f"{folder.origin.template}{name[len(top) :]}"
                yield KnownValue(name, template, folder.origin.is_secret)


def _items(document: Document, rendering: Rendering) -> Iterator[tuple[str, Item]]:
    if not isinstance(document.value, dict):
        return
    # Grouped by item, so that each of a thousand items does not scan all origins.
    origins: dict[KeyPath, dict[KeyPath, Origin]] = {}
    for path, origin in rendering.origins.items():
        origins.setdefault(path[:2], {})[path] = origin
    for kind in document.value:
        values = document.value[kind]
        if kind not in RESOURCES:
            continue
        for index, value in enumerate(values if isinstance(values, list) else ()):
            if isinstance(value, dict):
                path = (kind, index)
                yield kind, Item(document, path, value, rendering.refs, origins.get(path, {}))


_INDENT = " " * 6
_WIDTH = 88
_CUT = "..."
_DEEPEST = 1_000_000

# Catalogs' properties, and the address of a server, may hold secrets too.
_HIDDEN_KEYS = sorted({*SECRET_KEYS, "properties", "remote"})
_HIDDEN_WORDS = ("password", "secret", "token", "credential", "credentials", "passphrase")
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

    Such a key hides what follows up to a line that is indented like one before the key, no deeper
    than the key, once brackets and quotes that open in between are closed; and the first line below
    it in any case, if it has no value in its own.
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
    return next((match.start() for match in keys if _may_be_secret(match[1])), None)


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
