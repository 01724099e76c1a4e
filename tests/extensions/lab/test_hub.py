"""What the hub tells the companion of JupyterLab beside the document of its session."""

from __future__ import annotations

from types import SimpleNamespace

from jupyterhub_gpuspawner.extensions.lab.hub import parts_of
from jupyterhub_gpuspawner.hub.extension import ServerPart
from jupyterhub_gpuspawner.hub.spawners.profiles import ChosenProfile
from jupyterhub_gpuspawner.hub.spawners.server import Server
from tests.standins.hub_spawner import HubSpawner

ADA = SimpleNamespace(name="ada", groups=[])


def test_a_job_is_told_the_minutes_of_its_site() -> None:
    """Of any other server, no notices and nothing to save."""
    ours = HubSpawner(ADA, ready=True, chosen=ChosenProfile("thesis", "slurm"), lab_notices=[20, 5])
    others = SimpleNamespace(name="", user=ADA)

    assert list(parts_of(ours, Server())) == [ServerPart("lab", document={"notices": (20, 5), "saves": (10, 2)})]
    assert list(parts_of(others, Server())) == [ServerPart("lab", document={"notices": (), "saves": ()})]
