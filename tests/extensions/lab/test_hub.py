"""What the hub tells the companion of JupyterLab beside the document of its session."""

from __future__ import annotations

import re
from types import SimpleNamespace

from jupyterhub_gpuspawner.extensions.lab.hub import parts_of
from jupyterhub_gpuspawner.hub.routes import STATIC
from jupyterhub_gpuspawner.hub.spawners.profiles import ChosenProfile
from jupyterhub_gpuspawner.hub.spawners.server import Server
from tests.standins.hub_spawner import HubSpawner

ADA = SimpleNamespace(name="ada", groups=[])


def test_a_job_is_told_the_minutes_of_its_site() -> None:
    """Of any other server, no notices and nothing to save."""
    ours = HubSpawner(ADA, ready=True, chosen=ChosenProfile("thesis", "slurm"), lab_notices=[20, 5])
    others = SimpleNamespace(name="", user=ADA)

    (part,) = parts_of(ours, Server())
    (other,) = parts_of(others, Server())
    assert part.document == {"notices": (20, 5), "saves": (10, 2), "styles": ()}
    assert other.document == {"notices": (), "saves": (), "styles": ()}


def test_the_panel_has_the_stylesheets_of_the_hubs_pages() -> None:
    """By the addresses at which the hub has them, the tokens first."""
    ours = HubSpawner(ADA, ready=True, chosen=ChosenProfile("thesis", "slurm"), lab_notices=[])
    ours.hub = SimpleNamespace(base_url="/hub/")
    (part,) = parts_of(ours, Server())
    names = [re.sub("^/hub/gpuspawner/static/[0-9a-f]{12}/", "", path) for path in part.document["styles"]]

    assert names[0] == "tokens.css"
    assert [name for name in names if not (STATIC / name).is_file()] == []
