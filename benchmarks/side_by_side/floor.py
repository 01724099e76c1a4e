"""The lower bound: ``sbatch`` of the scripts that our hub submitted, without a hub, until their servers answer."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm

from .hubs import Testbed

CONCURRENCY = 8
"""Number of sbatch commands that run at once, as in the hub."""


class _Reports(ThreadingHTTPServer):
    """Receives the launchers' reports, and stores their ports."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Door)
        self.ports: set[int] = set()


class _Door(BaseHTTPRequestHandler):
    server: _Reports

    def do_POST(self) -> None:
        report = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.ports.add(report["port"])
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextmanager
def _reports() -> Iterator[_Reports]:
    with _Reports() as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


async def plain_sbatch(testbed: Testbed, scripts: list[str], *, path: str, timeout: float) -> list[float]:
    """Seconds from the first sbatch until each server answered, sorted."""
    slurm = testbed.slurm
    with _reports() as reports:
        environment = {
            "PATH": path,
            "LANG": "C.UTF-8",
            "HOME": str(testbed.folder),
            "TMPDIR": str(testbed.scratch),
            **slurm.environment,
            "JUPYTERHUB_API_URL": f"http://127.0.0.1:{reports.server_address[1]}/hub/api",
            "JUPYTERHUB_API_TOKEN": "0" * 32,
            "JUPYTERHUB_SERVICE_URL": "http://0.0.0.0:0/user/floor/",
            "JUPYTERHUB_SERVICE_PREFIX": "/user/floor/",
        }
        turns = asyncio.Semaphore(CONCURRENCY)

        async def submit(script: str) -> None:
            async with turns:
                process = await asyncio.create_subprocess_exec(
                    f"{slurm.bin_dir}/sbatch",
                    "--parsable",
                    env=environment,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.DEVNULL,
                )
                await process.communicate(script.encode())
            assert process.returncode == 0

        began = time.monotonic()
        submitting = asyncio.gather(*(submit(script) for script in scripts))
        answering: dict[int, float] = {}
        while len(answering) < len(scripts) and time.monotonic() - began < timeout:
            for port in reports.ports - answering.keys():
                if await _answers(port):
                    answering[port] = time.monotonic() - began
            await asyncio.sleep(0.05)
        await submitting
        return sorted(answering.values())


async def _answers(port: int) -> bool:
    """Whether the server answers at its address, which is what the hub waits for."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /user/floor/api HTTP/1.0\r\n\r\n")
        answer = await asyncio.wait_for(reader.read(12), 5)
    except (OSError, asyncio.TimeoutError):
        return False
    writer.close()
    return answer.startswith(b"HTTP/1.1 200")


def script_of(slurm: PrivateSlurm, job_id: str) -> str:
    """A job's batch script, as stored by Slurm."""
    return slurm.run("scontrol", "write", "batch_script", job_id, "-") + "\n"
