"""`lancestat schema`."""

from __future__ import annotations

from pathlib import Path

import click

from lancestat.cli.command import Invocation, command
from lancestat.cli.completion import complete_schema
from lancestat.errors import NotWritten, UnknownSchema, did_you_mean
from lancestat.presentation.terminal import table
from lancestat.presentation.views import Answer

_HELP = """Print the JSON Schema of a KIND of YAML, or list the kinds.

Editors use these schemas to complete and check YAML. --out writes those of project files and spec
files to a folder, as 'init' does to schemas/; do so after an upgrade of lancestat. A schema accepts
a template wherever one is allowed, while 'validate' checks what it results in."""


@command("schema", help=_HELP, views=[Answer])
@click.argument("kind", metavar="[KIND]", required=False, shell_complete=complete_schema)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write the schemas of project files and spec files to a folder.",
)
def schema(invocation: Invocation, kind: str | None, out: Path | None) -> None:
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
        hint = did_you_mean(kind, KINDS) or f"kinds: {', '.join(KINDS)}"
        raise UnknownSchema(f"there is no schema of '{kind}'", hint=hint)


def _write(folder: Path) -> list[str]:
    from lancestat.lake.temporary_files import write_whole
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
