"""The lines of gres.conf that a topology implies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import jupyterhub_gpuspawner
from jupyterhub_gpuspawner.extensions.fleet.gres_conf import gres_conf, slurm_type
from jupyterhub_gpuspawner.placement.topology import Gpu, NodeTopology, NumaNode, kernel_cpus, load
from jupyterhub_gpuspawner.units import parse_cpulist

DEMO = Path(jupyterhub_gpuspawner.__file__).parent / "demo" / "machines"
DATA = Path(__file__).parents[2] / "data" / "machines"


def two_sockets(*gpus: Gpu, threads: int = 1) -> NodeTopology:
    """Two sockets of four cores; with two threads, CPU n + 8 is the second thread of CPU n's core."""
    first, second = tuple(range(4)), tuple(range(4, 8))
    if threads == 2:
        first, second = (*first, *range(8, 12)), (*second, *range(12, 16))
    return NodeTopology(
        gpus=gpus,
        numa_nodes=(NumaNode(0, first), NumaNode(1, second)),
        siblings=tuple((n, n + 8) if threads == 2 else (n,) for n in range(8)),
        packages=(first, second),
    )


def test_a_dgx1_gets_cores_and_links() -> None:
    """A line for each GPU in the order of PCI bus ids, with the cores of its socket and its NVLinks to the others.

    A comment says which versions of Slurm use the links.
    """
    conf = gres_conf(load(str(DEMO / "dgx1.json")))

    assert conf.notes == (
        "Links=: Slurm 22.05 prefers linked GPUs. Slurm 24.11 and 26.05 do so for jobs with --gpus alone; for --gres "
        "and --gpus-per-node they were seen to prefer GPUs with fewer links. With these two versions, set "
        "c.GPUSlurmSpawner.gpus_option = 'gpus', or leave Links= out.",
    )
    assert conf.text("d1").splitlines()[1:] == [
        "NodeName=d1 Name=gpu Type=p100 File=/dev/nvidia0 Cores=0-19 Links=-1,1,1,1,1,0,0,0",
        "NodeName=d1 Name=gpu Type=p100 File=/dev/nvidia1 Cores=0-19 Links=1,-1,1,1,0,1,0,0",
        "NodeName=d1 Name=gpu Type=p100 File=/dev/nvidia2 Cores=0-19 Links=1,1,-1,1,0,0,1,0",
        "NodeName=d1 Name=gpu Type=p100 File=/dev/nvidia3 Cores=0-19 Links=1,1,1,-1,0,0,0,1",
        "NodeName=d1 Name=gpu Type=p100 File=/dev/nvidia4 Cores=20-39 Links=1,0,0,0,-1,1,1,1",
        "NodeName=d1 Name=gpu Type=p100 File=/dev/nvidia5 Cores=20-39 Links=0,1,0,0,1,-1,1,1",
        "NodeName=d1 Name=gpu Type=p100 File=/dev/nvidia6 Cores=20-39 Links=0,0,1,0,1,1,-1,1",
        "NodeName=d1 Name=gpu Type=p100 File=/dev/nvidia7 Cores=20-39 Links=0,0,0,1,1,1,1,-1",
    ]


def test_lines_and_jobs_have_the_same_numbers_of_cores() -> None:
    """Slurm's numbers of a socket in gres.conf, and in what it says of a job, mean the same CPUs of the kernel."""
    odd, even = (1, 3, 5, 7), (0, 2, 4, 6)
    topology = NodeTopology(
        gpus=(Gpu(0, numa_node=0, minor=0), Gpu(1, numa_node=1, minor=1)),
        numa_nodes=(NumaNode(0, odd), NumaNode(1, even)),
        siblings=tuple((cpu,) for cpu in range(8)),
        packages=(odd, even),
    )

    cores = [parse_cpulist(line.cores) for line in gres_conf(topology).lines]

    assert [kernel_cpus(numbers, topology) for numbers in cores] == [odd, even]


def test_cores_are_counted_without_hardware_threads() -> None:
    """Slurm's core numbers count cores socket by socket, also where the kernel numbers second threads after all."""
    conf = gres_conf(two_sockets(Gpu(0, numa_node=0, minor=0), Gpu(1, numa_node=1, minor=1), threads=2))

    assert [(line.file, line.cores) for line in conf.lines] == [("/dev/nvidia0", "0-3"), ("/dev/nvidia1", "4-7")]


