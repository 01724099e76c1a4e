"""Power saving nodes: Slurm starts them for a job, at a new address each time, and hides those that are off."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.demo.slurm_cluster import (
    ClusterDescription,
    SimulatedNode,
    SimulatedPartition,
    whole_gpus,
)
from jupyterhub_gpuspawner.extensions.availability.model.availability import HIDDEN
from tests.fixtures.hubs import COMMAND, offer, start_hub
from tests.fixtures.slurm import ChangedSlurm
from tests.hub.servers import environment, in_the_end, job_id, start, state, why_it_ended
from tests.hub.visitor import Visitor
from tests.nightly.sites.main_job import CONFIG, MainJob, Site, profiles
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

CLOUD = ("g1", "g2", "b1")
CLUSTER = ClusterDescription(
    nodes=(
        *(
            SimulatedNode(
                name,
                machine="k80-2socket",
                sockets=2,
                cores_per_socket=12,
                memory_mib=64000,
                gpus=(whole_gpus("k80", range(2), cores="0-11"), whole_gpus("k80", range(2, 4), cores="12-23")),
                features=("k80",),
            )
            for name in CLOUD[:2]
        ),
        SimulatedNode("b1", machine="cpu", sockets=2, cores_per_socket=4, memory_mib=8000),
        SimulatedNode("c1", machine="cpu", sockets=2, cores_per_socket=20, memory_mib=190000),
    ),
    partitions=(
        SimulatedPartition("gpu", CLOUD[:2]),
        SimulatedPartition("broken", ("b1",)),
        SimulatedPartition("batch", ("c1",), default=True),
    ),
    name="cloud",
)
"""Two nodes with GPUs and power saving, one that never boots, and one that is always on."""

POWER = """\
ResumeProgram={folder}/resume
SuspendProgram={folder}/suspend
ResumeFailProgram={folder}/resume_failed
ResumeTimeout=90
SuspendTimeout=10
SuspendTime=20
SuspendExcParts=batch
"""
ENVIRONMENT = """\
#!/bin/bash
export SLURM_CONF={folder}/slurm.conf PATH="$PATH:/usr/sbin:/sbin:/usr/bin:/bin"
exec >>{folder}/log/power.log 2>&1
"""
FILES = {
    "resume": f"""{ENVIRONMENT}
for node in $(scontrol show hostnames "$1"); do
  [ "$node" != b1 ] || continue
  (
    sleep "$(cat {{folder}}/boot_seconds)"
    exec 9>{{folder}}/lock && flock 9
    number=$(($(cat {{folder}}/last_address) + 1))
    echo $number >{{folder}}/last_address
    scontrol update "nodename=$node" "nodeaddr=127.0.0.$number"
    exec setsid slurmd -b -D -N "$node" -f "$SLURM_CONF" 9>&-
  ) &
done
""",
    "suspend": f"""{ENVIRONMENT}
for node in $(scontrol show hostnames "$1"); do
  [ ! -e "{{folder}}/slurmd-$node.pid" ] || kill -KILL "$(cat "{{folder}}/slurmd-$node.pid")"
done
""",
    "resume_failed": f"{ENVIRONMENT}echo failed $1\n",
    "boot_seconds": "30",
    "last_address": "1",
}
"""The site's programs (slurm.conf(5), power saving): a node gets the next address each time it boots."""


def with_power_saving(conf: str) -> str:
    """The nodes are CLOUD, and until they run, Slurm has no address but their names, which nobody can resolve."""
    conf = re.sub(
        r"(NodeName=([gb]\d)) NodeAddr=\S+ (.*) State=UNKNOWN", r"\1 NodeAddr=\2.invalid \3 State=CLOUD", conf
    )
    return conf.replace("SchedulerParameters", f"{POWER}SchedulerParameters")


HUB = f"""
{CONFIG}
c.GPUSlurmSpawner.start_timeout = 25
"""
"""A node takes longer to boot than a server may take to start on it."""
COURSE = """
name: Deep learning
instructors: [root]
roster: [root]
profile: main
zone: UTC
sessions:
  - {{date: {day}, from: 9:00, to: 9:10, reservation: ml}}
"""
BROKEN = f"""
- {{display_name: Never, slug: never, command: {COMMAND},
   slurm: {{partition: broken, cpus: 1, memory: 600M, time: "0:10:00"}}}}
"""


