"""What a hub does without extensions: profiles, a form, a start, placement on the card, the log, and a stop.

The second hub has those that are installed: `scripts/without` runs this module where some, or all, are not.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from jupyterhub_gpuspawner.demo.hub import HubProcess
from tests.browser.seeing import return_until, sign_in
from tests.fixtures.hubs import COMMAND, NO_SPAWN_WAIT, StartHub
from tests.hub.visitor import Visitor

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

PROFILES = f"""
- display_name: Two K80
  slug: pair
  slurm: {{partition: gpu, gpus: 2, gpu_type: k80, cpus: 2, memory: 1G, time: "0:10:00"}}
  environment: {{variables: {{GREETING: hello}}}}
  command: [sh, -c, 'echo "$GREETING from the job"; exec "$@"', sh, {COMMAND[1:-1]}]
  profile_options:
    cpus: {{display_name: Cores, range: {{min: 1, max: 4, default: 2, sets: slurm.cpus}}}}
"""
NONE = "c.GPUProfilesSpawner.extensions = []"


@pytest.fixture(scope="module", params=[NONE, ""], ids=["without-extensions", "with-those-installed"])
def hub(request: pytest.FixtureRequest, start_light_hub: StartHub) -> HubProcess:
    """A hub with one profile."""
    return start_light_hub(f"{NO_SPAWN_WAIT}\n{request.param}", PROFILES)


def card(visitor: Visitor) -> str:
    """What the home page says of the only server, but for the time left."""
    (section,) = visitor.look("/hub/home").soup.select(".gpuspawner-server")
    return re.sub(r"\d+ min left", "", " ".join(section.get_text(" ").split()))


def test_a_server_is_chosen_started_shown_and_stopped_with_a_restart_of_the_hub_in_the_middle(hub: HubProcess) -> None:
    """The hub that is started again shows the same server in the same words."""
    ann = Visitor(hub, "ann")
    form = ann.look("/hub/spawn")
    pending = ann.send(form, {"profile": "pair", "cpus": "3"})
    hub.wait("ann", ready=True)
    placement = hub.api("GET", "/gpuspawner/placement/ann").json()
    shown = card(ann)
    hub.restart()
    again = hub.api("GET", "/gpuspawner/placement/ann").json()
    shown_again, log = card(ann), ann.look("/hub/gpuspawner/log/ann")
    question = ann.look("/hub/gpuspawner/stop/ann")
    ann.click("/hub/gpuspawner/stop/ann")
    hub.wait("ann", ready=False)
    ended = card(ann)

    # what is known of the nodes says whether their CPUs are cores
    assert re.search(r"Options for Two K80 Cores .* K80, 12 GB 2 (CPUs|cores) 1 GiB memory 10 min", form.text)
    assert re.search(r"Submitted \(\w+\) In line \(\w+\) Node \(\w+\) Starting", pending.text)
    assert [gpu["name"] for gpu in placement["gpus"]] == ["Tesla K80"] * 2
    assert (placement["weakest_link"], placement["simulated"], placement["problems"]) == ("PIX", True, [])
    assert f"Node {placement['node']} " in shown
    assert f"CPUs {placement['cpus']} " in shown
    assert f"Job {placement['job_id']}, partition gpu" in shown
    assert (again, shown_again) == (placement, shown)
    assert "Last line hello from the job" in log.text
    assert "Stop Two K80? Unsaved work and running kernels are lost." in question.text
    assert re.search(rf"Two K80 was stopped at .* job {placement['job_id']} released 2 GPUs\.", ended)


@pytest.mark.browser
def test_an_open_home_page_follows_its_servers(hub: HubProcess, page: Page) -> None:
    """By a stream where an extension has one, and else by looking at the page anew."""
    sign_in(page, hub, "bea")
    page.goto(f"{hub.url}/hub/home")
    first = page.get_by_text("You have no running server.")
    assert first.count() == 1
    hub.spawn("bea", {"profile": "pair"})
    return_until(page, lambda: page.locator(".gpuspawner-server[data-state=running]").count())
    hub.end("bea")
    return_until(page, lambda: not page.locator(".gpuspawner-server[data-state=running]").count())
