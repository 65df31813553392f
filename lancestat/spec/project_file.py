"""`lancestat_project.yml`: the target, the variables and the folders of a project."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lancestat.errors import (
    LancestatError,
    MissingKey,
    SpecError,
    UnknownReference,
    UnknownTarget,
    WrongValue,
    did_you_mean,
    nearest,
)
from lancestat.formats import quoted
from lancestat.redact import (
    KnownValue,
    Origin,
    Variable,
    is_secret_name,
    secret_environment,
    secret_options,
)
from lancestat.spec.build import Builder
from lancestat.spec.catalog import hidden_properties
from lancestat.spec.declaration import default_of, key_fields
from lancestat.spec.document import Document, KeyPath
from lancestat.spec.files import SpecFolder
from lancestat.spec.model import ProjectFile, Target
from lancestat.spec.names import Item, Namespace
from lancestat.spec.schema import PROJECT_SCHEMA
from lancestat.spec.schema_check import check
from lancestat.spec.spark_master import remote_secrets
from lancestat.spec.template import Rendering, is_template
from lancestat.spec.template_scope import TemplateScope


@dataclass(frozen=True, slots=True)
class Header:
    """The values of the project file. Only when it has no errors is all of it meaningful.

    `origins` are those of the project's name and of the target's settings, by dotted key; `known`
    are values that must not be shown to everybody, `public` names that the file holds.
    """

    name: str
    target: Target
    scope: TemplateScope
    folders: tuple[SpecFolder, ...]
    origins: Mapping[str, Origin] = field(default_factory=dict)
    known: tuple[KnownValue, ...] = field(default=(), repr=False)
    public: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Arguments:
    """The choices of the caller: a target, variables that win over the file's, the environment."""

    target: str | None
    vars: Mapping[str, object]
    environment: Mapping[str, str]


def read_header(
    document: Document, root: Path, arguments: Arguments, errors: list[LancestatError]
) -> Header:
    """The header of a project file; errors are appended.

    Raises:
        UsageError: for a requested target that does not exist.
    """
    rendering = Rendering()
    document, target, scope = _render(document, arguments, rendering, errors)
    value: Any = document.value if isinstance(document.value, dict) else {}
    own_errors: list[LancestatError] = [*document.errors, *rendering.failures.values()]
    rendering.failures.update(document.unread)
    judged = check(PROJECT_SCHEMA, document, rendering)
    own_errors += (
        error for path, error in judged if error is not None and not _is_left(value, path, target)
    )
    if (refused := _refused_name(document, rendering)) is not None:
        own_errors.append(refused)
    errors += own_errors
    origins: dict[str, Origin] = {}
    if own_errors or target is None:
        built = Target(target or "", "")
    else:
        target_path = ("targets", target)
        item = Item(document, target_path, value["targets"][target], {}, rendering.origins)
        built = Builder(root, errors).target(item, target)
        origins = {
            ".".join(map(str, path[2:])): origin
            for path, origin in rendering.origins.items()
            if path[:2] == target_path
        }
    known = (
        *rendering.known,
        *_resolved(built, origins),
        *_settings(value),
        *_secret_vars(scope),
        *secret_environment(arguments.environment),
    )
    folders = _folders(document, value, rendering)
    name = str(value.get("name", ""))
    public = frozenset((name, *_targets(value)))
    return Header(name, built, scope, folders, origins, known, public)


def _refused_name(document: Document, rendering: Rendering) -> SpecError | None:
    origin = rendering.origins.get(("name",))
    if origin is None or not origin.is_of_environment:
        return None
    return WrongValue(
        f"the name of the project comes from the environment, from {origin.names}",
        location=document.at(("name",)),
        hint="write the name itself; names are shown, stored and published",
    )


def _resolved(target: Target, origins: Mapping[str, Origin]) -> Iterator[KnownValue]:
    """Paths and URIs of the target as used, where their texts came from the environment."""
    for key, value in (("state", target.state), ("scratch", target.scratch)):
        origin = origins.get(key)
        if origin is not None and origin.is_set and value is not None:
            yield KnownValue(value, origin.template, origin.is_secret)


def _settings(value: Mapping[str, Any]) -> Iterator[KnownValue]:
    """Yield storage options, servers, and settings of Spark with secret names, of all targets."""
    for target in _targets(value).values():
        given = target if isinstance(target, dict) else {}
        spark = given.get("spark")
        conf = spark.get("conf") if isinstance(spark, dict) else None
        remote = spark.get("remote") if isinstance(spark, dict) else None
        options = given.get("storage_options")
        catalogs = given.get("catalogs")
        for catalog in catalogs.values() if isinstance(catalogs, dict) else ():
            properties = catalog.get("properties") if isinstance(catalog, dict) else None
            if isinstance(properties, dict):
                hidden = hidden_properties(properties)
                yield from secret_options({k: str(v) for k, v in hidden.items()})
        if isinstance(conf, dict):
            yield from secret_options(
                {k: str(v) for k, v in conf.items() if is_secret_name(str(k))}
            )
        if isinstance(remote, str):
            yield from secret_options({secret: secret for secret in remote_secrets(remote)})
        if isinstance(options, dict):
            yield from secret_options({key: str(option) for key, option in options.items()})


def _secret_vars(scope: TemplateScope) -> Iterator[KnownValue]:
    for name, value in (scope.vars or {}).items():
        if is_secret_name(name) and isinstance(value, str):
            yield KnownValue(
                value, f"{{{{ {Variable(name, 'var')} }}}}", is_secret=True, is_whole=True
            )


def _targets(value: Mapping[str, Any]) -> Mapping[str, object]:
    targets = value.get("targets")
    return targets if isinstance(targets, dict) else {}


