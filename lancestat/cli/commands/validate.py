"""`lancestat validate`."""

from __future__ import annotations

from lancestat.cli.command import Invocation, command
from lancestat.presentation.views import ValidationView


@command(
    "validate",
    help="Check the YAML without opening datasets.",
    views=[ValidationView],
    is_published=True,
)
def validate(invocation: Invocation) -> None:
    """Parse, template and check all files."""
    spec = invocation.project().spec
    kinds = [*(node.kind.value for node in spec.nodes), *("source" for _ in spec.sources)]
    invocation.show(ValidationView(spec.name, spec.target.name, kinds))
