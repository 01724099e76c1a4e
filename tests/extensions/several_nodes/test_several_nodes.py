"""A server on four nodes of four GPUs: what each node's launcher reports, and nodes that do not report."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pytest

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import (
    ClusterDescription,
    PrivateSlurm,
    SimulatedNode,
    SimulatedPartition,
    whole_gpus,
)
from jupyterhub_gpuspawner.extensions.several_nodes.card import NOT_REPORTED
from tests.fixtures.hubs import start_hub, stop_servers
from tests.hub.notebook import Notebook
from tests.hub.visitor import Visitor
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

SHOW = "import json, os, sys; print(json.dumps([os.environ.get(name) for name in sys.argv[1:]]))"
VARIABLES = "RANK WORLD_SIZE LOCAL_RANK SLURMD_NODENAME CUDA_VISIBLE_DEVICES GPUSPAWNER_CPUS"
LONG = "!gpuspawner-run --per-node -- sh -c 'echo up; exec sleep 601'"
STAND_IN = Path(__file__).parents[2] / "standins" / "single_user.py"
NODES = ("g1", "g2", "g3", "g4")
GPUS = (whole_gpus("k80", range(2), cores="0-11"), whole_gpus("k80", range(2, 4), cores="12-23"))
CLUSTER = ClusterDescription(
    tuple(SimulatedNode(name, "k80-2socket", 2, 12, 64000, GPUS) for name in NODES),
    (SimulatedPartition("gpu", NODES, default=True),),
    name="several",
)
PROFILES = f"""
- display_name: Four nodes
  slug: four
  slurm: {{partition: gpu, nodes: 4, gpus: 4, cpus: 16, memory: 1G, time: "0:10:00"}}
  command: [{sys.executable}, {STAND_IN}]
- display_name: Four nodes, one without a working Python
  slug: lame
  slurm: {{partition: gpu, nodes: 4, gpus: 4, cpus: 4, memory: 1G, time: "0:10:00"}}
  environment: {{setup: ["export GPUSPAWNER_PYTHON=@FOLDER@/python"]}}
  command: [{sys.executable}, {STAND_IN}]
- display_name: JupyterLab on four nodes
  slug: lab
  slurm: {{partition: gpu, nodes: 4, gpus: 4, cpus: 24, memory: 1G, time: "0:10:00"}}
"""
PYTHON = f"""#!/bin/sh
case "$SLURMD_NODENAME $*" in "g3 "*other_node*) echo "no launcher on g3" >&2; exit 1;; esac
exec {sys.executable} "$@"
"""
"""On g3 the launcher ends at once."""


def describe_networks(slurm: PrivateSlurm) -> None:
    """Two cards beside the GPUs of g1, one on g2, none on g3."""
    for node, cards in (("g1", 2), ("g2", 1), ("g3", 0)):
        file = slurm.folder / "topology" / f"{node}.json"
        topology = json.loads(file.read_text())
        topology["source"] = "file+network"
        topology["nics"] = [f"mlx5_{n}" for n in range(cards)]
        topology["nic_numa"] = list(range(cards))
        topology["nic_links"] = [["PHB" if gpu // 2 == n else "SYS" for gpu in range(4)] for n in range(cards)]
        file.write_text(json.dumps(topology))


@pytest.fixture(scope="module")
def slurm(needs_slurm: None, public_folder: Path) -> Iterator[PrivateSlurm]:
    """Four nodes."""
    with PrivateSlurm(CLUSTER, public_folder / "several") as slurm:
        describe_networks(slurm)
        yield slurm


@pytest.fixture(scope="module")
def hub(slurm: PrivateSlurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    folder = tmp_path_factory.mktemp("hub")
    (folder / "python").write_text(PYTHON)
    (folder / "python").chmod(0o755)
    with ExitStack() as stack:
        yield start_hub(stack, slurm, folder, profiles=PROFILES.replace("@FOLDER@", str(folder)))


@pytest.fixture(autouse=True)
def no_server(hub: HubProcess) -> Iterator[None]:
    """Each test needs all GPUs."""
    yield
    stop_servers(hub)


def reported(hub: HubProcess, user: str, enough: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The placement once it has enough of the other nodes' reports; the last one after a minute."""
    for _ in range(240):
        placement: dict[str, Any] = hub.api("GET", f"/gpuspawner/placement/{user}").json()
        if enough(placement):
            break
        time.sleep(0.25)
    return placement


def nodes(placement: dict[str, Any]) -> list[str]:
    return [grant["node"] for grant in placement["other_nodes"] if grant["placement"] is not None]


def nics(placement: dict[str, Any]) -> list[tuple[str | None, str | None]]:
    return [(gpu["nic"], gpu["nic_link"]) for gpu in placement["gpus"]]


