"""`lancestat validate`."""

from __future__ import annotations

from lancestat.cli.command import Invocation, command
from lancestat.errors import InvalidProject


@command("validate", help="Check the YAML; opens no dataset.", is_published=True)
def validate(invocation: Invocation) -> None:
    """Parse, template and check all files."""
    try:
        project = invocation.project()
    except InvalidProject as error:
        invocation.printer().invalid(error)
        raise
    invocation.printer().validated(project.spec)
