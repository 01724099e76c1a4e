"""One hub of one system in its own folder: its process, its cost, and its users."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
from typing_extensions import Self

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm

from .commands import CommandLog
from .systems import System

CONFIGS = Path(__file__).parent / "configs"
POLL_SECONDS = 0.1
"""Seconds between two checks of which servers are ready."""


@dataclass(frozen=True)
class Testbed:
    """Values shared by all hubs of a run."""

    slurm: PrivateSlurm
    folder: Path
    """A folder, in memory if possible."""
    databases: Path
    """The folder of the hubs' databases."""
    environment: Path
    """A folder with the stand-in for jupyterhub-singleuser, and batchspawner's wrapper."""
    old: bool
    """Whether this Slurm's scontrol has no ``--json``."""
    users: int
    """Number of users for whom there are GPUs."""

    @property
    def scratch(self) -> Path:
        """The folder for temporary files on the nodes."""
        return self.environment


class Hub:
    """A started hub: ``async with Hub(testbed, system, "start") as hub:``."""

    def __init__(self, testbed: Testbed, system: System, name: str) -> None:
        self.system = system
        self.folder = testbed.folder / f"{system.key}-{name}"
        self.commands = CommandLog(self.folder / "bin", bin_dir=testbed.slurm.bin_dir, old=testbed.old)
        self.database = database = testbed.databases / f"{system.key}-{name}.sqlite"
        token = secrets.token_hex(16)
        self.process = HubProcess(
            self.folder,
            token=token,
            config=CONFIGS / system.config,
            environment={
                **testbed.slurm.environment,
                "CONFIGPROXY_AUTH_TOKEN": token,
                "PATH": f"{self.commands.folder}:{testbed.environment}:{os.environ['PATH']}",
                "TMPDIR": str(testbed.scratch),
                "BENCH_DATABASE": str(database),
                "BENCH_CONFIGS": str(CONFIGS),
                "BENCH_ENVIRONMENT": f"{testbed.environment}/",
                "BENCH_PACKAGES": ",".join(system.packages),
                "BENCH_TOPOLOGY": testbed.slurm.topology_pattern,
            },
        )

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.process.start, timeout=180.0)
        assert self.process.process is not None
        self.pid = self.process.process.pid
        self.proxy = httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{self.process.ports[2]}",
            headers={"Authorization": f"token {self.process.token}"},
            timeout=60,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.proxy.aclose()
        self.process.kill()
        with suppress(OSError, ValueError):
            os.kill(int((self.folder / "proxy.pid").read_text()), signal.SIGKILL)

    # --- what it costs ---------------------------------------------------------------------------

    def cpu(self) -> tuple[float, float]:
        """Processor seconds of the hub's process, and of the commands that it ran."""
        times = psutil.Process(self.pid).cpu_times()
        return times.user + times.system, times.children_user + times.children_system

    def memory(self) -> float:
        """Resident memory in MiB."""
        return float(psutil.Process(self.pid).memory_info().rss) / 2**20

    def blocks(self, since: int = 0) -> list[dict[str, Any]]:
        """Callbacks that blocked the event loop for more than 20 ms, from index ``since`` on."""
        file = self.folder / "blocks.jsonl"
        lines = file.read_text().splitlines() if file.exists() else []
        return [json.loads(line) for line in lines[since:]]

    def states(self) -> dict[str, Any]:
        """The stored state of each user's server."""
        with sqlite3.connect(f"file:{self.database}?mode=ro", uri=True) as database:
            rows = database.execute(
                "select users.name, spawners.state from spawners join users on users.id = user_id"
            ).fetchall()
        return {name: json.loads(state) for name, state in rows if state}

    # --- people ----------------------------------------------------------------------------------

    async def ready(self) -> set[str]:
        """Names of the users whose server has a route; the proxy is queried, so that this puts no load on the hub."""
        answer = await self.proxy.get("/api/routes")
        routes = answer.raise_for_status().json()
        return {route.split("/")[2] for route in routes if route.startswith("/user/")}

    async def until_ready(self, names: set[str], began: float, *, timeout: float) -> dict[str, float]:
        """For each user, seconds from ``began`` (time.monotonic()) until the server was ready, if in time."""
        durations: dict[str, float] = {}
        while len(durations) < len(names) and time.monotonic() - began < timeout:
            for name in await self.ready() - durations.keys():
                durations[name] = time.monotonic() - began
            await asyncio.sleep(POLL_SECONDS)
        return durations


class Person:
    """A user who has signed in and sees the form."""

    def __init__(self, hub: Hub, name: str) -> None:
        self.hub = hub
        self.name = name
        self.browser = httpx.AsyncClient(base_url=hub.process.url, follow_redirects=True, timeout=700)

    async def sign_in(self) -> None:
        """Sign in and follow to the next page."""
        await self.browser.get("/hub/login")
        await self._post("/hub/login", {"username": self.name, "password": "any"}, follow=False)

    async def see_form(self) -> None:
        """Open the page with the form."""
        (await self.browser.get(f"/hub/spawn/{self.name}")).raise_for_status()

    async def click(self) -> str:
        """Start the server; returns an empty text, or the error."""
        answer = await self._post(f"/hub/spawn/{self.name}", dict(self.hub.system.form), follow=False)
        return "" if answer.status_code < 400 else f"{answer.status_code}: {answer.text[-300:]}"

    async def visit_home(self, seconds: list[float], *, pause: float = 0.2) -> None:
        """Open the home page again and again, for ever; adds to ``seconds`` how long each took."""
        while True:
            began = time.monotonic()
            (await self.browser.get("/hub/home")).raise_for_status()
            seconds.append(time.monotonic() - began)
            await asyncio.sleep(pause)

    @asynccontextmanager
    async def progress(self) -> AsyncIterator[None]:
        """An open progress stream of this user's server, which has sent its first event; it is read on."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.hub.process.ports[1])
        cookies = "; ".join(f"{cookie.name}={cookie.value}" for cookie in self.browser.cookies.jar)
        head = f"GET /hub/api/users/{self.name}/server/progress HTTP/1.1\r\nHost: hub\r\nCookie: {cookies}\r\n\r\n"
        writer.write(head.encode())
        response = await reader.readuntil(b"\r\n\r\n")
        assert response.startswith(b"HTTP/1.1 200 "), response
        await reader.readuntil(b"data: ")

        async def read_on() -> None:
            while await reader.read(65536):
                pass

        reading = asyncio.create_task(read_on())
        try:
            yield
        finally:
            reading.cancel()
            writer.close()

    async def _post(self, path: str, fields: dict[str, str], *, follow: bool) -> httpx.Response:
        xsrf = next(cookie.value for cookie in self.browser.cookies.jar if cookie.name == "_xsrf")
        return await self.browser.post(path, params={"_xsrf": xsrf}, data=fields, follow_redirects=follow)


async def people(hub: Hub, names: list[str], *, concurrency: int = 4) -> list[Person]:
    """All users, signed in, with the form open."""
    turns = asyncio.Semaphore(concurrency)

    async def one(name: str) -> Person:
        person = Person(hub, name)
        async with turns:
            await person.sign_in()
            await person.see_form()
        return person

    return list(await asyncio.gather(*(one(name) for name in names)))
