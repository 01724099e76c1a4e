"""A web application without a sign-in, as a server of a real hub: who reaches it, and what the hub knows of it."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
import requests

from jupyterhub_gpuspawner.demo.hub import HubProcess
from tests.fixtures.hubs import offer
from tests.hub.visitor import Visitor
from tests.standins.web_app import HELLO
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub, pytest.mark.users]

WEB_APP = Path(__file__).parents[2] / "standins" / "web_app.py"


@pytest.fixture(scope="module")
def script(public_copy: Callable[[Path], Path]) -> str:
    """The program of the application, in a folder that is this session's alone."""
    return str(public_copy(WEB_APP))


@pytest.fixture(scope="module")
def hub(users_hub: HubProcess, two_users: tuple[str, str], script: str) -> HubProcess:
    """A hub that runs as root, with one application; its users can run the tests' Python."""
    if as_user(two_users[0], sys.executable, "-c", "import jupyter_server_proxy"):
        pytest.skip(f"other users cannot run {sys.executable}")
    profiles = f"""
- display_name: Application
  slug: app
  slurm: {{partition: batch, cpus: 1, memory: 200M, time: 0:10:00}}
  app:
    name: Stand-in
    command: [{sys.executable}, {script}]
    socket: "{{socket}}"
    ready: /healthz
"""
    offer(users_hub, "application", profiles)
    return users_hub


def as_user(user: str, *argv: str) -> str:
    """What a command says on standard error when this user runs it."""
    command = ["runuser", "-u", user, "--", *argv]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stderr


@pytest.fixture
def server(hub: HubProcess, two_users: tuple[str, str], script: str) -> Iterator[psutil.Process]:
    """The process of the first user's application."""
    wait_until(lambda: not applications(script), lambda: "the one of the test before has not ended", seconds=90)
    hub.spawn(two_users[0], {"profile": "app"})
    (process,) = applications(script)
    yield process
    hub.end(two_users[0])


def applications(script: str) -> list[psutil.Process]:
    """The processes that run this script on a socket."""
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if (words := process.info["cmdline"] or [])[1:2] == [script] and words[-1].endswith("/app.sock")
    ]


def token(hub: HubProcess, user: str) -> dict[str, str]:
    """A header with a token of this user's."""
    return {"Authorization": f"token {hub.api('POST', f'/users/{user}/tokens').json()['token']}"}


def websocket(url: str, headers: dict[str, str]) -> str | int:
    """The first message of the application's WebSocket, or the status with which it is refused."""
    there = urlsplit(url)
    handshake = {
        "Host": there.netloc,
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version": "13",
        **headers,
    }
    lines = [f"GET {there.path} HTTP/1.1", *(f"{name}: {value}" for name, value in handshake.items()), "", ""]
    with (
        socket.create_connection((there.hostname, there.port), timeout=60) as connection,
        connection.makefile("rb") as answer,
    ):
        connection.sendall("\r\n".join(lines).encode())
        status = int(answer.readline().split()[1])
        if status != 101:
            return status
        while answer.readline().strip():
            pass
        length = answer.read(2)[1]  # a frame: its kind, its length, its text
        return answer.read(length).decode()


