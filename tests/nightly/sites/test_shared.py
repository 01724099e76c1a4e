"""Shared nodes: a partition whose jobs share CPUs (OverSubscribe=FORCE:4), beside partitions of whole nodes.

All partitions have the same two nodes: ``gpu``, where each CPU is given to four jobs; ``plain``; ``whole``, where each
job has its node for itself (OverSubscribe=EXCLUSIVE); and ``person``, where a node is for the jobs of one user
(ExclusiveUser). ``pairs`` gives each CPU to two jobs, beside those of ``gpu``. The main job runs in ``gpu``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jupyterhub_gpuspawner.demo.slurm_cluster import DEMO_CLUSTER, ClusterDescription, PrivateSlurm, SimulatedPartition
from jupyterhub_gpuspawner.slurm.estimate import Chance
from tests.fixtures.hubs import COMMAND, start_hub
from tests.fixtures.slurm import ChangedSlurm
from tests.nightly.sites.main_job import CONFIG, MainJob, Site, granted, profiles
from tests.nightly.sites.promises import Filled, cancel_all, chance, considered, fill, submit
from tests.standins.resources import resolved
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

K80, *_ = DEMO_CLUSTER.nodes
NODES = ("g1", "g2")
CLUSTER = ClusterDescription(
    (K80, replace(K80, name="g2")),
    (
        SimulatedPartition("gpu", NODES, default=True),
        *(SimulatedPartition(name, NODES) for name in ("plain", "whole", "person", "pairs")),
    ),
    name="shared",
)
SHARING = {
    "gpu": "OverSubscribe=FORCE:4",
    "plain": "OverSubscribe=NO",
    "whole": "OverSubscribe=EXCLUSIVE",
    "person": "ExclusiveUser=YES",
    "pairs": "OverSubscribe=FORCE:2",
}
WHOLE = f"""
- {{display_name: A whole node, slug: whole, command: {COMMAND},
   slurm: {{partition: whole, gpus: 1, gpu_type: k80, cpus: 4, memory: 600M, time: "0:10:00"}}}}
"""


def change(text: str) -> str:
    """Each partition with what it shares."""
    for name, sharing in SHARING.items():
        text = text.replace(f"PartitionName={name} ", f"PartitionName={name} {sharing} ")
    return text


@pytest.fixture(scope="module")
def site(needs_slurm: None, public_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Two K80 nodes in four partitions."""
    with ExitStack() as stack:
        slurm = stack.enter_context(ChangedSlurm(CLUSTER, public_folder / "shared", change))
        hub = start_hub(stack, slurm, tmp_path_factory.mktemp("hub"), lines=CONFIG, profiles=profiles())
        yield Site(hub, slurm)


class TestMainJob(MainJob):
    """The main job, which shares its CPUs with jobs that may come."""


def test_a_server_with_a_whole_node_is_bound_to_what_it_requested(site: Site) -> None:
    """Beside its GPU, and to whole cores, though Slurm has granted it all of the node."""
    (site.hub.folder / "profiles" / "whole.yaml").write_text(WHOLE)
    job = str(site.hub.spawn("eve", {"profile": "whole"})["job_id"])
    try:
        placement = site.hub.api("GET", "/gpuspawner/placement/eve").json()
        assert (granted(site.slurm, job)["cpus"], placement["cpus"], placement["problems"]) == ("0-23", "0-3", [])
        assert [gpu["index"] for gpu in placement["gpus"]] == [0]
    finally:
        site.hub.end("eve")


@pytest.mark.parametrize(
    ("partition", "resources", "run"),
    [
        ("gpu", {"gpus": 1, "gpu_type": "k80", "cpus": 4, "memory": 600}, 8),
        ("gpu", {"cpus": 7, "memory": 600}, 24),
        ("gpu", {"cpus": 10, "memory": 20000}, 6),
        ("gpu", {"cpus": 24, "memory": 600}, 8),
        ("plain", {"cpus": 7, "memory": 600}, 6),
        ("whole", {"cpus": 1}, 2),
    ],
)
def test_what_starts_is_what_was_promised(site: Site, partition: str, resources: dict[str, Any], run: int) -> None:
    """The form's "starts now" for one job after the other, and the number of seats."""
    assert fill(site.slurm, resolved(partition, time=600, **resources)) == Filled(run, run, run)


@pytest.fixture
def beside(site: Site) -> Iterator[PrivateSlurm]:
    """The site's Slurm, on which other jobs run while a test does."""
    yield site.slurm
    cancel_all(site.slurm)


@pytest.mark.parametrize(("first", "then"), [("gpu", "plain"), ("plain", "gpu"), ("gpu", "whole"), ("whole", "gpu")])
def test_jobs_that_share_cpus_share_no_node_with_those_of_others(beside: PrivateSlurm, first: str, then: str) -> None:
    """However little of the nodes is in use; the form says so before it is tried."""
    little = resolved(first, time=600, cpus=1, memory=600, nodes=2)
    holder = submit(beside, little)
    wait_until(lambda: considered(beside, holder) == "RUNNING")
    wanted = resolved(then, time=600, cpus=1, memory=600)
    promise = chance(beside, wanted)
    job = submit(beside, wanted)
    assert (promise, wait_until(lambda: considered(beside, job))) == (Chance.LATER, "PENDING")


@pytest.mark.parametrize(("first", "then"), [("gpu", "pairs"), ("pairs", "gpu")])
def test_partitions_that_share_cpus_share_each_others(beside: PrivateSlurm, first: str, then: str) -> None:
    """Jobs of one do not count in the other: a whole node is free for one that needs all of its cores."""
    holder = submit(beside, resolved(first, time=600, cpus=24, memory=600, nodes=2))
    wait_until(lambda: considered(beside, holder) == "RUNNING")
    wanted = resolved(then, time=600, cpus=24, memory=600)
    promise = chance(beside, wanted)
    job = submit(beside, wanted)
    assert (promise, wait_until(lambda: considered(beside, job))) == (Chance.NOW, "RUNNING")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can submit jobs of another user")
@pytest.mark.parametrize(("first", "then"), [("person", "person"), ("person", "plain"), ("plain", "person")])
def test_a_node_is_for_one_person(beside: PrivateSlurm, first: str, then: str) -> None:
    """Jobs of the same account go on beside each other; those of others wait, and the form says so to each."""
    holder = submit(beside, resolved(first, time=600, cpus=1, memory=600, nodes=2))
    wait_until(lambda: considered(beside, holder) == "RUNNING")
    wanted = resolved(then, time=600, cpus=1, memory=600)
    promises = [chance(beside, wanted, user=user) for user in ("root", "nobody")]
    jobs = [submit(beside, wanted, "--chdir=/", *words) for words in ((), ("--uid=nobody",))]
    states = [wait_until(lambda job=job: considered(beside, job)) for job in jobs]  # type: ignore[misc]
    assert (promises, states) == ([Chance.NOW, Chance.LATER], ["RUNNING", "PENDING"])
