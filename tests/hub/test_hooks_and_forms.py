"""A site's hook over profiles, and a site's form without them, each in a hub with Slurm."""

from __future__ import annotations

import pytest

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.units import parse_cpulist
from tests.fixtures.hubs import LIGHT, NO_SPAWN_WAIT, StartHub
from tests.hub.choose.test_choose_page import ALONE
from tests.hub.servers import start
from tests.hub.visitor import Visitor
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

HOOK = """
import asyncio
home = c.Spawner.pre_spawn_hook


async def hook(spawner):
    if spawner.user.name == "exits":
        raise SystemExit("no such project")
    if spawner.user.name == "hangs":
        await asyncio.Event().wait()
    home(spawner)
    spawner.req_nprocs = str(int(spawner.req_nprocs) + 1)
    spawner.req_options += " --nice=7"


def archive(spawner):
    raise SystemExit("no archive")


c.Spawner.pre_spawn_hook = hook
c.Spawner.post_stop_hook = archive
"""
PROFILES = f"""{LIGHT}
- display_name: In two seconds
  slug: soon
  slurm: {{partition: batch, cpus: 1, memory: 50M, time: "0:10:00"}}
  start_timeout: 2
"""
FORM = f"""{ALONE}
home = c.Spawner.pre_spawn_hook


def hook(spawner):
    home(spawner)
    spawner.req_nprocs = {{"small": "1", "large": "2"}}[spawner.user_options["profile"]]


c.Spawner.pre_spawn_hook = hook
c.Spawner.options_form = '<select name="profile"><option>small</option><option>large</option></select>'
c.Spawner.options_from_form = lambda form: {{name: values[0] for name, values in form.items() if name != "_xsrf"}}
"""


def cpus_of(hub: HubProcess, user: str) -> int:
    """How many the node says that the server has."""
    return len(parse_cpulist(hub.api("GET", f"/gpuspawner/placement/{user}").json()["cpus"]))


def test_a_hook_requests_more_than_the_profile(start_light_hub: StartHub) -> None:
    """It reads what the profile requests, and has the last word."""
    hub = start_light_hub(f"{NO_SPAWN_WAIT}\n{HOOK}", PROFILES)
    for user in ("exits", "hangs"):
        start(hub, user, "soon")
    hub.spawn("ann", {"profile": "light", "cpus": 2})
    wait_until(lambda: [hub.server(user) for user in ("exits", "hangs")] == [None, None], hub.log_end, seconds=30)
    log = hub.log.read_text()

    assert cpus_of(hub, "ann") == 3
    # one ends its own start alone, not the hub, and the other's is given up
    assert "The start of exits failed: pre_spawn_hook raised SystemExit: no such project (" in log
    assert "The start of hangs failed: pre_spawn_hook was given up: it took more than 2 s (start_timeout)" in log
    assert "Ended: SystemExit: no archive" in log


def test_a_form_of_the_sites_own_starts_a_server(start_light_hub: StartHub) -> None:
    """Its page shows it, and the hook gets what it sends."""
    hub = start_light_hub(FORM)
    visitor = Visitor(hub, "ann")
    page = visitor.look("/hub/spawn")
    visitor.start({"profile": "large"})
    hub.wait("ann", ready=True)
    model = hub.server("ann") or {}

    assert page.soup.select_one('select[name="profile"]') is not None
    assert model["user_options"] == {"profile": "large"}
    assert cpus_of(hub, "ann") == 2
