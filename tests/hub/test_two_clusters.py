"""One hub and two private Slurms: servers on both, with the same job number, and a restart between."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.demo.slurm_cluster import DEMO_CLUSTER, PrivateSlurm
from tests.fixtures.hubs import LIGHT, start_hub
from tests.hub.servers import in_the_end, state, stored

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

PROFILES = "".join(LIGHT.replace("slug: ", f"slug: {name}-").replace("slurm: {", f"slurm: {{cluster: {name}, ")
                   for name in ("juniper", "cedar"))  # fmt: skip
"""The same profiles for each cluster, by its name."""


@pytest.fixture
def two(needs_slurm: None, public_folder: Path, tmp_path: Path) -> Iterator[dict[str, PrivateSlurm]]:
    """Two Slurms whose job numbers begin with 1."""
    with ExitStack() as stack:
        folders = {name: public_folder / f"{name}-{tmp_path.name[-20:]}" for name in ("juniper", "cedar")}
        yield {name: stack.enter_context(PrivateSlurm(DEMO_CLUSTER, folder)) for name, folder in folders.items()}


def test_servers_on_two_clusters_have_the_same_number_and_one_stops_alone(
    two: dict[str, PrivateSlurm], tmp_path: Path
) -> None:
    """Each is submitted, watched, found again by a restarted hub, and cancelled on its own cluster."""
    confs = {name: {"slurm_conf": slurm.environment["SLURM_CONF"]} for name, slurm in two.items()}
    with ExitStack() as stack:
        lines = f"c.GPUSlurmSpawner.clusters = {confs!r}"
        hub = start_hub(stack, two["juniper"], tmp_path / "hub", lines=lines, profiles=PROFILES)
        jobs = {name: hub.spawn(name, {"profile": f"{name}-light"})["job_id"] for name in two}
        assert jobs == {"juniper": "1", "cedar": "1"}
        assert {name: stored(hub, name)["cluster"]["name"] for name in two} == {name: name for name in two}

        hub.restart()
        hub.end("cedar")

        assert in_the_end(two["cedar"], "1") == "CANCELLED"
        assert state(two["juniper"], "1") == "RUNNING"
        hub.wait("juniper", ready=True)
        hub.end("juniper")
