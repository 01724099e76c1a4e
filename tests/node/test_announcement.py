"""A server is announced: placement and port, in a child with a deadline, and later where the hub is away."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable
from typing import Any

import pytest

from jupyterhub_gpuspawner.demo.slurm_cluster import free_ports
from jupyterhub_gpuspawner.hub.report.server_report import parse_report
from jupyterhub_gpuspawner.node import port
from jupyterhub_gpuspawner.node import report as reporting
from jupyterhub_gpuspawner.node.main import Announcement, announce
from jupyterhub_gpuspawner.wire.documents import LaunchPlan, NodeReport, PlacementDocument, PortReport
from tests.node.conftest import LaunchedServer
from tests.standins.report_hub import ReportHub
from tests.waiting import wait_until

REPORT = NodeReport(0, PlacementDocument(node="g1", problems=("One.",)))


def test_the_hub_is_told_the_placement_at_once_and_the_port_when_it_is_listened_on() -> None:
    """By this process, in the place of the server, at the port that stands in the server's URL."""
    with ReportHub() as hub:
        announcement = announce(REPORT, LaunchPlan(), hub.environ)
        first_reports = [parse_report(request.body) for request in hub.requests]
        with socket.create_server(("127.0.0.1", announcement.port)):
            wait_until(lambda: len(hub.requests) >= 2, "the port is reported")

    assert announcement == Announcement(announcement.port, f"http://127.0.0.1:{announcement.port}/user/ada/")
    assert first_reports == [NodeReport(0, REPORT.placement)]
    assert [parse_report(request.body) for request in hub.requests[1:]] == [
        NodeReport(announcement.port, REPORT.placement, door=PortReport("process", ("127.0.0.1",)))
    ]


def test_what_was_wrong_with_the_port_is_in_the_report() -> None:
    """That a port range is used up is reported to the hub, too."""
    with socket.socket() as listener, ReportHub() as hub:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        number = listener.getsockname()[1]
        announcement = announce(REPORT, LaunchPlan(port_range=(number, number)), hub.environ)

    problem = f"No port on 127.0.0.1: no port from {number} to {number} is free."
    assert announcement.problems == (problem,)
    assert parse_report(hub.requests[0].body).placement.problems == ("One.", problem)


def test_a_hub_that_cannot_be_told_leaves_the_port() -> None:
    """The server starts on it."""
    announcement = announce(REPORT, LaunchPlan(), {"JUPYTERHUB_SERVICE_URL": "http://127.0.0.1:0/"})

    assert announcement.port >= 1024
    assert announcement.service_url == f"http://127.0.0.1:{announcement.port}/"
    assert announcement.problems == (
        "The report could not be sent to the hub: JUPYTERHUB_API_URL and JUPYTERHUB_API_TOKEN are not both set",
    )


def test_a_name_that_is_looked_up_for_ever_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A resolver has no time-out of its own that could be set."""

    def hang(*_: Any) -> None:
        while True:
            signal.pause()

    monkeypatch.setattr(reporting, "attempt", hang)
    nobody = {"JUPYTERHUB_API_URL": "http://127.0.0.1:1/hub/api"}
    announcement = announce(REPORT, LaunchPlan(), nobody, deadline=0.5)

    assert announcement.port >= 1024
    assert announcement.problems == (
        "Reporting to the hub timed out after 0.5 s. The report will be sent again for up to ten minutes.",
    )


def test_a_fault_of_ours_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no port then."""

    def broken(*_: Any) -> None:
        raise RuntimeError("broken by the test")

    monkeypatch.setattr(port, "door", broken)
    announcement = announce(REPORT, LaunchPlan(), {})

    assert announcement == Announcement(0, None, ("Reporting to the hub failed: RuntimeError: broken by the test",))


LATER = "The report will be sent again for up to ten minutes."


def away(port: int) -> dict[str, str]:
    """What a hub gives its servers that will be there later."""
    return {
        "JUPYTERHUB_API_URL": f"http://127.0.0.1:{port}/hub/api",
        "JUPYTERHUB_API_TOKEN": "the-token",
        "JUPYTERHUB_SERVICE_URL": "http://127.0.0.1:0/user/ada/",
    }


def test_a_hub_that_comes_back_is_told_while_the_server_runs(launched: Callable[..., LaunchedServer]) -> None:
    """The server is there before the hub; the report names its port."""
    [port] = free_ports(1)
    environ = away(port)
    server = launched(environ)
    url = server.url()
    with ReportHub(503, 503, port=port) as hub:
        wait_until(lambda: len(hub.requests) > 2 and parse_report(hub.requests[-1].body).port > 0)
        report = parse_report(hub.requests[-1].body)

    assert url == f"http://127.0.0.1:{report.port}/user/ada/"
    assert server.process.poll() is None

    server.process.kill()

    assert LATER in server.process.communicate()[1]  # and nothing else holds the job's output open
    wait_until(lambda: not server.beside())


@pytest.mark.parametrize("refusal", [401, 403])
def test_a_hub_that_could_not_look_the_token_up_is_asked_again(
    launched: Callable[..., LaunchedServer], refusal: int
) -> None:
    """A hub without its database cannot look up the token; it accepts the report when the database is back."""
    with ReportHub(*[refusal] * 4) as hub:
        server = launched(hub.environ)

        wait_until(lambda: len(hub.requests) > 5)
        assert server.process.poll() is None
        server.process.kill()
        assert LATER in server.process.communicate()[1]
        wait_until(lambda: not server.beside())

    assert parse_report(hub.requests[-1].body).port > 0


def test_a_server_that_ends_takes_its_messenger_along(launched: Callable[..., LaunchedServer]) -> None:
    """Nothing of the job outlives it, though the hub never came back."""
    [port] = free_ports(1)
    environ = away(port)
    server = launched(environ)
    server.url()
    assert len(server.beside()) == 1

    server.process.terminate()
    server.process.wait(60)

    wait_until(lambda: not server.beside())


def test_a_hub_that_refuses_is_not_asked_again(launched: Callable[..., LaunchedServer]) -> None:
    """A 404 is final, for the placement and for the port."""
    with ReportHub(404, 404) as hub:
        server = launched(hub.environ)

        wait_until(lambda: len(hub.requests) == 2)
        wait_until(lambda: not server.beside())
        server.process.kill()
        _, log = server.process.communicate(timeout=60)

    placement, port = (parse_report(request.body) for request in hub.requests)
    assert (placement.port, port.door) == (0, PortReport("process", ("127.0.0.1",)))
    assert LATER not in log
