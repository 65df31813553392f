"""`lancestat docs`."""

from __future__ import annotations

from pathlib import Path

import click

from lancestat.cli.command import Invocation, any_of, command, selection_options
from lancestat.formats import count, size
from lancestat.presentation.terminal import paint
from lancestat.presentation.views import Answer


@command(
    "docs",
    help="Write HTML pages about all tables and joins.",
    views=[Answer],
    is_published=True,
)
@selection_options
@click.option(
    "--out",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Where to write them (default: .lancestat/docs in the project).",
)
def docs(
    invocation: Invocation, select: tuple[str, ...], exclude: tuple[str, ...], out: Path | None
) -> None:
    from lancestat.presentation.site.build import build_site, check_folder
    from lancestat.spec import PAGES

    project = invocation.project()
    folder = out or project.spec.root / PAGES
    check_folder(folder)
    report = project.report(
        any_of(select), any_of(exclude), with_fragments=True, with_histograms=True
    )
    site = build_site(report, project.spec, folder)
    nodes = [{"name": node.spec.name, "health": node.health.value} for node in site.report.nodes]
    members = {"page": str(site.page), "pages": site.pages, "nodes": nodes}
    wrote = f"wrote {count(site.pages, 'page')}, {size(site.size_bytes)}"
    lines = [paint(f"{wrote}; open this one in a browser:", "note"), site.page.as_uri()]
    invocation.show(Answer("docs", members, lambda page: lines))
