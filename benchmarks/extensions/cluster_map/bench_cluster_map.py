"""The admins' map of a thousand nodes with eight GPUs each: time to compute and render it, and size of the page.

    python -m pytest benchmarks/extensions/cluster_map/bench_cluster_map.py

The bars are in processor time, by the fastest of the rounds, since other work on the machine only adds. All of it is
done in a thread of its own; the hub's loop goes on meanwhile.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from jinja2 import Environment, FileSystemLoader

from jupyterhub_gpuspawner.extensions.cluster_map import page
from jupyterhub_gpuspawner.extensions.cluster_map.jobs import Rights
from jupyterhub_gpuspawner.extensions.cluster_map.rows import sections
from jupyterhub_gpuspawner.extensions.cluster_map.survey import ServedJob, survey
from jupyterhub_gpuspawner.slurm.job import Phase
from jupyterhub_gpuspawner.slurm.snapshot import ClusterJob, ClusterSnapshot, NodeState, Partition
from jupyterhub_gpuspawner.units import Gres, NodeAllocation

TEMPLATES = Path(page.__file__).parent / "templates"
NODES = 1000
WAITING = 5000
"""Pending jobs."""
TAKEN_AT = 1_800_000_000.0
MAP_BAR, PAGE_BAR, JSON_BAR = 0.1, 0.15, 0.1
"""Limits in seconds of processor time: the map of a snapshot; its rows as HTML; its document."""
PAGE_BYTES, JSON_BYTES = 750_000, 1_150_000


def cluster() -> tuple[ClusterSnapshot, dict[str, list[NodeAllocation]], list[ServedJob]]:
    """Every node has a server with two GPUs and a job with three; every twentieth node is down; many jobs wait."""
    nodes, jobs, allocations, servers = [], [], dict[str, list[NodeAllocation]](), []
    for n in range(NODES):
        name, down = f"node{n:04}", n % 20 == 0
        used = () if down else (Gres("gpu", "a100", 5, (0, 1, 3, 4, 6)),)
        nodes.append(
            NodeState(
                name,
                states=frozenset({"DOWN" if down else "MIXED"}),
                cpus=128,
                cpus_allocated=0 if down else 80,
                memory_mib=1_000_000,
                memory_allocated_mib=0 if down else 400_000,
                gres=(Gres("gpu", "a100", 8),),
                gres_used=used,
                partitions=("gpu",),
                reason="Not responding [slurm@1795273256]" if down else "",
            )
        )
        if down:
            continue
        for job_id, user, indices in ((str(2 * n), f"user{n}", (0, 1)), (str(2 * n + 1), f"other{n % 50}", (3, 4, 6))):
            ends_at = TAKEN_AT + 60 * n
            jobs.append(
                ClusterJob(job_id, Phase.RUNNING, user=user, partitions=("gpu",), nodes=(name,), ends_at=ends_at)
            )
            allocations[job_id] = [NodeAllocation(name, gres=(Gres("gpu", "a100", len(indices), indices),))]
        servers.append(ServedJob(str(2 * n), f"user{n}", "", name, (0, 1)))
    gpus = (Gres("gpu", "a100", 1),)
    pending = ClusterJob("", Phase.QUEUED, reason="Priority", user="ada", partitions=("gpu",), gpus=gpus)
    jobs += [pending._replace(job_id=str(10_000 + n), priority=1 + n % 7) for n in range(WAITING)]
    names = tuple(node.name for node in nodes)
    snapshot = ClusterSnapshot(tuple(nodes), (Partition("gpu", nodes=names),), jobs=tuple(jobs), taken_at=TAKEN_AT)
    return snapshot, allocations, servers


@pytest.fixture(scope="module")
def survey_arguments() -> tuple[ClusterSnapshot, dict[str, list[NodeAllocation]], list[ServedJob]]:
    return cluster()


@pytest.mark.benchmark(timer=time.process_time)
def test_map(benchmark: Any, survey_arguments: Any) -> None:
    """The map of a snapshot."""
    snapshot, allocations, servers = survey_arguments
    snapshot.jobs_by_node, snapshot.nodes_by_partition  # noqa: B018 - made once for all pages
    cluster_map = benchmark.pedantic(survey, args=(snapshot, allocations, servers), rounds=10, warmup_rounds=1)
    assert (cluster_map.totals.gpus_free, cluster_map.totals.gpus_used, cluster_map.totals.gpus_out) == (
        2850,
        4750,
        400,
    )
    assert benchmark.stats.stats.min <= MAP_BAR


@pytest.mark.benchmark(timer=time.process_time)
def test_page(benchmark: Any, survey_arguments: Any) -> None:
    """The rows of the map as HTML."""
    cluster_map = survey(*survey_arguments)
    template = Environment(autoescape=True, loader=FileSystemLoader(TEMPLATES)).get_template("cluster_rows.html")
    filters = {"text": "", "partition": "", "use": ""}
    everyone = frozenset((f"user{n}", "") for n in range(NODES))
    rights = Rights(log=everyone, stop=everyone)

    def render() -> str:
        return template.render(
            sections=sections(cluster_map, now=cluster_map.taken_at, rights=rights),
            asked=filters,
        )

    size = len(benchmark.pedantic(render, rounds=10, warmup_rounds=1).encode())
    print(f"\n{NODES} nodes: {size:,} bytes of HTML")
    assert size <= PAGE_BYTES
    assert benchmark.stats.stats.min <= PAGE_BAR


@pytest.mark.benchmark(timer=time.process_time)
def test_document(benchmark: Any, survey_arguments: Any) -> None:
    """The map as JSON."""
    cluster_map = survey(*survey_arguments)
    text = benchmark.pedantic(
        lambda: json.dumps(cluster_map.to_json(), separators=(",", ":")), rounds=10, warmup_rounds=1
    )
    print(f"\n{NODES} nodes: {len(text):,} bytes of JSON")
    assert len(text) <= JSON_BYTES
    assert benchmark.stats.stats.min <= JSON_BAR
