"""gpuspawner topology: its JSON, table and file."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from jupyterhub_gpuspawner.cli.topology import document, listing
from jupyterhub_gpuspawner.placement.topology import Gpu, NodeTopology, NumaNode, from_document, load, to_document
from jupyterhub_gpuspawner.units import format_cpulist, parse_cpulist
from tests.cli.conftest import MACHINES, TEXTS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.commands import Call

EXPECTED = TEXTS.with_name("topo-m-expected")
USABLE = sorted(path.stem for path in TEXTS.glob("*.txt") if "not_topo_m" not in path.name)
KEYS = ["version", "gpus", "links", "cpu_affinity", "numa_affinity", "gpu_numa_id", "nics", "nic_links", "warnings"]


@pytest.mark.parametrize("name", USABLE)
def test_json_is_what_the_text_says(gpuspawner: Call, name: str) -> None:
    """The JSON of every recorded text has the documented keys and the text's content; damage becomes a warning."""
    result = gpuspawner("topology", "--text", TEXTS / f"{name}.txt", "--json")
    topology = json.loads(result.stdout)
    expected = json.loads((EXPECTED / f"{name}.json").read_text())
    for key in ("cpu_affinity", "numa_affinity"):
        expected[key] = [affinity and format_cpulist(parse_cpulist(affinity)) for affinity in expected[key]]
    damaged = expected.pop("damaged")
    assert (result.exit_code, list(topology)) == (0, KEYS)
    assert (topology.pop("version"), bool(topology.pop("warnings"))) == (1, damaged)
    assert topology == expected


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "",
            "standard input: There is no header line with GPU0, GPU1, … and rows below it, "
            "as nvidia-smi topo -m prints.",
        ),
        (
            (TEXTS / "010_not_topo_m_p2p_cns.txt").read_text(),
            "standard input: This is a table of nvidia-smi topo -p2p, which tells peer access, not of topo -m.",
        ),
    ],
)
def test_a_text_without_a_matrix_is_refused(gpuspawner: Call, text: str, sentence: str) -> None:
    """Exit code 2, one line on standard error, nothing on standard output."""
    result = gpuspawner("topology", "--text", "-", "--json", stdin=text)
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"gpuspawner: {sentence}\n")


def test_what_cannot_be_read_is_refused(gpuspawner: Call, tmp_path: Path) -> None:
    """A missing file, a file that is no topology, and two nodes at once are refused in one line each."""
    wrong = tmp_path / "wrong.json"
    wrong.write_text('{"version": 1, "gpus": [{"index": "0"}]}')
    refused = [
        gpuspawner("topology", "--text", tmp_path / "none"),
        gpuspawner("topology", "--file", wrong),
        gpuspawner("topology", "--file", wrong, "--text", wrong),
    ]
    assert [(result.exit_code, result.stderr) for result in refused] == [
        (2, f"gpuspawner: {tmp_path}/none cannot be read: No such file or directory\n"),
        (
            2,
            f"gpuspawner: {wrong} is not a topology file: gpus[0].index: must be a whole number from 0 to 1023\n",
        ),
        (2, "gpuspawner: --text and --file cannot be used together\n"),
    ]


