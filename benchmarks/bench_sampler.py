"""Cost of the process beside a server that samples its use: processor time, and memory.

    python benchmarks/bench_sampler.py [--seconds 600] [--interval 30] [--check]

The launcher becomes a server on a node whose driver is the stand-in NVML. With ``--check`` it exits with
status 1 beyond 0.1 % of a core, or 20 MiB.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from jupyterhub_gpuspawner.batch.launcher import launcher_archive  # noqa: E402
from jupyterhub_gpuspawner.wire.documents import LaunchPlan  # noqa: E402
from tests.standins import nvml  # noqa: E402
from tests.standins.report_hub import ReportHub  # noqa: E402

CORE, MIB = 0.001, 20.0
REPORTED = 130.0
"""Seconds after which the process has stopped watching the server's port, which it did before there were samples."""
MACHINE = """\
driver 550.54
gpu GPU-a 00000000:07:00.0 40960 0 1 1 -1 4 NVIDIA_A100
curve 0 -1 0 83 21504 2 250
"""
SERVER = """
import os, socket, time
url = os.environ["JUPYTERHUB_SERVICE_URL"]
server = socket.create_server(("127.0.0.1", int(url.split(":")[2].split("/")[0])))
time.sleep(100000)
"""


def beside(archive: Path, server: int) -> psutil.Process:
    """The process that the launcher left; waits for it."""
    while True:
        for process in psutil.process_iter(["cmdline"]):
            if str(archive) in (process.info["cmdline"] or []) and process.pid != server and process.ppid() != server:
                return process
        time.sleep(0.2)


def main() -> int:
    """Print the cost; exit with status 1 if ``--check`` is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--interval", type=float, default=30.0)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, ReportHub() as hub:
        folder = Path(name)
        archive = folder / "launch.pyz"
        archive.write_bytes(launcher_archive())
        (folder / "machine.txt").write_text(MACHINE)
        environ = {
            **hub.environ,
            "PATH": os.environ["PATH"],
            "LD_LIBRARY_PATH": str(nvml.build(folder)),
            "STANDIN_NVML": str(folder / "machine.txt"),
            "SLURM_JOB_ID": "7",
            "SLURM_JOB_GPUS": "0",
            "CUDA_VISIBLE_DEVICES": "0",
        }
        plan = LaunchPlan(usage_interval=options.interval).dumps()
        command = [sys.executable, str(archive), "--plan", plan, "--", sys.executable, "-c", SERVER]
        with subprocess.Popen(command, env=environ) as server:
            time.sleep(2)
            process = beside(archive, server.pid)
            time.sleep(REPORTED)
            before = process.cpu_times()
            time.sleep(options.seconds)
            times, memory = process.cpu_times(), process.memory_full_info()
            server.kill()
        sent = [each for each in hub.requests if each.path.endswith("/usage")]
    reporting = before.user + before.system
    spent = times.user + times.system - reporting
    print(f"{options.seconds:g} s, a sample every {options.interval:g} s, {len(sent)} summaries")
    share = 100 * spent / options.seconds
    print(f"processor time: {spent:.2f} s ({share:.3f} % of a core); {reporting:.2f} s before, for the port")
    print(f"memory: {memory.rss / 2**20:.1f} MiB resident, {memory.uss / 2**20:.1f} MiB of its own")
    return int(options.check and (spent / options.seconds > CORE or memory.rss / 2**20 > MIB))


if __name__ == "__main__":
    sys.exit(main())
