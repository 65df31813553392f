"""The commands about what a project declares."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import get_completion_class

from lancestat.cli.command import Invocation, Selectors, command, path_option, selection_options
from lancestat.cli.completion import VARIABLE, completing
from lancestat.errors import (
    InvalidProject,
    LancestatError,
    NothingSelected,
    NotWritten,
    UnknownSchema,
    did_you_mean,
)
from lancestat.formats import count
from lancestat.presentation.terminal import CONSOLE, paint, table
from lancestat.presentation.views import Answer, ListView

if TYPE_CHECKING:
    from lancestat.spec.model import Source

_log = logging.getLogger("lancestat")


@command(Answer, is_published=True)
def validate(invocation: Invocation) -> None:
    """Check the YAML without opening datasets."""
    spec = invocation.project().spec
    counts = (
        (len(spec.tables), "table"),
        (len(spec.joins), "KNN join"),
        (len(spec.duplicates), "duplicates node"),
        (len(spec.sources), "source"),
    )
    *others, last = [count(number, noun) for number, noun in counts if number] or ["nothing yet"]
    nodes = f"{', '.join(others)} and {last}" if others else last
    line = f"{paint('valid', 'success')}  {spec.name}, target {spec.target.name}: {nodes}"
    members = {
        "project": spec.name,
        "target": spec.target.name,
        "status": "success",
        "nodes": len(spec.nodes),
        "errors": [],
    }
    invocation.show(Answer("validate", members, lambda page: [line]))


@command(ListView, name="list")
@selection_options
@click.option("--discover", is_flag=True, help="Search the sources, and list their tables too.")
def list_nodes(
    invocation: Invocation, select: Selectors, exclude: Selectors, discover: bool
) -> None:
    """List what the project declares."""
    from lancestat.spec.redaction import redacted_nodes

    project = invocation.project()
    errors: list[LancestatError] = []
    if discover:
        from lancestat.runs.discover import unlisted_errors, without_stand_ins

        errors = unlisted_errors(project.discover())
        for note in project.spec.source_notes:
            _log.warning("%s", project.spec.redactor.text(note, CONSOLE.audience))
        project.spec = without_stand_ins(project.spec)
    spec = project.spec
    unsearched = () if discover else spec.sources
    try:
        nodes = project.nodes(select, exclude, discover=discover)
    except NothingSelected as error:
        if not unsearched:
            raise
        more = "the sources have not been searched, as --discover does"
        hint = f"{error.hint}; {more}" if error.hint else more
        raise NothingSelected(error.message, hint=hint) from None
    redacted = list(redacted_nodes(spec, nodes, CONSOLE.audience))
    sources = [source for source in unsearched if _is_selected(source, select)]
    names = spec.name, spec.target.name
    invocation.show(ListView(*names, redacted, not spec.nodes, sources, errors))
    if errors:
        raise InvalidProject(errors)


def _is_selected(source: Source, select: Selectors) -> bool:
    """Whether tables of a source may be selected, as far as a selector without signs says."""
    words = [word for text in select or () for word in text.split()]
    return not words or any(
        word == "kind:table" or fnmatchcase(f"source:{source.label}", word) for word in words
    )


def _kinds(context: click.Context) -> Iterable[tuple[str, str]]:
    from lancestat.spec.schema import KINDS

    return KINDS.items()


@command(Answer)
@click.argument("kind", metavar="[KIND]", required=False, shell_complete=completing(_kinds))
@path_option(
    "--out",
    metavar="DIR",
    file_okay=False,
    help="Write the schemas of project files and spec files to a folder.",
)
def schema(invocation: Invocation, kind: str | None, out: Path | None) -> None:
    """Print the JSON Schema of a KIND of YAML, or list the kinds.

    Editors use these schemas to complete and check YAML. --out writes those of project files and
    spec files to a folder, as 'init' does to schemas/; do so after an upgrade of lancestat. A
    schema accepts a template wherever one is allowed, while 'validate' checks what it results in.
    """
    from lancestat.spec.schema import KINDS, editor_schema, json_text

    if kind is not None and out is not None:
        raise click.UsageError("Give either a KIND to print or --out to write files.")
    if out is not None:
        files = _write(out)
        members: dict[str, object] = {"folder": str(out), "files": files}
        invocation.show(Answer("schema", members, lambda page: [str(out / file) for file in files]))
    elif kind is None:
        kinds = [{"name": name, "of": about} for name, about in KINDS.items()]
        head = ["kind", "schema of"]
        rows = KINDS.items()
        invocation.show(
            Answer("schema", {"kinds": kinds}, lambda page: table(rows, head=head, page=page))
        )
    elif kind in KINDS:
        click.echo(json_text(editor_schema(kind)), nl=False)
    else:
        hint = did_you_mean(kind, KINDS, "kinds")
        raise UnknownSchema(f"there is no schema of '{kind}'", hint=hint)


def _write(folder: Path) -> list[str]:
    from lancestat.lake.files import write_whole
    from lancestat.spec.schema import editor_schemas, json_text

    schemas = editor_schemas()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, value in schemas.items():
            write_whole(folder / name, json_text(value).encode("utf-8"))
    except OSError as error:
        reason = error.strerror or str(error)
        message = f"cannot write to {error.filename or folder}: {reason}"
        raise NotWritten(message) from None
    return list(schemas)


# In the file that starts a shell, LANCESTAT_OUTPUT must not make it an error.
@command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(invocation: Invocation, shell: str) -> None:
    """Print the script that completes commands and names in a SHELL.

    Names of nodes, tags, files, tables and targets come from the project in --project-dir or the
    current folder. To install it:

    \b
      bash  lancestat completion bash > ~/.local/share/bash-completion/completions/lancestat
            or, without bash-completion, in ~/.bashrc: source <(lancestat completion bash)
      zsh   in ~/.zshrc, after compinit: source <(lancestat completion zsh)
      fish  lancestat completion fish > ~/.config/fish/completions/lancestat.fish
    """
    context = click.get_current_context()
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