def test_the_table_of_a_two_socket_node() -> None:
    """GPUs with their affinities, links with their meaning, NUMA nodes, and what is unknown."""
    node = NodeTopology(
        hostname="g1",
        gpus=(Gpu(0, name="Tesla K80", memory_mib=11441, numa_node=0, cpus=(0, 1)), Gpu(1, numa_affinity=(0, 1))),
        links=(("X", "SYS"), ("SYS", "X")),
        nics=("mlx4_0",),
        nic_links=(("SYS", "PHB"),),
        numa_nodes=(NumaNode(0, (0, 1), 32000, (10, 21)), NumaNode(1, (2, 3), None, (21, 10))),
        source="nvml+sysfs",
        driver="367.48",
        problems=("nvmlDeviceGetCpuAffinity failed on GPU 1: Not Supported.",),
    )
    assert listing(node) == (
        "g1: 2 GPUs, 1 NIC, 2 NUMA nodes, 4 CPUs, driver 367.48 (from nvml+sysfs)\n"
        "\n"
        "      name       memory     NUMA node  CPUs\n"
        "GPU0  Tesla K80  11441 MiB  0          0-1\n"
        "GPU1  ?          ?          0-1        ?\n"
        "\n"
        "        GPU0  GPU1\n"
        "GPU0    X     SYS\n"
        "GPU1    SYS   X\n"
        "mlx4_0  SYS   PHB\n"
        "\n"
        "  PHB   a PCIe host bridge (the CPU)\n"
        "  SYS   the link between NUMA nodes or sockets\n"
        "\n"
        "NUMA node  CPUs  memory     distances\n"
        "0          0-1   32000 MiB  10 21\n"
        "1          2-3   ?          21 10\n"
        "\n"
        "Unknown or uncertain:\n"
        "  nvmlDeviceGetCpuAffinity failed on GPU 1: Not Supported.\n"
    )


def test_mig_devices_have_names_of_their_own() -> None:
    """MIG devices share their GPU's index, so they are counted within it."""
    names = document(load(str(MACHINES / "a100-mig.json")))["gpus"]
    assert names == ["GPU0", "GPU1", "GPU2/MIG0", "GPU2/MIG1", "GPU2/MIG2", "GPU2/MIG3"]


@pytest.mark.parametrize("machine", ["k80-2socket", "dgx1", "a100-mig", "cpu"])
def test_a_recorded_file_is_the_node(gpuspawner: Call, tmp_path: Path, machine: str) -> None:
    """A recorded file reads back as the same node without its name."""
    path = tmp_path / "node.json"
    result = gpuspawner("topology", "--file", MACHINES / f"{machine}.json", "record", path)
    node = load(str(MACHINES / f"{machine}.json"))
    assert result.exit_code == 0
    assert to_document(load(str(path))) == {**to_document(node), "hostname": "", "source": "file"}


def test_json_does_not_go_with_recording(gpuspawner: Call) -> None:
    """Options that a subcommand would silently leave out are refused."""
    result = gpuspawner("topology", "--json", "record", "-")
    assert (result.exit_code, result.stdout) == (2, "")
    assert " cannot be used with record." in result.stderr


def test_a_recorded_text_is_a_stand_in(gpuspawner: Call, tmp_path: Path) -> None:
    """A text becomes a topology file, simulated on request; standard error describes its content."""
    path = tmp_path / "dgx1v.json"
    result = gpuspawner("topology", "--text", TEXTS / "024_dgx1v_microway.txt", "record", "--simulated", path)
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == f"{path}: 8 GPUs, 4 NICs, 0 NUMA nodes, 0 warnings.\n"
    node = load(str(path))
    assert (node.simulated, len(node.gpus), node.link(0, 3)) == (True, 8, "NV2")


def test_this_node_without_its_name(gpuspawner: Call) -> None:
    """This machine has its NUMA nodes and CPUs; its name is written only on request."""
    nameless, named = gpuspawner("topology", "record", "-"), gpuspawner("topology", "record", "--hostname", "-")
    here = os.uname().nodename
    node = from_document(json.loads(nameless.stdout))
    assert {cpu for numa_node in node.numa_nodes for cpu in numa_node.cpus} >= os.sched_getaffinity(0)
    assert (node.hostname, from_document(json.loads(named.stdout)).hostname) == ("", here)
    assert f'"{here}"' not in nameless.stdout


def test_a_file_that_cannot_be_written(gpuspawner: Call, tmp_path: Path) -> None:
    """Exit code 2 and the system's reason."""
    result = gpuspawner("topology", "record", tmp_path / "none" / "node.json")
    assert (result.exit_code, result.stderr) == (
        2,
        f"gpuspawner: {tmp_path}/none/node.json cannot be written: No such file or directory\n",
    )
