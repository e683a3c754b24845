"""Headless Chromium, for pages that must ask the network for nothing."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Page, sync_playwright


@contextmanager
def launched() -> Iterator[Browser]:
    """A browser, which takes a second or more to start. Skips where there is no Chromium; CI must have one."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        assert os.environ.get("CI") != "true", "CI needs chromium: apt install chromium"
        pytest.skip("no chromium here: apt install chromium")
    with sync_playwright() as playwright:
        # The sandbox of Chromium does not work for root, and these pages are our own.
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def opened(browser: Browser, url: str, width: int = 1280, dark: bool = False) -> Iterator[tuple[Page, list[str]]]:
    """The page at `url`, once it has its main part, and all it asked for and complained of, the page itself left out.

    Every request but the first is refused.
    """
    noticed: list[str] = []
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme="dark" if dark else "light")
    page.route("**/*", lambda route: route.continue_() if route.request.url == url else route.abort())
    page.on("request", lambda request: noticed.append(request.url) if request.url != url else None)
    page.on("websocket", lambda socket: noticed.append(socket.url))
    page.on("console", lambda message: noticed.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: noticed.append(str(error)))
    page.on("dialog", lambda dialog: noticed.append(dialog.message))
    page.goto(url)
    page.wait_for_selector("main", timeout=60_000)
    try:
        yield page, noticed
    finally:
        page.close()
