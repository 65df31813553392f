"""Shell completion of names of nodes, tables and targets, on click's completion.

Nothing here ever prints an error: names that cannot be read are not offered.

The callbacks, the protocol and the script for zsh are click's. Its scripts for bash and fish lose
names: bash splits words at `:` and `=`, so that `tag:ni`, `path:specs/s` and `--target=pr` complete
to nothing or to a wrong line, and click's script needs bash 4.4, where macOS has 3.2; in fish a
word ends at its first comma, which is part of selectors. So both have changes below.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
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
    from lancestat.spec.files import Outline

# A word that begins with a hyphen would be an option.
_PLAIN = re.compile(r"(?!-)[\w@%./:=\-]+")
_METHODS = ("tag", "kind", "state", "path", "source")


def complete_selector(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return names of nodes and selectors such as `tag:x`, also after `+`.

    Of several selectors in one text the last is completed.
    """
    start = max(incomplete.rfind(char) for char in " ,+") + 1
    before, begun = incomplete[:start], incomplete[start:]
    return [
        _item(before + selector, about)
        for selector, about in _selectors(_outline(ctx))
        if selector.startswith(begun) and _is_plain(selector)
    ]


Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def completing(offer: Callable[[click.Context], Iterable[tuple[str, str | None]]]) -> Complete:
    """Return a callback that completes words, which are offered with a text about each."""

    def complete(
        ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [
            _item(word, about)
            for word, about in offer(ctx)
            if word.startswith(incomplete) and _is_plain(word)
        ]

    return complete


complete_target = completing(lambda ctx: ((name, None) for name in _outline(ctx).targets))
complete_table = completing(
    lambda ctx: (
        (node.name, node.about) for node in _outline(ctx).nodes if node.kind.value == "table"
    )
)


def _outline(ctx: click.Context) -> Outline:
    from lancestat.spec.files import Outline, outline

    try:
        return outline(_project_dir(ctx).resolve())
    except Exception:
        # A traceback would garble the line that is being typed.
        return Outline()


def _project_dir(ctx: click.Context) -> Path:
    from lancestat.spec.files import nearest_project

    current: click.Context | None = ctx
    while current is not None:
        folder = current.params.get("project_dir")
        if folder is not None:
            return Path(folder)
        current = current.parent
    return nearest_project(Path.cwd())


def _selectors(project: Outline) -> Iterator[tuple[str, str | None]]:
    from lancestat.spec.graph import STATES
    from lancestat.spec.model import NodeKind

    for node in project.nodes:
        yield node.name, node.about
    words = {
        "tag": dict.fromkeys(tag for node in project.nodes for tag in node.tags),
        "kind": [kind.value for kind in NodeKind],
        "state": STATES,
        "path": dict.fromkeys(node.file for node in project.nodes),
        "source": project.sources,
    }
    for method in _METHODS:
        for word in words[method]:
            yield f"{method}:{word}", None


def _item(value: str, about: str | None = None) -> CompletionItem:
    printable = "".join(char for char in " ".join((about or "").split()) if char.isprintable())
    return CompletionItem(value, help=printable or None)


def _is_plain(word: str) -> bool:
    """Return whether a shell takes a word for nothing but that word, as it may not every name."""
    return _PLAIN.fullmatch(word) is not None


VARIABLE = "_LANCESTAT_COMPLETE"

# Bash ends a word at each of COMP_WORDBREAKS, `:` and `=` among them, and replaces what comes after
# the last one. So the script sends the line, from which lancestat takes the words, and cuts what
# bash keeps of the word off the answers.
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


class _WholeWords(ShellComplete):
    """Completes `--target=pr` to `--target=prod`: click returns the value, shells want the word."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        items = super().get_completions(args, incomplete)
        option, is_given, _ = incomplete.partition("=")
        if not (is_given and option.startswith("--")):
            return items
        return [CompletionItem(f"{option}={i.value}", type=i.type, help=i.help) for i in items]


@add_completion_class
class BashCompletion(_WholeWords):
    """Bash, whose script sends the line up to the cursor."""

    name = "bash"
    source_template = _BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the one at the cursor, and that one up to the cursor."""
        # With a letter at the cursor there is a word there, be it between words or in quotes.
        words = split_arg_string(os.environ.get("COMP_LINE", "") + "x")
        return words[1:-1], words[-1][:-1]

    def format_completion(self, item: CompletionItem) -> str:
        return f"{item.type},{item.value}"


@add_completion_class
class ZshCompletion(_WholeWords, ZshComplete):
    """Zsh, with click's script."""


@add_completion_class
class FishCompletion(_WholeWords, FishComplete):
    """Fish, with click's script but for words that hold commas."""

    source_template = FishComplete.source_template.replace("string split", "string split -m 1")
