"""A hub that is away while a server starts is told of it when it is back; the server is not kept waiting."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jupyterhub_gpuspawner.demo.slurm_cluster import free_ports
from jupyterhub_gpuspawner.hub.report.reader import parse_report
from jupyterhub_gpuspawner.wire.documents import Door
from tests.node.conftest import LaunchedServer
from tests.standins.report_hub import ReportHub
from tests.waiting import wait_until

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
        _, said = server.process.communicate(timeout=60)

    placement, port = (parse_report(request.body) for request in hub.requests)
    assert (placement.port, port.door) == (0, Door("process", ("127.0.0.1",)))
    assert LATER not in said
