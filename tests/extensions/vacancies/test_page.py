"""The page and the document of free GPUs, in a hub that shows them and in one that does not."""

from __future__ import annotations

import pytest
import requests

from jupyterhub_gpuspawner.demo.hub import HubProcess
from tests.fixtures.hubs import StartHub

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

PAGE, DOCUMENT = "/hub/gpuspawner/free-gpus", "/hub/api/gpuspawner/free-gpus"


def test_everybody_sees_what_is_free_where_the_hub_is_set_to(start_light_hub: StartHub) -> None:
    """Without signing in: numbers by kind, kept for a minute, which any web site may show; no node is named."""
    hub = start_light_hub(lines="c.FreeGPUs.enabled = True")
    page, document = (requests.get(hub.url + path, timeout=60) for path in (PAGE, DOCUMENT))

    counts = {
        entry["kind"]: (entry["free"], entry["in_use"], entry["out_of_service"]) for entry in document.json()["gpus"]
    }
    assert counts == {"A100": (2, 0, 0), "A100 slice, 10 GB": (4, 0, 0), "K80, 12 GB": (4, 0, 0), "P100": (8, 0, 0)}
    assert (document.json()["version"], document.headers["Cache-Control"]) == (1, "public, max-age=60")
    assert document.headers["Access-Control-Allow-Origin"] == "*"
    assert (page.status_code, "A100 slice, 10 GB" in page.text, "d1" in page.text.partition("<main")[2]) == (
        200,
        True,
        False,
    )


def test_nobody_sees_it_by_default(light_hub: HubProcess) -> None:
    """Neither the page nor the document."""
    answers = [requests.get(light_hub.url + path, timeout=60).status_code for path in (PAGE, DOCUMENT)]
    assert answers == [404, 404]
