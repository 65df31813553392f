"""What came from the environment or is secret, and must not stand on pages that others read."""

from __future__ import annotations

from dataclasses import replace

from lancestat.redact import Audience
from lancestat.report.values import JoinReport, NodeReport, ProjectReport, TableReport
from lancestat.spec.disclosure import disclosed
from lancestat.spec.model import KnnJoin, ProjectSpec, Table


def undisclosed(
    report: ProjectReport, spec: ProjectSpec, audience: Audience = Audience.PUBLIC
) -> ProjectReport:
    """The same report with templates in place of what an audience must not see."""
    return replace(report, nodes=tuple(_without(node, spec, audience) for node in report.nodes))


def _without(node: NodeReport, spec: ProjectSpec, audience: Audience) -> NodeReport:
    shown = disclosed(node.spec, spec.origins.get(node.spec.name, {}), audience)
    problems = tuple(spec.redactor.text(problem, audience) for problem in node.problems)
    if isinstance(node, TableReport):
        assert isinstance(shown, Table)
        return replace(node, spec=shown, problems=problems)
    assert isinstance(node, JoinReport) and isinstance(shown, KnnJoin)
    return replace(node, spec=shown, problems=problems)
