"""The colours of the lab and of the pictures in the docs: text can be read on them, by the contrast of WCAG 2.2."""

import re
from pathlib import Path

import pytest
import torch
from matplotlib.colors import to_rgb

from lab.notebook import heatmap
from staff.tools.student import ROOT

READABLE = 4.5
Colour = tuple[float, float, float]


def contrast(*colours: Colour) -> float:
    dark, light = sorted(map(luminance, colours))
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: Colour) -> float:
    linear = (x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in colour)
    return sum(share * x for share, x in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("scores", [False, True])
def test_ink_on_every_colour_of_a_map(scores: bool) -> None:
    shown = heatmap(torch.eye(2), vmax=1.0, scores=scores)
    for x in (*torch.linspace(-1, 1, 401).tolist(), float("nan")):
        colour, ink = shown.paint(x)
        assert contrast(colour, to_rgb(ink)) >= READABLE


@pytest.mark.parametrize("picture", sorted((ROOT / "docs/pictures").glob("*.svg")), ids=lambda path: path.stem)
def test_text_in_the_pictures_of_the_docs(picture: Path) -> None:
    svg = picture.read_text()
    window = re.search(r'<rect fill="(#\w{6})"', svg)
    assert window is not None
    colours = set(re.findall(r"-r\d+ { fill: (#\w{6})", svg)) - {"#000000", "#ffffff"}  # the ink on a map
    assert colours
    assert all(contrast(to_rgb(colour), to_rgb(window[1])) >= READABLE for colour in colours)
