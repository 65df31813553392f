"""`lancestat_project.yml`: the target, the variables and the folders of a project."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lancestat.errors import LancestatError, Location, SpecError, UsageError, did_you_mean
from lancestat.spec import codes
from lancestat.spec.check import check
from lancestat.spec.document import Document, KeyPath
from lancestat.spec.item import Item
from lancestat.spec.model import Reader, Target
from lancestat.spec.names import Namespace
from lancestat.spec.quoting import quoted
from lancestat.spec.rendering import Rendering
from lancestat.spec.resources import PROJECT_SCHEMA
from lancestat.spec.template import Scope, is_template
from lancestat.spec.uri import resolve_uri

_DEFAULT_STATE = ".lancestat/state"


@dataclass(frozen=True, slots=True)
class Header:
    """What the project file says. Only when it has no errors is all of it meaningful."""

    name: str
    target: Target
    scope: Scope
    folders: tuple[tuple[str, Location], ...]


@dataclass(frozen=True, slots=True)
class Arguments:
    """What the caller chooses: a target, variables that win over the file's, the environment."""

    target: str | None
    vars: Mapping[str, object]
    environment: Mapping[str, str]


def read_header(
    document: Document, root: Path, arguments: Arguments, errors: list[LancestatError]
) -> Header:
    """The header of a project file; errors are appended.

    Raises:
        UsageError: for a target that was asked for and does not exist.
    """
    rendering = Rendering()
    document, target, scope = _render(document, arguments, rendering, errors)
    value: Any = document.value if isinstance(document.value, dict) else {}
    found: list[LancestatError] = [*rendering.failures.values()]
    judged = check(PROJECT_SCHEMA, document, rendering)
    found += (error for path, error in judged if not _is_left(value, path, target))
    errors += found
    if found or target is None:
        built = Target(target or "", "")
    else:
        item = Item(document, ("targets", target), value["targets"][target], {}, set())
        built = _build_target(item, target, root, errors)
    return Header(str(value.get("name", "")), built, scope, _folders(document, value))


def _render(
    document: Document, arguments: Arguments, rendering: Rendering, errors: list[LancestatError]
) -> tuple[Document, str | None, Scope]:
    """The document rendered, with its target and the scope of that: each may use those before.

    Other targets are left as they are, since what they need may be missing here.
    """
    value = dict(document.value) if isinstance(document.value, dict) else {}
    early = Scope(arguments.environment)
    if "default-target" in value:
        value["default-target"] = rendering.render(
            document, value["default-target"], ("default-target",), early
        )
    target = None
    if arguments.target is not None or ("default-target",) not in rendering.failures:
        target = _target_name(document, value, arguments.target, errors)
    scope = _scope(document, value, target, arguments, rendering)
    for key in ("name", "description", "spec-paths"):
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
    document: Document, value: dict[str, Any], asked: str | None, errors: list[LancestatError]
) -> str | None:
    targets = value.get("targets")
    known = list(targets) if isinstance(targets, dict) else []
    names: Namespace[Target] = Namespace("target")
    for name in known:
        names.declare(name, document.key_at(("targets", name)), errors)
    if asked is not None and known:
        if asked not in known:
            message, hint = _unknown_target(asked, known)
            raise UsageError(codes.UNKNOWN_TARGET, message, hint=hint)
        return asked
    default = value.get("default-target")
    if isinstance(default, str) and known and default not in known:
        location = document.at(("default-target",))
        message, hint = _unknown_target(default, known)
        errors.append(SpecError(codes.UNKNOWN_REFERENCE, message, location=location, hint=hint))
        return None
    if isinstance(default, str):
        return default if known else None
    if len(known) > 1 and "default-target" not in value:
        location = document.key_at(("targets",))
        message = f"no target is chosen; valid targets: {', '.join(known)}"
        hint = "add 'default-target', or give --target"
        errors.append(SpecError(codes.MISSING_KEY, message, location=location, hint=hint))
    return known[0] if len(known) == 1 else None


def _unknown_target(name: str, known: list[str]) -> tuple[str, str | None]:
    message = f"unknown target {quoted(name)}; valid targets: {', '.join(known)}"
    return message, did_you_mean(name, known)


def _scope(
    document: Document,
    value: dict[str, Any],
    target: str | None,
    arguments: Arguments,
    rendering: Rendering,
) -> Scope:
    # A target that could not be chosen is one error already, and not one per template.
    target = target or ""
    scope = Scope(arguments.environment, target=target)
    written = value.get("vars")
    if not isinstance(written, dict):
        return Scope(arguments.environment, dict(arguments.vars), target=target)
    rendered: dict[str, object] = {
        name: rendering.render(document, item, ("vars", name), scope)
        for name, item in written.items()
        if name not in arguments.vars
    }
    secret = frozenset(
        str(path[1]) for path in rendering.secrets if path[0] == "vars" and len(path) > 1
    )
    value["vars"] = {**written, **rendered}
    return Scope(arguments.environment, {**rendered, **arguments.vars}, secret, target)


def _build_target(item: Item, name: str, root: Path, errors: list[LancestatError]) -> Target:
    scratch = item.value.get("scratch")
    return Target(
        name=name,
        state=_uri(item, root, "state", item.value.get("state", _DEFAULT_STATE), errors),
        scratch=None if scratch is None else _uri(item, root, "scratch", scratch, errors),
        spark_master=item.value.get("spark", {}).get("master"),
        spark_conf=item.settings("spark", "conf"),
        storage_options=item.settings("storage-options"),
        reader=Reader(item.value.get("reader", Reader.LANCESTAT)),
    )


def _uri(item: Item, root: Path, key: str, text: str, errors: list[LancestatError]) -> str:
    try:
        return resolve_uri(root, text)
    except ValueError as error:
        errors.append(item.error(codes.WRONG_VALUE, f"'{key}' {error}", key))
        return text


def _folders(document: Document, value: dict[str, Any]) -> tuple[tuple[str, Location], ...]:
    texts = value.get("spec-paths", ["specs"])
    if not isinstance(texts, list):
        return ()
    return tuple(
        (text, document.at(("spec-paths", index)))
        for index, text in enumerate(texts)
        if isinstance(text, str) and text
    )
