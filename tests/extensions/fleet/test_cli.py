"""gpuspawner fleet: what a hub's database holds of the nodes."""

from __future__ import annotations

import json
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import create_engine

from jupyterhub_gpuspawner.extensions.fleet.gres_conf import LINKS_NOTE
from jupyterhub_gpuspawner.extensions.fleet.health import Grant
from jupyterhub_gpuspawner.extensions.fleet.node_record import IDLE_VIEWS
from jupyterhub_gpuspawner.extensions.fleet.store import FleetStore
from jupyterhub_gpuspawner.extensions.records.keeper import records_file
from jupyterhub_gpuspawner.extensions.records.store import SessionStore
from jupyterhub_gpuspawner.hub.job.session import Placed, Submitted
from jupyterhub_gpuspawner.placement.topology import load
from tests.cli.conftest import MACHINES
from tests.extensions.fleet.nodes import DAY, only, topology, view, with_gpu
from tests.fixtures.databases import disposed, with_tables

if TYPE_CHECKING:
    from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
    from tests.fixtures.commands import Call

NO_SLURM = "gpuspawner: Slurm's configuration is that of the last reports: "


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The configuration of a hub that has heard of four nodes; Slurm is not there."""
    database = tmp_path / "hub.sqlite"
    database.touch()
    with disposed(create_engine(f"sqlite:///{database}")) as engine:
        store = FleetStore(with_tables(engine))
        for name in ("g2", "g3"):
            store.add(view(name, topology(name)), lambda _: None)
        for _ in range(IDLE_VIEWS):
            store.add(view("g1", with_gpu(topology("g1"), 0, pcie_width=8), gres="gpu:v100:4"), lambda _: None)
        store.add(view("g4", only(topology("g4"), 0), gres="gpu:a100:4"), lambda _: Grant("7", "g4", DAY, 1))
    file = tmp_path / "jupyterhub_config.py"
    file.write_text(
        f"c.JupyterHub.spawner_class = 'gpu-slurm'\nc.JupyterHub.db_url = 'sqlite:///{database}'\n"
        f"c.GPUSlurmSpawner.slurm_bin_dir = '{tmp_path}'\n"
    )
    return file


def test_nodes_that_differ_come_first(gpuspawner: Call, config: Path) -> None:
    """Each with what was found, what is not known, and its grants; Slurm's silence is said."""
    result = gpuspawner("fleet", "-f", config)

    assert (result.exit_code, result.stderr.startswith(NO_SLURM)) == (0, True)
    assert result.stdout.splitlines() == [
        "DIFFERS g1: 4 \N{MULTIPLICATION SIGN} v100, 2 siblings, 4 of 4 GPUs seen, by 10 jobs that agree",
        "        0000:07:00.0: PCIe lanes 8; 2 siblings have 16",
        "        gres.conf names no Cores=, though the GPUs are on sockets 0-1",
        "        grants: no jobs with GPUs yet",
        "        The lines of gpuspawner fleet --gres-conf g1 tell Slurm the sockets of the GPUs and their links, "
        "which helps servers with Slurm 22.05, and with 24.11 and 26.05 if gpus_option is 'gpus'.",
        "ok      g2: 4 \N{MULTIPLICATION SIGN} v100, 2 siblings, 4 of 4 GPUs seen, by 1 job",
        "        grants: no jobs with GPUs yet",
        "ok      g3: 4 \N{MULTIPLICATION SIGN} v100, 2 siblings, 4 of 4 GPUs seen, by 1 job",
        "        grants: no jobs with GPUs yet",
        "ok      g4: 4 \N{MULTIPLICATION SIGN} a100, 0 siblings, 1 of 4 GPUs seen, by 1 job",
        "        Jobs have seen only their own GPUs so far; what they have not seen is not judged.",
        "        grants: 1 job",
        "All grants: 1 job",
    ]