def test_interleaved_cpus_are_numbered_socket_by_socket() -> None:
    """Where even CPUs are on one socket and odd ones on the other, the first socket still has the first cores."""
    even, odd = (0, 2, 4, 6), (1, 3, 5, 7)
    node = two_sockets(Gpu(0, numa_node=1, minor=0))
    node = replace(node, numa_nodes=(NumaNode(0, even), NumaNode(1, odd)), packages=(odd, even))

    assert [line.cores for line in gres_conf(node).lines] == ["4-7"]


def test_devices_are_in_pci_order_with_their_own_minor_numbers() -> None:
    """Slurm numbers GPUs by PCI bus id; the number of a device file is another one."""
    node = two_sockets(
        Gpu(0, pci="0000:81:00.0", name="Tesla V100-SXM2-16GB", numa_node=1, minor=2),
        Gpu(1, pci="0000:07:00.0", name="Tesla V100-SXM2-16GB", numa_node=0, minor=5),
    )

    assert [line.text() for line in gres_conf(node).lines] == [
        "Name=gpu Type=v100 File=/dev/nvidia5 Cores=0-3",
        "Name=gpu Type=v100 File=/dev/nvidia2 Cores=4-7",
    ]


def test_numa_nodes_as_sockets() -> None:
    """With numa_node_as_socket each NUMA node's cores are counted; otherwise all cores of a GPU's package."""
    one = two_sockets(Gpu(0, numa_node=1, minor=0))
    node = replace(one, numa_nodes=tuple(NumaNode(n, (2 * n, 2 * n + 1)) for n in range(4)))

    assert [line.cores for line in gres_conf(node).lines] == ["0-3"]
    assert [line.cores for line in gres_conf(node, numa_node_as_socket=True).lines] == ["2-3"]
    assert gres_conf(node).notes == (
        "Each socket has 2 NUMA nodes. With SlurmdParameters=numa_node_as_socket Slurm can tell them apart; then use "
        "the lines of --numa-node-as-socket.",
    )


@pytest.mark.parametrize(
    ("node", "threads", "cores", "note"),
    [
        (NodeTopology(gpus=(Gpu(0, minor=0),)), None, "", "The node's sockets are not known, so there are no Cores=."),
        (
            NodeTopology(gpus=(Gpu(0, numa_node=0, minor=0),), numa_nodes=(NumaNode(0, (0,)),), siblings=((0,),)),
            None,
            "",
            "The node has one socket, so there are no Cores=.",
        ),
        (
            replace(two_sockets(Gpu(0, numa_node=1, minor=0), threads=2), siblings=()),
            None,
            "",
            "How many hardware threads share a core is not known, so there are no Cores=. slurmd -C prints it as "
            "ThreadsPerCore; pass it as --threads-per-core.",
        ),
        (replace(two_sockets(Gpu(0, numa_node=1, minor=0), threads=2), siblings=()), 2, "4-7", ""),
        (
            two_sockets(Gpu(0, minor=0)),
            None,
            "",
            "The socket of some GPUs is not known; their lines have no Cores=.",
        ),
        (
            replace(two_sockets(Gpu(0, numa_node=1, minor=0)), packages=()),
            None,
            "4-7",
            "The node's sockets are not known; each NUMA node is taken for one. Compare slurmd -C.",
        ),
        (
            two_sockets(Gpu(0, numa_node=1)),
            None,
            "4-7",
            "The numbers of the device files are not known; they are assumed to be in the order of PCI bus ids. "
            "nvidia-smi -q prints them as Minor Number.",
        ),
    ],
)
def test_what_is_not_known_is_said(node: NodeTopology, threads: int | None, cores: str, note: str) -> None:
    """Nothing is guessed: a value that is not known is left out or, if it is assumed, named in a comment."""
    conf = gres_conf(node, threads_per_core=threads)

    assert ([line.cores for line in conf.lines], conf.notes) == ([cores], (note,) if note else ())


def test_equal_links_are_left_out() -> None:
    """Behind an NVSwitch, and without NVLink, Links= would not tell the GPUs apart."""
    for name in ("dgx-a100", "rtx4090-all-sys"):
        conf = gres_conf(load(str(DATA / f"{name}.json")), threads_per_core=1)
        assert {line.links for line in conf.lines} == {()}


def test_bridges_between_sockets_are_pointed_out() -> None:
    """Slurm prefers GPUs of one socket to linked ones, so an admin must choose."""
    conf = gres_conf(load(str(DATA / "nps4-bridges.json")), threads_per_core=1)

    assert conf.lines[0].links == (-1, 4, 0, 0, 0, 0, 0, 0)
    assert (
        "Some GPUs have their most NVLinks to a GPU of another socket. Slurm prefers GPUs of one socket to linked "
        "ones, so with Cores= it may separate them; compare without." in conf.notes
    )


