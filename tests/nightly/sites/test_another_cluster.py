"""A site whose servers run on another cluster than the hub's own Slurm (``-M``, through slurmdbd)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.fixtures.accounting import two_clusters
from tests.fixtures.hubs import start_hub
from tests.nightly.sites.main_job import CONFIG, MainJob, Site, profiles

pytestmark = [pytest.mark.slurm, pytest.mark.hub]


@pytest.fixture(scope="module")
def site(needs_slurm: None, public_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The hub has the slurm.conf of ``juniper``, and its servers run on ``cedar``."""
    with ExitStack() as stack:
        juniper, cedar = stack.enter_context(two_clusters(public_folder / "another"))
        lines = f"""{CONFIG}
c.GPUSlurmSpawner.req_cluster = "cedar"
c.GPUSlurmSpawner.topology_file = {cedar.topology_pattern!r}"""
        hub = start_hub(stack, juniper, tmp_path_factory.mktemp("hub"), lines=lines, profiles=profiles())
        yield Site(hub, cedar)


class TestMainJob(MainJob):
    """The main job, all of whose commands have ``--clusters``."""
