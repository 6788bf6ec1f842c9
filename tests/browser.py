"""A real Chromium for tests of pages: ``async with browser() as tab: ...``.

Every tab notes what goes wrong in it: messages of the console, faults of scripts, requests to other hosts. Leaving
the block fails if there were any.
"""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from playwright.async_api import Page, async_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
HERE = {"127.0.0.1", "localhost", ""}
PHONE = {"width": 360, "height": 740}


def executable() -> str:
    """The Chromium of CHROMIUM, or of this machine."""
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    assert found, f"none of {', '.join(NAMES)} is on the PATH: install Debian's chromium, or set CHROMIUM to its path"
    return found


class Browser:
    """A running Chromium; each tab has a context of its own, so that two tabs are two people."""

    def __init__(self, chromium) -> None:
        self._chromium = chromium
        self.faults: list[str] = []
        """What went wrong in any tab. Remove what a test provokes on purpose."""

    async def tab(self, **options) -> Page:
        """A new tab; options are those of Playwright's ``new_context``: viewport, color_scheme, extra_http_headers."""
        context = await self._chromium.new_context(**options)
        page = await context.new_page()
        page.set_default_timeout(15_000)
        page.on("console", self._noted)
        page.on("pageerror", lambda fault: self.faults.append(f"fault: {fault}"))
        page.on("request", self._checked)
        page.on("dialog", self._dialog)
        return page

    def _noted(self, message) -> None:
        if message.type in {"error", "warning"}:
            self.faults.append(f"{message.type}: {message.text}")

    def _checked(self, request) -> None:
        if (urlsplit(request.url).hostname or "") not in HERE:
            self.faults.append(f"request to another host: {request.url}")

    async def _dialog(self, dialog) -> None:
        self.faults.append(f"dialog: {dialog.message}")
        await dialog.dismiss()


@asynccontextmanager
async def browser() -> AsyncIterator[Browser]:
    """A Chromium without a window; fails at the end if anything went wrong in its tabs."""
    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(executable_path=executable(), args=list(ARGUMENTS))
        try:
            made = Browser(chromium)
            yield made
        finally:
            await chromium.close()
    assert made.faults == [], made.faults


async def overflow(page: Page) -> int:
    """How many pixels the page is wider than its window: 0 where nothing scrolls sideways."""
    return await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