def test_the_same_as_json(gpuspawner: Call, config: Path) -> None:
    """A document with a version."""
    document = json.loads(gpuspawner("fleet", "-f", config, "--json").stdout)
    assert [document["version"], document["slurm_asked"], [node["node"] for node in document["nodes"]]] == [
        1,
        False,
        ["g1", "g2", "g3", "g4"],
    ]
    assert document["nodes"][0]["differences"] == [
        {
            "kind": "pcie-width",
            "subjects": ["0000:07:00.0"],
            "seen": "8",
            "expected": "16",
            "agreeing": 2,
            "since": None,
            "sure": True,
        }
    ]


def test_lines_for_gres_conf_from_what_is_known(gpuspawner: Call, config: Path) -> None:
    """Of a node of which all has been seen; otherwise a comment says what to do instead."""
    assert gpuspawner("fleet", "-f", config, "--gres-conf", "g2").stdout.splitlines() == [
        "# From what 1 job reported; reports are made by their users' processes.",
        f"# {LINKS_NOTE}",
        "NodeName=g2 Name=gpu Type=v100 File=/dev/nvidia0 Cores=0-3 Links=-1,2,0,0",
        "NodeName=g2 Name=gpu Type=v100 File=/dev/nvidia1 Cores=0-3 Links=2,-1,0,0",
        "NodeName=g2 Name=gpu Type=v100 File=/dev/nvidia2 Cores=4-7 Links=0,0,-1,2",
        "NodeName=g2 Name=gpu Type=v100 File=/dev/nvidia3 Cores=4-7 Links=0,0,2,-1",
    ]
    assert gpuspawner("fleet", "-f", config, "--gres-conf", "g4").stdout.splitlines() == [
        "# From what 1 job reported; reports are made by their users' processes.",
        "# Jobs have seen only their own GPUs so far; what they have not seen is not judged. Run gpuspawner topology "
        "--gres-conf on the node.",
        "NodeName=g4 Name=gpu Type=v100 File=/dev/nvidia0 Cores=0-3",
    ]


def test_a_node_is_forgotten(gpuspawner: Call, config: Path) -> None:
    """As after a repair; a node of which nothing is known is an error."""
    assert gpuspawner("fleet", "-f", config, "--forget", "g1").stdout == "g1: forgotten.\n"
    for arguments in (("--forget", "g1"), ("--gres-conf", "g1")):
        result = gpuspawner("fleet", "-f", config, *arguments)
        assert (result.exit_code, "nothing is known of node 'g1'" in result.stderr) == (1, True)


def test_a_hub_that_was_never_started_has_no_database(gpuspawner: Call, config: Path) -> None:
    """An error that names the setting; no empty database is left behind."""
    (config.parent / "hub.sqlite").unlink()
    result = gpuspawner("fleet", "-f", config)
    assert (result.exit_code, "there is no database" in result.stderr) == (1, True)
    assert not (config.parent / "hub.sqlite").exists()


@pytest.fixture
def two(config: Path) -> Path:
    """The same hub, which names its cluster now, and a second one; each has a g1."""
    with disposed(create_engine(f"sqlite:///{config.parent / 'hub.sqlite'}")) as engine:
        FleetStore(engine, "juniper").take_over()
        FleetStore(engine, "cedar").add(view("g1", topology("g1"), gres="gpu:v100:4"), lambda _: None)
    with config.open("a") as file:
        file.write("c.GPUSlurmSpawner.clusters = {'juniper': {}, 'cedar': {'req_partition': 'k80'}}\n")
    return config


def test_nodes_are_listed_by_cluster_and_compared_with_those_of_their_own(gpuspawner: Call, two: Path) -> None:
    """Both have a node of the same name."""
    result = gpuspawner("fleet", "-f", two)
    heads = [line.partition(":")[0] for line in result.stdout.splitlines() if not line.startswith(" ")]
    both = ["juniper", "DIFFERS g1", "ok      g2", "ok      g3", "ok      g4", "All grants"]
    assert heads == [*both, "cedar", "DIFFERS g1", "All grants"]
    assert "ok      g1" not in result.stdout
    assert [line.split(" is that")[0] for line in result.stderr.splitlines() if "is that" in line] == [
        "gpuspawner: Slurm's configuration of juniper",
        "gpuspawner: Slurm's configuration of cedar",
    ]

    document = json.loads(gpuspawner("fleet", "-f", two, "--cluster", "cedar", "--json").stdout)
    assert [(node["node"], node["siblings"]) for node in document["nodes"]] == [("g1", 0)]


