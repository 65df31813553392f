"""Completion scripts for shells, and how they ask `lancestat`."""

from __future__ import annotations

import os

from click.shell_completion import (
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
    split_arg_string,
)

VARIABLE = "_LANCESTAT_COMPLETE"
SHELLS = ("bash", "zsh", "fish")

# Bash ends a word at each of COMP_WORDBREAKS, `:` and `=` among them, and replaces what comes after
# the last. So lancestat is given the line, finds the words itself, and bash drops what it has.
_BASH = """\
%(complete_func)s() {
    local line cur kept='' type value
    line=$(LC_ALL=C; printf '%%s' "${COMP_LINE:0:COMP_POINT}")
    COMPREPLY=()
    if [[ ${COMP_WORDS[COMP_CWORD]} != [\\"\\']* ]]; then
        cur=${line##*[[:space:]]}
        [[ $cur == --*=* ]] && cur=${cur#*=}
        [[ $COMP_WORDBREAKS == *:* ]] && kept=${cur%%"${cur##*:}"}
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


class BashCompletion(ShellComplete):
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


class FishCompletion(FishComplete):
    """Fish, with words that hold commas."""

    source_template = _FISH


def register() -> None:
    """Let click answer with these."""
    add_completion_class(BashCompletion)
    add_completion_class(FishCompletion)


def script(shell: str) -> str:
    """The script that teaches a shell, one of `SHELLS`, to complete `lancestat`."""
    from lancestat.cli.main import cli

    kinds = {"bash": BashCompletion, "zsh": ZshComplete, "fish": FishCompletion}
    return kinds[shell](cli, {}, "lancestat", VARIABLE).source()
