"""Time of the launcher from start to exec, with the report delivered, beyond a bare ``python3 -c pass``.

Run pairs of both, one after the other, so that a busy machine troubles both alike, and print the medians.

    python benchmarks/bench_launcher.py [--runs 30] [--python PATH]... [--check 0.10]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from jupyterhub_gpuspawner.batch.launcher import launcher_archive
from jupyterhub_gpuspawner.extension import installed
from jupyterhub_gpuspawner.placement.topology import Gpu, NodeTopology, NumaNode, to_document
from jupyterhub_gpuspawner.wire.documents import LaunchPlan, Step

ROOT = Path(__file__).resolve().parents[1]
GPUS, CPUS = 8, 128


class Hub(BaseHTTPRequestHandler):
    """Receives a report and answers at once."""

    def do_POST(self) -> None:
        """Answer 204."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def driver(folder: Path, topology: NodeTopology) -> dict[str, str] | None:
    """The environment of a stand-in NVML with these GPUs; None if it cannot be built."""
    sys.path.insert(0, str(ROOT))
    from tests.standins import c_library, nvml

    if c_library.compiler() is None:
        return None
    (folder / "machine.txt").write_text(nvml.describe(topology))
    return {"LD_LIBRARY_PATH": str(nvml.build(folder)), "STANDIN_NVML": str(folder / "machine.txt")}


def eight_gpus() -> NodeTopology:
    """Eight GPUs on two sockets."""
    half = CPUS // 2
    nodes = tuple(NumaNode(n, tuple(range(n * half, (n + 1) * half)), 262144, (10, 21)) for n in range(2))
    gpus = tuple(
        Gpu(n, f"GPU-{n:08x}-0000-0000-0000-000000000000", f"0000:{n:02x}:00.0", "NVIDIA A100-SXM4-80GB", 81920, n // 4)
        for n in range(GPUS)
    )
    links = tuple(tuple("X" if a == b else "NV12" for b in range(GPUS)) for a in range(GPUS))
    packages = tuple(node.cpus for node in nodes)
    return NodeTopology("n1", gpus, links, nodes, tuple((c,) for c in range(CPUS)), packages, simulated=True)


def timed(command: list[str], environ: dict[str, str]) -> float:
    """Seconds from start to end."""
    start = time.perf_counter()
    subprocess.run(command, env=environ, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> int:
    """Print a table; exit with status 1 if ``--check`` is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--python", action="append")
    parser.add_argument("--check", type=float)
    options = parser.parse_args()
    worst = 0.0
    with tempfile.TemporaryDirectory() as name, ThreadingHTTPServer(("127.0.0.1", 0), Hub) as hub:
        threading.Thread(target=hub.serve_forever, daemon=True).start()
        folder = Path(name) / "gpuspawner.benchmark0"  # as the batch script names it
        folder.mkdir()
        archive = folder / "launch.pyz"
        lab = [each.load(each.launcher) for each in installed() if each.name == "lab"]
        archive.write_bytes(launcher_archive(tuple(lab)))
        print(f"archive: {archive.stat().st_size} bytes; {options.runs} pairs; medians in ms")
        print(f"{'python':>10} {'node':>14} {'bare':>7} {'launch':>7} {'more':>7}")
        topology = eight_gpus()
        (folder / "n1.json").write_text(json.dumps(to_document(topology)))
        with_nvml = driver(folder, topology)
        cases: dict[str, tuple[LaunchPlan, dict[str, str]]] = {
            "sysfs": (LaunchPlan(), {}),
            "file, 8 GPUs": (LaunchPlan(gpus=4, cpus=8, topology_file=str(folder / "n1.json")), {}),
        }
        for companion in lab:
            cases["sysfs, lab"] = LaunchPlan(before=(Step(f"{companion.modules[0]}:provide"),)), {}
        if with_nvml is not None:
            cases["NVML, 8 GPUs"] = (LaunchPlan(gpus=4), with_nvml)
        environ = {
            "PATH": os.environ["PATH"],
            "JUPYTERHUB_API_URL": f"http://127.0.0.1:{hub.server_address[1]}/hub/api",
            "JUPYTERHUB_API_TOKEN": "0",
            "JUPYTERHUB_SERVICE_URL": "http://127.0.0.1:0/",
        }
        for python in options.python or [sys.executable]:
            for kind, (plan, more_environ) in cases.items():
                if more_environ and python != sys.executable:
                    continue
                case_environ = environ | more_environ
                command = [python, str(archive), "--plan", plan.dumps(), "--", "/bin/true"]
                pairs = [
                    (timed([python, "-c", "pass"], case_environ), timed(command, case_environ))
                    for _ in range(options.runs)
                ]
                bare, launch = (statistics.median(column) for column in zip(*pairs, strict=True))
                more = statistics.median(b - a for a, b in pairs)
                worst = max(worst, more)
                print(
                    f"{Path(python).name[-10:]:>10} {kind:>14} {bare * 1e3:7.1f} {launch * 1e3:7.1f} {more * 1e3:7.1f}"
                )
        hub.shutdown()
    return 1 if options.check is not None and worst > options.check else 0


if __name__ == "__main__":
    sys.exit(main())
