"""A project's files to a `ProjectSpec`, or to all that is wrong with them."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lancestat.errors import (
    InvalidProject,
    LancestatError,
    Location,
    MissingKey,
    SpecError,
    UnknownKey,
    UnknownReference,
    UnknownTarget,
    UnreadableFile,
    UnsetVariable,
    WrongValue,
    did_you_mean,
    nearest,
)
from lancestat.formats import quoted
from lancestat.redact import (
    Audience,
    KnownValue,
    Origin,
    Redactor,
    Variable,
    is_secret_name,
    secret_environment,
    secret_options,
)
from lancestat.spec.build import Builder
from lancestat.spec.catalog import hidden_properties
from lancestat.spec.declaration import default_of, key_fields
from lancestat.spec.document import Document, KeyPath
from lancestat.spec.files import Files, Folder, SpecFolder, read_file, relative_name, spec_files
from lancestat.spec.graph import cycle_errors, output_errors, reference_errors
from lancestat.spec.hooks import NO_HOOKS, Hooks
from lancestat.spec.model import (
    NODES,
    RESOURCES,
    Node,
    ProjectFile,
    ProjectSpec,
    Source,
    Target,
    remote_secrets,
)
from lancestat.spec.monitors import Monitor
from lancestat.spec.names import Item, Namespace, Rendering
from lancestat.spec.redaction import excerpts, hidden_locations
from lancestat.spec.schema import PROJECT_FILE, PROJECT_SCHEMA, SPECS_SCHEMA, keywords
from lancestat.spec.schema_check import SECRET_KEYS, check, subject
from lancestat.spec.template import TemplateScope, is_template

_log = logging.getLogger("lancestat.spec")


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
    source = files or Folder(root)
    if not source.has(PROJECT_FILE):
        raise _missing(root)
    environment = os.environ if environment is None else environment
    try:
        document = read_file(source, PROJECT_FILE)
    except InvalidProject as invalid:
        raise _unreadable(invalid.errors, source, root, environment) from None
    errors: list[LancestatError] = []
    header = _Header(document, root, target, vars or {}, environment, errors)
    header.read()
    catalogs = None if errors else header.target.catalogs
    specs = _Specs(source, header, Builder(root, errors, catalogs))
    folders = header.folders()
    names = [name for name in spec_files(source, root, folders, errors) if name != PROJECT_FILE]
    specs.known |= dict.fromkeys((*header.known(), *_file_names(root, folders, names)))
    for name in names:
        specs.read(name)
    nodes, sources = specs.nodes(), specs.sources()
    if files is None and not errors:
        header.warn_of_unknown_variables()
    origins = specs.node_origins()
    redactor = specs.redactor(nodes, sources, origins)
    if errors:
        ordered = _in_order(errors, [PROJECT_FILE, *names])
        raise redactor.error(_with_excerpts(ordered, source, redactor), Audience.PUBLIC)
    return ProjectSpec(
        header.name,
        root,
        header.target,
        nodes,
        {name: policy for name, policy in specs.builder.policies.values.items() if policy},
        origins,
        header.origins,
        redactor,
        sources=sources,
        hooks=header.hooks,
        monitors=header.monitors,
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


def _mapping(value: object, *steps: str) -> Mapping[str, Any]:
    """The mapping at some steps, an empty one where there is none: nothing was checked yet."""
    for step in steps:
        value = value.get(step) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


@dataclass(slots=True)
class _Header:
    """The project file under one target. Only when it has no errors is all of it meaningful.

    `asked` and `given` are the target and the variables of the caller, which win over the file's.
    `value` is what the file holds, rendered, but for other targets: what they need may be missing.
    """

    document: Document
    root: Path
    asked: str | None
    given: Mapping[str, object]
    environment: Mapping[str, str]
    errors: list[LancestatError]
    rendering: Rendering = field(default_factory=Rendering)
    value: dict[str, Any] = field(default_factory=dict)
    scope: TemplateScope = field(default_factory=TemplateScope)
    target: Target = field(default_factory=lambda: Target("", ""))
    hooks: Hooks = NO_HOOKS
    monitors: tuple[Monitor, ...] = ()
    origins: Mapping[str, Origin] = field(default_factory=dict)

    def read(self) -> None:
        """Render and check the file, and build its target."""
        target = self._render()
        unset = self._unset_in_hooks()
        failures, document = self.rendering.failures, self.document
        own = [*document.errors, *(failures[path] for path in failures if path not in unset)]
        failures.update(document.unread)
        own += (
            error
            for path, error in check(PROJECT_SCHEMA, document, self.rendering)
            if error is not None and not self._is_unrendered(path, target)
        )
        origin = self.rendering.origins.get(("name",))
        if origin is not None and origin.is_of_environment:
            own.append(_name_of_environment("the project", origin, document.at(("name",))))
        self.errors += own
        if own or target is None:
            self.target = replace(self.target, name=target or "")
            return
        path = ("targets", target)
        item = Item(document, path, self.value["targets"][target], {}, self.rendering.origins)
        builder = Builder(self.root, self.errors)
        self.target = builder.target(item, target)
        self.origins = item.origins_below()
        if "monitors" in self.value:
            watched = self.value["monitors"]
            self.monitors = builder.monitors(
                Item(document, ("monitors",), watched, {}, self.rendering.origins)
            )
        if unset:
            written = _mapping(document.value)["hooks"]
            self.hooks = Hooks(errors=tuple(failures[path] for path in unset), written=written)
        elif "hooks" in self.value:
            value = self.value["hooks"]
            self.hooks = builder.hooks(
                Item(document, ("hooks",), value, {}, self.rendering.origins)
            )

    @property
    def name(self) -> str:
        return str(self.value.get("name", ""))

    @property
    def public(self) -> frozenset[str]:
        """The names that the file holds as they are."""
        return frozenset((self.name, *_mapping(self.value, "targets")))

    def folders(self) -> tuple[SpecFolder, ...]:
        texts = self.value.get("spec_paths", default_of(ProjectFile, "spec_paths"))
        keyed = enumerate(texts if isinstance(texts, list | tuple) else ())
        paths = ((text, ("spec_paths", index)) for index, text in keyed)
        return tuple(
            SpecFolder(text, self.document.at(path), self.rendering.origins.get(path))
            for text, path in paths
            if isinstance(text, str) and text
        )

    def known(self) -> Iterator[KnownValue]:
        """Yield the values that must not be shown to everybody."""
        yield from self.rendering.known
        target = self.target
        folders = {
            "state": target.state,
            "scratch": target.scratch,
            "listen": target.query_log,
        }
        for key, uri in folders.items():
            origin = self.origins.get(key)
            if origin is not None and origin.is_set and uri is not None:
                yield KnownValue(uri, origin.template, origin.is_secret)
        yield from secret_options({text: text for text in self._settings()})
        for name, value in (self.scope.vars or {}).items():
            if is_secret_name(name) and isinstance(value, str):
                template = f"{{{{ {Variable(name, 'var')} }}}}"
                yield KnownValue(value, template, is_secret=True, is_whole=True)
        yield from secret_environment(self.environment)

    def _settings(self) -> Iterator[str]:
        """Yield what hooks hide, and options, servers and secret settings of all targets."""
        for hooks in _mapping(self.value, "hooks").values():
            for hook in hooks if isinstance(hooks, list) else ():
                hidden = SECRET_KEYS.intersection(hook) if isinstance(hook, dict) else ()
                yield from (str(hook[key]) for key in hidden)
        for target in _mapping(self.value, "targets").values():
            for catalog in _mapping(target, "catalogs").values():
                yield from map(str, hidden_properties(_mapping(catalog, "properties")).values())
            conf = _mapping(target, "spark", "conf")
            yield from (str(conf[name]) for name in conf if is_secret_name(name))
            remote = _mapping(target, "spark").get("remote")
            if isinstance(remote, str):
                yield from remote_secrets(remote)
            yield from map(str, _mapping(target, "storage_options").values())

    def warn_of_unknown_variables(self) -> None:
        """Log the given variables that the project neither declares nor names in a template."""
        known = {*self.scope.asked, *_mapping(self.value, "vars")}
        for name in sorted(set(self.given) - known, key=str):
            hint = did_you_mean(name, known)
            _log.warning(
                "variable %s is neither declared under 'vars' nor used by a template%s",
                quoted(name),
                f"; {hint}" if hint else "",
            )

    def _render(self) -> str | None:
        """Render the file, in parts that may use those before, and return the target's name."""
        value = self.value = {**_mapping(self.document.value)}
        self.scope = TemplateScope(self.environment)
        self._render_key("default_target")
        origin = self.rendering.origins.get(("default_target",))
        target = None
        if self.asked is not None or ("default_target",) not in self.rendering.failures:
            target = self._target_name(origin)
        # A target that could not be chosen is one error already, and not one per template.
        origin = None if self.asked else origin
        self.scope = replace(self.scope, target=target or "", target_origin=origin)
        self._render_vars()
        for key in ("name", "description", "spec_paths", "hooks", "monitors"):
            self._render_key(key)
        targets = _mapping(value, "targets")
        if target is not None and target in targets:
            path = ("targets", target)
            chosen = self.rendering.render(self.document, targets[target], path, self.scope)
            value["targets"] = {**targets, target: chosen}
        if isinstance(self.document.value, dict):
            self.document = self.document.with_value(value)
        return target

    def _unset_in_hooks(self) -> list[KeyPath]:
        """Where hooks need variables that are not set: an error once they are to be called."""
        failures = self.rendering.failures.items()
        return [path for path, e in failures if path[0] == "hooks" and isinstance(e, UnsetVariable)]

    def _render_key(self, key: str) -> None:
        if key in self.value:
            written = self.value[key]
            self.value[key] = self.rendering.render(self.document, written, (key,), self.scope)

    def _render_vars(self) -> None:
        written = _mapping(self.value, "vars")
        rendered: dict[str, object] = {
            name: self.rendering.render(self.document, item, ("vars", name), self.scope)
            for name, item in written.items()
            if name not in self.given
        }
        if written:
            self.value["vars"] = {**written, **rendered}
        values = {**rendered, **self.given}
        self.scope = replace(self.scope, vars=values, var_origins=self._var_origins(values))

    def _var_origins(self, values: Iterable[str]) -> dict[str, Origin]:
        """The origins of the project's variables, of all their parts together.

        Secret variables, and those of the caller, which are none of the project's, are their own.
        """
        by_name: dict[str, dict[Variable, None]] = {}
        is_set: set[str] = set()
        for path, origin in self.rendering.origins.items():
            if path[0] == "vars" and len(path) > 1:
                name = str(path[1])
                by_name.setdefault(name, {}).update(dict.fromkeys(origin.variables))
                is_set |= {name} if origin.is_set else set()
        for name in values:
            if name in self.given or is_secret_name(name):
                by_name.setdefault(name, {})[Variable(name, "var")] = None
                is_set.add(name)
        return {
            name: Origin(tuple(variables), str(Variable(name, "var")), name in is_set)
            for name, variables in by_name.items()
        }

    def _target_name(self, origin: Origin | None) -> str | None:
        known = list(_mapping(self.value, "targets"))
        names: Namespace[Target] = Namespace("target")
        for name in known:
            names.declare(name, self.document.key_at(("targets", name)), self.errors)
        if self.asked is not None and known:
            if self.asked not in known:
                message, hint = _unknown_target(self.asked, known)
                raise UnknownTarget(message, hint=hint)
            return self.asked
        default = self.value.get("default_target")
        if isinstance(default, str) and known and default not in known:
            location = self.document.at(("default_target",))
            message, hint = _unknown_target(default, known, origin)
            self.errors.append(UnknownReference(message, location=location, hint=hint))
            return None
        if isinstance(default, str):
            return default if known else None
        if len(known) > 1 and not any(map(_means_default_target, self.value)):
            location = self.document.key_at(("targets",))
            message = f"no target is chosen; valid targets: {', '.join(known)}"
            hint = "add 'default_target', or give --target"
            self.errors.append(MissingKey(message, location=location, hint=hint))
        return known[0] if len(known) == 1 else None

    def _is_unrendered(self, path: KeyPath, target: str | None) -> bool:
        """Whether a template stands there unrendered, in a target that was not chosen."""
        if len(path) != 3 or path[0] != "targets" or path[1] == target:
            return False
        text = self.value["targets"][path[1]].get(path[2])
        return isinstance(text, str) and is_template(text)


