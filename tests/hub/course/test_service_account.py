"""The hub's own account for courses, against a server that does not answer as JupyterHub should."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jupyterhub.utils import make_ssl_context

from jupyterhub_gpuspawner.hub.course import actions
from jupyterhub_gpuspawner.hub.course.actions import Answer, ServiceAccount
from jupyterhub_gpuspawner.hub.course.participants import ServerKey


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
        app: Any = SimpleNamespace(hub=SimpleNamespace(api_url=f"http://127.0.0.1:{port}/hub/api"), internal_ssl=False)
        return await ServiceAccount(app, 20).stop(ServerKey("ada"))


@pytest.mark.parametrize("how", ["hangs", "closes the connection"])
def test_no_answer_is_status_599(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that what was noted for a stop is taken back, and a start is tried again."""
    monkeypatch.setattr(actions, "TIME_LIMIT", 0.5)

    answer = asyncio.run(answer_to_stop(how))

    assert (answer.status, answer.is_success) == (599, False)


async def test_as_many_starts_are_under_way_as_the_setting_says() -> None:
    """JupyterHub holds each for up to ten seconds; tornado's shared client has ten requests for the whole hub."""
    all_there, held = asyncio.Event(), list[str]()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        held.append(request.decode().split()[1])
        if len(held) == 15:
            all_there.set()
        await all_there.wait()
        writer.write(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    listening = await asyncio.start_server(hold, "127.0.0.1", 0)
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        app: Any = SimpleNamespace(hub=SimpleNamespace(api_url=f"http://127.0.0.1:{port}/hub/api"), internal_ssl=False)
        account = ServiceAccount(app, 15)
        starts = asyncio.gather(*(account.start(ServerKey(f"u{number}", "lab"), {}) for number in range(15)))
        answers = await asyncio.wait_for(starts, 30)

    assert (set(answers), sorted(held)) == (
        {Answer(201)},
        sorted(f"/hub/api/users/u{number}/servers/lab" for number in range(15)),
    )


async def test_with_internal_ssl_the_account_shows_the_hubs_certificate(tmp_path: Path) -> None:
    """And accepts an answer only of who has one of the same authority."""
    certificates = pytest.importorskip("certipy").Certipy(store_dir=str(tmp_path))
    certificates.create_ca("authority")
    certificates.create_signed_pair("hub", "authority", alt_names=["IP:127.0.0.1", "DNS:localhost"])
    hub, authority = (certificates.store.get_record(name)["files"] for name in ("hub", "authority"))
    names = {"internal_ssl_key": hub["key"], "internal_ssl_cert": hub["cert"], "internal_ssl_ca": authority["cert"]}
    context = make_ssl_context(hub["key"], hub["cert"], authority["cert"], purpose=ssl.Purpose.CLIENT_AUTH)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
        writer.close()

    listening = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        api = SimpleNamespace(api_url=f"https://127.0.0.1:{port}/hub/api")
        app: Any = SimpleNamespace(hub=api, internal_ssl=True, **names)
        found = await ServiceAccount(app, 20).stop(ServerKey("ada"))

    assert found == Answer(204)
