"""Writes the site: all of it or nothing, and never over what is not a site."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from lancestat.errors import UsageError
from lancestat.lake.drafts import new_draft
from lancestat.report.site.pages import Pages
from lancestat.report.site.place import clear, clear_drafts, complete, is_free, put
from lancestat.report.site.text import Plain
from lancestat.report.site.undisclosed import undisclosed
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
        report: What the pages tell.
        spec: The project that the report is of; its secrets are masked, and the templates are shown
            of what came from the environment.
        folder: Made if need be; a folder that is not empty must be a site.

    Raises:
        UsageError: LS650 the folder holds something else, LS651 it cannot be written.
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
        raise _unwritable(folder, error) from error
    return Site(folder / "index.html", report, pages, size_bytes)


def check_folder(folder: Path) -> Path:
    """The folder without links in its path, when pages may be written there.

    Raises:
        UsageError: LS650 it holds something else, LS651 it cannot be looked at.
    """
    try:
        folder = folder.resolve()
        if folder.exists() and not folder.is_dir():
            raise UsageError("LS650", f"{folder} is a file; pages are written to a folder")
        if folder.is_dir() and not is_free(folder):
            raise UsageError(
                "LS650",
                f"{folder} holds files that `lancestat docs` did not write, and would be replaced",
                hint="name a new or an empty folder: --out DIR",
            )
    except (OSError, ValueError, RuntimeError) as error:
        raise _unwritable(folder, error) from error
    return folder


def _unwritable(folder: Path, error: Exception) -> UsageError:
    reason = getattr(error, "strerror", None) or str(error)
    return UsageError(
        "LS651", f"cannot write the pages to {folder}: {reason}", hint="choose another --out"
    )


def _write(report: ProjectReport, spec: ProjectSpec, folder: Path) -> tuple[int, int]:
    shown = undisclosed(report, spec)
    assets = folder / "assets"
    assets.mkdir(parents=True)
    for asset in _ASSETS:
        shutil.copyfile(asset, assets / asset.name)
    pages = size_bytes = 0
    for page in Pages(shown, spec, Plain(spec.redactor, spec.root)).all():
        content = page.text.encode("utf-8")
        path = folder / page.path
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        pages += page.path.endswith(".html")
        size_bytes += len(content)
    complete(folder)
    return pages, size_bytes
