"""From the choice of a profile to a notebook server in a Slurm job, on a real hub and a real Slurm."""

from __future__ import annotations

import json
import re
import subprocess

import pytest
import requests

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm

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
    found = re.search(
        r"Nodes=(\S+) CPU_IDs=(\S+) .*?(?:IDX:([0-9,-]+)|$)", scontrol(slurm, "show", "job", "-d", job_id)
    )
    assert found, "scontrol shows no allocation"
    return found[1], found[2], found[3] or ""


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


def test_two_users_on_one_node_get_different_gpus(shared_hub: HubProcess, slurm_cluster: PrivateSlurm) -> None:
    """No GPU or core is allocated twice, and page and Slurm agree for both servers."""
    first = shared_hub.spawn("bea", {"profile": "k80"})
    second = shared_hub.spawn("cem", {"profile": "k80"})
    taken = [granted(slurm_cluster, placement["job_id"]) for placement in (first, second)]

    assert first["node"] == second["node"] == "g1"
    assert [str(placement["gpus"][0]["index"]) for placement in (first, second)] == [gpus for _, _, gpus in taken]
    assert first["gpus"] != second["gpus"]
    assert [placement["cpus"] for placement in (first, second)] == [cpus for _, cpus, _ in taken]

    shared_hub.end("bea")
    shared_hub.end("cem")


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


REFUSED = {
    "an unknown profile": ({"profile": "nope"}, "profile"),
    "an option outside its bounds": ({"profile": "k80", "gpus": 5}, "GPUs"),
    "an option of another type": ({"profile": "k80", "gpus": ["1"]}, "gpus"),
    "an option that is not offered": ({"profile": "k80", "partition": "root"}, "partition"),
    "a line break in a value": ({"profile": "k80", "gpus": "1\n#SBATCH --uid=root"}, "gpus"),
    "no text for the profile": ({"profile": {"a": 1}}, "profile"),
}


@pytest.mark.parametrize(("options", "field"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_not_allowed_is_refused_with_the_field_named(
    shared_hub: HubProcess, options: dict[str, object], field: str
) -> None:
    """The answer is 400 with one sentence that names the field; no job is running afterwards."""
    shared_hub.api("POST", "/users/fay")
    answer = shared_hub.api("POST", "/users/fay/server", options)

    assert answer.status_code == 400
    assert field in answer.json()["message"]
    assert shared_hub.server("fay") is None


def test_batchspawners_handler_is_gone_and_ours_takes_no_other_token(shared_hub: HubProcess) -> None:
    """The old URL answers 404; ours answers 403 to the token of a service."""
    old = shared_hub.api("POST", "/batchspawner", {"port": 1})
    report = shared_hub.api("POST", "/gpuspawner/report", {"version": 1, "port": 20000})

    assert (old.status_code, report.status_code) == (404, 403)


def test_a_server_answers_at_its_address(shared_hub: HubProcess) -> None:
    """The proxy routes to a real JupyterLab inside the job."""
    shared_hub.spawn("gus", {"profile": "cpu"})
    headers = {"Authorization": f"token {shared_hub.token}"}
    answer = requests.get(f"{shared_hub.url}/user/gus/api/status", headers=headers, timeout=30)

    assert answer.status_code == 200
    assert "kernels" in json.loads(answer.text)
    shared_hub.end("gus")
