"""What the launchers on a job's other nodes cost: time until the server is exec'ed, processor time, slurmctld's RPCs.

    python benchmarks/extensions/several_nodes/bench_other_nodes.py [--nodes 16] [--runs 5]

A private Slurm with this many slurmds on this host runs pairs of jobs, each of a whole batch script: one with the lines
that have the other nodes report, and one without. All nodes share this host's processors, so the launchers on the other
nodes take time from the server's own; on a cluster they do not. RPCs are counted by ``sdiag``.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from jupyterhub_gpuspawner.batch.launcher import launcher_archive
from jupyterhub_gpuspawner.batch.shell import call, find_python, srun_cpus, unpack
from jupyterhub_gpuspawner.demo.slurm_cluster import (
    ClusterDescription,
    PrivateSlurm,
    SimulatedNode,
    SimulatedPartition,
    whole_gpus,
)
from jupyterhub_gpuspawner.extensions.several_nodes.carried import CARRIED
from jupyterhub_gpuspawner.extensions.several_nodes.script import other_nodes
from jupyterhub_gpuspawner.wire.documents import LaunchPlan

SERVED_FOR = 10
"""Seconds for which the server runs: the other nodes report meanwhile."""
_OF_THIS = ("REQUEST_HET_JOB_ALLOC_INFO", "REQUEST_JOB_STEP_CREATE", "REQUEST_STEP_COMPLETE", "REQUEST_JOB_INFO_SINGLE")
_COUNT = re.compile(r"^\s+(REQUEST_\w+|MESSAGE_\w+)\s*\(.*count:(\d+)", re.MULTILINE)


class Hub(BaseHTTPRequestHandler):
    """Receives reports, and notes when each came."""

    reports: list[tuple[float, bytes]] = []  # noqa: RUF012 - one for all requests

    def do_POST(self) -> None:
        """Answer 204."""
        self.reports.append((time.time(), self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def rpcs(slurm: PrivateSlurm) -> dict[str, int]:
    """The RPCs that slurmctld has answered so far, by kind."""
    text = slurm.run("sdiag").partition("by message type")[2].partition("by user")[0]
    return {kind: int(count) for kind, count in _COUNT.findall(text)}


def script(plan: LaunchPlan, output: Path, *, reporting: bool) -> str:
    """The batch script's parts that matter, and a server that notes when it is exec'ed."""
    server = ["/bin/sh", "-c", f"date +%s.%N > {output}.exec; sleep {SERVED_FOR}"]
    parts = [
        "#!/bin/bash",
        f"date +%s.%N > {output}.begin",
        unpack(launcher_archive((CARRIED,)), plan),
        srun_cpus(),
        find_python(server[0], now=True),
        other_nodes() if reporting else "",
        call(server),
        f"times > {output}.times; date +%s.%N > {output}.end",
    ]
    return "\n".join(filter(None, parts)) + "\n"


def processor_time() -> float:
    """Seconds of processor time of this whole host, without waiting."""
    user, nice, system, *_ = map(int, Path("/proc/stat").read_text("utf-8").split("\n", 1)[0].split()[1:])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


def run(slurm: PrivateSlurm, folder: Path, nodes: int, *, reporting: bool) -> tuple[float, float, dict[str, int], int]:
    """Seconds until the exec, until the last report, the RPCs, and how many nodes reported."""
    output = folder / f"job-{time.time_ns()}"
    file = folder / "job.sh"
    plan = LaunchPlan(gpus=4, topology_file=slurm.topology_pattern)
    file.write_text(script(plan, output, reporting=reporting))
    Hub.reports.clear()
    before = rpcs(slurm)
    request = (f"--nodes={nodes}", "--ntasks-per-node=1", "--gres=gpu:4", "--cpus-per-task=24", "--mem=1000")
    slurm.run("sbatch", "--parsable", *request, f"--output={output}.log", str(file))
    while not Path(f"{output}.end").exists():
        time.sleep(0.1)
    time.sleep(1.5)
    after = rpcs(slurm)
    began = float(Path(f"{output}.begin").read_text())
    exec_at = float(Path(f"{output}.exec").read_text())
    others = [at for at, body in Hub.reports if b'"other_node"' in body]
    more = {kind: after.get(kind, 0) - before.get(kind, 0) for kind in _OF_THIS}
    return exec_at - began, max(others, default=began) - began, more, len(others)


def main() -> int:
    """Print a table of medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    names = tuple(f"n{number:02d}" for number in range(1, options.nodes + 1))
    gpus = (whole_gpus("k80", range(2), cores="0-11"), whole_gpus("k80", range(2, 4), cores="12-23"))
    cluster = ClusterDescription(
        tuple(SimulatedNode(name, "k80-2socket", 2, 12, 64000, gpus) for name in names),
        (SimulatedPartition("gpu", names, default=True),),
        name="bench",
    )
    with (
        tempfile.TemporaryDirectory() as name,
        ThreadingHTTPServer(("127.0.0.1", 0), Hub) as hub,
        PrivateSlurm(cluster, Path(name) / "slurm") as slurm,
    ):
        threading.Thread(target=hub.serve_forever, daemon=True).start()
        os.environ["JUPYTERHUB_API_URL"] = f"http://127.0.0.1:{hub.server_address[1]}/hub/api"
        os.environ["JUPYTERHUB_API_TOKEN"] = "0"
        os.environ["JUPYTERHUB_SERVICE_URL"] = "http://127.0.0.1:0/"
        for tried in range(options.runs):
            without = run(slurm, Path(name), options.nodes, reporting=False)
            used = processor_time()
            with_them = run(slurm, Path(name), options.nodes, reporting=True)
            used = processor_time() - used
            print(
                f"{tried}: exec after {without[0]:.2f} s without, {with_them[0]:.2f} s with the other nodes; "
                f"{with_them[3]} reports, the last after {with_them[1]:.2f} s; host's processor time {used:.1f} s"
            )
            print(f"   RPCs without {without[2]}\n   RPCs with    {with_them[2]}", flush=True)
            pairs.append((without[0], with_them[0]))
        more = statistics.median(b - a for a, b in pairs)
        ratio = statistics.median(b / a for a, b in pairs)
        print(f"median of {options.runs} pairs: {more:+.2f} s until the server is exec'ed, {ratio:.2f} times")
        hub.shutdown()
    return 0


pairs: list[tuple[float, float]] = []

if __name__ == "__main__":
    sys.exit(main())
