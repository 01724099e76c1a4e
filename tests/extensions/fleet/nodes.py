"""Nodes of a small fleet: four GPUs, two on each socket, pairs linked by NVLink."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from jupyterhub_gpuspawner.extensions.fleet.node_record import IDLE_VIEWS, NodeRecord, View, merged
from jupyterhub_gpuspawner.placement.topology import Gpu, NodeTopology, NumaNode

ADDRESSES = ("0000:07:00.0", "0000:0a:00.0", "0000:85:00.0", "0000:88:00.0")
DAY = 86400.0
GRES = "gpu:v100:4(S:0-1)"


def topology(node: str = "g1", **changes: Any) -> NodeTopology:
    """A whole node; GPUs 0 and 1 have two NVLinks, and so have 2 and 3; all others are linked by SYS."""
    gpus = tuple(
        Gpu(
            n,
            uuid=f"GPU-{node}-{n}",
            pci=address,
            name="Tesla V100-SXM2-16GB",
            memory_mib=16384,
            numa_node=n // 2,
            minor=n,
            nvlink_generation=2,
            pcie_generation=3,
            pcie_width=16,
        )
        for n, address in enumerate(ADDRESSES)
    )
    links = tuple(tuple("X" if a == b else "NV2" if a // 2 == b // 2 else "SYS" for b in range(4)) for a in range(4))
    whole = NodeTopology(
        gpus=gpus,
        links=links,
        numa_nodes=(NumaNode(0, (0, 1, 2, 3), 65000), NumaNode(1, (4, 5, 6, 7), 65100)),
        siblings=tuple((cpu,) for cpu in range(8)),
        packages=((0, 1, 2, 3), (4, 5, 6, 7)),
        devices=ADDRESSES,
        source="nvml+sysfs",
        driver="550.90",
    )
    return replace(whole, **changes)


def only(whole: NodeTopology, *positions: int) -> NodeTopology:
    """What a job sees that is confined to these GPUs: NVML numbers them from 0."""
    return replace(
        whole,
        gpus=tuple(replace(whole.gpus[position], index=n) for n, position in enumerate(positions)),
        links=tuple(tuple(whole.link(a, b) for b in positions) for a in positions),
    )


def view(
    node: str, job_topology: NodeTopology, *, at: float = DAY, granted: int | None = None, gres: str = GRES
) -> View:
    """A job's view; it holds all GPUs that it sees unless ``granted`` is given."""
    return View(node, at, job_topology, granted=len(job_topology.gpus) if granted is None else granted, gres=gres)


def record(node: str, job_topology: NodeTopology | None = None, **changes: Any) -> NodeRecord:
    """The record of a node after one view of it."""
    return merged(None, view(node, topology(node) if job_topology is None else job_topology, **changes))


def seen_often(node: str, job_topology: NodeTopology, **changes: Any) -> NodeRecord:
    """The record of a node after so many views of it that it cannot have been idle in all of them."""
    node_record = record(node, job_topology, **changes)
    for _ in range(1, IDLE_VIEWS):
        node_record = merged(node_record, view(node, job_topology, **changes))
    return node_record


def with_gpu(whole: NodeTopology, position: int, **changes: Any) -> NodeTopology:
    """The topology with one GPU changed."""
    gpus = list(whole.gpus)
    gpus[position] = replace(gpus[position], **changes)
    return replace(whole, gpus=tuple(gpus))


def with_link(whole: NodeTopology, one: int, other: int, word: str) -> NodeTopology:
    """The topology with one link changed."""
    links = [list(row) for row in whole.links]
    links[one][other] = links[other][one] = word
    return replace(whole, links=tuple(map(tuple, links)))