def test_a_node_of_one_of_several_clusters_is_named_with_it(gpuspawner: Call, two: Path) -> None:
    """Else the other's of the same name might be forgotten."""
    for arguments in (("--forget", "g1"), ("--gres-conf", "g1")):
        refused = gpuspawner("fleet", "-f", two, *arguments)
        assert (refused.exit_code, "add --cluster juniper or cedar" in refused.stderr) == (2, True)
    unknown = gpuspawner("fleet", "-f", two, "--cluster", "oak")
    assert (unknown.exit_code, "There is no cluster 'oak'" in unknown.stderr) == (1, True)

    assert gpuspawner("fleet", "-f", two, "--cluster", "juniper", "--forget", "g1").stdout == "g1: forgotten.\n"
    lines = gpuspawner("fleet", "-f", two).stdout.splitlines()
    heads = [line[:10] for line in lines if line.startswith(("ok", "DIFFERS"))]
    assert heads == ["ok      g2", "ok      g3", "ok      g4", "DIFFERS g1"]


def test_what_excludes_each_other_is_refused(gpuspawner: Call, config: Path) -> None:
    """Nothing is forgotten by a command that was meant in another way."""
    result = gpuspawner("fleet", "-f", config, "--forget", "g1", "--gres-conf", "g1")
    assert (result.exit_code, "Use only one of --json, --gres-conf and --forget." in result.stderr) == (2, True)
    assert "g1" in gpuspawner("fleet", "-f", config).stdout


@pytest.mark.slurm
def test_lines_for_gres_conf_say_what_they_would_have_been_worth(
    gpuspawner: Call, slurm_cluster: PrivateSlurm, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Slurm's scheduler is asked again for the servers that were on the node: three at once, as they are recorded.

    Jobs reported the GPUs at the other socket than today's gres.conf has them. With 8 of 12 cores of a socket each, the
    third server gets cores of both.
    """
    monkeypatch.setenv("SLURM_CONF", slurm_cluster.environment["SLURM_CONF"])
    database = tmp_path / "hub.sqlite"
    database.touch()
    with disposed(create_engine(f"sqlite:///{database}")) as engine:
        machine = load(str(MACHINES / "k80-2socket.json"))
        gpus = tuple(replace(gpu, numa_node=1 - (gpu.numa_node or 0), cpus=()) for gpu in machine.gpus)
        whole = replace(machine, gpus=gpus, simulated=False)
        FleetStore(with_tables(engine)).add(view("g1", whole), lambda _: None)
    now = time.time()
    with closing(SessionStore(records_file(f"sqlite:///{database}"))) as store:
        for number in range(3):
            name: dict[str, Any] = {"session": str(number), "username": "ada", "job_id": str(number)}
            resources: dict[str, Any] = {
                "partition": "gpu",
                "gpus": 1,
                "gpu_type": "k80",
                "cpus": 8,
                "memory_mib": 4000,
            }
            store.take(Submitted(**name, at=now, begun_at=now, profile="k80", **resources))
            allocation: dict[str, Any] = {
                "node": "g1",
                "partition": "gpu",
                "gpus": 1,
                "cpus": 8,
                "allocated_at": now + number,
            }
            store.take(Placed(**name, at=now + number, **allocation))
    config = tmp_path / "jupyterhub_config.py"
    config.write_text(f"c.JupyterHub.spawner_class = 'gpu-slurm'\nc.JupyterHub.db_url = 'sqlite:///{database}'\n")
    result = gpuspawner("fleet", "-f", config, "--gres-conf", "g1")

    assert (result.exit_code, result.stdout.splitlines()[0]) == (
        0,
        "# Of 3 servers of the last month that Slurm's scheduler was asked about again, 2 would have their cores "
        "beside their GPUs with these lines, and 0 with today's.",
    )
