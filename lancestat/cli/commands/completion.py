"""`lancestat completion`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from lancestat.cli.command import Invocation, command
from lancestat.cli.completion import VARIABLE
from lancestat.presentation.views import Answer

_HELP = """Print the script that completes commands and names in a SHELL.

Names of nodes, tags, files, tables and targets come from the project in --project-dir or the
current folder. To install it:

\b
  bash  lancestat completion bash > ~/.local/share/bash-completion/completions/lancestat
        or, without bash-completion, in ~/.bashrc: source <(lancestat completion bash)
  zsh   in ~/.zshrc, after compinit: source <(lancestat completion zsh)
  fish  lancestat completion fish > ~/.config/fish/completions/lancestat.fish"""


# In the file that starts a shell, LANCESTAT_OUTPUT must not make it an error.
@command("completion", help=_HELP)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, invocation: Invocation, shell: str) -> None:
    complete = get_completion_class(shell)
    assert complete is not None
    script = complete(context.find_root().command, {}, "lancestat", VARIABLE).source()
    if invocation.output == "json" and not _is_from_environment(context):
        members = {"shell": shell, "script": script}
        invocation.show(Answer("completion", members, lambda page: [script]))
    else:
        click.echo(script, nl=False)


def _is_from_environment(context: click.Context) -> bool:
    source = click.core.ParameterSource
    own = context.get_parameter_source("output")
    root = context.find_root().get_parameter_source("output")
    return own is source.DEFAULT and root is source.ENVIRONMENT
