"""A plain site, to compare the others with: local disks, one thread a core, no preemption, a short queue."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from tests.fixtures.hubs import start_hub
from tests.nightly.sites.main_job import CONFIG, MainJob, Site, profiles

pytestmark = [pytest.mark.slurm, pytest.mark.hub]


@pytest.fixture(scope="module")
def site(slurm_cluster: PrivateSlurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The demo's cluster."""
    with ExitStack() as stack:
        hub = start_hub(stack, slurm_cluster, tmp_path_factory.mktemp("hub"), lines=CONFIG, profiles=profiles())
        yield Site(hub, slurm_cluster)


class TestMainJob(MainJob):
    """The main job."""
