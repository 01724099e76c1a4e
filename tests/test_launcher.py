"""The launcher that every job carries: packed, run by each Python, reporting to a real HTTP server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from jupyterhub_gpuspawner.launcher import launcher_archive
from jupyterhub_gpuspawner.topology import Gpu, NodeTopology, NumaNode, to_document
from jupyterhub_gpuspawner.wire import LaunchPlan, parse_report

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SHOW = "import json, os; print(json.dumps(dict(os.environ)))"


class Hub(ThreadingHTTPServer):
    """Takes reports as the hub does; answers with the statuses it was given, then with 204."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Door)
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.statuses: list[int] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}/hub/api"


class Door(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        hub: Any = self.server
        body = self.rfile.read(int(self.headers["Content-Length"]))
        hub.requests.append((self.path, dict(self.headers), body))
        self.send_response(hub.statuses.pop(0) if hub.statuses else 204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "launch.pyz"
    path.write_bytes(launcher_archive())
    return path


def test_a_job_on_a_simulated_node_is_placed_reported_and_started(tmp_path: Path, hub: Hub, archive: Path) -> None:
    """The server gets the GPUs that Slurm granted, and the hub is told so before it starts."""
    node = NodeTopology(
        gpus=tuple(Gpu(index=n, uuid=f"GPU-{n}", pci=f"0000:0{n}:00.0", numa_node=n // 2) for n in range(4)),
        links=tuple(tuple("X" if a == b else "PIX" if a // 2 == b // 2 else "SYS" for b in range(4)) for a in range(4)),
        numa_nodes=(NumaNode(0, tuple(range(12))), NumaNode(1, tuple(range(12, 24)))),
        simulated=True,
    )
    (tmp_path / "k1.json").write_text(json.dumps(to_document(node)))
    plan = LaunchPlan(gpus=2, topology_file=str(tmp_path / "{node}.json"))
    environ = {
        "PATH": os.environ["PATH"],
        "JUPYTERHUB_API_URL": hub.url,
        "JUPYTERHUB_API_TOKEN": "secret",
        "JUPYTERHUB_SERVICE_URL": "http://127.0.0.1:0/user/ada/",
        "SLURM_JOB_ID": "17",
        "SLURM_JOB_GPUS": "2,3",
        "CUDA_VISIBLE_DEVICES": "2,3",
        "SLURM_GPUS_ON_NODE": "2",
        "SLURM_CPUS_ON_NODE": "24",
        "SLURMD_NODENAME": "k1",
        "SLURM_JOB_PARTITION": "gpu",
        "SLURM_JOB_END_TIME": "1795259690",
    }

    done = subprocess.run(
        [sys.executable, archive, "--plan", plan.dumps(), "--", sys.executable, "-c", SHOW, "{port}"],
        env=environ,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )

    seen = json.loads(done.stdout)
    [(path, headers, body)] = hub.requests
    report = parse_report(body)
    assert path == "/hub/api/gpuspawner/report"
    assert headers["Authorization"] == "token secret"
    assert seen["JUPYTERHUB_SERVICE_URL"] == f"http://127.0.0.1:{report.port}/user/ada/"
    assert sorted(seen["CUDA_VISIBLE_DEVICES"].split(",")) == ["2", "3"]
    assert seen["CUDA_VISIBLE_DEVICES"] == ",".join(str(gpu.index) for gpu in report.placement.gpus)
    assert seen["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert (report.placement.job_id, report.placement.node, report.placement.partition) == ("17", "k1", "gpu")
    assert report.placement.ends_at == "2026-11-21T11:14:50Z"
    assert report.placement.simulated
    assert report.topology is not None
