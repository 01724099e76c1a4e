"""Many idle servers: a hub that finds them in its database, running jobs, and one process that answers.

Each server is a row in the hub's database, with the state that the same system wrote for a real server, and a running
job of its own. The jobs are allocations without a process (``salloc --no-shell``), so that 1,000 of them need a node
of 1,000 cores and nothing else. One process stands for all the single-user servers when the hub looks whether they
answer. From there on the hub does what it does for any server: nothing in it knows that these are held.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from jupyterhub import orm

_ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-JupyterHub-Version: 6.1.1\r\n"
    b"Content-Length: 2\r\nConnection: close\r\n\r\n{}"
)


def write_database(path: Path, states: list[dict[str, Any]], *, port: int) -> None:
    """Create a hub's database with one user and one running server for each state."""
    session = orm.new_session_factory(f"sqlite:///{path}")()
    now = datetime.now(timezone.utc).replace(tzinfo=None)
    for number, state in enumerate(states):
        user = orm.User(name=f"held{number:04d}")
        server = orm.Server(proto="http", ip="127.0.0.1", port=port, base_url=f"/user/{user.name}/")
        spawner = orm.Spawner(user=user, name="", state=state, server=server, started=now, last_activity=now)
        session.add_all([user, server, spawner])
    session.commit()
    session.close()


def as_held(state: Any, job_id: str, port: int) -> Any:
    """The state of a real server, with another job id and the port of the process that answers for all."""
    if isinstance(state, dict):
        other = {"job_id": job_id, "port": port}
        return {key: other[key] if key in other else as_held(value, job_id, port) for key, value in state.items()}
    return state


@asynccontextmanager
async def one_for_all() -> AsyncIterator[int]:
    """Start a process that answers every request like a server, and return its port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(_ANSWER)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=2048)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def copy_of(state: dict[str, Any]) -> dict[str, Any]:
    """A deep copy."""
    copied: dict[str, Any] = json.loads(json.dumps(state))
    return copied