def test_only_its_user_reaches_an_application(
    hub: HubProcess, server: psutil.Process, two_users: tuple[str, str]
) -> None:
    """By the hub and by the port: signed in as its user, not as another one, and not without; by the socket: nobody.

    That holds for its WebSocket as for its pages.
    """
    person, other = two_users
    hub.api("POST", f"/users/{other}")
    through_hub = f"{hub.url}/user/{person}"
    answers = {
        who: (
            requests.get(f"{through_hub}/page", headers=headers, allow_redirects=False, timeout=30).status_code,
            websocket(f"{through_hub}/ws", headers),
        )
        for who, headers in {"its user": token(hub, person), "another": token(hub, other), "nobody": {}}.items()
    }
    assert answers == {"its user": (200, HELLO), "another": (403, 403), "nobody": (302, 403)}
    page = requests.get(f"{through_hub}/page%2F..%3Fa", headers=token(hub, person), timeout=30)
    assert page.text == f"{HELLO} at /page%2F..%3Fa"

    path = server.cmdline()[2]
    assert not {"JUPYTERHUB_API_TOKEN", "JPY_API_TOKEN"} & server.environ().keys()
    connect = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
    assert Path(path).parent.stat().st_mode & 0o777 == 0o700
    assert as_user(person, sys.executable, "-c", connect, path) == ""
    assert "PermissionError" in as_user(other, sys.executable, "-c", connect, path)
    assert [connection for connection in psutil.net_connections("tcp") if connection.pid == server.pid] == []


def test_an_application_gets_no_sign_in_and_gives_no_cookies_away(
    hub: HubProcess, server: psutil.Process, two_users: tuple[str, str]
) -> None:
    """It gets neither the token of a visitor nor the hub's cookies; its own cookie is for its own addresses.

    Another site's page cannot make the visitor's browser change something, nor open its WebSocket.
    """
    person = two_users[0]
    address = f"{hub.url}/user/{person}"
    headers = {**token(hub, person), "Remote-User": "root"}
    app_headers = requests.get(f"{address}/known", headers=headers, timeout=30).json()["headers"]
    assert {"Authorization", "Remote-User", "Cookie"} & app_headers.keys() == set()

    visitor = Visitor(hub, person).session
    first = visitor.get(address, timeout=30)
    assert (first.status_code, first.url) == (200, f"{address}/")
    cookie_headers = [visitor.get(f"{address}/known", timeout=30).json()["headers"].get("Cookie", "") for _ in range(2)]
    assert [[origin for origin in cookies.split("; ") if "jupyterhub" in origin] for cookies in cookie_headers] == [
        [],
        [],
    ]
    assert "session=1" in cookie_headers[1]
    assert {cookie.path for cookie in visitor.cookies if cookie.name == "session"} == {f"/user/{person}/"}
    paths = {cookie.path for cookie in visitor.cookies if cookie.name == f"jupyterhub-user-{person}"}
    assert paths == {f"/user/{person}/"}

    elsewhere = {"Origin": "http://evil.example"}
    here = {"Origin": hub.url}
    posted = [visitor.post(f"{address}/known", headers=origin, timeout=30).status_code for origin in (elsewhere, here)]
    assert posted == [403, 200]
    cookies = {"Cookie": "; ".join(f"{cookie.name}={cookie.value}" for cookie in visitor.cookies)}
    assert [websocket(f"{address}/ws", {**cookies, **origin}) for origin in (elsewhere, here)] == [403, HELLO]


def test_the_hub_knows_when_an_application_was_used_and_that_it_has_ended(
    hub: HubProcess, server: psutil.Process, two_users: tuple[str, str]
) -> None:
    """Activity is a request, not that the server runs; its exit code is the server's."""
    person = two_users[0]
    at_first, header = last_activity(hub, person), token(hub, person)
    began = datetime.now(timezone.utc)
    requests.get(f"{hub.url}/user/{person}/page", headers=header, timeout=30).raise_for_status()
    ended = datetime.now(timezone.utc)
    wait_until(lambda: last_activity(hub, person) != at_first, seconds=60)
    assert began <= last_activity(hub, person) <= ended

    with pytest.raises(requests.HTTPError):
        requests.get(f"{hub.url}/user/{person}/quit", headers=token(hub, person), timeout=30).raise_for_status()
    hub.wait(person, ready=False)
    assert server.is_running() is False


def last_activity(hub: HubProcess, user: str) -> datetime:
    """When the user's server was last used, as JupyterHub knows it."""
    model = hub.server(user)
    assert model is not None
    return datetime.fromisoformat(model["last_activity"].replace("Z", "+00:00"))
