"""What a shell offers when the person at it presses Tab: names of nodes, tables and targets.

Nothing here ever prints an error: what cannot be found out is not offered.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from lancestat.spec.outline import NodeOutline, Outline

# A word that begins with a hyphen would be an option.
_PLAIN = re.compile(r"(?!-)[\w@%./:=\-]+")
_METHODS = ("tag", "kind", "state", "path")


def complete_selector(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Names of nodes and `tag:`, `kind:`, `state:`, `path:` selectors, also after `+`.

    Of several selectors in one text the last is completed.
    """
    start = max(incomplete.rfind(char) for char in " ,+") + 1
    before, begun = incomplete[:start], incomplete[start:]
    return [
        _item(before + selector, about)
        for selector, about in _selectors(_outline(ctx))
        if selector.startswith(begun) and _is_plain(selector)
    ]


def complete_table(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Names of tables."""
    return [
        _item(node.name, _about(node))
        for node in _outline(ctx).nodes
        if node.kind.value == "table" and node.name.startswith(incomplete) and _is_plain(node.name)
    ]


def complete_target(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Names of targets."""
    return [
        _item(name)
        for name in _outline(ctx).targets
        if name.startswith(incomplete) and _is_plain(name)
    ]


def complete_schema(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Kinds of YAML that have a schema."""
    from lancestat.spec.editor import KINDS

    return [_item(kind, about) for kind, about in KINDS.items() if kind.startswith(incomplete)]


def _outline(ctx: click.Context) -> Outline:
    from lancestat.spec.outline import Outline, outline

    try:
        return outline(_project_dir(ctx).resolve())
    except Exception:
        # Whatever it is, a prompt that is being typed is no place to say it.
        return Outline()


def _project_dir(ctx: click.Context) -> Path:
    current: click.Context | None = ctx
    while current is not None:
        folder = current.params.get("project_dir")
        if folder is not None:
            return Path(folder)
        current = current.parent
    return Path()


def _selectors(project: Outline) -> Iterator[tuple[str, str | None]]:
    from lancestat.spec.model import NodeKind
    from lancestat.spec.selection import STATES

    for node in project.nodes:
        yield node.name, _about(node)
    words = {
        "tag": dict.fromkeys(tag for node in project.nodes for tag in node.tags),
        "kind": [kind.value for kind in NodeKind],
        "state": STATES,
        "path": dict.fromkeys(node.file for node in project.nodes),
    }
    for method in _METHODS:
        for word in words[method]:
            yield f"{method}:{word}", None


def _about(node: NodeOutline) -> str:
    return node.description or node.kind.value


def _item(value: str, about: str | None = None) -> CompletionItem:
    from click.shell_completion import CompletionItem

    told = "".join(char for char in " ".join((about or "").split()) if char.isprintable())
    return CompletionItem(value, help=told or None)


def _is_plain(word: str) -> bool:
    """Whether a word on a command line is that word: files hold what people never read."""
    return _PLAIN.fullmatch(word) is not None