def test_each_node_has_its_placement(hub: HubProcess) -> None:
    """GPUs, CPUs and network cards of four nodes; one has no card, so the weakest link over all nodes is not known."""
    ada = Visitor(hub, "ada")
    hub.spawn("ada", {"profile": "four"})
    placement = reported(hub, "ada", lambda document: len(nodes(document)) == 3)
    admin = Visitor(hub, "admin")
    for _ in range(240):
        cluster = admin.look("/hub/gpuspawner/cluster?text=ada").soup
        holders = [node.text for node in cluster.select("main tr, main li") if "ada's server" in node.text]
        if holders:
            break
        time.sleep(0.25)
    page = ada.look("/hub/home").soup

    everywhere = [placement, *(grant["placement"] for grant in placement["other_nodes"])]
    assert [document["node"] for document in everywhere] == list(NODES)
    assert [[gpu["index"] for gpu in document["gpus"]] for document in everywhere] == [[0, 1, 2, 3]] * 4
    cores = [(document["cpus"], document["memory_mib"], document["aligned"]) for document in everywhere]
    assert cores == [("0-7,12-19", 1024, True)] * 4
    assert list(map(nics, everywhere)) == [
        [("mlx5_0", "PHB"), ("mlx5_0", "PHB"), ("mlx5_1", "PHB"), ("mlx5_1", "PHB")],
        [("mlx5_0", "PHB"), ("mlx5_0", "PHB"), ("mlx5_0", "SYS"), ("mlx5_0", "SYS")],
        [(None, None)] * 4,
        [("mlx4_0", "SYS"), ("mlx4_0", "SYS"), ("mlx4_0", "PHB"), ("mlx4_0", "PHB")],
    ]
    assert placement["weakest_link_over_nodes"] is None
    assert all(any(node in holder for holder in holders) for node in NODES)
    shown = page.select("[data-node]")
    assert [tag["data-node"] for tag in shown] == ["g2", "g3", "g4"]
    assert all(len(tag.select("svg rect.gpu.own")) == 4 for tag in shown)
    assert "this node has no network card that GPUs can use directly" in shown[1].text


@pytest.mark.nightly
def test_nodes_that_do_not_report_are_said(hub: HubProcess, slurm: PrivateSlurm) -> None:
    """The server is ready without them: on one the launcher cannot run, and the slurmd of another hangs."""
    bea = Visitor(hub, "bea")
    os.kill(slurm.pids["slurmd-g4"], signal.SIGSTOP)
    try:
        hub.spawn("bea", {"profile": "lame"})
        placement = reported(hub, "bea", lambda document: nodes(document) == ["g2"])
        facts = bea.look("/hub/home").soup
        log = bea.look("/hub/gpuspawner/log/bea").soup.text
    finally:
        os.kill(slurm.pids["slurmd-g4"], signal.SIGCONT)
    late = reported(hub, "bea", lambda document: nodes(document) == ["g2", "g4"])

    assert nodes(placement) == ["g2"]
    problems = [problem.text for problem in facts.select(".gpuspawner-problems li") if "reported" in problem.text]
    assert problems == [NOT_REPORTED.format(node="g3"), NOT_REPORTED.format(node="g4")]
    assert "no launcher on g3" in log
    assert nodes(late) == ["g2", "g4"]


@pytest.mark.nightly
def test_ranks_from_a_notebook_and_a_terminal(hub: HubProcess) -> None:
    """Sixteen ranks from a cell of JupyterLab; a terminal; the button *Interrupt*; and the end of the server."""
    hub.spawn("eve", {"profile": "lab"})
    notebook = Notebook(hub, "eve")
    table = notebook.cell(f"!gpuspawner-run --no-label -- {sys.executable} -c '{SHOW}' {VARIABLES}")
    shown = notebook.terminal("\"$GPUSPAWNER_RUN\" --per-node -- printenv SLURMD_NODENAME; echo 'the' end", "the end")
    with closing(notebook.start_cell(LONG)) as cell:
        cell.output(until="3: up")
        notebook.interrupt()
        interrupted = cell.output()
    with closing(notebook.start_cell(LONG)) as cell:
        wait_until(lambda: len(running()) == 4, seconds=60)
        hub.end("eve")
    wait_until(lambda: not running(), seconds=60)

    ranks = sorted(
        (json.loads(line) for line in table.splitlines() if line.startswith("[")), key=lambda row: int(row[0])
    )
    parts = ("0-5", "6-11", "12-17", "18-23")
    assert ranks == [
        [str(4 * node + gpu), "16", str(gpu), NODES[node], str(gpu), parts[gpu]]
        for node in range(4)
        for gpu in range(4)
    ]
    assert [f"{rank}: {node}" in shown for rank, node in enumerate(NODES)] == [True] * 4
    assert "gpuspawner-run: SIGINT: all ranks are being ended" in interrupted
    assert running() == []


def running() -> list[str]:
    """The ranks of :data:`LONG`."""
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                pids += [entry.name] if (entry / "cmdline").read_bytes() == b"sleep\x00601\x00" else []
    return pids
