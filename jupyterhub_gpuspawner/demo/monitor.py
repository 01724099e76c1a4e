"""A web application on a unix socket: the simulated GPUs of its own job, with the use that the hub's pages show.

``python monitor.py PATTERN SOCKET``; the pattern is a topology file's, with ``{node}``. It has no sign-in of its own.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from tornado import httpserver, netutil, template, web

from jupyterhub_gpuspawner.demo.simulated_use import SimulatedUse, simulated_use
from jupyterhub_gpuspawner.placement.topology import Gpu, load

RELOAD_SECONDS = 5
"""Seconds after which the page is loaded again."""
TEMPLATES = template.Loader(str(Path(__file__).with_name("templates")), whitespace="all")


def readings(environ: Mapping[str, str], pattern: str, now: float) -> Iterator[tuple[Gpu, SimulatedUse]]:
    """The GPUs of the job of this environment, each with its use now."""
    topology = load(pattern.replace("{node}", Path(environ["SLURMD_NODENAME"]).name))
    positions = {gpu.uuid: position for position, gpu in enumerate(topology.gpus)}
    for name in filter(None, environ.get("CUDA_VISIBLE_DEVICES", "").split(",")):
        gpu = topology.gpus[int(name) if name.isdigit() else positions[name]]
        yield gpu, simulated_use(gpu.index, gpu.memory_mib, now, mig=gpu.mig is not None, uuid=gpu.uuid)


def page(environ: Mapping[str, str], pattern: str, now: float, nonce: str = "") -> bytes:
    """The page of the job of this environment; ``nonce`` is of its style and script."""
    return TEMPLATES.load("monitor.html").generate(
        environ=environ,
        nonce=nonce,
        again=RELOAD_SECONDS,
        cores=len(os.sched_getaffinity(0)),
        gpus=readings(environ, pattern, now),
    )


class Page(web.RequestHandler):
    """The page."""

    def initialize(self, pattern: str) -> None:
        """``pattern`` is a topology file's."""
        self._pattern = pattern

    def get(self) -> None:
        """Show the use now."""
        nonce = secrets.token_urlsafe()
        policy = f"default-src 'none'; connect-src 'self'; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'"
        self.set_header("Content-Security-Policy", policy)
        self.write(page(os.environ, self._pattern, time.time(), nonce))


async def main(pattern: str, path: str) -> None:
    """Serve until it is ended."""
    server = httpserver.HTTPServer(web.Application([("/", Page, {"pattern": pattern})]))
    server.add_socket(netutil.bind_unix_socket(path))
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
