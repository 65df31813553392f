"""What a shell offers when the person at it presses Tab: names of nodes, tables and targets.

Nothing here ever prints an error: what cannot be found out is not offered.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import (
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
    split_arg_string,
)

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
    from lancestat.spec.resources import KINDS

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


VARIABLE = "_LANCESTAT_COMPLETE"

# Bash ends a word at each of COMP_WORDBREAKS, `:` and `=` among them, and replaces what comes after
# the last. So lancestat is given the line, finds the words itself, and bash drops what it has.
_BASH = """\
%(complete_func)s() {
    local line cur breaks kept='' type value
    line=$(LC_ALL=C; printf '%%s' "${COMP_LINE:0:COMP_POINT}")
    COMPREPLY=()
    if [[ ${COMP_WORDS[COMP_CWORD]} != [\\"\\']* ]]; then
        cur=${line##*[[:space:]]}
        breaks=${COMP_WORDBREAKS//[^:=]/}
        [[ -n $breaks ]] && kept=${cur%%"${cur##*[$breaks]}"}
    fi
    while IFS=, read -r type value; do
        case $type in
            dir) compopt -o dirnames 2>/dev/null ;;
            file) compopt -o default 2>/dev/null ;;
            plain) COMPREPLY+=("${value#"$kept"}") ;;
        esac
    done < <(COMP_LINE=$line %(complete_var)s=bash_complete "$1" 2>/dev/null)
}

complete -o nosort -F %(complete_func)s %(prog_name)s 2>/dev/null ||
    complete -F %(complete_func)s %(prog_name)s
"""

# A comma is part of selectors: only the first one ends the type.
_FISH = """\
function %(complete_func)s
    for completion in (env %(complete_var)s=fish_complete COMP_WORDS=(commandline -cp) \
COMP_CWORD=(commandline -t) %(prog_name)s 2>/dev/null)
        set -l metadata (string split -m 1 "," -- $completion)
        switch $metadata[1]
            case dir
                __fish_complete_directories $metadata[2]
            case file
                __fish_complete_path $metadata[2]
            case plain
                echo $metadata[2]
        end
    end
end

complete --no-files --command %(prog_name)s --arguments "(%(complete_func)s)"
"""


class _WholeWords(ShellComplete):
    """Answers `--target=pr` with `--target=prod`: shells replace the word, and click the value."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        items = super().get_completions(args, incomplete)
        option, is_given, _ = incomplete.partition("=")
        if not (is_given and option.startswith("--")):
            return items
        return [CompletionItem(f"{option}={i.value}", type=i.type, help=i.help) for i in items]


class BashCompletion(_WholeWords):
    """Bash, whose script sends the line up to the cursor."""

    name = "bash"
    source_template = _BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        """The words before the one at the cursor, and that one as far as it goes."""
        # With a letter at the cursor there is a word there, be it between words or in quotes.
        words = split_arg_string(os.environ.get("COMP_LINE", "") + "x")
        return words[1:-1], words[-1][:-1]

    def format_completion(self, item: CompletionItem) -> str:
        """One line: what kind of thing, and the word."""
        return f"{item.type},{item.value}"


class ZshCompletion(_WholeWords, ZshComplete):
    """Zsh, with click's script."""


class FishCompletion(_WholeWords, FishComplete):
    """Fish, with words that hold commas."""

    source_template = _FISH


_KINDS: dict[str, type[ShellComplete]] = {
    "bash": BashCompletion,
    "zsh": ZshCompletion,
    "fish": FishCompletion,
}


def register() -> None:
    """Let click answer with these."""
    for kind in _KINDS.values():
        add_completion_class(kind)


def script(shell: str) -> str:
    """The script that teaches a shell, `bash`, `zsh` or `fish`, to complete `lancestat`."""
    from lancestat.cli.main import cli

    return _KINDS[shell](cli, {}, "lancestat", VARIABLE).source()
