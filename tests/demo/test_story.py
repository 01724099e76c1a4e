"""What goes on in the demo by itself: a course in session, a server that runs and one that waits."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.run import demo_hub
from jupyterhub_gpuspawner.demo.story import IN_COURSE, ON_CLUSTER, Start, begin_story
from tests.fixtures.hubs import needs_proxy


class OnlyProxy(BaseHTTPRequestHandler):
    """What answers where the hub was killed."""

    def do_POST(self) -> None:
        """As configurable-http-proxy does without a page of the hub's."""
        self.server.requests += 1  # type: ignore[attr-defined]
        self.send_error(503)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def only_proxy(port: int) -> Iterator[HTTPServer]:
    """Something listens in the hub's place."""
    with HTTPServer(("127.0.0.1", port), OnlyProxy) as server:
        server.requests = 0  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server
        server.shutdown()


def test_nothing_goes_on_without_a_hub(tmp_path: Path) -> None:
    """Neither where its proxy is left nor where nothing is: the demo says that it has ended, once."""
    said: list[str] = []
    hub = HubProcess(tmp_path)
    begin_story(hub, IN_COURSE, said.append)
    with only_proxy(hub.ports[0]) as proxy:
        begin_story(hub, IN_COURSE, said.append)

    assert (said, proxy.requests) == ([], 2)  # type: ignore[attr-defined]


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubProcess]:
    """The demo's, as it is."""
    needs_proxy()
    with ExitStack() as stack:
        hub = demo_hub(stack, tmp_path, "", port=0)
        stack.enter_context(hub)
        yield hub


@pytest.mark.slurm
@pytest.mark.hub
def test_a_course_is_in_session_and_one_server_waits_for_what_two_others_have(hub: HubProcess) -> None:
    """Real jobs; what the hub refuses is said, and keeps nobody else from starting."""
    said: list[str] = []
    unknown = Start("ada", {"profile": "no-such-profile"})
    begin_story(hub, (*IN_COURSE, unknown, *ON_CLUSTER), said.append)
    *running, waiting = (*IN_COURSE, *ON_CLUSTER)
    for start in running:
        hub.wait(start.user, start.server, ready=True)
    model = hub.server(waiting.user, waiting.server) or {}
    course = {hub.api("GET", f"/gpuspawner/placement/{start.user}").json()["node"] for start in IN_COURSE}

    assert (model["ready"], model["pending"]) == (False, "spawn")
    assert course == {"m1"}
    assert [line.partition(": ")[0] for line in said] == ["The server of ada was not started"]