def _render(
    document: Document, arguments: Arguments, rendering: Rendering, errors: list[LancestatError]
) -> tuple[Document, str | None, TemplateScope]:
    """The document rendered, with its target and the scope of that: each may use those before.

    Other targets are left as they are, since what they need may be missing here.
    """
    value = dict(document.value) if isinstance(document.value, dict) else {}
    early = TemplateScope(arguments.environment)
    if "default_target" in value:
        value["default_target"] = rendering.render(
            document, value["default_target"], ("default_target",), early
        )
    target = None
    origin = rendering.origins.get(("default_target",))
    if arguments.target is not None or ("default_target",) not in rendering.failures:
        target = _target_name(document, value, arguments.target, origin, errors)
    scope = _scope(document, value, target, arguments, rendering)
    for key in ("name", "description", "spec_paths"):
        if key in value:
            value[key] = rendering.render(document, value[key], (key,), scope)
    targets = value.get("targets")
    if target is not None and isinstance(targets, dict) and target in targets:
        chosen = rendering.render(document, targets[target], ("targets", target), scope)
        value["targets"] = {**targets, target: chosen}
    if isinstance(document.value, dict):
        document = document.with_value(value)
    return document, target, scope


def _is_left(value: dict[str, Any], path: KeyPath, target: str | None) -> bool:
    """Whether a template stands there unrendered, in a target that was not chosen."""
    if len(path) != 3 or path[0] != "targets" or path[1] == target:
        return False
    text = value["targets"][path[1]].get(path[2])
    return isinstance(text, str) and is_template(text)


def _target_name(
    document: Document,
    value: dict[str, Any],
    asked: str | None,
    origin: Origin | None,
    errors: list[LancestatError],
) -> str | None:
    targets = value.get("targets")
    known = list(targets) if isinstance(targets, dict) else []
    names: Namespace[Target] = Namespace("target")
    for name in known:
        names.declare(name, document.key_at(("targets", name)), errors)
    if asked is not None and known:
        if asked not in known:
            message, hint = _unknown_target(asked, known)
            raise UnknownTarget(message, hint=hint)
        return asked
    default = value.get("default_target")
    if isinstance(default, str) and known and default not in known:
        location = document.at(("default_target",))
        message, hint = _unknown_target(default, known, origin)
        errors.append(UnknownReference(message, location=location, hint=hint))
        return None
    if isinstance(default, str):
        return default if known else None
    if len(known) > 1 and not any(_means_default_target(key) for key in value):
        location = document.key_at(("targets",))
        message = f"no target is chosen; valid targets: {', '.join(known)}"
        hint = "add 'default_target', or give --target"
        errors.append(MissingKey(message, location=location, hint=hint))
    return known[0] if len(known) == 1 else None


def _means_default_target(key: str) -> bool:
    """Return whether a key is `default_target`, or a misspelling, which is an error already."""
    return nearest(key, [declared.name for declared in key_fields(ProjectFile)]) == "default_target"


def _unknown_target(
    name: str, known: list[str], origin: Origin | None = None
) -> tuple[str, str | None]:
    shown_name = quoted(name if origin is None else origin.brief)
    message = f"unknown target {shown_name}; valid targets: {', '.join(known)}"
    return message, None if origin is not None else did_you_mean(name, known)


def _scope(
    document: Document,
    value: dict[str, Any],
    target: str | None,
    arguments: Arguments,
    rendering: Rendering,
) -> TemplateScope:
    # A target that could not be chosen is one error already, and not one per template.
    origin = None if arguments.target else rendering.origins.get(("default_target",))
    early = TemplateScope(arguments.environment, target=target or "", target_origin=origin)
    written = value.get("vars")
    if not isinstance(written, dict):
        written = {}
    rendered: dict[str, object] = {
        name: rendering.render(document, item, ("vars", name), early)
        for name, item in written.items()
        if name not in arguments.vars
    }
    if written:
        value["vars"] = {**written, **rendered}
    values = {**rendered, **arguments.vars}
    origins = _var_origins(values, arguments.vars, rendering)
    return replace(early, vars=values, var_origins=origins)


def _var_origins(
    values: Mapping[str, object], given: Mapping[str, object], rendering: Rendering
) -> dict[str, Origin]:
    """The origins of the project's variables, of all their parts together.

    A variable is its own origin where its name says that it is secret, and where the caller gave
    its value, which is none of the project's and may well be made of the environment.
    """
    by_name: dict[str, dict[Variable, None]] = {}
    is_set: dict[str, bool] = {}
    for path, origin in rendering.origins.items():
        if path[0] == "vars" and len(path) > 1:
            name = str(path[1])
            by_name.setdefault(name, {}).update(dict.fromkeys(origin.variables))
            is_set[name] = is_set.get(name, False) or origin.is_set
    for name in values:
        if name in given or is_secret_name(name):
            by_name.setdefault(name, {})[Variable(name, "var")] = None
            is_set[name] = True
    return {
        name: Origin(tuple(variables), str(Variable(name, "var")), is_set[name])
        for name, variables in by_name.items()
    }


def _folders(
    document: Document, value: dict[str, Any], rendering: Rendering
) -> tuple[SpecFolder, ...]:
    texts = value.get("spec_paths", default_of(ProjectFile, "spec_paths"))
    if not isinstance(texts, list | tuple):
        return ()
    keyed = ((text, ("spec_paths", index)) for index, text in enumerate(texts))
    return tuple(
        SpecFolder(text, document.at(path), rendering.origins.get(path))
        for text, path in keyed
        if isinstance(text, str) and text
    )
