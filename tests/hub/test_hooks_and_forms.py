"""A site's hook over profiles, and a site's form without them, each in a hub with Slurm."""

from __future__ import annotations

import pytest

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.units import parse_cpulist
from tests.fixtures.hubs import StartHub
from tests.hub.choose.test_choose_page import ALONE
from tests.hub.visitor import Visitor

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

HOOK = """
home = c.Spawner.pre_spawn_hook


async def hook(spawner):
    home(spawner)
    spawner.req_nprocs = str(int(spawner.req_nprocs) + 1)
    spawner.req_options += " --nice=7"


c.Spawner.pre_spawn_hook = hook
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
    hub = start_light_hub(HOOK)
    hub.spawn("ann", {"profile": "light", "cpus": 2})
    assert cpus_of(hub, "ann") == 3


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
