"""`lancestat validate`."""

from __future__ import annotations

from lancestat.cli.command import Invocation, command
from lancestat.formats import count
from lancestat.presentation.terminal import paint
from lancestat.presentation.views import Answer


@command(
    "validate",
    help="Check the YAML without opening datasets.",
    views=[Answer],
    is_published=True,
)
def validate(invocation: Invocation) -> None:
    spec = invocation.project().spec
    counts = (
        (len(spec.tables), "table"),
        (len(spec.joins), "KNN join"),
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
