"""The pages of `cs336 show`, in a browser: hover, selection, hostile text, and no request."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from playwright.sync_api import Browser, Page

from cs336_kit.lab import heatmap
from cs336_staff.tests.lab.conftest import Lab
from cs336_staff.tools.browser import opened

pytestmark = pytest.mark.slow

HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!--",
    "<img/src=x/onerror=alert(1)>",
    "&lt;",
    "{{data}}",
    "${alert(1)}",
    "\u202eevil",
    "שלום",
    "مرحبا",
    "👩\u200d🚀",
    "e\u0301",
    "'\"`\\",
]

# Tokens in a sentence stand between marks that keep their direction of writing to themselves.
BANK, RIVER, STEEP = (f"“\u2068{word}\u2069”" for word in ("bank", "river", "steep"))


Shown = Callable[..., AbstractContextManager[Page]]


@pytest.fixture
def shown(lab: Lab, browser: Browser, tmp_path: Path) -> Shown:
    """`shown(*arguments)`: the page that `cs336 show` writes; at the end, nothing was asked for or complained of."""

    @contextmanager
    def open_page(*arguments: str, adapters: str | None = None, **options: Any) -> Iterator[Page]:
        assert lab("show", *arguments, "-o", "page.html", adapters=adapters).exit_code == 0
        with opened(browser, (tmp_path / "page.html").as_uri(), **options) as (page, noticed):
            yield page
            assert noticed == []

    return open_page


def colour(page: Page, selector: str, place: int) -> str:
    return page.locator(selector).nth(place).evaluate("node => getComputedStyle(node).backgroundColor")


def titles(page: Page) -> list[str]:
    return page.locator("figcaption").all_inner_texts()


def test_hover_and_selection(shown: Shown) -> None:
    with shown() as page:
        assert page.locator("#text").inner_text() == "The bank of the river was steep"
        assert titles(page) == ["grammar", "meaning", "sound"]
        assert page.locator("canvas").first.evaluate("map => [map.width, map.height]") == [7, 7]

        page.locator("#head").select_option("meaning")
        assert titles(page) == ["meaning"]
        page.locator("#text span").nth(1).hover()
        assert page.locator("#said").inner_text() == f"meaning: {BANK} looks most at {RIVER} and {STEEP} (44% each)"
        # The darkest words are those that it looks at, and its row is marked in the map.
        assert [colour(page, "#text span", place) for place in (4, 6)] == ["rgb(145, 163, 189)"] * 2
        assert colour(page, "#text span", 5) == "rgb(250, 251, 252)"
        # A word that looks equally at all words is light: there is one scale for all pages, from 0 to 100%.
        page.locator("#text span").nth(0).hover()
        assert colour(page, "#text span", 1) == colour(page, "#text span", 4) == "rgb(220, 225, 234)"
        page.locator("#text span").nth(1).hover()
        assert page.locator(".row").first.evaluate("row => row.offsetTop / row.offsetHeight") == 1

        page.locator("#mask").select_option("causal")
        assert titles(page) == ["meaning, causal"]
        assert page.locator("#said").inner_text().startswith(f"meaning, causal: {BANK} looks equally at all 2")

        page.locator("#mask").select_option("both")
        assert titles(page) == ["meaning", "meaning, causal"]
        tops = page.locator("figure").evaluate_all("all => all.map(one => one.getBoundingClientRect().top)")
        assert tops[0] == tops[1]  # of one head, both masks are side by side
        page.locator("#head").select_option("")
        assert titles(page) == [
            *("grammar", "meaning", "sound"),
            *("grammar, causal", "meaning, causal", "sound, causal"),
        ]
        page.locator("canvas").nth(1).hover(position={"x": 24 * 4.5, "y": 24 * 1.5})
        assert page.locator("#said").inner_text().endswith(f"{BANK} → {RIVER}: 44.5%")
        assert page.locator("#largest").inner_text() == "100%"


def test_pixels_are_the_weights_on_one_scale(shown: Shown) -> None:
    pixel = "(map, [key, query]) => [...map.getContext('2d').getImageData(key, query, 1, 1).data]"
    with shown("The cat sat on the mat", "--head", "sound", "--mask", "both") as page:
        without, causal = page.locator("canvas").all()
        assert causal.evaluate(pixel, [0, 0]) == [8, 48, 107, 255]  # “The” looks at itself alone: 1
        assert causal.evaluate(pixel, [1, 0]) == [255, 255, 255, 255]
        assert without.evaluate(pixel, [0, 0]) == [214, 221, 230, 255]  # 1/6 of the way
        # What the mask hides is hatched, and so not as white as a small weight.
        runs = page.locator(".cells path").evaluate_all("all => all.map(path => path.getAttribute('d'))")
        assert runs[0] == ""
        assert runs[1].startswith("M24,0h120v24h-120z")
        assert runs[1].count("M") == 5
        assert page.locator("#hatched").is_visible()


def test_with_the_keyboard_and_on_a_small_screen(shown: Shown) -> None:
    with shown(width=360) as page:
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        assert f"{BANK} looks" in page.locator("#said").inner_text()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_in_the_dark(shown: Shown) -> None:
    with shown(dark=True) as page:
        assert colour(page, "body", 0) == "rgb(22, 24, 28)"
        page.locator("#head").select_option("meaning")
        page.locator("#text span").nth(1).hover()
        assert colour(page, "#text span", 4) == "rgb(104, 114, 129)"  # lighter the more weight there is
        assert page.locator("#text span").nth(4).evaluate("word => word.style.color") == "rgb(255, 255, 255)"


def test_queries_and_keys_of_two_texts(browser: Browser, tmp_path: Path) -> None:
    weights = torch.tensor([[0.7, 0.2, 0.1], [0.0, 0.5, 0.5]], requires_grad=True)
    mask = torch.tensor([[True, True, True], [False, True, True]])
    heatmap(weights, "le chat", "the cat sat", mask).save(tmp_path / "page.html")
    with opened(browser, (tmp_path / "page.html").as_uri()) as (page, noticed):
        assert page.locator("canvas").evaluate("map => [map.width, map.height]") == [3, 2]
        assert page.locator(".queries").inner_text().split() == ["le", "chat"]
        assert page.locator(".keys").text_content() == "thecatsat"
        assert not page.locator("#masks").is_visible()
        page.locator("#asking span").nth(1).hover()
        assert "looks equally at all 2 it sees (50% each)" in page.locator("#said").inner_text()
        assert noticed == []


def test_hostile_text_is_text(shown: Shown) -> None:
    with shown(*HOSTILE) as page:
        page.wait_for_timeout(200)  # for an alert that must not come
        words = page.locator("#text span").all_text_contents()
        assert " ".join(words).replace(" ", "") == "".join(HOSTILE)
        assert page.locator("img, b").count() == 0
        for place in range(len(words)):
            page.locator("#text span").nth(place).hover()


def test_two_thousand_tokens(shown: Shown) -> None:
    text = " ".join((HOSTILE * 200)[:860])
    with shown("--head", "meaning", text, "bank", "river") as page:
        count = page.locator("#text span").count()
        assert count >= 2000
        page.locator("#text span").nth(count - 2).hover()
        assert f"{BANK} looks most at {RIVER}" in page.locator("#said").inner_text()
        page.locator("#mask").select_option("causal")
        assert f"{BANK} looks equally at all" in page.locator("#said").inner_text()
        assert page.locator(".queries bdi").count() == 0  # no room for labels


def test_weights_that_are_not_numbers(shown: Shown) -> None:
    nan = "def run_scaled_dot_product_attention(Q, K, V, mask=None):\n    return V * float('nan')\n"
    with shown(adapters=nan) as page:
        page.locator("#text span").nth(1).hover()
        assert page.locator("#said").inner_text() == f"grammar: {BANK} has weights that are not numbers"
        assert colour(page, "#text span", 0) == "rgb(217, 95, 2)"
        assert "Some numbers are NaN" in page.locator("#notes").inner_text()


def test_scores_have_a_middle(browser: Browser, tmp_path: Path) -> None:
    heatmap([[2.0, -1.0], [0.0, -2.0]], scores=True, title="<Scores>").save(tmp_path / "page.html")
    with opened(browser, (tmp_path / "page.html").as_uri()) as (page, noticed):
        pixels = "map => [...map.getContext('2d').getImageData(0, 0, 2, 2).data]"
        most, negative, middle, least = torch.tensor(page.locator("canvas").evaluate(pixels)).view(4, 4)[:, :3].tolist()
        assert (most, middle, least) == ([8, 48, 107], [255, 255, 255], [103, 0, 31])
        assert negative[0] > negative[1]
        assert page.locator("h1").inner_text() == "<Scores>"
        assert page.locator(".scale").inner_text().startswith("-2.0")
        page.locator("canvas").hover(position={"x": 10, "y": 10})
        assert page.locator("#said").inner_text().endswith("→ “\u20680\u2069”: 2.00")
        assert noticed == []


def test_a_request_would_be_noticed(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("<body data-ready><img src='https://example.org/a.png'>")
    with opened(browser, (tmp_path / "page.html").as_uri()) as (page, noticed):
        page.wait_for_load_state("networkidle")
        assert "https://example.org/a.png" in noticed
