"""IPv6 alone: Slurm reaches its nodes at IPv6 addresses, and so does the hub."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.demo.slurm_cluster import DEMO_CLUSTER
from tests.fixtures.hubs import start_hub
from tests.fixtures.slurm import ChangedSlurm
from tests.nightly.sites.main_job import CONFIG, MainJob, Site, profiles

pytestmark = [pytest.mark.slurm, pytest.mark.hub]


def has_ipv6() -> bool:
    """Whether this host has the IPv6 loopback address."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def with_ipv6(conf: str) -> str:
    """The nodes' addresses are IPv6's."""
    return conf.replace("NodeAddr=127.0.0.1", "NodeAddr=::1") + "CommunicationParameters=EnableIPv6\n"


@pytest.fixture(scope="module")
def site(needs_slurm: None, public_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Servers listen on IPv6 addresses alone."""
    if not has_ipv6():
        pytest.skip("this host has no IPv6")
    with ExitStack() as stack:
        slurm = stack.enter_context(ChangedSlurm(DEMO_CLUSTER, public_folder / "ipv6", with_ipv6))
        lines = f"{CONFIG}\nc.Spawner.ip = '::1'"
        yield Site(start_hub(stack, slurm, tmp_path_factory.mktemp("hub"), lines=lines, profiles=profiles()), slurm)


class TestMainJob(MainJob):
    """The main job."""
