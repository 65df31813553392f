"""Writes the pages of a report."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from lancestat.errors import NotWritten, PlaceOccupied, UsageError
from lancestat.lake.files import new_draft
from lancestat.presentation.site.pages import Pages
from lancestat.presentation.site.text import PageSanitizer
from lancestat.report.gather import redacted_report
from lancestat.report.site_folder import clear, clear_drafts, complete, is_free, put
from lancestat.report.values import ProjectReport
from lancestat.spec.model import ProjectSpec

_HERE = Path(__file__).parent
_ASSETS = (*sorted(_HERE.glob("static/*")), *sorted(_HERE.glob("vendor/*")))


@dataclass(frozen=True, slots=True)
class Site:
    """A site that was written; `page` is the one to open."""

    page: Path
    report: ProjectReport
    pages: int
    size_bytes: int


def build_site(report: ProjectReport, spec: ProjectSpec, folder: Path) -> Site:
    """Write the pages of a report to a folder, in place of the site that is there.

    Args:
        report: The content of the pages.
        spec: The project that the report is of; its secrets are masked, and the templates are shown
            of what came from the environment.
        folder: Made if need be; a folder that is not empty must be a site.

    Raises:
        PlaceOccupied: the folder holds something else.
        NotWritten: it cannot be written.
    """
    folder = check_folder(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        clear_drafts(folder)
        draft = new_draft(folder)
        try:
            pages, size_bytes = _write(report, spec, draft)
            put(draft, folder)
        finally:
            clear(draft, folder)
    except OSError as error:
        raise _pages_not_written(folder, error) from error
    return Site(folder / "index.html", report, pages, size_bytes)


def check_folder(folder: Path) -> Path:
    """The folder without links in its path, when pages may be written there.

    Raises:
        PlaceOccupied: it holds something else.
        NotWritten: it cannot be read.
    """
    try:
        folder = folder.resolve()
        if folder.exists() and not folder.is_dir():
            raise PlaceOccupied(f"{folder} is a file; pages are written to a folder")
        if folder.is_dir() and not is_free(folder):
            raise PlaceOccupied(
                f"{folder} holds files that `lancestat docs` did not write, and would be replaced",
                hint="name a new or an empty folder: --out DIR",
            )
    except (OSError, ValueError, RuntimeError) as error:
        raise _pages_not_written(folder, error) from error
    return folder


def _pages_not_written(folder: Path, error: Exception) -> UsageError:
    reason = getattr(error, "strerror", None) or str(error)
    return NotWritten(f"cannot write the pages to {folder}: {reason}", hint="choose another --out")


def _write(report: ProjectReport, spec: ProjectSpec, folder: Path) -> tuple[int, int]:
    redacted = redacted_report(report, spec)
    assets = folder / "assets"
    assets.mkdir(parents=True)
    for asset in _ASSETS:
        shutil.copyfile(asset, assets / asset.name)
    pages = size_bytes = 0
    for page in Pages(redacted, spec, PageSanitizer(spec.redactor, spec.root)).all():
        content = page.text.encode("utf-8")
        path = folder / page.path
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        pages += page.path.endswith(".html")
        size_bytes += len(content)
    complete(folder)
    return pages, size_bytes
