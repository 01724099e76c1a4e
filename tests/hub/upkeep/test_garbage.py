"""What a hub has loaded is left out of garbage collections once it has started."""

from __future__ import annotations

import json
import subprocess
import sys

PROGRAM = """
import asyncio, gc, json
from jupyterhub.app import JupyterHub
from jupyterhub_gpuspawner.hub.site import background
from jupyterhub_gpuspawner.hub.site.background import begin_garbage

async def hub():
    background._START_POLL_SECONDS = 0.01
    app = JupyterHub()
    app.db = None
    begin_garbage(app)
    await asyncio.sleep(0.1)
    counts = [gc.get_freeze_count()]
    app.http_server = object()
    while not gc.get_freeze_count():
        await asyncio.sleep(0.01)
    counts.append(gc.get_freeze_count())
    print(json.dumps([*counts, len(gc.get_objects())]))

asyncio.run(hub())
"""


def test_the_objects_of_a_hub_are_set_aside_when_it_listens() -> None:
    """Not before, since the objects of its start would never be freed; then nearly all that there are."""
    answer = subprocess.run([sys.executable, "-W", "ignore", "-c", PROGRAM], capture_output=True, text=True, check=True)
    before, after, collected = json.loads(answer.stdout)

    assert before == 0
    assert after > 100 * collected
