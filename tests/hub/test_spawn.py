"""From the choice of a profile to a notebook server in a Slurm job, on a real hub and a real Slurm."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
import requests

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from tests.fixtures.hubs import COMMAND, offer

pytestmark = [pytest.mark.slurm, pytest.mark.hub]


def scontrol(slurm: PrivateSlurm, *arguments: str) -> str:
    """Run scontrol and return its output."""
    answer = subprocess.run(
        ["scontrol", *arguments],
        env={"PATH": "/usr/bin:/bin", **slurm.environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return answer.stdout


def granted(slurm: PrivateSlurm, job_id: str) -> tuple[str, str, str]:
    """Node, CPU ids and GPU indices that Slurm allocated to a job."""
    match = re.search(
        r"Nodes=(\S+) CPU_IDs=(\S+) .*?(?:IDX:([0-9,-]+)|$)", scontrol(slurm, "show", "job", "-d", job_id)
    )
    assert match, "scontrol shows no allocation"
    return match[1], match[2], match[3] or ""


def test_a_server_runs_where_slurm_says_with_the_gpus_that_slurm_granted(
    shared_hub: HubProcess, slurm_cluster: PrivateSlurm
) -> None:
    """The placement on the hub equals the output of `scontrol show job -d`."""
    placement = shared_hub.spawn("ada", {"profile": "k80", "gpus": 2})
    node, cpus, gpus = granted(slurm_cluster, placement["job_id"])
    indices = [gpu["index"] for gpu in placement["gpus"]]

    assert (placement["node"], placement["cpus"]) == (node, cpus)
    assert sorted(indices) == list(range(int(gpus[0]), int(gpus[-1]) + 1))
    assert placement["partition"] == "gpu"
    assert placement["simulated"] is True
    assert {gpu["name"] for gpu in placement["gpus"]} == {"Tesla K80"}
    assert placement["weakest_link"] == "PIX"
    assert placement["ends_at"] is not None

    shared_hub.end("ada")

    assert re.search(r"JobState=(CANCELLED|COMPLETING) ", scontrol(slurm_cluster, "show", "job", placement["job_id"]))


def test_named_servers_of_one_user_are_jobs_of_their_own(shared_hub: HubProcess) -> None:
    """Two servers have two jobs and two ports; when one stops, the other continues."""
    default = shared_hub.spawn("dov", {"profile": "cpu"})
    named = shared_hub.spawn("dov", {"profile": "mig"}, server="slice")

    assert default["job_id"] != named["job_id"]
    assert named["gpus"][0]["mig"] == "1g.10gb"

    shared_hub.end("dov")

    assert shared_hub.server("dov", "slice") is not None
    shared_hub.end("dov", "slice")


def test_a_server_on_the_hubs_machine_runs_without_a_job(shared_hub: HubProcess) -> None:
    """JupyterHub's own spawner starts it; there is no placement to show."""
    assert shared_hub.spawn("eli", {"profile": "local"})["status"] == 404

    shared_hub.end("eli")


def test_a_server_on_the_hubs_machine_listens_within_its_profiles_ports(light_hub: HubProcess) -> None:
    """Its launcher is the installation's own: no file is made for it that a cleaner might remove."""
    fields = f"kind: local, port_range: 21300-21399, command: {COMMAND}"
    offer(light_hub, "here", f"{{display_name: Here, slug: here, {fields}}}")
    begins, temporary = len(light_hub.log.read_text()), Path(light_hub.environment["TMPDIR"])
    before = sorted(temporary.iterdir())
    light_hub.spawn("here", {"profile": "here"})
    log, after = light_hub.log.read_text()[begins:], sorted(temporary.iterdir())
    light_hub.end("here")

    ports = re.findall(r"Adding user here to proxy /user/here/ => http://127\.0\.0\.1:(\d+)", log)
    assert ports != []
    assert [port for port in ports if not 21300 <= int(port) <= 21399] == []
    assert "the launcher failed" not in log
    assert after == before


def test_a_server_answers_at_its_address(shared_hub: HubProcess) -> None:
    """The proxy routes to a real JupyterLab inside the job."""
    shared_hub.spawn("gus", {"profile": "cpu"})
    headers = {"Authorization": f"token {shared_hub.token}"}
    answer = requests.get(f"{shared_hub.url}/user/gus/api/status", headers=headers, timeout=30)

    assert answer.status_code == 200
    assert "kernels" in json.loads(answer.text)
    shared_hub.end("gus")
