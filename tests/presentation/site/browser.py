"""A real browser that records requests, errors and dialogs of a page."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shutil import which
from typing import Literal

import pytest
from playwright.sync_api import Browser, Dialog, Page, Request, sync_playwright

ARGUMENTS = ["--no-sandbox", "--disable-background-networking", "--disable-dev-shm-usage"]
HEIGHT = 844
MISSING = (
    "Chromium is needed to look at the pages: .ci/machine browser chromium, "
    "or name a browser of its kind with LANCESTAT_CHROMIUM"
)


def executable() -> str:
    """The browser to test with; the test fails where there is none."""
    path = (
        os.environ.get("LANCESTAT_CHROMIUM")
        or which("chromium", path=str(Path(sys.executable).parent))
        or which("chromium")
    )
    if not path:
        pytest.fail(MISSING)
    return path


@contextmanager
def launched() -> Iterator[Browser]:
    """Chromium without a screen, and with one window for all visits with scripts.

    To open a window takes as long as to read five pages.
    """
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(), args=ARGUMENTS)
        _new_page(browser)
        yield browser
        browser.close()


def _new_page(browser: Browser, *, scripts: bool = True) -> Page:
    context = browser.new_context(
        java_script_enabled=scripts, locale="en-US", timezone_id="America/New_York"
    )
    return context.new_page()


@dataclass
class Visitor:
    """A page and its forbidden actions."""

    page: Page
    site: Path
    complaints: list[str] = field(default_factory=list)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Record what the page does while the block runs."""
        listeners: dict[str, Callable[..., object]] = {
            "console": lambda line: self.complaints.append(f"console: {line.text}"),
            "pageerror": lambda error: self.complaints.append(f"error: {error}"),
            "dialog": self._dismiss,
            "requestfailed": self._note_failure,
            "request": lambda request: self._check(request.url),
            "popup": lambda popup: self.complaints.append(f"popup: {popup.url}"),
        }
        for event, listener in listeners.items():
            self.page.on(event, listener)  # type: ignore[call-overload]
        try:
            yield
        finally:
            for event, listener in listeners.items():
                self.page.remove_listener(event, listener)

    def open(self, path: str) -> Page:
        """Open a page of the site."""
        self.page.goto((self.site / path).as_uri())
        return self.page

    @property
    def path(self) -> str:
        """The page that is open, relative to the site."""
        address = self.page.url.partition("#")[0]
        return address.removeprefix(f"{self.site.as_uri()}/")

    @property
    def overflow(self) -> int:
        """By how many pixels the page is wider than the window."""
        script = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        return int(self.page.evaluate(script))

    def _dismiss(self, dialog: Dialog) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _note_failure(self, request: Request) -> None:
        # An icon may still be on its way when the next page is opened.
        if request.failure != "net::ERR_ABORTED":
            self.complaints.append(f"failed: {request.url} {request.failure}")

    def _check(self, url: str) -> None:
        if not url.startswith(f"{self.site.as_uri()}/"):
            self.complaints.append(f"request: {url}")


Scheme = Literal["light", "dark"]


@contextmanager
def visit(
    browser: Browser,
    site: Path,
    *,
    width: int = 1280,
    scheme: Scheme = "light",
    scripts: bool = True,
) -> Iterator[Visitor]:
    """Look at a site; complaints at the end fail the test."""
    page = browser.contexts[0].pages[0] if scripts else _new_page(browser, scripts=False)
    page.set_viewport_size({"width": width, "height": HEIGHT})
    page.emulate_media(color_scheme=scheme)
    visitor = Visitor(page, site)
    try:
        with visitor.watched():
            yield visitor
    finally:
        if not scripts:
            page.context.close()
        elif page.url.startswith("file:"):
            # The next visitor has not chosen anything yet.
            page.evaluate("localStorage.clear()")
            page.goto("about:blank")
    assert not visitor.complaints, "\n".join(visitor.complaints)