def test_mig_devices_are_comments() -> None:
    """The device files of MIG devices change with each partitioning, so an admin must fill them in."""
    conf = gres_conf(load(str(DEMO / "a100-mig.json")))

    assert [line.text() for line in conf.lines] == [
        "Name=gpu Type=a100 File=/dev/nvidia0 Cores=0-15",
        "Name=gpu Type=a100 File=/dev/nvidia1 Cores=0-15",
    ]
    assert conf.notes[1:] == (
        "Name=gpu Type=1g.10gb "
        "MultipleFiles=/dev/nvidia2,/dev/nvidia-caps/nvidia-capGI,/dev/nvidia-caps/nvidia-capCI Cores=16-31",
    ) * 4  # fmt: skip


TYPES = {
    "NVIDIA A100-SXM4-80GB": "a100",
    "NVIDIA A100X": "a100x",
    "NVIDIA H100 80GB HBM3": "h100",
    "NVIDIA H100 NVL": "h100",
    "NVIDIA H20-3e": "h20",
    "NVIDIA B300 SXM6 AC": "b300",
    "NVIDIA GB200": "gb200",
    "NVIDIA GH200 480GB": "gh200",
    "NVIDIA L4": "l4",
    "NVIDIA L40S": "l40s",
    "Tesla K80": "k80",
    "Tesla P100-PCIE-16GB": "p100",
    "Tesla V100-SXM2-32GB-LS": "v100",
    "NVIDIA A40-48Q": "a40",
    "NVIDIA T1000 8GB": "t1000",
    "NVIDIA RTX A6000": "a6000",
    "NVIDIA RTX A2000 12GB": "a2000",
    "Quadro P4000": "p4000",
    "Quadro GV100": "gv100",
    "Quadro RTX 6000": "quadro_rtx_6000",
    "Quadro RTX 4000": "quadro_rtx_4000",
    "NVIDIA RTX 2000E Ada Generation": "rtx_2000e_ada",
    "NVIDIA RTX 4000 Ada Generation": "rtx_4000_ada",
    "NVIDIA RTX 4000 SFF Ada Generation": "rtx_4000_sff_ada",
    "NVIDIA RTX 6000 Ada Generation": "rtx_6000_ada",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": "rtx_pro_6000",
    "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition": "rtx_pro_6000",
    "NVIDIA RTX PRO 4500 Blackwell": "rtx_pro_4500",
    "NVIDIA RTX Pro 6000 Blackwell DC-1-12Q": "rtx_pro_6000",
    "NVIDIA GeForce GTX 1080 Ti": "gtx_1080_ti",
    "GeForce GTX 1080": "gtx_1080",
    "NVIDIA GeForce GT 1030": "gt_1030",
    "NVIDIA GeForce RTX 2080 Ti": "rtx_2080_ti",
    "NVIDIA GeForce RTX 3080 Laptop GPU": "rtx_3080_laptop",
    "NVIDIA GeForce RTX 4070 Ti SUPER": "rtx_4070_ti_super",
    "NVIDIA GeForce RTX 4090": "rtx_4090",
    "NVIDIA GeForce RTX 4090 D": "rtx_4090_d",
    "NVIDIA GeForce RTX 5090": "rtx_5090",
    "NVIDIA TITAN V": "titan_v",
    "NVIDIA TITAN RTX": "titan_rtx",
    "NVIDIA TITAN Xp": "titan_xp",
    "GeForce GTX TITAN X": "gtx_titan_x",
    "NVIDIA DGX Display": "dgx_display",
    "NVIDIA CMP 170HX": "cmp_170hx",
    "NVIDIA Graphics Device": "graphics_device",
    "GeForce 9800 GT": "geforce_9800_gt",
    "Orin (nvgpu)": "orin",
    "AMD Instinct MI250X": "mi250x",
    "AMD Radeon RX 7900 XTX": "radeon_rx_7900_xtx",
    "AMD Radeon VII": "radeon_vii",
    "4090": "gpu_4090",
    "": "",
}


@pytest.mark.parametrize("name", TYPES)
def test_types_are_short_names_of_models(name: str) -> None:
    """As sites write them: Slurm takes none for a count, and finds each in the name that AutoDetect makes."""
    kind = slurm_type(name)

    assert kind == TYPES[name]
    assert not kind or kind[0].isalpha()
    assert kind in "_".join(name.lower().split()) or name.isdigit()
