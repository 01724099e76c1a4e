"""The components of the pages as a browser paints them, compared with the pictures in the documentation."""

from __future__ import annotations

import base64
import os
from typing import TYPE_CHECKING

import pytest

from tests.browser.seeing import PICTURES, assert_accessible, width_left_over
from tests.fixtures.browser import OpenPage
from tests.hub.web.specimens import NAMES, show_specimens

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

FOLDER = PICTURES / "components"
BLOCK = 4
"""Pixels in each direction of which the mean is compared: how a browser smooths an edge does not matter."""
DIFFERENT = 0.02
"""The share of blocks that may differ by more than a tenth: another release of the browser, not another look."""


def as_url(picture: bytes) -> str:
    """An address for the ``src`` of an image."""
    return f"data:image/png;base64,{base64.b64encode(picture).decode()}"


def pictures_of(page: Page, *, dark: bool) -> dict[str, bytes]:
    """A picture of each specimen."""
    page.set_viewport_size({"width": 960, "height": 900})
    show_specimens(page, dark=dark)
    return {name: page.locator(f"#{name}").screenshot(animations="disabled") for name in NAMES}


def one_below_the_other(page: Page, *pictures: bytes) -> bytes:
    """One picture of several."""
    images = "".join(f'<img style="display:block" src="{as_url(picture)}">' for picture in pictures)
    page.set_content(f'<main style="width:max-content">{images}</main>')
    return page.locator("main").screenshot()


def difference(page: Page, one: bytes, other: bytes) -> float:
    """The share of blocks that differ, from 0 to 1; 1 where the pictures are not of one size, within a block."""
    share: float = page.evaluate(
        """async ([block, ...urls]) => {
          const images = urls.map((url) => Object.assign(new Image(), { src: url }));
          await Promise.all(images.map((image) => image.decode()));
          const [one, other] = images.map(({ width, height }) => [width, height]);
          if (one.some((size, n) => Math.abs(size - other[n]) > block)) return 1;
          const [width, height] = one.map((size, n) => Math.ceil(Math.min(size, other[n]) / block));
          const [a, b] = images.map((image) => {
            const canvas = Object.assign(document.createElement("canvas"), { width, height }).getContext("2d");
            canvas.imageSmoothingQuality = "high";
            canvas.drawImage(image, 0, 0, width * block, height * block, 0, 0, width, height);
            return canvas.getImageData(0, 0, width, height).data;
          });
          let different = 0;
          for (let n = 0; n < a.length; n += 4) {
            if ([0, 1, 2].some((part) => Math.abs(a[n + part] - b[n + part]) > 25)) different += 1;
          }
          return different / (width * height);
        }""",
        [BLOCK, as_url(one), as_url(other)],
    )
    return share


def test_components_look_as_in_the_documentation(open_page: OpenPage) -> None:
    """Each in both themes; where GPUSPAWNER_PICTURES is set, the pictures are written instead."""
    light, dark = (pictures_of(open_page(dark=dark), dark=dark) for dark in (False, True))
    page = open_page()
    pictures = {name: one_below_the_other(page, light[name], dark[name]) for name in NAMES}

    if os.environ.get("GPUSPAWNER_PICTURES"):
        FOLDER.mkdir(parents=True, exist_ok=True)
        for name, picture in pictures.items():
            (FOLDER / f"{name}.png").write_bytes(picture)

    assert {path.stem for path in FOLDER.glob("*.png")} == set(NAMES)
    shares = {
        name: difference(page, picture, (FOLDER / f"{name}.png").read_bytes()) for name, picture in pictures.items()
    }
    assert {name: share for name, share in shares.items() if share > DIFFERENT} == {}
    assert difference(page, light["rows"], dark["rows"]) > 0.5


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_components_are_accessible(open_page: OpenPage, *, dark: bool) -> None:
    """Axe finds nothing serious in what the documentation shows."""
    page = open_page(dark=dark)
    show_specimens(page, dark=dark)

    assert_accessible(page)


def test_components_fit_a_phone(open_page: OpenPage) -> None:
    """Nothing is wider than the narrowest window of WCAG 2.2 (1.4.10)."""
    page = open_page(phone=True)
    page.set_viewport_size({"width": 320, "height": 740})
    show_specimens(page)

    assert width_left_over(page) == 0


def test_words_of_several_lines_do_not_touch_the_edge_of_their_button(open_page: OpenPage) -> None:
    """A button may be named after a profile, whose name is as long as the site likes."""
    page = open_page()
    show_specimens(page)
    least: float = page.evaluate(
        """() => Math.min(...[...document.querySelectorAll(".btn")].map((button) => {
          button.textContent = "A profile of a long name ".repeat(4);
          button.style.inlineSize = "8rem";
          const words = document.createRange();
          words.selectNodeContents(button);
          const [edge, inner] = [button, words].map((shown) => shown.getBoundingClientRect());
          return Math.min(inner.top - edge.top, edge.bottom - inner.bottom);
        }))"""
    )

    assert 4 <= least < 20


def test_a_state_keeps_its_mark_in_forced_colours(open_page: OpenPage) -> None:
    """Each mark is painted in the colour of its word, which the system gives."""
    page = open_page()
    page.emulate_media(forced_colors="active")
    show_specimens(page)
    painted: list[list[str]] = page.evaluate(
        """() => [...document.querySelectorAll("#states .gs-state")].map((state) => {
          const mark = getComputedStyle(state, "::before");
          return [getComputedStyle(state).color, mark.borderTopColor, mark.maskImage.slice(0, 8)];
        })"""
    )

    assert len(painted) > 20
    assert {(word == mark, shape) for word, mark, shape in painted} == {(True, 'url("dat')}
