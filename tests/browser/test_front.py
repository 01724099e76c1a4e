"""The three pages that a participant sees, one after the other: choose, wait, work; and the picture made of them."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterator
from html import escape

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from tests.browser.seeing import PICTURES, sign_in
from tests.fixtures.browser import PATIENCE
from tests.fixtures.hubs import ASKS_OFTEN, COMMAND, StartHub

pytestmark = [pytest.mark.slurm, pytest.mark.hub, pytest.mark.browser, pytest.mark.usefixtures("no_job_is_left")]

PROFILES = f"""
- display_name: A slice of an A100
  slug: slice
  description: For exercises and small models.
  default: true
  slurm: {{partition: gpu, gpus: 1, gpu_type: 1g.10gb, cpus: 4, memory: 16G, time: "4:00:00"}}
  command: {COMMAND}
- display_name: Four P100 with NVLink
  slug: p100
  description: For training on several GPUs at once.
  slurm: {{partition: gpu, gpus: 4, gpu_type: p100, cpus: 20, memory: 64G, time: "2:00:00"}}
  command: {COMMAND}
- display_name: CPU only, 12 cores
  slug: cpu
  description: For preparing data.
  slurm: {{partition: batch, cpus: 12, memory: 32G, time: "8:00:00"}}
  command: {COMMAND}
"""
PANELS = (("Choose", 380), ("Wait", 380), ("Work", 520))
"""Titles of the picture's panels, and the width of the window in which each page is seen, in CSS pixels."""
HEIGHT = 640
"""Of a panel; a page that is longer fades out."""


@pytest.fixture(scope="module")
def hub(start_light_hub: StartHub) -> HubProcess:
    """A hub with a few profiles."""
    return start_light_hub(lines=ASKS_OFTEN, profiles=PROFILES)


@pytest.fixture
def sharp(browser: Browser) -> Iterator[Page]:
    """A window whose screenshots have two pixels for each CSS pixel."""
    context = browser.new_context(device_scale_factor=2, color_scheme="light", reduced_motion="reduce")
    context.set_default_timeout(PATIENCE)
    yield context.new_page()
    context.close()


@pytest.mark.nightly  # each page has a test of its own; this one takes their picture
def test_a_participant_chooses_waits_and_works(hub: HubProcess, slurm_cluster: PrivateSlurm, sharp: Page) -> None:
    """A profile that is full says so; its server waits in line, and then the home page shows the GPUs that it got."""
    line = "--parsable -p gpu --gres=gpu:p100:8 -t 25 -o /dev/null"
    other = slurm_cluster.run("sbatch", *line.split(), "--wrap=sleep 600")
    screenshots = []

    def capture(part: Locator) -> None:
        screenshots.append(part.screenshot(animations="disabled"))

    sharp.set_viewport_size({"width": PANELS[0][1], "height": 900})
    sign_in(sharp, hub, "ada")
    profile = sharp.locator(".gs-choice", has_text="Four P100 with NVLink")
    for _ in range(60):  # answers of Slurm are used for some seconds
        sharp.goto(f"{hub.url}/hub/spawn/ada")
        if profile.locator(".gs-when > .later").count():
            break
        sharp.wait_for_timeout(1000)
    expect(profile.locator(".gs-when > .later")).to_be_visible()
    capture(sharp.locator(".gs-picker"))

    sharp.set_viewport_size({"width": PANELS[1][1], "height": 900})
    profile.get_by_role("radio").check()
    sharp.locator("#spawn_form [type=submit]").click()
    expect(sharp.locator("#gpuspawner-pending")).to_contain_text("You are next")
    assert "_xsrf" not in sharp.url
    capture(sharp.locator("#gpuspawner-pending"))

    sharp.goto(f"{hub.url}/hub/home")  # the waiting page would leave for the notebook
    slurm_cluster.run("scancel", other)
    hub.wait("ada", ready=True)
    sharp.set_viewport_size({"width": PANELS[2][1], "height": 900})
    sharp.reload()
    card = sharp.locator(".gpuspawner-server")
    expect(card).to_contain_text(re.compile("4 .* P100"))
    capture(card)
    sharp.set_viewport_size({"width": 1000, "height": 900})
    card.locator("details").evaluate_all("all => all.forEach((each) => (each.open = true))")
    expect(card.locator("svg rect.gpu.own")).to_have_count(4)
    capture(card.locator("svg"))

    if os.environ.get("GPUSPAWNER_PICTURES"):
        compose(sharp, *screenshots)


def compose(page: Page, form: bytes, waiting: bytes, card: bytes, node: bytes) -> None:
    """Write ``docs/pictures/front.png``: three panels side by side, the last with the upper part of the card."""

    def picture(image: bytes, width: int) -> str:
        return f'<img src="data:image/png;base64,{base64.b64encode(image).decode()}" width="{width - 24}">'

    choose, wait, work = (width for _, width in PANELS)
    contents = (
        picture(form, choose),
        picture(waiting, wait),
        f'<div class="top">{picture(card, work)}</div>{picture(node, work)}',
    )
    figures = "".join(
        f'<figure style="width:{width}px"><figcaption><b>{number}</b> {escape(title)}</figcaption>'
        f'<div class="panel">{content}</div></figure>'
        for number, ((title, width), content) in enumerate(zip(PANELS, contents, strict=True), start=1)
    )
    page.set_viewport_size({"width": sum(width for _, width in PANELS) + 4 * 24, "height": HEIGHT})
    page.set_content(f"<style>{STYLE}</style><main>{figures}</main>")
    page.locator("main").screenshot(path=PICTURES / "front.png")


STYLE = f"""
body {{ margin: 0; }}
main {{ display: flex; gap: 24px; padding: 24px; background: #eef1f4; font: 20px sans-serif; width: max-content; }}
figure {{ margin: 0; }}
figcaption {{ margin: 0 0 12px; color: #212529; }}
figcaption b {{ display: inline-block; width: 32px; line-height: 32px; margin-right: 6px; border-radius: 50%;
  background: #b34700; color: #fff; text-align: center; }}
.panel {{ box-sizing: border-box; height: {HEIGHT}px; overflow: hidden; padding: 12px; border-radius: 10px;
  background: #fff; box-shadow: 0 1px 6px rgb(0 0 0 / 20%);
  mask-image: linear-gradient(#000 {HEIGHT - 60}px, transparent {HEIGHT}px); }}
.top {{ max-height: 250px; overflow: hidden; margin-bottom: 8px;
  mask-image: linear-gradient(#000 210px, transparent 250px); }}
img {{ display: block; }}
"""
