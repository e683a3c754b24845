"""The pages of `cs336 staff report` in a browser: hostile text, narrow screens, contrast, keyboard, and no request."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from staff.tests.grading.test_pages import HOSTILE, PROBLEMS, entry, hostile_grading, results, site
from staff.tests.grading.test_weights import drawn

pytestmark = pytest.mark.nightly

# The lowest contrast of a text with what is behind it, and the text. A colour of CSS becomes numbers on a canvas.
CONTRAST = """() => {
  const context = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const rgba = colour => {
    context.clearRect(0, 0, 1, 1);
    context.fillStyle = colour;
    context.fillRect(0, 0, 1, 1);
    return [...context.getImageData(0, 0, 1, 1).data];
  };
  const linear = x => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4;
  const light = colour => [0.2126, 0.7152, 0.0722].reduce((sum, share, i) => sum + share * linear(colour[i] / 255), 0);
  const behind = element => {
    for (let each = element; each; each = each.parentElement) {
      const colour = rgba(getComputedStyle(each).backgroundColor);
      if (colour[3] === 255) return colour;
    }
  };
  const texts = [...document.querySelectorAll("main *")].filter(element => element.getClientRects().length
    && [...element.childNodes].some(node => node.nodeType === Node.TEXT_NODE && node.data.trim()));
  return texts.map(element => {
    const style = getComputedStyle(element), cell = element.previousElementSibling;
    let back = behind(element);
    if (element instanceof SVGElement && cell && cell.matches(".cell")) {  // a number on a square
      const fill = rgba(getComputedStyle(cell).fill), opacity = Number(cell.getAttribute("fill-opacity") ?? 1);
      back = back.map((x, i) => x + opacity * (fill[i] - x));
    }
    const [a, b] = [rgba(element instanceof SVGElement ? style.fill : style.color), back].map(light);
    return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), element.textContent.slice(0, 40)];
  }).sort((one, other) => one[0] - other[0])[0];
}"""
# What a screen reader would not be able to name.
NAMELESS = """() => [
  ...[...document.querySelectorAll("input, select")].filter(each => !each.labels.length),
  ...document.querySelectorAll("svg:not([aria-hidden]):not([aria-label]):not(:has(title))"),
  ...[...document.querySelectorAll("a, button, summary, h1, h2, h3, th")].filter(each => !each.textContent.trim()),
  ...[...document.querySelectorAll("th")].filter(each => !each.scope),
  ...[...document.querySelectorAll(".scroll, pre")].filter(each => each.tabIndex !== 0),
].map(each => each.outerHTML.slice(0, 80))"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Headless Chromium, which takes a second or more to start; CI must have one."""
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
    with browser.new_page(viewport={"width": width, "height": 800}, color_scheme="dark" if dark else "light") as page:
        page.route("**/*", lambda route: route.continue_() if route.request.url == url else route.abort())
        page.on("request", lambda request: noticed.append(request.url) if request.url != url else None)
        page.on("websocket", lambda socket: noticed.append(socket.url))
        page.on("console", lambda message: noticed.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: noticed.append(str(error)))
        page.on("dialog", lambda dialog: noticed.append(dialog.message))
        page.goto(url)
        page.wait_for_selector("main", timeout=60_000)
        yield page, noticed


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A class with hostile submissions, one whose weights go from 0 to 1, and names that are long or in Hebrew."""
    folder = tmp_path_factory.mktemp("class")
    ramp = tuple(tuple(min(1.0, (7 * i + j) / 44) for j in range(7)) for i in range(7))
    some = [entry(f"ok{i}", results([*PROBLEMS][: i % 4]), figure=drawn(ramp)).grading for i in range(12)]
    named = [entry(name).grading for name in ("Wolfeschlegelsteinhausenbergerdorff" * 5, "שרה כהן")]
    site(folder, *(hostile_grading(text, f"s{i}") for i, text in enumerate(HOSTILE)), *some, *named)
    return folder


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("page", ["index.html", "students/s1.html", "students/ok1.html"])
def test_a_page_can_be_read_by_anyone_on_any_screen(browser: Browser, folder: Path, page: str, dark: bool) -> None:
    with opened(browser, (folder / page).as_uri(), width=360, dark=dark) as (tab, noticed):
        tab.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
        assert tab.evaluate("document.documentElement.scrollWidth") == 360
        contrast, text = tab.evaluate(CONTRAST)
        assert contrast >= 4.5, text  # WCAG 2.2, AA
        assert tab.evaluate(NAMELESS) == []
        tab.wait_for_timeout(200)  # for an alert that must not come
        assert noticed == []


def test_low_contrast_and_a_missing_label_would_be_noticed(browser: Browser, tmp_path: Path) -> None:
    bad = "<html style='background: white'><main><p style='color: #999'>pale</p><input></main>"
    (tmp_path / "page.html").write_text(bad)
    with opened(browser, (tmp_path / "page.html").as_uri()) as (tab, _):
        contrast, text = tab.evaluate(CONTRAST)
        assert (round(contrast, 2), text) == (2.85, "pale")
        assert tab.evaluate(NAMELESS) == ["<input>"]