@pytest.fixture(scope="module")
def site(needs_slurm: None, public_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """All nodes with GPUs are off."""
    with ExitStack() as stack:
        slurm = stack.enter_context(
            ChangedSlurm(CLUSTER, public_folder / "cloud", with_power_saving, FILES, powered_down=CLOUD)
        )
        folder = tmp_path_factory.mktemp("hub")
        hub = start_hub(stack, slurm, folder, lines=HUB, profiles=profiles())
        yield Site(hub, slurm, findings=("nodes-hidden",))


class TestMainJob(MainJob):
    """The main job."""


@pytest.fixture
def off(site: Site) -> None:
    """The nodes with GPUs are off."""
    wait_until(lambda: not re.search(r"^g\d \S*[^~]$", nodes(site), re.MULTILINE), lambda: nodes(site), seconds=120)


def nodes(site: Site) -> str:
    """The nodes that Slurm shows, with the state of each."""
    return site.slurm.run("sinfo", "-h", "-N", "-o", "%N %T")


def form(site: Site, user: str) -> str:
    """The text of a user's form."""
    return Visitor(site.hub, user).look("/hub/spawn").text


def addresses(site: Site, user: str) -> list[str]:
    """Those of the user's servers, which the hub gave to the proxy one after the other."""
    return re.findall(rf"Adding user {user} to proxy \S+ => http://(\S+):\d+", site.hub.log.read_text())


@pytest.mark.usefixtures("off")
def test_a_form_does_not_guess_what_nodes_may_be_powered_on(site: Site) -> None:
    """Slurm hides them: neither "starts now" nor "out of service" is true."""
    assert f"Availability unknown: {HIDDEN}" in form(site, "fay")


@pytest.mark.usefixtures("off")
def test_a_node_that_boots_is_said_to_and_has_another_address_each_time(site: Site) -> None:
    """The hub reaches each server at the address that Slurm has since the node's last boot, and at no name."""
    booting = "Slurm is powering on node g1 for your server. That may take up to 2 min."
    ben, served, jobs = Visitor(site.hub, "ben"), [], []
    for _ in range(2):
        start(site.hub, "ben", "main")
        wait_until(lambda: booting in ben.pending().text, lambda: ben.pending().text, seconds=60)
        site.hub.wait("ben", ready=True, timeout=170)
        jobs.append(job_id(site.hub, "ben"))
        served.append(environment(site.hub, "ben")["SLURM_JOB_ID"])  # through the proxy
        site.hub.end("ben")
        wait_until(lambda: "g1 " not in nodes(site), lambda: nodes(site), seconds=120)

    first, second = addresses(site, "ben")
    assert served == jobs
    assert (first.startswith("127.0.0."), second.startswith("127.0.0."), first == second) == (True, True, False)


def test_a_node_that_never_boots_fails_the_start_by_slurms_time_and_not_by_the_hubs(site: Site) -> None:
    """Slurm waits for it longer than the hub waits for servers (start_timeout); the page says that the node failed."""
    offer(site.hub, "never", BROKEN)
    start(site.hub, "cat", "never")
    wait_until(lambda: not site.hub.server("cat"), seconds=150)
    assert "The node of the job failed" in why_it_ended(site.hub, "cat")


@pytest.mark.usefixtures("off")
def test_a_course_is_counted_once_slurm_shows_the_nodes_of_its_reservation(site: Site) -> None:
    """Until then no seats are counted, and why is said; a node that is off counts as one that is on."""
    day = time.strftime("%Y-%m-%d", time.gmtime(time.time() + 86400))
    courses = site.hub.folder / "courses"
    courses.mkdir(exist_ok=True)
    (courses / "deep.yaml").write_text(COURSE.format(day=day))
    reservation = (
        "reservationname=ml",
        "nodes=g[1-2]",
        "users=root",
        f"starttime={day}T00:00:00",
        "duration=1-00:00:00",
    )
    site.slurm.run("scontrol", "create", "reservation", *reservation)

    assert course_check(site) == [
        "Slurm does not show g1, g2 of reservation ml, which may be powered down, so no seats are counted. With cloud "
        "in PrivateData of slurm.conf it does."
    ]
    conf = site.slurm.conf
    conf.write_text(f"{conf.read_text()}PrivateData=cloud\n")
    site.slurm.run("scontrol", "reconfigure")
    assert course_check(site) == []
    assert "nodes-hidden" not in {finding["code"] for finding in site.check()}
    free = "Starts now, 8 of 8 K80 free; a node has to be powered on first."
    wait_until(lambda: free in form(site, "gus"), lambda: form(site, "gus"))
    map_page = Visitor(site.hub, "admin").look("/hub/gpuspawner/cluster").soup.get_text(" ")
    assert "free, powered down until it is needed" in " ".join(map_page.split())


@pytest.mark.usefixtures("off")
def test_a_server_whose_node_boots_can_be_stopped(site: Site) -> None:
    """Its job is cancelled; the node boots nevertheless, and Slurm powers it down again."""
    start(site.hub, "dan", "main")
    job = job_id(site.hub, "dan")
    wait_until(lambda: state(site.slurm, job) == "CONFIGURING")
    site.hub.end("dan")
    assert in_the_end(site.slurm, job) == "CANCELLED"


@pytest.mark.usefixtures("off")
def test_a_hub_that_is_restarted_while_a_node_boots_waits_for_it(site: Site) -> None:
    """It has the time that Slurm allows it in that hub, too."""
    start(site.hub, "eve", "main")
    job = job_id(site.hub, "eve")
    wait_until(lambda: state(site.slurm, job) == "CONFIGURING")
    site.hub.restart()
    site.hub.wait("eve", ready=True, timeout=170)
    assert job_id(site.hub, "eve") == job
    site.hub.end("eve")


def course_check(site: Site) -> list[str]:
    """What `gpuspawner course check` says of the course's session."""
    program, config = Path(sys.executable).with_name("gpuspawner"), site.hub.write_configuration()
    command = [str(program), "course", "check", "--json", "--config", str(config), "deep"]
    answer = subprocess.run(command, cwd=site.hub.folder, capture_output=True, text=True, check=False, timeout=170)
    assert answer.stdout, answer.stderr
    problems: list[str] = json.loads(answer.stdout)["sessions"][0]["problems"]
    return problems
