"""``POST /hub/api/gpuspawner/report`` on a real hub: who may report what, how often, and what is shown of it."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import requests

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from jupyterhub_gpuspawner.hub.server.report import BODY_TIMEOUT, ReportRate
from jupyterhub_gpuspawner.wire.documents import REPORT_LIMIT
from tests.fixtures.hubs import offer, scrape
from tests.hub.visitor import Visitor
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

SILENT = """
- display_name: Says nothing
  slug: silent
  description: Its job runs and starts no server, so that the test can report in its place.
  slurm: {partition: batch, cpus: 1, memory: 100M, time: "0:10:00"}
  environment: {setup: 'env > "$HOME/environ.$SLURM_JOB_ID"; sleep 600'}
  command: [/bin/true]
"""
PATH = "/hub/api/gpuspawner/report"
NEXT = 60.0 / ReportRate.per_minute


@pytest.fixture(scope="module")
def hub(light_hub: HubProcess) -> HubProcess:
    """A hub with one profile that starts a server and one that does not."""
    offer(light_hub, "silent", SILENT)
    return light_hub


class Started:
    """A server whose job runs and has not reported yet, with its token."""

    def __init__(self, hub: HubProcess, slurm: PrivateSlurm, user: str) -> None:
        self.hub, self.slurm, self.user = hub, slurm, user
        hub.api("POST", f"/users/{user}")
        hub.api("POST", f"/users/{user}/server", {"profile": "silent"})
        home = hub.folder / "homes" / user
        text = _until(lambda: next((path.read_text() for path in home.glob("environ.*")), ""), "JUPYTERHUB_API_TOKEN=")
        self.environ = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
        self.token, self.job = self.environ["JUPYTERHUB_API_TOKEN"], self.environ["SLURM_JOB_ID"]

    def report(self, body: Any, *, token: str | None = None, **headers: str) -> requests.Response:
        """Post a report; anything but bytes is sent as JSON."""
        return requests.post(
            f"{self.hub.url}{PATH}",
            data=body if isinstance(body, bytes) else json.dumps(body),
            headers={"Authorization": f"token {token or self.token}", "Content-Type": "application/json", **headers},
            timeout=30,
        )

    def end(self) -> None:
        """Stop it, and wait until its job has ended."""
        self.hub.end(self.user)


def _until(query: Any, wanted: str) -> str:
    wait_until(lambda: wanted in str(query()), lambda: f"{wanted!r} did not come; there is {query()!r}", seconds=60)
    return str(query())


@pytest.fixture
def started(hub: HubProcess, slurm_cluster: PrivateSlurm) -> Iterator[Started]:
    """A new user for each test, since the rate limit is per server."""
    global _COUNT  # noqa: PLW0603 - a name for each
    _COUNT += 1
    server = Started(hub, slurm_cluster, f"ann{_COUNT}")
    yield server
    server.end()


_COUNT = 0


def good(started: Started, **changes: Any) -> dict[str, Any]:
    """A report that would be accepted."""
    placement = {"job_id": started.job, "node": started.environ["SLURMD_NODENAME"], **changes}
    return {"version": 1, "port": 41234, "placement": placement}


def message(answer: requests.Response) -> tuple[int, str]:
    """Status and message of the response."""
    return answer.status_code, answer.json()["message"] if answer.text else ""


# --- who --------------------------------------------------------------------------------------------


def test_only_the_servers_own_token_reports(hub: HubProcess, started: Started) -> None:
    """Tokens of other servers, users, admins and services are refused, and none at all; nothing is stored."""
    hub.spawn("ben", {"profile": "light"})
    other = requests.get(f"{hub.url}/user/ben/environ", timeout=10).json()["JUPYTERHUB_API_TOKEN"]
    own, admins = Visitor(hub, started.user).token(), Visitor(hub, "admin").token()
    one, all_servers = (403, "A report needs the server's own token."), 403
    report = good(started)

    # Ben's token belongs to Ben's server, where a report about Ann's job is refused
    assert message(started.report(report, token=other))[0] == 409
    assert message(started.report(report, token=own)) == one
    assert message(started.report(report, token=admins)) == one
    assert started.report(report, token=hub.token).status_code == all_servers
    assert started.report(report, token="0" * 64).status_code == 403
    assert requests.post(f"{hub.url}{PATH}", json=report, timeout=10).status_code == 403
    assert hub.api("GET", f"/gpuspawner/placement/{started.user}").status_code == 404

    hub.end("ben")


def test_a_servers_token_ends_with_it(hub: HubProcess, slurm_cluster: PrivateSlurm) -> None:
    """After a stop the hub accepts no reports from the job."""
    gone = Started(hub, slurm_cluster, "cleo")
    gone.end()

    assert gone.report(good(gone)).status_code == 403


# --- what -------------------------------------------------------------------------------------------


def test_a_report_of_another_job_is_refused(hub: HubProcess, started: Started) -> None:
    """409, naming the job that is expected."""
    answer = message(started.report(good(started, job_id="1")))

    assert answer == (409, f"placement.job_id: must be {started.job}, the job of this server")
    assert hub.api("GET", f"/gpuspawner/placement/{started.user}").status_code == 404


def test_a_report_of_another_node_is_told_and_not_shown(hub: HubProcess, started: Started) -> None:
    """Node and address come from Slurm; the GPUs that it claims are dropped."""
    body = good(started, node="h100-secret", gpus=[{"index": 3, "name": "NVIDIA H100"}], why="Because.")

    assert started.report(body).status_code == 204

    _until(lambda: hub.api("GET", f"/gpuspawner/placement/{started.user}").status_code, "200")
    shown = hub.api("GET", f"/gpuspawner/placement/{started.user}").json()
    node = started.environ["SLURMD_NODENAME"]

    assert (shown["node"], shown["gpus"], shown["why"]) == (node, [], "")
    assert shown["problems"] == [f"The report names node h100-secret; Slurm says {node}. The rest of it is not shown."]


def test_the_last_report_before_the_server_answers_counts_and_no_placement_after(
    hub: HubProcess, started: Started
) -> None:
    """A launcher may choose another port; repeating the report of a server that is ready changes nothing."""
    assert started.report(good(started)).status_code == 204

    with serving("server") as port:
        second = {**good(started), "port": port}

        assert started.report(second).status_code == 204

        hub.wait(started.user, ready=True)
        other = {**second, "placement": {**second["placement"], "why": "Another."}}
        of_version_2 = {**second, "version": 2, "door": {"seen": "process", "addresses": ["127.0.0.1"]}}

        assert message(started.report(other)) == (409, "server: it is ready and has already reported")
        assert started.report(second).status_code == 204
        assert started.report(of_version_2).status_code == 204
        assert answer_at(hub, started.user) == "server"


@pytest.mark.parametrize("version", [2, pytest.param(1, marks=pytest.mark.nightly)])
def test_a_later_report_of_another_port_is_an_alarm_and_leads_there(
    hub: HubProcess, started: Started, version: int
) -> None:
    """Another user may listen at the first port: hub and proxy follow the job's reports."""
    with serving("neighbour") as first, serving("server") as second:
        started.report({**good(started), "port": first})
        hub.wait(started.user, ready=True)
        before, counted = answer_at(hub, started.user), moved(hub)

        assert started.report({**good(started), "port": second, "version": version}).status_code == 204

        _until(lambda: answer_at(hub, started.user), "server")

        assert moved(hub) == counted + 1

        hub.restart()
        hub.wait(started.user, ready=True)

        assert before == "neighbour"
        assert answer_at(hub, started.user) == "server"
        warning = f"{started.user} was expected at port {first} and reports port {second}: the process at the"
        assert warning in hub.log.read_text()


