"""`lancestat schema`."""

from __future__ import annotations

from pathlib import Path

import click

from lancestat.cli.command import Invocation, command
from lancestat.cli.completion import complete_schema
from lancestat.errors import NotWritten, UnknownSchema, did_you_mean
from lancestat.presentation.views import SchemaFilesView, SchemaKindsView

_HELP = """Print the JSON Schema of a KIND of YAML, or list the kinds.

Editors complete and check YAML by such schemas. --out writes those of project files and spec files
into a folder, as 'init' does into schemas/: do so after an upgrade of lancestat. A template is
accepted wherever one can stand, while 'validate' judges what it gives."""


@command("schema", help=_HELP, views=[SchemaKindsView, SchemaFilesView])
@click.argument("kind", metavar="[KIND]", required=False, shell_complete=complete_schema)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write the schemas of project files and spec files there.",
)
def schema(invocation: Invocation, kind: str | None, out: Path | None) -> None:
    """Print one, write them, or list them."""
    from lancestat.spec.resources import KINDS, editor_schema, json_text

    if kind is not None and out is not None:
        raise click.UsageError("A KIND is printed, and --out writes files: give one of them.")
    if out is not None:
        invocation.show(SchemaFilesView(out, _write(out)))
    elif kind is None:
        invocation.show(SchemaKindsView(KINDS))
    elif kind in KINDS:
        click.echo(json_text(editor_schema(kind)), nl=False)
    else:
        hint = did_you_mean(kind, KINDS) or f"kinds: {', '.join(KINDS)}"
        raise UnknownSchema(f"there is no schema of '{kind}'", hint=hint)


def _write(folder: Path) -> list[str]:
    from lancestat.lake.temporary_files import write_whole
    from lancestat.spec.resources import editor_schemas, json_text

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
