"""Settings without effect are named in the hub's log."""

from __future__ import annotations

import pytest

from tests.fixtures.hubs import StartHub

QUEUE = "has no effect without a batch_script that names it. Set c.GPUSlurmSpawner.req_partition."


@pytest.mark.slurm
@pytest.mark.hub
def test_the_hub_names_each_once_when_it_starts(start_light_hub: StartHub) -> None:
    """And not again when a server starts."""
    lines = 'c.SlurmSpawner.req_queue = "gpu"\nc.BatchSpawnerBase.startup_poll_interval = 2.0'
    hub = start_light_hub(lines)
    hub.spawn("ann", {"profile": "light"})
    log = hub.log.read_text()

    assert log.count(f"c.SlurmSpawner.req_queue {QUEUE}") == 1
    assert log.count("c.BatchSpawnerBase.startup_poll_interval has no effect. ") == 1
    hub.end("ann")
