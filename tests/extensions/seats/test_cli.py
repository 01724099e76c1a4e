"""gpuspawner what-if, with the real slurmctld."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.runner import run

if TYPE_CHECKING:
    from click.testing import Result

    from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm

SITE = """
c.JupyterHub.spawner_class = "gpu-profiles"
c.GPUSlurmSpawner.req_partition = "gpu"
c.GPUProfilesSpawner.profiles = [
    {
        "display_name": "A K80",
        "slug": "k80",
        "allow": {"groups": ["course"]},
        "slurm": {"gpus": 1, "gpu_type": "k80", "cpus": 8, "memory": "8G", "time": "1:00:00"},
        "profile_options": {"gpus": {"range": {"min": 1, "max": 4, "sets": "slurm.gpus"}}},
    },
    {"display_name": "No GPU", "slug": "cpu", "slurm": {"partition": "batch", "cpus": 40, "memory": "8G"}},
    {"display_name": "Here", "slug": "here", "kind": "local"},
]
"""


def what_if(folder: Path, slurm: PrivateSlurm, *words: str) -> Result:
    """Ask about an empty cluster: other tests of the session have jobs on it."""
    return run(folder, SITE, "what-if", "--empty", *words, environment=slurm.environment)


@pytest.mark.slurm
def test_a_gres_conf_is_compared_with_todays(slurm_cluster: PrivateSlurm, tmp_path: Path) -> None:
    """Without Cores= the second server gets a GPU of the other socket; where GPUs are is still known from today."""
    lines = tmp_path / "gres.conf"
    lines.write_text("NodeName=g1 Name=gpu Type=k80 File=/dev/nvidia[0-3]\n")
    result = what_if(tmp_path, slurm_cluster, "--profile", "k80", "--people", "4", "--gres-conf", str(lines))

    assert (result.exit_code, result.stderr, result.stdout.splitlines()) == (
        0,
        "",
        [
            "PERSON  TODAY             GPUS  CORES       BESIDE  THEN              GPUS  CORES       BESIDE",
            "1       g1                0     0-7         yes     g1                0     0-7         yes",
            "2       g1                2     12-19       yes     g1                1     12-19       no",
            "3       g1                1     8-11,20-23  no      g1                2     8-11,20-23  no",
            "4       waits: Resources                            waits: Resources",
            "Today: 3 of 4 run, 2 of 3 with their cores beside their GPUs",
            "Then: 3 of 4 run, 1 of 3 with their cores beside their GPUs",
        ],
    )


@pytest.mark.slurm
def test_more_nodes_run_more_servers(slurm_cluster: PrivateSlurm, tmp_path: Path) -> None:
    """As one JSON document, with an option of the profile and the options of the job."""
    words = ("--profile", "k80", "--option", "gpus=4", "--people", "4", "--add-nodes", "g[2-3]=g1", "--json")
    result = what_if(tmp_path, slurm_cluster, *words)
    document = json.loads(result.stdout)
    whole = {"gpus": [0, 1, 2, 3], "cores": [*range(8)], "beside": False}  # all of the first socket

    assert (result.exit_code, document["version"], document["options"]) == (
        0,
        1,
        ["--nodes=1", "--partition=gpu", "--time=1:00:00", "--cpus-per-task=8", "--mem=8192M", "--gres=gpu:k80:4"],
    )
    assert [
        (site["running"], site["beside"], [job["shares"] for job in site["jobs"]])
        for site in (document["today"], document["then"])
    ] == [
        (1, 0, [[{"node": "g1", **whole}], [], [], []]),
        (3, 0, [*([{"node": name, **whole}] for name in ("g1", "g2", "g3")), []]),
    ]


FAULTS = {
    "no profile": ((), 2, "Name a profile with --profile."),
    "an unknown one": (("--profile", "x"), 1, "There is no profile 'x'."),
    "no job": (("--profile", "here"), 1, "Profile 'here' is not a Slurm job and has no batch script."),
    "a parameter that the twin has not": (
        ("--profile", "cpu", "--set", "Prolog=/bin/true"),
        1,
        "gpuspawner: --set: 'Prolog' is no parameter that can be set. These can: DefMemPerCPU, ",
    ),
    "one that slurmctld refuses": (
        ("--profile", "cpu", "--set", "SelectTypeParameters=CR_Nothing"),
        3,
        "gpuspawner: The copy of this cluster's scheduler failed: slurmctld ",
    ),
}


@pytest.mark.slurm
@pytest.mark.parametrize(("words", "code", "sentence"), FAULTS.values(), ids=FAULTS.keys())
def test_what_cannot_be_asked_is_said(
    slurm_cluster: PrivateSlurm, tmp_path: Path, words: tuple[str, ...], code: int, sentence: str
) -> None:
    """Exit code 2 for a wrong call, 1 for a wrong choice or change, 3 for slurmctld's refusal; no table."""
    result = what_if(tmp_path, slurm_cluster, *words)
    assert (result.exit_code, result.stdout) == (code, "")
    assert sentence in result.stderr


CLUSTERS = """
c.GPUSlurmSpawner.clusters = {"juniper": {"slurm_conf": "/no/such/slurm.conf"}, "cedar": {}}
c.GPUProfilesSpawner.profiles[0]["profile_options"]["where"] = {
    "choices": {"j": {"slurm": {"cluster": "juniper"}}, "c": {"slurm": {"cluster": "cedar"}}}
}
"""


@pytest.mark.slurm
@pytest.mark.parametrize("words", [("--cluster", "cedar"), ("--option", "where=c")])
def test_the_cluster_of_the_job_is_asked(slurm_cluster: PrivateSlurm, tmp_path: Path, words: tuple[str, str]) -> None:
    """The one that is named, or that of the choice; the other one is not there."""
    result = run(
        tmp_path,
        f"{SITE}{CLUSTERS}",
        "what-if",
        "--empty",
        *("--profile", "k80", *words),
        environment=slurm_cluster.environment,
    )

    assert (result.exit_code, result.stdout.splitlines()[-1]) == (
        0,
        "Today: 1 of 1 run, 1 of 1 with their cores beside their GPUs",
    )
