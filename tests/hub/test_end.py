"""The end of a hub by SIGTERM."""

from __future__ import annotations

import time

import pytest

from jupyterhub_gpuspawner.demo.hub import HubProcess
from tests.fixtures.hubs import StartHub
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub, pytest.mark.timeout(120)]

GOES_ON = """
import asyncio
async def goes_on(spawner):
    spawner.log.warning("the hook of %s has begun", spawner.user.name)
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass
c.Spawner.pre_spawn_hook = goes_on
c.JupyterHub.tornado_settings = {"slow_spawn_timeout": 0.5}
"""


def begun(hub: HubProcess) -> bool:
    """Whether the hook waits."""
    return "the hook of ada has begun" in hub.log.read_text()


def test_a_hook_that_goes_on_when_it_is_cancelled_holds_up_no_hub(start_light_hub: StartHub) -> None:
    """The hub ends as JupyterHub does without it, but for the five seconds that the hook has."""
    hub = start_light_hub(lines=GOES_ON)
    hub.api("POST", "/users/ada")
    hub.api("POST", "/users/ada/server", {"profile": "light"})
    wait_until(lambda: begun(hub), hub.log_end)
    process = hub.process
    assert process is not None
    began = time.monotonic()
    process.terminate()
    process.wait(60)

    assert time.monotonic() - began < 25
