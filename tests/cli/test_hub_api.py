"""The REST API of a hub as commands use it, against a server that answers as proxies and hubs do."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from jupyterhub_gpuspawner.cli.hub_api import Hub, hub_of
from jupyterhub_gpuspawner.cli.options import table
from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError

ANSWERS = {
    "/ok": (200, b'{"messages": []}'),
    "/list": (200, b"[]"),
    "/refused": (403, b'{"message": "No\\u001b[2J."}'),
    "/strange": (500, b"[]"),
    "/page": (502, b"<html>Bad gateway</html>"),
}


class Answers(BaseHTTPRequestHandler):
    """Answers by the last part of the path, whatever the method; ``/moved`` leads to ``/ok``."""

    def do_GET(self) -> None:
        """Answer a GET."""
        path = self.path.removeprefix("/hub/api/gpuspawner")
        status, body = ANSWERS.get(path, (302, b""))
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "/hub/api/gpuspawner/ok")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        """Answer a POST."""
        self.do_GET()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def address() -> Iterator[str]:
    """The address of a server with these answers."""
    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_an_answer_is_a_document(address: str) -> None:
    """Whatever of ``/hub/api`` the address ends in."""
    assert [Hub(address + end, "x").ask("POST", "ok", {}) for end in ("", "/", "/hub", "/hub/api/")] == [
        {"messages": []}
    ] * 4


FAULTS = {
    "moved": "--hub: {address}/hub/api/gpuspawner/moved redirects to /hub/api/gpuspawner/ok. "
    "Give the address at which the hub answers.",
    "list": "The hub's answer is not understood: status 200.",
    "refused": "No[2J. (status 403)",
    "strange": "The hub's answer is not understood: status 500.",
    "page": "The hub's answer is not understood: status 502.",
}


@pytest.mark.parametrize(("path", "message"), FAULTS.items(), ids=FAULTS.keys())
def test_anything_else_is_an_error(path: str, message: str, address: str) -> None:
    """A redirection above all: followed with GET it would look as if a message had been sent."""
    with pytest.raises(GPUSpawnerError) as raised:
        Hub(address, "x").ask("POST", path, {})

    assert str(raised.value) == message.format(address=address)


def test_an_address_has_a_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has an example."""
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "x")
    with pytest.raises(ConfigError, match=r"'hub.example.org' is not an address. Use for example https://hub"):
        hub_of("hub.example.org")


def test_a_report_has_aligned_columns_without_control_characters() -> None:
    """A failure's text comes from a node or a file, and must not control the terminal."""
    text = table([("USER", "FAULT"), ("ada", ""), ("train001", "No \x1b[2Jluck")])

    assert text.splitlines() == ["USER      FAULT", "ada", "train001  No [2Jluck"]
