"""The views of what is known of nodes: `show`, `status` and `docs`."""

from __future__ import annotations

from lancestat.plan.table_status import Shown
from lancestat.presentation.views import ShowView, SiteView, StatusView
from lancestat.report.node_facts import (
    column_figures,
    health_counts,
    node_status,
    one_line,
    table_figures,
)
from lancestat.report.rows import STATISTICS, statistics_rows
from lancestat.report.site.build import Site
from lancestat.report.values import ProjectReport


def show_view(shown: Shown) -> ShowView:
    """Return the view of one table's statistics."""
    return ShowView(
        shown,
        table_figures(shown),
        tuple(column_figures(shown)),
        tuple(STATISTICS.columns),
        tuple(statistics_rows(shown)),
    )


def status_view(report: ProjectReport) -> StatusView:
    """Return the view of the state of nodes."""
    nodes = tuple(node_status(node, report.made_at) for node in report.nodes)
    project, target = one_line(report.name), one_line(report.target)
    return StatusView(project, target, report, nodes, health_counts(report.nodes))


def site_view(site: Site) -> SiteView:
    """Return the view of pages that were written."""
    health = tuple((node.spec.name, node.health.value) for node in site.report.nodes)
    return SiteView(site.page, site.pages, site.size_bytes, health)
