"""The look that the pages share: one left edge, one primary colour, targets that a finger can hit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

import pytest
from playwright.sync_api import Page, expect

from jupyterhub_gpuspawner.demo.hub import HubProcess
from tests.browser.seeing import Strict, sign_in, sign_in_with_server, width_left_over
from tests.fixtures.browser import OpenPage
from tests.fixtures.hubs import ASKS_OFTEN, COMMAND, NO_SPAWN_WAIT, StartHub, stop_servers
from tests.hub.servers import start

pytestmark = [pytest.mark.slurm, pytest.mark.hub, pytest.mark.browser]

PROFILES = f"""
- display_name: K80
  slug: k80
  slurm: {{partition: gpu, gpus: 4, gpu_type: k80, cpus: 4, memory: 1G, time: "1:00:00"}}
  command: {COMMAND}
- display_name: Broken
  slug: broken
  slurm: {{partition: batch, cpus: 1, memory: 100M, time: "0:10:00"}}
  command: [bash, -c, "exit 3"]
"""
PAGES = {
    "form": "/hub/spawn/admin/another",
    "waiting": "/hub/spawn-pending/admin/waits",
    "failed": "/hub/spawn-pending/admin/fails",
    "home": "/hub/home",
    "map": "/hub/gpuspawner/cluster",
    "log": "/hub/gpuspawner/log/admin",
}
SMALLEST = 44
"""CSS pixels of a target on a touch screen, at least (WCAG 2.2, 2.5.5)."""


@pytest.fixture(scope="module")
def hub(start_light_hub: StartHub) -> Iterator[HubProcess]:
    """A hub whose administrator has a server that runs, one that waits, and one that did not start."""
    hub = start_light_hub(lines=f"{NO_SPAWN_WAIT}\n{ASKS_OFTEN}", profiles=PROFILES)
    hub.spawn("admin", {"profile": "k80"})
    for server, profile in (("waits", "k80"), ("fails", "broken")):
        start(hub, "admin", profile, server)
    hub.wait("admin", "fails", ready=False)
    yield hub
    stop_servers(hub)


def opened(page: Page, hub: HubProcess) -> Iterator[str]:
    """Open each of the pages; yields its name."""
    for name, path in PAGES.items():
        page.goto(hub.url + path)
        expect(page.locator(".gs-page :is(h1, h2)").first).to_be_visible()
        yield name


PRIMARY: dict[Literal["light", "dark"], str] = {"light": "rgb(179, 71, 0)", "dark": "rgb(255, 155, 87)"}


@pytest.mark.parametrize(
    "phone", [pytest.param(False, id="wide"), pytest.param(True, id="phone", marks=pytest.mark.nightly)]
)
def test_every_page_has_the_same_left_edge_and_primary_colour(
    hub: HubProcess, open_page: OpenPage, phone: bool
) -> None:
    """Light and dark; and none scrolls sideways."""
    page = open_page(phone=phone)
    sign_in_with_server(page, hub, "admin")
    for scheme, primary in PRIMARY.items():
        page.emulate_media(color_scheme=scheme)
        edges, colours, excess = {}, set(), {}
        for name in opened(page, hub):
            edges[name] = page.locator(".gs-page :is(h1, h2, section):visible").first.bounding_box()
            colours |= set(
                page.locator(".gs-page .btn:is(.gs-primary, .btn-primary, .btn-jupyter)").evaluate_all(
                    "(buttons) => buttons.map((button) => getComputedStyle(button).backgroundColor)"
                )
            )
            excess[name] = width_left_over(page)

        assert len({box["x"] for box in edges.values() if box}) == 1, edges
        assert colours == {primary}
        assert excess == dict.fromkeys(PAGES, 0)


TITLES = {
    "form": "Start server another",
    "waiting": "Waiting in line: waits",
    "failed": "Server fails did not start: Broken",
    "home": "Your servers",
    "map": "Cluster",
    "log": "Log: K80",
}


def test_every_page_has_a_title_and_one_main_part(hub: HubProcess, page: Page) -> None:
    sign_in_with_server(page, hub, "admin")
    pages = {name: (page.title(), page.locator("main").count()) for name in opened(page, hub)}

    assert pages == {name: (f"{title} - JupyterHub", 1) for name, title in TITLES.items()}


@pytest.mark.nightly
def test_forced_colours_show_which_profile_is_chosen(hub: HubProcess, page: Page) -> None:
    """By the browser's own radio button, and by a frame."""
    page.emulate_media(forced_colors="active")
    sign_in(page, hub, "cora")
    page.locator("input[value=broken]").check()
    page.locator("h1").click()  # the focus is elsewhere
    profiles = page.locator(".gs-choice").evaluate_all(
        """(profiles) => profiles.map((profile) => [
            profile.querySelector("input").value,
            getComputedStyle(profile).outlineStyle,
            getComputedStyle(profile.querySelector("input")).appearance,
        ])"""
    )

    assert profiles == [["k80", "none", "auto"], ["broken", "solid", "auto"]]


