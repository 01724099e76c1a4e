"""2,000 nodes and 20,000 pending jobs, of which Slurm plans a few; squeue takes 3 s.

One node is real. The others exist in slurmctld's configuration alone: they never boot, and jobs that hold them do not
run.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.demo.slurm_cluster import (
    DEMO_CLUSTER,
    ClusterDescription,
    PrivateSlurm,
    SimulatedPartition,
)
from tests.fixtures.hubs import COMMAND, offer, start_hub
from tests.fixtures.slurm import ChangedSlurm
from tests.hub.commands import commands, slow
from tests.hub.servers import in_the_end, job_id, start
from tests.hub.visitor import Visitor
from tests.nightly.sites.main_job import CONFIG, MainJob, Site, profiles
from tests.waiting import wait_until, wait_until_equal

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

NODES, PENDING, ARRAY = 2000, 20_000, 1000
CLUSTER = ClusterDescription(
    nodes=tuple(node for node in DEMO_CLUSTER.nodes if node.name == "g1"),
    partitions=(SimulatedPartition("gpu", ("g1",)),),
    name="big",
)
FAST = "SchedulerParameters=sched_interval=1,default_queue_depth=100000,batch_sched_delay=0,bf_interval=5"
SHORT = FAST.replace("100000", "100") + ",bf_max_job_test=100"
"""As a large site has it: of 20,000 jobs 100 are considered."""
WIDE = f"""\
ResumeProgram=/bin/true
SuspendProgram=/bin/true
ResumeTimeout=7200
SuspendTime=100000
TreeWidth=65533
PrivateData=cloud
MaxJobCount=100000
MaxArraySize=10001
NodeName=DEFAULT Sockets=2 CoresPerSocket=32 RealMemory=512000 State=CLOUD
NodeName=n[0001-{NODES}] NodeAddr=127.0.0.1 Port=1 Gres=gpu:a100:8
PartitionName=wide Nodes=n[0001-{NODES}] Default=NO DefaultTime=01:00:00 MaxTime=1-00:00:00 State=UP
"""
GRES = f"""\
AutoDetect=off
NodeName=g1 Name=gpu Type=k80 File={{folder}}/dev/g1/nvidia[0-1] Cores=0-11
NodeName=g1 Name=gpu Type=k80 File={{folder}}/dev/g1/nvidia[2-3] Cores=12-23
NodeName=n[0001-{NODES}] Name=gpu Type=a100 File=/dev/nvidia[0-7]
"""
WIDE_PROFILE = f"""
- {{display_name: A wide one, slug: wide, command: {COMMAND},
   slurm: {{partition: wide, gpus: 1, gpu_type: a100, cpus: 4, memory: 4G, time: "0:10:00"}}}}
"""


def with_many_nodes(conf: str) -> str:
    """The nodes that only slurmctld knows."""
    lines = [line if not line.startswith("SchedulerParameters") else FAST for line in conf.splitlines()]
    return "\n".join(lines) + f"\n{WIDE}"


def fill(slurm: PrivateSlurm) -> None:
    """Submit jobs: one for each node, which holds it, and those that wait, most of them in arrays."""
    submit = ("sbatch", "--partition=wide", "--output=/dev/null", "--wrap=true")
    slurm.run(*submit, "--exclusive", "--mem=0", f"--array=1-{NODES}")
    wait_until(lambda: count(slurm, "CF") == NODES, lambda: count(slurm, "CF"), seconds=240)
    slurm.conf.write_text(slurm.conf.read_text().replace(FAST, SHORT))
    slurm.run("scontrol", "reconfigure")
    for _ in range(3 * PENDING // 4 // ARRAY):
        slurm.run(*submit, "--gres=gpu:1", f"--array=1-{ARRAY}")
    single = 'for _ in $(seq "$1"); do "${@:2}" >/dev/null || exit; done'
    command = ["bash", "-c", single, "", str(PENDING // 8), f"{slurm.bin_dir}/sbatch", *submit[1:], "--gres=gpu:1"]
    environment = {**os.environ, **slurm.environment}
    loops = [subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL) for _ in range(2)]
    assert [loop.wait(timeout=600) for loop in loops] == [0, 0]


def count(slurm: PrivateSlurm, state: str) -> int:
    """How many jobs are in a state, each task of an array for itself."""
    return len(slurm.run("squeue", "-h", "-r", "-t", state, "-o", "%i").splitlines())


@pytest.fixture(scope="module")
def site(needs_slurm: None, public_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """All nodes but the real one are full, and the queue is long."""
    with ExitStack() as stack:
        slurm = stack.enter_context(ChangedSlurm(CLUSTER, public_folder / "big", with_many_nodes, {"gres.conf": GRES}))
        fill(slurm)
        folder = tmp_path_factory.mktemp("hub")
        late = commands(tmp_path_factory.mktemp("bin") / "late", slurm.bin_dir, {"squeue": slow(before=3)})
        hub = start_hub(
            stack,
            slurm,
            folder,
            lines=CONFIG,
            profiles=profiles(),
            GPUSPAWNER_DEMO_SLURM=str(late),
        )
        yield Site(hub, slurm)


class TestMainJob(MainJob):
    """The main job."""


@pytest.fixture(scope="module")
def offered(site: Site) -> Site:
    """The site, whose hub also offers the partition with the long queue."""
    offer(site.hub, "wide", WIDE_PROFILE)
    return site


def test_a_form_names_no_time_where_slurm_plans_none(offered: Site) -> None:
    """Behind thousands of jobs it says so; beside that, in a partition without a queue, a server starts now."""
    card = re.compile(r"memory \d+ min (.*?\.) ")
    visitor = Visitor(offered.hub, "fay")
    wanted = ["Starts now, 4 of 4 K80 free.", "Starts now, 4 of 4 K80 free.", "Full, 1 person ahead of you."]
    wait_until_equal(lambda: card.findall(visitor.look("/hub/spawn").text), wanted)


def test_a_server_that_waits_behind_them_has_no_estimate_and_can_be_stopped(offered: Site) -> None:
    """Slurm has not looked at its job; the page says why it is pending, and *Stop* leaves no job."""
    start(offered.hub, "gus", "wide")
    job, gus = job_id(offered.hub, "gus"), Visitor(offered.hub, "gus")
    wait_until(
        lambda: "1 person ahead of you Slurm has no estimate yet" in gus.pending().text, lambda: gus.pending().text
    )
    offered.hub.end("gus")
    assert in_the_end(offered.slurm, job) == "CANCELLED"


def test_the_map_has_every_node(offered: Site) -> None:
    """They are counted on the page, which has them folded."""
    admin = Visitor(offered.hub, "admin")
    page = admin.look("/hub/gpuspawner/cluster").soup.get_text(" ")
    shown = "2,001 nodes; 16,004 GPUs: 4 free, 16,000 in use"
    assert shown in " ".join(page.split())
