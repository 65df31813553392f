"""Names of places and values in messages: `'k' of knn join 'similar_parts'`, `the number 5`."""

from __future__ import annotations

from collections.abc import Container

from lancestat.redact import Origin
from lancestat.spec.declaration import Settings, key_fields
from lancestat.spec.document import KeyPath
from lancestat.spec.model import RESOURCES, KnnSide, Target
from lancestat.spec.quoting import quoted

_OWNERS = {
    **{key: resource.declares.noun for key, resource in RESOURCES.items()},
    "targets": Target.declares.noun,
}
# Below these keys lie settings that may be secret, so their values are never shown.
SECRET_KEYS = frozenset(
    key.path[-1]
    for resource in (Target, KnnSide)
    for declared in key_fields(resource)
    for key in declared.keys
    if isinstance(key.shape, Settings)
)


def may_be_secret(path: KeyPath, origins: Container[KeyPath]) -> bool:
    """Return whether the value at `path` must not be shown."""
    return path in origins or bool(SECRET_KEYS.intersection(path))


def subject(path: KeyPath, root: object, origins: Container[KeyPath] = ()) -> str:
    """Return words for the value at a path.

    A resource whose name came from the environment is named by its number.
    """
    if not path:
        return "the file"
    owner_length = 2 if path[0] in _OWNERS and len(path) > 1 else 0
    owner = _owner(path[:2], root, origins) if owner_length else ""
    if len(path) == owner_length:
        return owner
    last = path[-1]
    item = f"item {last + 1} of " if isinstance(last, int) else ""
    words = item + quoted(str(path[-2] if item else last))
    return f"{words} of {owner}" if owner else words


def describe(value: object, *, is_secret: bool = False, origin: Origin | None = None) -> str:
    """Return a value, shortened, for the end of 'found ...'.

    Of a secret only the kind is named. A value from the environment comes with its template.
    """
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, bool):
        return "true or false" if is_secret else str(value).lower()
    if isinstance(value, str):
        words = "text" if is_secret else quoted(value)
    else:
        words = "a number" if is_secret else f"the number {value}"
    return words if origin is None else f"{words} from {quoted(origin.brief)}"


def value_at(root: object, path: KeyPath) -> object:
    """Return the value that a path leads to, None when there is none."""
    for step in path:
        if isinstance(root, dict) and step in root:
            root = root[step]
            continue
        if not isinstance(root, list) or not isinstance(step, int) or step >= len(root):
            return None
        root = root[step]
    return root


def _owner(path: KeyPath, root: object, origins: Container[KeyPath]) -> str:
    kind, step = _OWNERS[str(path[0])], path[1]
    if isinstance(step, str):
        return f"{kind} {quoted(step)}"
    if path[0] == "sources":
        # Its name is a template of others.
        return f"{kind} {step + 1}"
    at_name = (*path, "name")
    declared = None if at_name in origins else value_at(root, at_name)
    return f"{kind} {quoted(declared)}" if isinstance(declared, str) else f"{kind} {step + 1}"