def test_a_server_that_has_lost_its_port_is_led_to_again_when_it_has_another(hub: HubProcess, started: Started) -> None:
    """Until then the proxy has no route for the address."""
    with serving("neighbour") as first, serving("server") as second:
        started.report({**good(started), "port": first})
        hub.wait(started.user, ready=True)
        before = moved(hub)
        lost = {**good(started), "version": 2, "port": None, "door": {"seen": "taken"}}

        assert started.report(lost).status_code == 204

        _until(lambda: answer_at(hub, started.user) != "neighbour", "True")
        nobody = answer_at(hub, started.user)
        started.report({**good(started), "port": second, "version": 2})
        _until(lambda: answer_at(hub, started.user), "server")

        assert nobody == ""
        assert moved(hub) == before + 2


def test_a_start_without_a_port_shows_its_placement_and_waits(hub: HubProcess, started: Started) -> None:
    """The page shows the placement while the server starts; a port that was taken is never connected to."""
    with serving("neighbour") as first, serving("server") as second:
        started.report({**good(started), "version": 2, "port": None})
        _until(lambda: hub.api("GET", f"/gpuspawner/placement/{started.user}").status_code, "200")
        waiting = hub.server(started.user)
        started.report({**good(started), "version": 2, "port": None, "door": {"seen": "taken"}})
        started.report({**good(started), "version": 2, "port": second})
        hub.wait(started.user, ready=True)

        assert waiting is not None
        assert not waiting["ready"]
        assert answer_at(hub, started.user) == "server"
        assert first not in (0, second)


