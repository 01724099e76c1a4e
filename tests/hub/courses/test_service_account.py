"""The hub's own account for courses, against a server that does not answer as JupyterHub should."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from jupyterhub_gpuspawner.hub.courses import service_account
from jupyterhub_gpuspawner.hub.courses.service_account import Answer, ServiceAccount


async def answer_to_stop(how: str) -> Answer:
    """Ask a server that behaves so to stop a server."""

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if how == "hangs":
            await reader.read()  # until the client gives up
        writer.close()

    listening = await asyncio.start_server(behave, "127.0.0.1", 0)
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        app: Any = SimpleNamespace(hub=SimpleNamespace(api_url=f"http://127.0.0.1:{port}/hub/api"))
        return await ServiceAccount(app).stop("ada")


@pytest.mark.parametrize("how", ["hangs", "closes the connection"])
def test_no_answer_is_status_599(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that what was noted for a stop is taken back, and a start is tried again."""
    monkeypatch.setattr(service_account, "TIME_LIMIT", 0.5)

    answer = asyncio.run(answer_to_stop(how))

    assert (answer.status, answer.good) == (599, False)
