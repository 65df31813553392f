"""Writes the site: all of it or nothing, and never over what is not a site."""

from __future__ import annotations

import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path

from lancestat.errors import UsageError
from lancestat.report.site.pages import Pages
from lancestat.report.site.text import Plain
from lancestat.report.site.undisclosed import undisclosed
from lancestat.report.values import ProjectReport
from lancestat.spec.model import ProjectSpec

_HERE = Path(__file__).parent
_ASSETS = (*sorted(_HERE.glob("static/*")), *sorted(_HERE.glob("vendor/*")))
# A folder that has it may be replaced.
MARKER = ".lancestat-docs"


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
        made = folder.with_name(f".{folder.name[:60]}.{uuid.uuid4().hex[:12]}")
        try:
            pages, size_bytes = _write(report, spec, made)
            _swap(made, folder)
        finally:
            shutil.rmtree(made, ignore_errors=True)
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
        if folder.is_dir() and not (folder / MARKER).is_file() and any(folder.iterdir()):
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
    (folder / MARKER).write_text("This folder is replaced by `lancestat docs`.\n", "utf-8")
    for asset in _ASSETS:
        shutil.copyfile(asset, assets / asset.name)
    for name in ("tables", "joins"):
        (folder / name).mkdir()
    pages = size_bytes = 0
    for page in Pages(shown, spec, Plain(spec.redactor, spec.root)).all():
        content = page.text.encode("utf-8")
        (folder / page.path).write_bytes(content)
        pages += page.path.endswith(".html")
        size_bytes += len(content)
    return pages, size_bytes


def _swap(made: Path, folder: Path) -> None:
    """Put a folder in the place of another; a killed one leaves the old or the new in place."""
    old = made.with_name(f"{made.name}.old")
    if folder.exists():
        folder.rename(old)
    try:
        made.rename(folder)
    except OSError:
        if old.exists():
            old.rename(folder)
        raise
    shutil.rmtree(old, ignore_errors=True)