def _means_default_target(key: str) -> bool:
    """Return whether a key is `default_target`, or a misspelling, which is an error already."""
    return nearest(key, [declared.name for declared in key_fields(ProjectFile)]) == "default_target"


def _unknown_target(
    name: str, known: list[str], origin: Origin | None = None
) -> tuple[str, str | None]:
    shown_name = quoted(name if origin is None else origin.brief)
    message = f"unknown target {shown_name}; valid targets: {', '.join(known)}"
    return message, None if origin is not None else did_you_mean(name, known)


def _name_of_environment(noun: str, origin: Origin, location: Location) -> SpecError:
    """Return the error of a name that the environment gave."""
    return WrongValue(
        f"the name of {noun} comes from the environment, from {origin.names}",
        location=location,
        hint="write the name itself; names are shown, stored and published",
    )


@dataclass(slots=True)
class _Specs:
    """Items of all spec files by kind; those that a schema or a template refused are not kept."""

    files: Files
    header: _Header
    builder: Builder
    items: list[tuple[str, Item]] = field(default_factory=list)
    origins: dict[tuple[str, str], dict[str, Origin]] = field(default_factory=dict)
    known: dict[KnownValue, None] = field(default_factory=dict, repr=False)
    names: Namespace[Node] = field(default_factory=lambda: Namespace("node"))

    def read(self, file: str) -> None:
        errors = self.builder.errors
        try:
            document = read_file(self.files, file)
        except InvalidProject as invalid:
            errors.extend(invalid.errors)
            return
        rendering = Rendering()
        value = rendering.render(document, document.value, (), self.header.scope)
        document = document.with_value(value)
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
            is_named = kind == "sources" or self._declare(kind, item, rendering, judged)
            if is_named and item.path not in broken:
                self.items.append((kind, item))
                if kind != "sources" and (own := item.origins_below()):
                    self.origins[kind, item.value["name"]] = own

    def _declare(self, kind: str, item: Item, rendering: Rendering, judged: set[KeyPath]) -> bool:
        """Take the name of an item; False where it has none that can be taken."""
        name, path = item.value.get("name"), (*item.path, "name")
        if not isinstance(name, str) or path in rendering.failures:
            return False
        namespace, origin = self._namespace(kind), item.origin("name")
        if origin is None or not origin.is_of_environment:
            return namespace.declare(name, item.location, self.builder.errors)
        namespace.values.setdefault(name, None)
        if path not in judged:
            noun = subject(item.path, item.document.value, rendering.origins)
            self.builder.errors.append(_name_of_environment(noun, origin, item.location))
        return False

    def nodes(self) -> tuple[Node, ...]:
        """The nodes, in the order of their files and lines."""
        builder = self.builder
        for kind, item in self.items:
            if kind == "column_sets":
                builder.sets.values[item.value["name"]] = builder.column_set(item)
            elif kind == "policies":
                builder.policies.values[item.value["name"]] = builder.policy(item)
        nodes: list[Node] = []
        has_sources = any(kind == "sources" for kind, _ in self.items)
        for kind, item in self.items:
            if kind in NODES:
                node = builder.node(NODES[kind], item)
                if not has_sources:
                    # Otherwise the names are known once the sources were looked up.
                    builder.errors.extend(self._unknown_refs(node, item))
                nodes.append(node)
        errors = (*cycle_errors(nodes), *output_errors(nodes), *reference_errors(nodes))
        builder.errors.extend(errors)
        return tuple(nodes)

    def sources(self) -> tuple[Source, ...]:
        """The sources, after the sets and policies that they name."""
        return tuple(
            self.builder.source(item, self.header.scope, self._origins_of_found(item))
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
        """The origins of what a mapping names: a column set and a policy."""
        columns, policy = value.get("columns"), value.get("policy")
        named = [("policy", "policies", policy)] if isinstance(policy, str) else []
        if isinstance(columns, dict) and "set" in columns:
            named.insert(0, ("columns", "column_sets", columns["set"]))
        return {
            f"{key}.{path}": origin
            for key, kind, name in named
            for path, origin in self.origins.get((kind, name), {}).items()
        }

    def node_origins(self) -> dict[str, dict[str, Origin]]:
        """By node, the origins of its values, of the policy and the column set it names too."""
        by_node: dict[str, dict[str, Origin]] = {}
        for kind, item in self.items if self.origins else ():
            if kind in NODES:
                name = item.value["name"]
                own = self.origins.get((kind, name), {}) | self._shared_origins(item.value)
                if own:
                    by_node[name] = own
        return by_node

    def redactor(
        self,
        nodes: Iterable[Node],
        sources: Iterable[Source],
        origins: Mapping[str, Mapping[str, Origin]],
    ) -> Redactor:
        """Finds what must not be shown to everybody; names and words of the language are public."""
        spaces: tuple[Namespace[Any], ...] = (self.names, self.builder.sets, self.builder.policies)
        named = {spelled for space in spaces for spelled, _ in space.declared.values()}
        known = list(self.known)
        for node in nodes:
            known += hidden_locations(node, origins.get(node.name, {}))
        for source in sources:
            origin = source.origins.get("uri")
            if source.uri is not None and origin is not None and origin.is_set:
                known.append(KnownValue(source.uri, origin.template, origin.is_secret))
        return Redactor(known, self.header.public | named | keywords())

    def _namespace(self, kind: str) -> Namespace[Any]:
        if kind == "column_sets":
            return self.builder.sets
        return self.builder.policies if kind == "policies" else self.names

    def _unknown_refs(self, node: Node, item: Item) -> Iterator[LancestatError]:
        for path, ref in node.named_refs():
            error = self.names.unknown(ref, item, *path)
            if error is not None:
                yield error


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
    # Grouped by item, so that each of a thousand items does not scan all origins.
    origins: dict[KeyPath, dict[KeyPath, Origin]] = {}
    for path, origin in rendering.origins.items():
        origins.setdefault(path[:2], {})[path] = origin
    for kind, values in _mapping(document.value).items():
        for index, value in enumerate(values if isinstance(values, list) else ()):
            if kind in RESOURCES and isinstance(value, dict):
                path = (kind, index)
                yield kind, Item(document, path, value, rendering.refs, origins.get(path, {}))
