"""Time and size of the page with the form of profiles: p95 at most 50 ms, 100 kB.

    python benchmarks/bench_choose_page.py [--nodes 10000] [--profiles 30] [--requests 200] [--check]

A real hub process serves the page to a signed-in user. Its view of the cluster is given a snapshot made here (nodes of
eight GPUs, most of them busy, in four partitions, with the jobs that hold them and a thousand that wait), which is new
every 15 seconds as Slurm's would be; nothing else is replaced. The times are the hub's own, from its log: from the
request to the end of the answer. The bytes are the page's, its own stylesheet's and its own script's, uncompressed.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import tempfile
from pathlib import Path

import requests
from bs4 import BeautifulSoup

from jupyterhub_gpuspawner.demo import hub as demo_hub
from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.slurm.job import Phase
from jupyterhub_gpuspawner.slurm.snapshot import ClusterJob, ClusterSnapshot, NodeState, Partition
from jupyterhub_gpuspawner.units import Gres

P95_MS = 50.0
PAGE_BYTES = 100_000
CONFIG = """
import sys, time
from dataclasses import replace
sys.path.insert(0, {folder!r})
from bench_choose_page import synthetic_snapshot
from jupyterhub_gpuspawner.hub.site.connection import ClusterView
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner

async def ask():
    return synthetic_snapshot({nodes}, time.time())

class Bench(GPUSlurmSpawner):
    view = ClusterView(ask)

    def connection(self, settings=None):
        return replace(super().connection(settings), view=self.view)

load_subconfig({config!r})
c.GPUProfilesSpawner.slurm_spawner_class = Bench
"""


def synthetic_snapshot(nodes: int, now: float) -> ClusterSnapshot:
    """A cluster of ``nodes`` nodes in four partitions; nine of ten are allocated, and 1,000 jobs are pending."""
    names = [f"n{number:05d}" for number in range(nodes)]
    types = ("a100", "h100", "k80", "1g.10gb")
    partitions = tuple(
        Partition(f"gpu{k}", default=k == 0, nodes=tuple(names[k::4]), max_time=86400 * (k + 1)) for k in range(4)
    )
    held = [number % 10 != 0 for number in range(nodes)]
    states = tuple(
        NodeState(
            name,
            states=frozenset({"ALLOCATED" if held[number] else "IDLE"}),
            cpus=64,
            cpus_allocated=64 * held[number],
            memory_mib=512_000,
            memory_allocated_mib=512_000 * held[number],
            gres=(Gres("gpu", types[number % 4], 8),),
            gres_used=(Gres("gpu", types[number % 4], 8 * held[number]),),
            partitions=(f"gpu{number % 4}",),
        )
        for number, name in enumerate(names)
    )
    running = tuple(
        ClusterJob(
            str(number),
            Phase.RUNNING,
            "RUNNING",
            user=f"u{number % 500}",
            partitions=(f"gpu{number % 4}",),
            nodes=(name,),
            cpus=64,
            memory_mib=512_000,
            gpus=(Gres("gpu", types[number % 4], 8),),
            ends_at=now + number % 86400,
        )
        for number, name in enumerate(names)
        if held[number]
    )
    waiting = tuple(
        ClusterJob(
            str(nodes + number),
            Phase.QUEUED,
            "PENDING",
            reason="Priority",
            partitions=(f"gpu{number % 4}",),
            priority=number + 1,
            cpus=8,
            gpus=(Gres("gpu", types[number % 4], 1),),
        )
        for number in range(1000)
    )
    return ClusterSnapshot(nodes=states, partitions=partitions, jobs=running + waiting, taken_at=now)


def profiles(count: int) -> str:
    """``count`` profiles in YAML, each with a range and a choice."""
    types = ("a100", "h100", "k80", "1g.10gb")
    return "\n".join(
        f"""
- display_name: Profile {number}
  slug: p{number}
  description: A sentence that says for what this profile is right, and for whom.
  slurm: {{partition: gpu{number % 4}, gpus: {1 + number % 8}, cpus: 8, memory: 64G, time: "{1 + number % 20}:00:00"
    {", gpu_type: " + types[number % 4] if number % 5 else ""}}}
  profile_options:
    hours: {{display_name: Hours, range: {{min: 1, max: 20, sets: slurm.time, unit: hours}}}}
    software: {{display_name: Software, choices: {{torch: {{display_name: PyTorch}}, jax: {{}}}}}}"""
        for number in range(count)
    )


def signed_in(hub: HubProcess) -> requests.Session:
    """One user's session."""
    session = requests.Session()
    session.get(f"{hub.url}/hub/login", timeout=60)
    xsrf = next(cookie.value or "" for cookie in session.cookies if cookie.name == "_xsrf")
    form = {"username": "ann", "password": hub.password, "_xsrf": xsrf}
    session.post(f"{hub.url}/hub/login", data=form, timeout=60).raise_for_status()
    return session


def measure(nodes: int, count: int, requested: int) -> tuple[list[float], int, int]:
    """Milliseconds of each request, bytes sent to the browser, and number of profiles on the page."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "profiles").mkdir()
        (folder / "profiles" / "own.yaml").write_text(profiles(count))
        config = folder / "jupyterhub_config.py"
        here = str(Path(__file__).parent)
        config.write_text(CONFIG.format(folder=here, nodes=nodes, config=str(demo_hub.CONFIG)))
        with HubProcess(folder, config=config) as hub:
            session = signed_in(hub)
            for _ in range(requested):
                page = session.get(f"{hub.url}/hub/spawn", timeout=60)
                page.raise_for_status()
            soup = BeautifulSoup(page.text, "html.parser")
            own = [str(element.get("href") or element.get("src")) for element in soup.select("link, script")]
            files = [
                session.get(f"{hub.url}{address}", timeout=60).content for address in own if "/gpuspawner/" in address
            ]
            log = hub.log.read_text()
    times = [float(ms) for ms in re.findall(r"200 GET /hub/spawn \(ann@[^)]*\) ([0-9.]+)ms", log)][-requested:]
    return times, len(page.content) + sum(map(len, files)), len(soup.select("[name=profile]"))


def main() -> int:
    """Print the figures; return 1 if ``--check`` is given and a limit is exceeded."""
    parser = argparse.ArgumentParser(description="Server time and size of the page on which a server is chosen.")
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--profiles", type=int, default=30)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    times, size, shown = measure(options.nodes, options.profiles, options.requests)
    p95 = statistics.quantiles(times, n=20)[-1]
    print(f"{options.nodes} nodes, {shown} profiles, {len(times)} requests")
    print(f"median {statistics.median(times):.1f} ms, p95 {p95:.1f} ms, slowest {max(times):.1f} ms; {size} bytes")
    return int(options.check and (p95 > P95_MS or size > PAGE_BYTES))


if __name__ == "__main__":
    sys.exit(main())
