"""Runs in the virtual machine as root, in place of slurmd and the hub, and reports the result of each job.

Each job of ``/guest/jobs.json`` gets a cgroup with its cpuset and an environment like those of slurmstepd; its first
process is the launcher. One JSON object per line is printed: first the node, then each job, then the end.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

ENTER = 'echo $$ >"$0/cgroup.procs" && exec /usr/bin/setpriv --reuid=1000 --regid=1000 --clear-groups "$@"'
WORKERS = 2
"""On two cores, more workers would not be faster."""
CGROUPS = Path("/sys/fs/cgroup")
TASK = "step_batch/user/task_0"
REPORTS: dict[str, str] = {}


class Hub(BaseHTTPRequestHandler):
    """Stores a report by the token that it came with."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        REPORTS[self.headers["Authorization"]] = f"{self.path} {body.decode()}"
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def say(facts: dict[str, Any]) -> None:
    print(json.dumps(facts), flush=True)


def output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def node() -> dict[str, Any]:
    """The machine as the kernel describes it."""
    nodes = Path("/sys/devices/system/node")
    devices = Path("/sys/bus/pci/devices")
    return {
        "kernel": os.uname().release,
        "cpulist": {path.name: (path / "cpulist").read_text().strip() for path in sorted(nodes.glob("node[0-9]*"))},
        "distance": {path.name: (path / "distance").read_text().strip() for path in sorted(nodes.glob("node[0-9]*"))},
        "pci": {
            path.name: {
                name: (path / name).read_text().strip()
                for name in ("vendor", "device", "class", "numa_node", "local_cpulist")
            }
            for path in sorted(devices.iterdir())
        },
        "numactl": output("numactl", "--hardware"),
    }


def job_folder(number: int) -> Path:
    """The path of a job's cgroup in Slurm."""
    return CGROUPS / f"system.slice/slurmstepd.scope/job_{number}"


def cpuset(number: int, cpus: str, mems: str) -> str:
    """Create a job's cgroup, with the cpuset that slurmstepd sets; returns the folder of its task."""
    job = job_folder(number)
    step = job / TASK
    step.mkdir(parents=True)
    folder = CGROUPS
    for part in step.relative_to(CGROUPS).parts[:-1]:
        (folder / "cgroup.subtree_control").write_text("+cpuset")
        folder /= part
    (job / "cpuset.cpus").write_text(cpus)
    (job / "cpuset.mems").write_text(mems)
    return str(step)


def run(number: int, job: dict[str, Any], url: str) -> dict[str, Any]:
    group = cpuset(number, job["cpus"], job["mems"])
    environ = {
        "PATH": "/usr/bin:/bin",
        "HOME": "/tmp",
        "SLURM_JOB_ID": str(number),
        "SLURM_JOB_PARTITION": "gpu",
        "SLURMD_NODENAME": "k80",
        "JUPYTERHUB_API_URL": url,
        "JUPYTERHUB_API_TOKEN": str(number),
        "JUPYTERHUB_SERVICE_URL": "http://127.0.0.1:0/user/ada/",
        **job["environ"],
    }
    launcher = ["python3", "/guest/launch.pyz", *job["arguments"], "python3", "/guest/witness.py"]
    command = ["sh", "-c", ENTER, group, *job["before"], *launcher]
    left: list[list[str]] = []
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            witness, log = process.communicate(timeout=240)
        except subprocess.TimeoutExpired:
            left = waiting(number)
            (job_folder(number) / "cgroup.kill").write_text("1")
            witness, log = process.communicate()
    return {
        "job": job["name"],
        "report": REPORTS.get(f"token {number}"),
        "witness": witness,
        "log": log,
        "returncode": process.returncode,
        "left": left,
    }


def waiting(number: int) -> list[list[str]]:
    """The processes of a job that did not end: each command, and where in the kernel it waits."""
    left = []
    for number_of_process in (job_folder(number) / TASK / "cgroup.procs").read_text().split():
        process = Path("/proc") / number_of_process
        command = (process / "cmdline").read_text().replace("\0", " ")
        left.append([command, *((task / "stack").read_text() for task in (process / "task").iterdir())])
    return left


def main() -> None:
    hub = HTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=hub.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{hub.server_address[1]}/hub/api"
    say({"node": node()})

    def attempt(number: int, job: dict[str, Any]) -> dict[str, Any]:
        try:
            return run(number, job, url)
        except Exception as error:  # noqa: BLE001 - told to the test
            return {"job": job["name"], "failed": f"{type(error).__name__}: {error}"}

    jobs = json.loads(Path("/guest/jobs.json").read_text())
    with ThreadPoolExecutor(WORKERS) as pool:
        for facts in pool.map(attempt, range(17, 17 + len(jobs)), jobs):
            say(facts)
    say({"end": True})


if __name__ == "__main__":
    main()
