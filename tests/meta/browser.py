"""A real browser for tests of pages: Debian's Chromium, driven by Playwright; skipped without."""

from __future__ import annotations

import shutil
from contextlib import contextmanager

import pytest


@contextmanager
def chromium():
    """A headless browser; the test is skipped, with the reason named, where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs Playwright")
    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("needs Chromium (apt-get install chromium)")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


class OpenPage:
    """A page with everything that it said or asked for."""

    def __init__(self, browser, path, *, width=1280, scheme="light"):
        self.page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.messages, self.requests, self.dialogs = [], [], []
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("dialog", self._dismiss)
        self.page.goto(path.as_uri())

    def _dismiss(self, dialog):
        self.dialogs.append(dialog.message)
        dialog.dismiss()

    def ask(self, script, argument=None):
        """The value of a script run in the page."""
        return self.page.evaluate(script, argument)