@contextmanager
def serving(name: str) -> Iterator[int]:
    """The port of a listener that responds to every request with its name, which is enough for the hub."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_serve, args=(listener, name), daemon=True).start()
        yield int(listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)


def _serve(listener: socket.socket, name: str) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection, suppress(OSError):
            connection.settimeout(5)
            if connection.recv(4096):
                head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(name)}\r\nConnection: close\r\n\r\n"
                connection.sendall(f"{head}{name}".encode())


def answer_at(hub: HubProcess, user: str) -> str:
    """The name of the listener at a user's address; empty where the hub or the proxy responds."""
    text = requests.get(f"{hub.url}/user/{user}/api", timeout=10).text
    return text if text in ("server", "neighbour") else ""


def moved(hub: HubProcess) -> float:
    """How often servers that the hub already knew reported another port."""
    return scrape(hub)["ports_lost_total", ("moved",)]


HOSTILE: dict[str, bytes] = {
    "not JSON": b"port=41234",
    "nothing": b"",
    "deep objects": b'{"placement":' * 5_000,
    "a huge number": b'{"version": 1, "port": ' + b"9" * 60_000 + b"}",
    "an attribute": b'{"version": 1, "port": 41234, "cmd": ["/bin/sh"]}',
}


def test_what_is_no_report_is_named_and_changes_nothing(hub: HubProcess, started: Started) -> None:
    """400 for each."""
    begins = len(hub.log.read_text())
    for name, body in HOSTILE.items():
        answer = started.report(body)

        assert answer.status_code == 400, name
        assert ":" in answer.json()["message"], name

    assert hub.api("GET", f"/gpuspawner/placement/{started.user}").status_code == 404
    assert "Traceback" not in hub.log.read_text()[begins:]


# --- how much, how often ----------------------------------------------------------------------------


def test_a_body_that_is_too_large_is_refused_before_it_is_read(started: Started) -> None:
    """By its announced length, or else as soon as it is too long."""
    host, port = started.hub.url.removeprefix("http://").split(":")[0], started.hub.ports[1]
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: token {started.token}\r\n"
    with socket.create_connection((host, port), timeout=20) as connection:
        connection.sendall(f"{head}Content-Length: {REPORT_LIMIT + 1}\r\n\r\n".encode())  # without sending a byte of it
        answer = connection.recv(4096)

    assert answer.startswith(b"HTTP/1.1 413 ")

    sent = 0
    with socket.create_connection((host, port), timeout=20) as connection:
        connection.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        try:
            while sent < 50 << 20:
                connection.sendall(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
                sent += 0x10000
        except OSError:
            pass

    assert sent < 20 << 20  # the kernel's buffers; the hub itself has read no more than a report's limit


@pytest.mark.parametrize(
    "head", ["Content-Length: 1000", pytest.param("Transfer-Encoding: chunked", marks=pytest.mark.nightly)]
)
def test_a_body_that_does_not_come_is_not_waited_for(started: Started, head: str) -> None:
    """Half of a body, then nothing: the connection is closed. The server's next report is accepted."""
    address = (started.hub.url.removeprefix("http://").split(":")[0], started.hub.ports[1])
    with socket.create_connection(address, timeout=BODY_TIMEOUT * 6) as connection:
        connection.sendall(
            f"POST {PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: token {started.token}\r\n{head}\r\n\r\n".encode()
        )
        connection.sendall(b"{" if "Length" in head else b"1\r\n{\r\n")

        assert connection.recv(4096) == b""

    assert started.report(good(started)).status_code == 204


def test_a_server_that_reports_without_end_is_told_when_to_come_again(hub: HubProcess, started: Started) -> None:
    """429 with Retry-After after some; other servers are not affected."""
    answers = [started.report({"version": 1, "port": 1}) for _ in range(ReportRate.burst + 3)]
    codes = [answer.status_code for answer in answers]

    assert codes[: ReportRate.burst] == [400] * ReportRate.burst
    assert codes[-1] == 429
    assert 1 <= int(answers[-1].headers["Retry-After"]) <= NEXT
    assert answers[-1].json()["message"] == "This server reports too often."

    hub.spawn("dora", {"profile": "light"})
    hub.end("dora")