@pytest.mark.nightly
def test_forced_colours_keep_the_bars_and_cells_of_the_map(hub: HubProcess, page: Page) -> None:
    """They are drawn with borders, which the browser keeps."""
    page.emulate_media(forced_colors="active")
    sign_in_with_server(page, hub, "admin")
    page.goto(hub.url + PAGES["map"])
    drawn = page.locator("#gpuspawner-cluster :is(.gs-cell, .gs-legend i, .gs-bar > svg)").evaluate_all(
        """(drawn) => drawn.map((each) => getComputedStyle(each))
            .map((style) => parseFloat(style.borderTopWidth) + parseFloat(style.borderBottomWidth) > 0)"""
    )

    assert len(drawn) > 4
    assert all(drawn)


def test_no_page_needs_what_a_strict_policy_forbids(hub: HubProcess, page: Page) -> None:
    """Neither an attribute nor an element with a style, nor a script in a page but those of JupyterHub's frame.

    A course's page and the demo's link have tests of their own. JupyterLab is not the hub's page: its policy is that of
    the single-user server, and JupyterLab needs inline styles itself.
    """
    sign_in_with_server(page, hub, "admin")
    strict = Strict(page)
    faults = {}
    for name in opened(page, hub):
        page.locator("details").evaluate_all("all => all.forEach((each) => (each.open = true))")
        page.wait_for_timeout(500)
        faults[name] = [*strict.faults]
        strict.faults.clear()

    assert faults == {name: [] for name in PAGES}


@pytest.mark.nightly
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_edge_of_each_field_is_seen(hub: HubProcess, page: Page, scheme: Literal["light", "dark"]) -> None:
    """Its contrast with the page is 3:1 at least (WCAG 2.2, 1.4.11), which axe does not look at."""
    page.emulate_media(color_scheme=scheme)
    sign_in_with_server(page, hub, "admin")
    faint = []
    for name in ("form", "home", "map"):
        page.goto(hub.url + PAGES[name])
        fields = page.locator(".gs-page :is(.form-control, .form-select, .form-check-input:not(:checked))")
        ratios = fields.evaluate_all(CONTRAST)
        assert ratios, name
        faint += [(name, ratio) for ratio in ratios if ratio < 3]

    assert faint == []


CONTRAST = """(fields) => {
    const context = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d");
    const luminance = (...colours) => {
        for (context.fillStyle of colours) context.fillRect(0, 0, 1, 1);
        const linear = (value) => (value <= 10 ? value / 3294.6 : ((value / 255 + 0.055) / 1.055) ** 2.4);
        const [red, green, blue] = [...context.getImageData(0, 0, 1, 1).data].map(linear);
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
    };
    const page = getComputedStyle(document.body).backgroundColor;
    return fields.map((field) => {
        const pair = [luminance(page), luminance(page, getComputedStyle(field).borderTopColor)].sort((a, b) => b - a);
        return (pair[0] + 0.05) / (pair[1] + 0.05);
    });
}"""
"""The contrast between each field's border and the page."""


def test_a_finger_can_hit_every_target(hub: HubProcess, open_page: OpenPage) -> None:
    """Links within a sentence are exempt, as in WCAG."""
    page = open_page(phone=True)
    sign_in_with_server(page, hub, "admin")
    small = []
    for name in opened(page, hub):
        targets = page.locator(".gs-page :is(.btn, input:not([type=radio]), select, summary):visible")
        for target in targets.all():
            box = target.bounding_box()
            if box is not None and (box["height"] < SMALLEST or box["width"] < SMALLEST):
                words = re.sub(r"\s+", " ", target.inner_text())
                small.append((name, words, round(box["width"]), round(box["height"])))

    assert small == []
